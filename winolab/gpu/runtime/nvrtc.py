"""CUDA C++ to a cubin by NVRTC, through ctypes: needs neither a GPU nor CuPy.

CuPy adds an -arch of its own, and the kernels need the architecture-specific sm_90a.
"""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from winolab.gpu.machine import MachineError, driver_cuda, libraries

OPTIONS = ("--std=c++17", "--fmad=false", "--ptxas-options=-v")


class CompileError(RuntimeError):
    """The compiler's log for a source that it refused."""


@dataclass(frozen=True)
class Resources:
    """What one kernel takes, as the assembler reports it."""

    registers: int
    spills: int  # bytes stored and loaded
    stack: int  # bytes


@dataclass(frozen=True)
class Compiled:
    """A cubin and its kernels' resources."""

    cubin: bytes
    resources: dict[str, Resources]


def architecture(compute_capability: tuple[int, int]) -> str:
    """The compiler's name of a compute capability; Hopper's with its own instructions."""
    major, minor = compute_capability
    return f"sm_{major}{minor}" + ("a" if major >= 9 else "")


@cache
def library() -> ctypes.CDLL:
    """libnvrtc from NVIDIA's wheels or from the system: the newest whose code the driver takes.

    Raises MachineError that says what to install where there is none.
    """
    for name in libraries("nvrtc", driver_cuda()):
        try:
            for builtins in Path(name).parent.glob("libnvrtc-builtins.so.*"):
                ctypes.CDLL(str(builtins))  # which NVRTC otherwise seeks on the loader's path
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise MachineError(
        "no NVRTC, the CUDA run-time compiler: pip install nvidia-cuda-nvrtc "
        "(or nvidia-cuda-nvrtc-cu12), or CuPy with its ctk extra"
    )


@cache
def version() -> tuple[int, int]:
    """NVRTC's version."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
    return major.value, minor.value


@cache
def architectures() -> tuple[int, ...]:
    """Compute capabilities that NVRTC compiles for, as numbers: 90 is 9.0."""
    count = ctypes.c_int()
    _check(library().nvrtcGetNumSupportedArchs(ctypes.byref(count)))
    found = (ctypes.c_int * count.value)()
    _check(library().nvrtcGetSupportedArchs(found))
    return tuple(found)


def compile_cubin(source: str, arch: str) -> Compiled:
    """Machine code of ``source`` for ``arch`` ("sm_90a").

    Raises CompileError with the compiler's log, MachineError for an architecture that this NVRTC
    does not know.
    """
    nvrtc = library()
    if int(re.sub(r"\D", "", arch)) not in architectures():
        known = ", ".join(f"{a // 10}.{a % 10}" for a in architectures())
        raise MachineError(
            "NVRTC {}.{} does not compile for {}, only for compute capability {}: install another "
            "nvidia-cuda-nvrtc".format(*version(), arch, known)
        )
    program = ctypes.c_void_p()
    _check(
        nvrtc.nvrtcCreateProgram(
            ctypes.byref(program), source.encode(), b"winolab.cu", 0, None, None
        )
    )
    try:
        options = [f"--gpu-architecture={arch}".encode(), *(o.encode() for o in OPTIONS)]
        array = (ctypes.c_char_p * len(options))(*options)
        failed = nvrtc.nvrtcCompileProgram(program, len(options), array)
        log = _text(program, "ProgramLog")
        if failed:
            raise CompileError(f"NVRTC could not compile for {arch}:\n{log}")
        return Compiled(_bytes(program, "CUBIN"), _resources(log))
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def _resources(log: str) -> dict[str, Resources]:
    """The assembler's report, by kernel; it names functions that are not inlined, too."""
    kernels = {}
    pattern = (
        r"Compiling entry function '(\w+)'.*?Function properties for \1\s+(?:ptxas\s*\.)?\s*"
        r"(\d+) bytes stack frame, (\d+) bytes spill stores, "
        r"(\d+) bytes spill loads\s+.*?Used (\d+) registers"
    )
    for name, stack, stores, loads, registers in re.findall(pattern, log, re.DOTALL):
        kernels[name] = Resources(int(registers), int(stores) + int(loads), int(stack))
    return kernels


def _bytes(program: ctypes.c_void_p, what: str) -> bytes:
    nvrtc = library()
    size = ctypes.c_size_t()
    _check(getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _check(getattr(nvrtc, f"nvrtcGet{what}")(program, buffer))
    return buffer.raw


def _text(program: ctypes.c_void_p, what: str) -> str:
    return _bytes(program, what).rstrip(b"\0").decode(errors="replace")


def _check(status: int) -> None:
    if status:
        get = library().nvrtcGetErrorString
        get.restype = ctypes.c_char_p
        raise RuntimeError(f"NVRTC: {get(status).decode()}")
