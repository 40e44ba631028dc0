"""Nested Winograd F(n×n, r×r) on Tensor Cores."""
