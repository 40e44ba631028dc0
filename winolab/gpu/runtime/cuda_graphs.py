"""Launches that come again with the same addresses, as CUDA graphs.

A graph costs the host about 3 µs to start, whatever it holds, where every launch costs 3.4; its
kernels follow each other faster, too: calls of four launches took 20 to 31 µs of the host, and take
10 to 17 (H100, `experiments.measure.host_cost`), and 1 to 8 % less of the GPU. The driver keeps up
to 126 KB of the device for a graph. Graphs are made node by node: while a stream captures, another
thread may not wait for the device.
"""

from __future__ import annotations

import ctypes
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from winolab.gpu.driver import Launch
from winolab.gpu.machine import driver

REPEATS = 16  # calls before a graph is made, which takes 0.1 to 0.4 ms
PLACES = 8  # whose calls are counted at a time, for each graph that a call may have
PAYS = 64  # starts of a graph that save as much
MOST = 512  # graphs at a time, of all calls: 64 MB; what comes behind them is launched as before
MOST_LAUNCHES = 16  # of a graph; groups have hundreds
NEVER = -(1 << 62)  # calls so far of what the driver makes no graph of
RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
OUT_OF_MEMORY, CAPTURES = 2, range(900, 908)  # of the driver's status
Where = tuple[int, ...]  # a stream, and addresses


class NoGraph(Exception):
    """The driver makes none; launches serve."""


class _Node(ctypes.Structure):
    """The driver's CUDA_KERNEL_NODE_PARAMS_v2."""

    _fields_ = (
        ("function", ctypes.c_void_p),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("params", ctypes.c_void_p),
        ("extra", ctypes.c_void_p),
        ("kernel", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
    )


class _Edge(ctypes.Structure):
    """The driver's CUgraphEdgeData."""

    _fields_ = (
        ("from_port", ctypes.c_ubyte),
        ("to_port", ctypes.c_ubyte),
        ("type", ctypes.c_ubyte),
        ("reserved", ctypes.c_ubyte * 5),
    )


class Graph:
    """Launches in order, with the parameters that they have now, on one stream."""

    def __init__(self, launches: Sequence[Launch], stream: int) -> None:
        """Raises NoGraph."""
        made = _instantiated(launches, stream)
        weakref.finalize(self, _destroy, made).atexit = False
        _alive.add(self)
        self.starts = 0
        self._capturing = Capturing(stream)
        self._launch = partial(_function("cuGraphLaunch"), made, ctypes.c_void_p(stream))

    def start(self) -> int | None:
        """The driver's status; None where a graph of the caller's captures: nothing is started."""
        if self._capturing():
            return None
        self.starts += 1
        return self._launch()


_alive: weakref.WeakSet[Graph] = weakref.WeakSet()


class Capturing:
    """Whether a stream's work is captured, or would be by another's."""

    def __init__(self, stream: int) -> None:
        self._found = ctypes.c_int()
        self._ask = partial(
            _function("cuStreamIsCapturing"), ctypes.c_void_p(stream), ctypes.byref(self._found)
        )

    def __call__(self) -> bool:
        return bool(self._ask() or self._found.value)


class Repeated:
    """Graphs of the same launches, for the last ``most`` places that came again.

    Calls are counted by the hash of where they were: few objects are touched, which between other
    work of the host are not in a cache, and places that never come again push out no graph.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._repeats = REPEATS
        self._calls: dict[int, int] = {}
        self.graphs: OrderedDict[Where, Graph] = OrderedDict()

    def start(self, where: Where) -> int | None:
        """As Graph's; None, too, where there is no graph, or where it does not start."""
        graph = self.graphs.get(where)
        if graph is None:
            return None
        self.graphs.move_to_end(where)
        status = graph.start()
        if status and (status == OUT_OF_MEMORY or status in CAPTURES):
            del self.graphs[where]
            self._calls[hash(where)] = NEVER
            return None
        return status

    def launched(self, where: Where, launches: Sequence[Launch]) -> None:
        """Told after launches on ``where[0]`` with these addresses, which they still hold."""
        calls, key = self._calls, hash(where)
        count = calls[key] = calls.get(key, 0) + 1
        if count >= self._repeats and len(_alive) < MOST and where not in self.graphs:
            self._make(where, key, launches)
        elif len(calls) > PLACES * self._most:
            calls.clear()

    def _make(self, where: Where, key: int, launches: Sequence[Launch]) -> None:
        try:
            if Capturing(where[0])():
                return
            self.graphs[where] = Graph(launches, where[0])
        except NoGraph:
            self._calls[key] = NEVER
            return
        del self._calls[key]
        if len(self.graphs) > self._most:
            _, gone = self.graphs.popitem(last=False)
            if gone.starts < PAYS:
                self._repeats *= 2  # it did not pay


def _instantiated(launches: Sequence[Launch], stream: int) -> ctypes.c_void_p:
    if len(launches) > MOST_LAUNCHES:
        raise NoGraph(f"{len(launches)} launches")
    graph, made = ctypes.c_void_p(), ctypes.c_void_p()
    with _relaxed():
        try:
            _do("cuGraphCreate", ctypes.byref(graph), 0)
            before: ctypes.c_void_p | None = None
            for each in launches:
                before = _added(graph, each, before)
            flags = ctypes.c_ulonglong(0)
            _do("cuGraphInstantiateWithFlags", ctypes.byref(made), graph, flags)
            _do("cuGraphUpload", made, ctypes.c_void_p(stream))
        except NoGraph:
            if made:
                _do("cuGraphExecDestroy", made)
            raise
        finally:
            if graph:
                _do("cuGraphDestroy", graph)
    return made


def _added(
    graph: ctypes.c_void_p, launch: Launch, before: ctypes.c_void_p | None
) -> ctypes.c_void_p:
    """The launch's node behind another, which it need not wait for if it is early."""
    if not isinstance(launch, Launch):
        raise NoGraph("a library's function is no node")
    node, kernel = ctypes.c_void_p(), launch.kernel
    block = (launch.threads, 1, 1)
    params = _Node(kernel.handle, launch.grid, block, kernel.shared, launch.params)
    behind = ctypes.byref(before) if before and not launch.early else None
    count = ctypes.c_size_t(1 if behind else 0)
    _do("cuGraphAddKernelNode_v2", ctypes.byref(node), graph, behind, count, ctypes.byref(params))
    if before and launch.early:
        # CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC, CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC
        edge, one = _Edge(from_port=1, type=1), ctypes.c_size_t(1)
        ends = ctypes.byref(before), ctypes.byref(node)
        _do("cuGraphAddDependencies_v2", graph, *ends, ctypes.byref(edge), one)
    return node


def _destroy(made: ctypes.c_void_p) -> None:
    with _relaxed():
        driver().cuGraphExecDestroy(made)  # what is in flight runs to its end


@contextmanager
def _relaxed() -> Iterator[None]:
    """Captures go on, the caller's and other threads', whatever is made or destroyed meanwhile."""
    mode = ctypes.c_int(RELAXED)
    exchange = _function("cuThreadExchangeStreamCaptureMode")
    failed = exchange(ctypes.byref(mode))
    try:
        yield
    finally:
        if not failed:
            exchange(ctypes.byref(mode))


def _function(name: str) -> Any:
    """The driver's. Raises NoGraph where there is none, or no driver."""
    try:
        return getattr(driver(), name)
    except (OSError, AttributeError) as error:
        raise NoGraph(name) from error


def _do(name: str, *arguments: object) -> None:
    if status := _function(name)(*arguments):
        raise NoGraph(f"{name}: status {status}")
