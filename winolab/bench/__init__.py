"""Comparisons on a GPU: contenders, their timing, and what a layer list is."""
