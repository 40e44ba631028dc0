"""Launches that come again with the same addresses, as CUDA graphs.

A graph costs the host about 3 µs to start, whatever it holds, where every launch costs 3.4; its
kernels follow each other faster, too: calls of four launches took 24 to 31 µs of the host, and take
10 to 15 (H100, `experiments.host_cost`), and 0.5 to 2 µs less of the GPU. The driver keeps 126 KB
of the device for a graph of four.
"""

from __future__ import annotations

import ctypes
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from winolab.gpu.launch import Launch
from winolab.gpu.machine import driver

NON_BLOCKING, RELAXED = 1, 2  # CU_STREAM_NON_BLOCKING, CU_STREAM_CAPTURE_MODE_RELAXED
REPEATS = 16  # calls before a graph is made, which takes 0.1 to 0.6 ms: it pays after 50 more
MOST = 512  # graphs at a time, of all calls: 64 MB; what comes behind them is launched as before
NEVER = -(1 << 62)  # calls so far of what the driver makes no graph of
Where = tuple[int, ...]  # a stream, and addresses


class Graph:
    """Launches in order, with the parameters that they have now, on one stream."""

    def __init__(self, launches: Sequence[Launch], stream: int) -> None:
        """Raises OSError where the driver makes none, AttributeError where it is too old."""
        made = _instantiated(launches, stream)
        weakref.finalize(self, _destroy, made).atexit = False
        _alive.add(self)
        self._capturing = Capturing(stream)
        self._launch: Callable[[], int] = partial(
            driver().cuGraphLaunch, made, ctypes.c_void_p(stream)
        )

    def start(self) -> int | None:
        """The driver's status; None where a graph of the caller's captures: nothing is started."""
        return None if self._capturing() else self._launch()


_alive: weakref.WeakSet[Graph] = weakref.WeakSet()


class Capturing:
    """Whether a stream's work is captured, or would be by another's."""

    def __init__(self, stream: int) -> None:
        self._found = ctypes.c_int()
        self._ask = partial(
            driver().cuStreamIsCapturing, ctypes.c_void_p(stream), ctypes.byref(self._found)
        )

    def __call__(self) -> bool:
        return bool(self._ask() or self._found.value)


class Repeated:
    """Graphs of the same launches, one for each of the last ``most`` places that come again."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: OrderedDict[Where, Graph | int] = OrderedDict()  # or how often it came

    def start(self, where: Where) -> int | None:
        """As Graph's; None, too, where there is no graph."""
        graph = self._known.get(where)
        if not isinstance(graph, Graph):
            return None
        self._known.move_to_end(where)
        return graph.start()

    def launched(self, where: Where, launches: Sequence[Launch]) -> None:
        """Told after launches on ``where[0]`` with these addresses, which they still hold."""
        known = self._known.setdefault(where, 0)
        if isinstance(known, Graph):
            return
        self._known[where] = known + 1
        if known + 1 >= REPEATS and len(_alive) < MOST:
            try:
                if not Capturing(where[0])():
                    self._known[where] = Graph(launches, where[0])
            except (OSError, AttributeError):  # an old driver has no such function: launches serve
                self._known[where] = NEVER
        if len(self._known) > self._most:
            self._known.popitem(last=False)


def _instantiated(launches: Sequence[Launch], stream: int) -> ctypes.c_void_p:
    own, graph, made = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    with _relaxed():
        try:
            _do("cuStreamCreate", ctypes.byref(own), NON_BLOCKING)
            _do("cuStreamBeginCapture_v2", own, RELAXED)
            for each in launches:
                each.on(own.value or 0)
            refused = [status for each in launches if (status := each.start())]
            _do("cuStreamEndCapture", own, ctypes.byref(graph))
            if refused:
                raise OSError(f"launches of which a graph is made: status {refused[0]}")
            _do("cuGraphInstantiateWithFlags", ctypes.byref(made), graph, ctypes.c_ulonglong(0))
        finally:
            for each in launches:
                each.on(stream)
            if graph:
                driver().cuGraphDestroy(graph)
            if own:
                driver().cuStreamDestroy_v2(own)
    return made


def _destroy(made: ctypes.c_void_p) -> None:
    with _relaxed():
        driver().cuGraphExecDestroy(made)  # what is in flight runs to its end


@contextmanager
def _relaxed() -> Iterator[None]:
    """Captures go on, the caller's and other threads', whatever is made or destroyed meanwhile."""
    mode = ctypes.c_int(RELAXED)
    exchange = driver().cuThreadExchangeStreamCaptureMode
    exchange(ctypes.byref(mode))
    try:
        yield
    finally:
        exchange(ctypes.byref(mode))


def _do(name: str, *arguments: object) -> None:
    if status := getattr(driver(), name)(*arguments):
        raise OSError(f"{name}: status {status}")
