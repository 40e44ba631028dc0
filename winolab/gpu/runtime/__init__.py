"""Calls on CUDA arrays: planned, compiled and recorded once, then replayed."""
