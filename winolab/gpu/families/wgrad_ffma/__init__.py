"""Ωα(n,r), filter gradients on FFMA units."""
