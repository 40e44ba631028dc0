"""What kernels need of a machine, and what is raised where it lacks that."""

from __future__ import annotations

import ctypes
import ctypes.util
import math
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any


class MachineError(RuntimeError):
    """The machine lacks something, or forbids it; the text says what to install or change."""


class NotInstalled(ModuleNotFoundError, MachineError):
    """A library of an extra is missing, which an import or the machine raises alike."""


def install(extra: str) -> str:
    """The line that installs an extra of this package, the same wherever something is missing."""
    if extra in ("gpu", "gpu13"):
        return (
            "pip install '.[gpu]' in winolab's checkout for CUDA 12, '.[gpu13]' for 13, whichever "
            "nvidia-smi's CUDA version says"
        )
    return f"pip install '.[{extra}]' in winolab's checkout"


def absent(library: str) -> NotInstalled | None:
    """What to raise where the library of the extra of its name is missing; None where it is not."""
    if find_spec(library) is not None:
        return None
    return NotInstalled(f"{library} is not installed: {install(library)}", name=library)


@cache
def driver() -> Any:
    """The driver's library. Raises OSError where there is none."""
    return ctypes.CDLL("libcuda.so.1")


@cache
def cublaslt() -> Any:
    """cuBLASLt, of the wheels that bring PyTorch or CuPy theirs, or the system's: chosen as NVRTC.

    Raises MachineError that says what to install where there is none.
    """
    for name in libraries("cublasLt", driver_cuda()):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise MachineError(
        "no cuBLASLt, which is asked for by name: pip install nvidia-cublas "
        "(or nvidia-cublas-cu12), or PyTorch"
    )


def has_cublaslt() -> bool:
    """Whether there is one."""
    try:
        cublaslt()
    except MachineError:
        return False
    return True


def without_cublaslt() -> bool:
    """Whether this machine runs kernels and lacks it: others' machines, to plan for, have it
    mostly."""
    return bool(driver_cuda()) and not has_cublaslt()


def driver_cuda() -> tuple[int, int] | None:
    """The newest CUDA that the driver runs, as (12, 4); None without a driver."""
    found = ctypes.c_int()
    try:
        failed = driver().cuDriverGetVersion(ctypes.byref(found))
    except (OSError, AttributeError):
        return None
    return None if failed or not found.value else (found.value // 1000, found.value % 1000 // 10)


def libraries(stem: str, driver: tuple[int, int] | None) -> list[str]:
    """Where lib``stem`` of CUDA may be: wheels before the system, newest first; last, those of a
    major version that a driver of this CUDA does not run."""
    wheels = find_spec("nvidia")
    folders = list(wheels.submodule_search_locations or ()) if wheels else []
    found = [p for folder in folders for p in Path(folder).glob(f"*/lib/lib{stem}.so.*")]
    found.sort(key=_major, reverse=True)
    names = [path for path in found if ".alt." not in path.name]
    names += [Path(f"lib{stem}.so.{major}") for major in (13, 12)]
    newest = driver[0] if driver else math.inf
    if not any(_major(name) <= newest for name in found):  # which asks a process, 10 ms and more
        names += [Path(name) for name in [ctypes.util.find_library(stem)] if name]
    names += [p.resolve() for p in Path("/usr/local").glob(f"cuda*/lib64/lib{stem}.so")]
    if driver:
        names.sort(key=lambda name: _major(name) > driver[0])
    return list(map(str, names))


def _major(name: Path) -> int:
    """The major version that a library's name ends in, 0 without one."""
    found = re.search(r"\.so\.(\d+)", name.name)
    return int(found[1]) if found else 0
