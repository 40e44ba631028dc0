"""Ωα(n,r), filter gradients on Tensor Cores."""
