"""What surrounds calls of a kernel: threads, processes that it forks, memory that stays taken,
settings of the process."""

from __future__ import annotations

import ctypes
import mmap
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from winolab.arguments.words import agreeing, plural
from winolab.judge.libraries import NumPy, gates

Call = Callable[[], np.ndarray]
TIMES, TOGETHER = 3, 0.02  # calls of each thread at least, and seconds of them
SWITCH = 1e-5  # seconds after which Python lets another thread run
STOPS = 300  # operations of a call before which it stops
PATIENCE, LOCKED = 0.05, 20  # seconds in which others call meanwhile; so often they may be late
WARM, PARTS, MANY = 3, 3, 4  # calls before memory is watched, and each time that it is
LITTLE = 1 << 18  # bytes by which a process grows without a leak
PAGE = 4096
BACK = 0.1  # seconds in which a forked process that comes back is waited for, once


def different(y: np.ndarray, other: np.ndarray) -> int:
    """How many elements have other bits: -0 is not 0, NaN is NaN."""
    if y.shape != other.shape or y.dtype != other.dtype:
        return y.size
    kind = f"u{y.dtype.itemsize}"
    a, b = (np.ascontiguousarray(v).view(kind) for v in (y, other))
    return int(((a != b) & ~(np.isnan(y) & np.isnan(other))).sum())


def differing(y: np.ndarray, other: np.ndarray) -> str:
    """How many elements do, as "1 of 8 results differs"; "" where none does."""
    count = different(y, other)
    said = f"{count} of {plural(y.size, 'result')} {agreeing(count, 'differs', 'differ')}"
    return said if count else ""


def together(library: NumPy, calls: Sequence[Call], file: str = "") -> str:
    """What differs where each call has a thread, on a GPU with a stream of its own; "" if nothing.

    First threads run as they like, on a GPU what their streams hold begins at one time; then the
    first call stops once before each operation that Python functions of the file state, while
    another thread calls, so that what is found does not depend on the load of the machine. Calls
    that differ one after the other are no matter of threads.
    """
    due = [call() for call in calls]
    if any(different(call(), y) for call, y in zip(calls, due, strict=True)):
        return ""
    gate = threading.Barrier(len(calls))
    opened = gates(TIMES) if library.cuda else []
    said: list[str] = []

    def called(number: int, opens: Any = None) -> None:
        with library.stream(opens) if library.cuda else nullcontext():
            y = calls[number]()
        if differ := differing(y, due[number]):
            raise _Others(
                f"{differ} where {len(calls)} threads call at once, two with the same operands"
            )

    def run(number: int) -> None:
        try:
            gate.wait()
            for opens in opened:
                called(number, opens)
            started, count = time.monotonic(), 0
            while (count := count + 1) <= TIMES or time.monotonic() - started < TOGETHER:
                called(number)
        except Exception as error:
            if not gate.broken:  # else another thread has said what is wrong
                said.append(_told(error))
                gate.abort()

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
    if not said:
        try:
            _one_stops(called, file)
        except Exception as error:
            said.append(_told(error))
    return said[0] if said else ""


def _told(error: Exception) -> str:
    if isinstance(error, _Others):
        return str(error)
    return f"a call from one of them raised {type(error).__name__}: {error}"


class Forks:
    """Counts of this process: ``count``, how often Python forked here (not for another program, as
    ``subprocess`` does), and whether a copy of this process came back from a call."""

    def __init__(self) -> None:
        self.count = self._waited = self._begun = 0
        self._back = mmap.mmap(-1, 1)  # shared with what is forked
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_parent=self._counted)

    def begin(self) -> int:
        """How often it has forked; what comes back from then on is told of, not what was forked
        before and is late."""
        self._begun = self._begun % 255 + 1
        return self.count

    def _counted(self) -> None:
        self.count += 1

    @contextmanager
    def ended(self) -> Iterator[None]:
        """Within it a forked process may work and end; one that leaves it ends here, and is told
        of, so that nothing behind it is done twice."""
        here = os.getpid()
        try:
            yield
        finally:
            if os.getpid() != here:
                self._back[0] = self._begun
                os._exit(0)

    def back(self) -> bool:
        """Whether one has left since this was asked last."""
        if self.count > self._waited:
            time.sleep(BACK if not self._waited else 0)
            self._waited = self.count
        found = self._back[0] == self._begun > 0
        self._back[0] = 0
        return found


FORKS = Forks()


class _Others(Exception):
    """A call returned other numbers than alone."""


