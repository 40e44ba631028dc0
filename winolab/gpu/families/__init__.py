"""Kernel families: a folder each, and what several of them share."""
