"""Costs before anything runs: multiplications, transforms, memory."""
