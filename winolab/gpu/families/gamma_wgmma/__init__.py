"""Γα(n,r) on Hopper's Tensor Cores."""
