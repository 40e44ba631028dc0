"""Convolution algorithms on the CPU: one tiled engine, and what cuts a problem for it."""
