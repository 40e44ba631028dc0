"""Rounding errors: metrics, proven bounds, predictions, and points that err least."""
