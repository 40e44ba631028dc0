"""A family of kernels for a test: what a folder of winolab/gpu/families consists of."""
