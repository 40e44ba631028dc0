"""Γα(n,r) on FFMA units."""
