"""What kernels need of a machine, and what is raised where it lacks that."""

from __future__ import annotations

import ctypes


class MachineError(RuntimeError):
    """The machine lacks something, or forbids it; the text says what to install or change."""


def driver_cuda() -> tuple[int, int] | None:
    """The newest CUDA that the driver runs, as (12, 4); None without a driver."""
    found = ctypes.c_int()
    try:
        failed = ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(found))
    except (OSError, AttributeError):
        return None
    return None if failed or not found.value else (found.value // 1000, found.value % 1000 // 10)
