"""Γα(n,r) on Tensor Cores without wgmma (compute capability 8.x)."""
