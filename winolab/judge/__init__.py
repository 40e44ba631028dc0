"""Judges convolution kernels of others: what they compute, where they read and write, how fast."""
