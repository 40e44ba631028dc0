"""Fused Ωα(n,r), filter gradients in FP16 and BF16 on mma.sync."""
