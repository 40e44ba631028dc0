"""Calls of a kernel from several threads at once, and the memory that many calls leave taken."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path

import numpy as np

from winolab.judge.libraries import NumPy

Call = Callable[[], np.ndarray]
TIMES = 3  # calls of each thread
SWITCH = 1e-5  # seconds after which Python lets another thread run
WARM, MANY = 4, 16  # calls before and while memory is watched
PAGES = 4 << 20  # bytes that a process may grow by without a leak
PAGE = 4096


def different(y: np.ndarray, other: np.ndarray) -> int:
    """How many elements have other bits: -0 is not 0, NaN is NaN."""
    if y.shape != other.shape or y.dtype != other.dtype:
        return y.size
    kind = f"u{y.dtype.itemsize}"
    a, b = (np.ascontiguousarray(v).view(kind) for v in (y, other))
    return int(((a != b) & ~(np.isnan(y) & np.isnan(other))).sum())


def together(library: NumPy, calls: Sequence[Call]) -> str:
    """What differs where each call has a thread, on a GPU with a stream of its own; "" if nothing.

    Calls that differ one after the other are no matter of threads.
    """
    due = [call() for call in calls]
    if any(different(call(), y) for call, y in zip(calls, due, strict=True)):
        return ""
    gate = threading.Barrier(len(calls))
    said: list[str] = []

    def run(number: int) -> None:
        gate.wait()
        for _ in range(TIMES):
            try:
                with library.stream() if library.cuda else nullcontext():
                    y = calls[number]()
            except Exception as error:
                said.append(f"a call from one of them raised {type(error).__name__}: {error}")
                return
            if count := different(y, due[number]):
                said.append(
                    f"{count} of {y.size} results are others where {len(calls)} threads call at "
                    "once, each with arrays of its own"
                )
                return

    before = sys.getswitchinterval()
    threads = [threading.Thread(target=run, args=(n,), daemon=True) for n in range(len(calls))]
    try:
        sys.setswitchinterval(SWITCH)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    return said[0] if said else ""


def grown(library: NumPy, call: Call, result: int) -> str:
    """What memory a process or a device has lost after equal calls, beyond half a result each."""
    for _ in range(WARM):
        call()
    first = held(library)
    if first is None:
        return ""
    for _ in range(MANY):
        call()
    more = (held(library) or 0) - first
    if more <= max(PAGES, MANY * result // 2):
        return ""
    return f"{more >> 10} KiB more are taken after {MANY} equal calls"


def held(library: NumPy) -> int | None:
    """Bytes taken: by the library's allocator on the GPU, of the CPU by the process; None where
    nobody knows."""
    if library.cuda:
        if library.name == "torch":
            return library.module.cuda.memory_allocated()
        return library.module.get_default_memory_pool().used_bytes()
    told = Path("/proc/self/statm")
    return int(told.read_text().split()[1]) * PAGE if told.exists() else None
