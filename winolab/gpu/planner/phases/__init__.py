"""Correlations in phases: dilations' as calls of their own, strides' as channels of one."""
