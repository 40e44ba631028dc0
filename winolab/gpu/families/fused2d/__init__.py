"""Fused F(2×2, 3×3) on FFMA units: its plans, layouts, cost and kernels (README.md)."""
