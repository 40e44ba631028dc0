"""Layers of few channels on one side, on FFMA units: memory binds them."""
