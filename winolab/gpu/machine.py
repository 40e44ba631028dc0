"""What kernels need of a machine, and what is raised where it lacks that."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any


class MachineError(RuntimeError):
    """The machine lacks something, or forbids it; the text says what to install or change."""


def install(extra: str) -> str:
    """The line that installs an extra of this package, the same wherever something is missing."""
    if extra in ("gpu", "gpu13"):
        return (
            "pip install 'winolab[gpu]' for CUDA 12, 'winolab[gpu13]' for 13, whichever "
            "nvidia-smi's CUDA version says"
        )
    return f"pip install 'winolab[{extra}]'"


@cache
def driver() -> Any:
    """The driver's library. Raises OSError where there is none."""
    return ctypes.CDLL("libcuda.so.1")


def driver_cuda() -> tuple[int, int] | None:
    """The newest CUDA that the driver runs, as (12, 4); None without a driver."""
    found = ctypes.c_int()
    try:
        failed = driver().cuDriverGetVersion(ctypes.byref(found))
    except (OSError, AttributeError):
        return None
    return None if failed or not found.value else (found.value // 1000, found.value % 1000 // 10)