def _one_stops(called: Callable[[int], None], file: str) -> None:
    """Call number 0 before each of whose operations, one a call and STOPS at most, another thread
    makes call 2, of the same operands, and then 1, of others, which leaves other numbers in what
    the calls share. Raises what a call raises."""
    late = 0
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as another:

        def others() -> None:
            called(2)
            called(1)

        def first(at: int) -> int:
            """The operations of the first call, which stops before one of them."""
            nonlocal late
            count, ends = 0, list[Future[None]]()

            def operation(frame: FrameType, event: str, _: Any) -> Any:
                nonlocal count, late
                count += 1
                if count == at:
                    ends.append(another.submit(others))
                    # The other may need a lock that this thread holds.
                    late += len(wait(ends, PATIENCE).not_done)
                return operation

            def entered(frame: FrameType, event: str, _: Any) -> Any:
                if frame.f_code.co_filename != file:
                    return None
                frame.f_trace_opcodes = True
                return operation

            before = sys.gettrace()
            sys.settrace(entered)
            try:
                called(0)
            finally:
                sys.settrace(before)
            for end in ends:
                end.result()
            return count

        operations = one.submit(first, 0).result()
        for at in range(1, operations + 1, max(1, -(-operations // STOPS))):
            one.submit(first, at).result()
            if late >= LOCKED:
                break


def grown(library: NumPy, call: Call, result: int) -> str:
    """What memory a process or a device has lost if each of PARTS of equal calls took more than
    LITTLE and half a result a call; an allocator that keeps what it had once does not."""
    for _ in range(WARM):
        call()
    told = [held(library)]
    for _ in range(PARTS):
        for _ in range(MANY):
            call()
        told.append(held(library))
    for taken in zip(*told, strict=True):  # by one way of counting, at each time
        if min(np.diff(taken)) > max(LITTLE, MANY * result // 2):
            more = taken[-1] - taken[0] >> 10
            return f"{more} KiB more are taken after {PARTS * MANY} equal calls"
    return ""


def held(library: NumPy) -> list[int]:
    """Bytes taken, in each way that they can be counted: by each allocator on the GPU; on the CPU
    of ``malloc``, and by the process, which does not grow while a leak fills what others freed.
    Empty where nobody knows."""
    if library.cuda:
        torch, cupy = (sys.modules.get(name) for name in ("torch", "cupy"))
        return [
            *([torch.cuda.memory_allocated()] if torch else []),
            *([cupy.get_default_memory_pool().used_bytes()] if cupy else []),
        ]
    told = Path("/proc/self/statm")
    process = [int(told.read_text().split()[1]) * PAGE] if told.exists() else []
    return process + ([_allocated()] if _mallinfo2 else [])


class _Mallinfo2(ctypes.Structure):
    """glibc's ``struct mallinfo2`` (malloc.h): ten counts."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks"),
            *("uordblks", "fordblks", "keepcost"),
        )
    ]


_mallinfo2: Any = getattr(ctypes.CDLL(None), "mallinfo2", None) if os.name == "posix" else None
if _mallinfo2:  # glibc from 2.33 on
    _mallinfo2.restype = _Mallinfo2


def _allocated() -> int:
    """Bytes in use of malloc's arenas and its maps."""
    found = _mallinfo2()
    return found.uordblks + found.hblkhd


def arithmetic() -> dict[str, Any]:
    """How the processor computes, which no library has reason to leave otherwise."""
    one, half = np.float32(1), np.float32(2.0**-24)
    return {
        "whether subnormal numbers are flushed": bool(np.float32(1e-39) * one == 0),
        "how numbers are rounded": (float(one + half), float(-one - half), float(one + 3 * half)),
    }


def watched(call: Call) -> tuple[np.ndarray, list[str]]:
    """The result of a first call, in which libraries may set up what they like but arithmetic, and
    what of that it changed."""
    before = arithmetic()
    y = call()
    after = arithmetic()
    return y, [name for name, value in before.items() if after[name] != value]


def mark(library: NumPy, raw: Any, y: np.ndarray) -> np.ndarray | None:
    """Zeros in a result's place: calls that write equal bits there again are seen. None where the
    result is zeros, or may not be written."""
    zeros = np.zeros_like(y)
    if not different(y, zeros):
        return None
    try:
        library.put(raw, zeros)
    except (ValueError, TypeError, RuntimeError):
        return None
    return zeros


def settings(moved: bool = False) -> dict[str, Any]:
    """What a process has one of, by name; ``moved``: random generators are moved on before."""
    torch = sys.modules.get("torch")
    if moved:
        random.random()
        np.random.random()  # noqa: NPY002
        if torch:
            torch.rand(1)
            if torch.cuda.is_initialized():
                torch.rand(1, device="cuda")
    drawn = np.random.get_state(legacy=False)["state"]  # noqa: NPY002
    found: dict[str, Any] = {
        **arithmetic(),
        "NumPy's error handling": np.geterr(),
        "NumPy's random state": (drawn["key"].tobytes(), drawn["pos"]),
        "Python's random state": random.getstate(),
        "the environment": dict(os.environ),
        "the working directory": os.getcwd(),
    }
    if torch:
        found |= {
            "PyTorch's threads": torch.get_num_threads(),
            "PyTorch's default type": torch.get_default_dtype(),
            "whether PyTorch records gradients": torch.is_grad_enabled(),
            "PyTorch's random state": torch.get_rng_state().numpy().tobytes(),
            "whether PyTorch is deterministic": torch.are_deterministic_algorithms_enabled(),
            "PyTorch's backends": _backends(torch),
        }
        if torch.cuda.is_initialized():
            drawn = torch.cuda.get_rng_state().numpy().tobytes()
            found["PyTorch's random state on the GPU"] = drawn
    return found


def _backends(torch: Any) -> tuple:
    """Which libraries PyTorch calls, and how."""
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    try:
        products: tuple = (matmul.allow_tf32, cudnn.allow_tf32)
    except RuntimeError:  # a process that named them in PyTorch 2.9's way may not ask in the old
        products = (matmul.fp32_precision, cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision)
    return (
        *products, cudnn.enabled, cudnn.benchmark, cudnn.deterministic,
        torch.backends.mkldnn.enabled,
    )  # fmt: skip
