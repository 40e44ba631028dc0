"""The CUDA engine: plan, emit, launch. ``plan`` and ``emit`` need neither a GPU nor CuPy."""
