"""CUDA source from exact programs and the kernels' files."""
