"""How PyTorch multiplies FP32 numbers while it is measured. It is imported when that is asked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any


@contextmanager
def tf32(allowed: bool, benchmark: bool = True) -> Iterator[None]:
    """TF32 products allowed or not, and cuDNN in benchmark mode or not; all as before at the end.

    A call that counts the host's time, too, has winolab.bench.frameworks, which sets less.
    """
    backends: Any = import_module("torch").backends
    cudnn, matmul = backends.cudnn, backends.cuda.matmul
    before = matmul.allow_tf32
    # PyTorch's own tests freeze cuDNN's flags but in this context.
    how = {"enabled": cudnn.enabled, "deterministic": cudnn.deterministic}
    with cudnn.flags(benchmark=benchmark, allow_tf32=allowed, **how):
        matmul.allow_tf32 = allowed
        try:
            yield
        finally:
            matmul.allow_tf32 = before
