"""Implicit GEMM: direct products with any stride, dilation, groups and channels."""
