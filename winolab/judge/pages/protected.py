"""Memory of the CPU beside pages that may not be read, or not be written."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

from winolab.gpu.machine import MachineError

BESIDE = 1 << 24  # bytes of such pages: what is read beyond them is not seen
NAN = 0xFF  # a number of such bytes is NaN in FP32, FP16 and BF16


@cache
def mprotect() -> Any:
    """The function of C. None where there is none, as on Windows."""
    if os.name != "posix":
        return None
    found = ctypes.CDLL(None, use_errno=True).mprotect
    found.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return found


class Protected:
    """``size`` bytes, the last of which a page ends with, or, with ``end`` "start", the first of
    which one begins with.

    Their address is a multiple of ``aligned``, a power of 2, for which fewer than ``aligned`` bytes
    are left behind the last one. They are an array of bytes to NumPy, which keeps them. Nothing is
    protected but within ``beside``. Raises MachineError where the system has no memory.
    """

    kinds: tuple[str, ...] = ("writes", "reads")  # what is told apart
    own = "writes to"  # of an operand's own bytes

    def __init__(self, size: int, end: str, aligned: int) -> None:
        held = -(-max(size, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
        try:
            memory = mmap.mmap(-1, held + 2 * BESIDE, flags=mmap.MAP_PRIVATE)
        except OSError as error:
            raise MachineError(f"no {held + 2 * BESIDE} bytes of memory: {error}") from error
        every = np.frombuffer(memory, np.uint8)
        last = end == "end"
        first = BESIDE + (held - -(-size // aligned) * aligned if last else 0)
        every[BESIDE : BESIDE + held] = NAN
        self._bytes = every[first : first + size]
        self._left = every[first + size : BESIDE + held]
        self._own: tuple[int, int] = every.ctypes.data + BESIDE, held
        self._pages: int = every.ctypes.data + (BESIDE + held if last else 0)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return self._bytes.__array_interface__

    @property
    def spilled(self) -> bool:
        """Whether something was written behind the last byte, in the same page."""
        return bool((self._left != NAN).any())

    @contextmanager
    def beside(self, kind: str) -> Iterator[None]:
        """What the kernel may not do meanwhile: beside them, with "writes" it may read there, with
        "reads" nothing; with ``own`` it may not write to them. A process that does so ends by
        SIGSEGV."""
        pages = self._own if kind == self.own else (self._pages, BESIDE)
        self._allow(pages, 0 if kind == "reads" else mmap.PROT_READ)
        try:
            yield
        finally:
            self._allow(pages, mmap.PROT_READ | mmap.PROT_WRITE)

    def _allow(self, pages: tuple[int, int], what: int) -> None:
        if mprotect()(*pages, what):
            raise MachineError(f"mprotect: {os.strerror(ctypes.get_errno())}")
