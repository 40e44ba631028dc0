"""Graphs of what comes again: by a driver that writes down what it is asked, and on a GPU."""

from __future__ import annotations

import ctypes
import gc
from types import SimpleNamespace

import pytest

import winolab
from tests.gpu.support.directions import UNITS, directions, operands
from winolab.gpu import driver as launch
from winolab.gpu.params import POINTER, Layout
from winolab.gpu.planner.request import DTYPES
from winolab.gpu.runtime import cuda_graphs as graph
from winolab.gpu.runtime import replay as record
from winolab.gpu.runtime.cuda_graphs import REPEATS, Graph, Repeated

KERNEL = launch.Kernel("k", 5, 0, None)
STREAM = 7


class Driver:
    """Graphs are numbers; ``launched`` has the streams of kernels, ``-number`` for a graph."""

    def __init__(self) -> None:
        self.launched: list[int] = []
        self.nodes: list[str] = []  # of the graph that is made
        self.uploaded: list[int] = []
        self.destroyed: list[int] = []
        self.modes: list[int] = []
        self.graphs = 0  # that are made
        self.capturing = 0  # the caller's stream
        self.made = 0
        self.refuses = ""
        self.status = 1

    def answer(self, name: str) -> int:
        return self.status * (self.refuses == name)

    def cuLaunchKernelEx(self, config, *_) -> int:
        self.launched.append(config._obj.stream or 0)
        return 0

    def cuThreadExchangeStreamCaptureMode(self, mode) -> int:
        self.modes.append(mode._obj.value)
        mode._obj.value = 0
        return 0

    def cuStreamIsCapturing(self, stream, found) -> int:
        found._obj.value = self.capturing
        return 0

    def cuGraphCreate(self, made, flags) -> int:
        made._obj.value = 1
        self.graphs += 1
        self.nodes.clear()
        return 0

    def cuGraphAddKernelNode_v2(self, node, captured, behind, count, params) -> int:
        of = params._obj
        assert (of.function, list(of.block), of.extra) == (5, [32, 1, 1], None)
        assert bool(behind) == count.value
        self.nodes.append(f"{tuple(of.grid)} behind {behind._obj.value if behind else None}")
        node._obj.value = len(self.nodes)
        return self.answer("node")

    def cuGraphAddDependencies_v2(self, captured, begin, end, edge, count) -> int:
        found = edge._obj
        assert bytes(found) == bytes([1, 0, 1, 0, 0, 0, 0, 0])
        assert count.value == 1
        self.nodes.append(f"{end._obj.value} early behind {begin._obj.value}")
        return self.answer("edge")

    def cuGraphInstantiateWithFlags(self, made, captured, flags) -> int:
        if not self.answer("instance"):
            self.made += 1
            made._obj.value = self.made
        return self.answer("instance")

    def cuGraphUpload(self, made, stream) -> int:
        self.uploaded.append(stream.value)
        return self.answer("upload")

    def cuGraphDestroy(self, captured) -> int:
        self.graphs -= 1
        return 0

    def cuGraphLaunch(self, made, stream) -> int:
        assert stream.value == STREAM
        if not self.answer("graph"):
            self.launched.append(-made.value)
        return self.answer("graph")

    def cuGraphExecDestroy(self, made) -> int:
        self.destroyed.append(made.value)
        return 0


class Refused(RuntimeError):
    """CuPy's CUDADriverError."""


@pytest.fixture
def driver(monkeypatch) -> Driver:
    found = Driver()
    for module in (launch, graph):
        monkeypatch.setattr(module, "driver", lambda: found)
    host = SimpleNamespace(cuda=SimpleNamespace(driver=SimpleNamespace(CUDADriverError=Refused)))
    monkeypatch.setattr(launch, "cupy", lambda: host)
    return found


def recording(graphs: int = 2) -> record.Recording:
    """Two launches with the address of one array."""
    params = Layout(("x", POINTER)).pack(record.address_of(0))

    def launches(kernels) -> None:
        for _ in range(2):
            kernels["k"]((1, 1, 1), 32, params)

    return record.Recording({"k": KERNEL}, launches, graphs)


def test_what_comes_again_is_launched_as_a_graph(driver) -> None:
    of = recording()
    for _ in range(REPEATS + 3):
        of.replay(STREAM, 1 << 20)
    assert driver.launched == [STREAM] * 2 * REPEATS + [-1] * 3
    assert driver.nodes == ["(1, 1, 1) behind None", "(1, 1, 1) behind 1"]
    assert (driver.uploaded, driver.graphs) == ([STREAM], 0)
    assert driver.modes == [graph.RELAXED, 0]  # the thread's own mode is what it was
    driver.launched.clear()
    of.replay(STREAM, 2 << 20)
    of.replay(STREAM, 1 << 20)
    assert driver.launched == [STREAM, STREAM, -1]
    driver.refuses = "graph"
    with pytest.raises(Refused):
        of.replay(STREAM, 1 << 20)


class Function(launch.Launchable):
    """A library's function, and the streams that it was launched on."""

    name = "f"

    def __init__(self) -> None:
        self.launched: list[int] = []
        self.stream = 0

    def launch(self, grid, threads, params, early) -> Function:
        return self

    def on(self, stream: int) -> None:
        self.stream = stream

    def start(self) -> int:
        self.launched.append(self.stream)
        return 0


def test_a_library_s_function_is_launched_every_time(driver) -> None:
    function, params = Function(), Layout(("x", POINTER)).pack(record.address_of(0))
    of = record.Recording({"f": function}, lambda k: k["f"]((1, 1, 1), 1, params), 2)
    for _ in range(2 * REPEATS):
        of.replay(STREAM, 1 << 20)
    assert function.launched == [STREAM] * 2 * REPEATS
    assert (driver.made, driver.graphs) == (0, 0)


def test_a_recording_without_graphs_makes_none(driver) -> None:
    of = recording(graphs=0)
    for _ in range(REPEATS + 3):
        of.replay(STREAM, 1 << 20)
    assert driver.launched == [STREAM] * 2 * (REPEATS + 3)


def test_where_work_is_captured_there_is_no_graph(driver) -> None:
    of = recording()
    driver.capturing = 1
    for _ in range(REPEATS + 3):
        of.replay(STREAM, 1 << 20)
    assert driver.launched == [STREAM] * 2 * (REPEATS + 3)
    driver.capturing = 0
    of.replay(STREAM, 1 << 20)
    of.replay(STREAM, 1 << 20)
    assert driver.launched[-1] == -1
    driver.capturing = 1
    of.replay(STREAM, 1 << 20)
    assert driver.launched[-2:] == [STREAM, STREAM]


@pytest.mark.parametrize("refuses", ["node", "instance", "upload", "is too old"])
def test_where_the_driver_makes_no_graph_launches_serve(driver, refuses, monkeypatch) -> None:
    of = recording()
    driver.refuses = refuses
    if refuses == "is too old":
        monkeypatch.delattr(Driver, "cuGraphInstantiateWithFlags")
    for _ in range(2 * REPEATS):
        of.replay(STREAM, 1 << 20)
    assert driver.launched == [STREAM] * 2 * 2 * REPEATS
    assert driver.graphs == 0
    assert driver.destroyed == [1] * (refuses == "upload")
    assert driver.modes == [graph.RELAXED, 0]


@pytest.mark.parametrize("status", [graph.OUT_OF_MEMORY, 900])
def test_where_a_graph_does_not_start_launches_serve(driver, status) -> None:
    of = recording()
    for _ in range(REPEATS + 1):
        of.replay(STREAM, 1 << 20)
    driver.launched.clear()
    driver.refuses, driver.status = "graph", status
    of.replay(STREAM, 1 << 20)
    driver.refuses = ""
    of.replay(STREAM, 1 << 20)
    assert driver.launched == [STREAM] * 4


def test_early_launches_wait_by_themselves(driver) -> None:
    """As on a stream, where they may begin before the launch before them ends."""
    early = (False, True, False, True, True)
    launches = [launch.Launch(KERNEL, (n, 1, 1), 32, 0, e) for n, e in enumerate(early)]
    Graph(launches, STREAM)
    assert driver.nodes == [
        "(0, 1, 1) behind None",
        "(1, 1, 1) behind None",
        "2 early behind 1",
        "(2, 1, 1) behind 2",
        "(3, 1, 1) behind None",
        "5 early behind 4",
        "(4, 1, 1) behind None",
        "7 early behind 5",
    ]


def test_many_launches_are_no_graph(driver) -> None:
    one = launch.Launch(KERNEL, (1, 1, 1), 32, 0, early=False)
    Graph([one] * graph.MOST_LAUNCHES, STREAM)
    with pytest.raises(graph.NoGraph, match="17 launches"):
        Graph([one] * (graph.MOST_LAUNCHES + 1), STREAM)


def test_graphs_that_do_not_pay_are_made_later(driver) -> None:
    launches = [launch.Launch(KERNEL, (1, 1, 1), 32, 0, early=False)]
    of = Repeated(1)
    for address in range(4):
        for _ in range(2 * REPEATS):
            if of.start((STREAM, address)) is None:
                of.launched((STREAM, address), launches)
    assert driver.made == 3  # after 16, 16 and 32 calls; the fourth waits for 64


def test_graphs_of_what_came_last_are_kept(driver) -> None:
    launches = [launch.Launch(KERNEL, (1, 1, 1), 32, 0, early=False)]
    of = Repeated(2)
    for address in (1, 2, 3):
        for _ in range(REPEATS):
            of.launched((STREAM, address), launches)
        for _ in range(graph.PAYS):
            of.start((STREAM, address))
        of.start((STREAM, 1))
    gc.collect()
    assert driver.destroyed == [2]
    assert of.start((STREAM, 2)) is None
    assert (of.start((STREAM, 1)), of.start((STREAM, 3))) == (0, 0)
    assert driver.launched[-2:] == [-1, -3]
    del of
    gc.collect()
    assert sorted(driver.destroyed) == [1, 2, 3]


def test_places_that_never_come_again_push_out_no_graph(driver) -> None:
    """And leave no more behind than counts."""
    launches = [launch.Launch(KERNEL, (1, 1, 1), 32, 0, early=False)]
    of = Repeated(2)
    for _ in range(REPEATS):
        of.launched((STREAM, 1), launches)
    for address in range(2, 1000):
        of.launched((STREAM, address), launches)
        assert len(of._calls) <= 2 * graph.PLACES
    assert of.start((STREAM, 1)) == 0
    for _ in range(REPEATS):
        of.launched((STREAM, 1000), launches)
    assert of.start((STREAM, 1000)) == 0
    assert driver.made == 2


def test_graphs_of_all_calls_are_counted(driver, monkeypatch) -> None:
    gc.collect()
    monkeypatch.setattr(graph, "MOST", len(graph._alive) + 1)
    first, second = recording(), recording()
    for of in (first, second):
        for _ in range(REPEATS + 1):
            of.replay(STREAM, 1 << 20)
    assert driver.launched[-2:] == [STREAM, STREAM]
    assert driver.made == 1
    del first, of
    gc.collect()
    for _ in range(2):
        second.replay(STREAM, 1 << 20)
    assert driver.launched[-1] == -2


@pytest.mark.gpu
@pytest.mark.parametrize("direction", ["forward", "backward_data", "backward_filter"])
@pytest.mark.parametrize("precision", sorted(UNITS))
def test_a_graph_has_the_bits_of_launches(precision, direction, monkeypatch) -> None:
    """With other data at the same addresses, in a call that a caller's graph captures, and in one
    whose graph is gone while it runs."""
    if direction not in directions(precision) or precision.startswith("bf16"):
        return
    monkeypatch.setattr(graph, "MOST", len(graph._alive) + 100)  # whatever other tests left
    started = []
    start = Graph.start
    monkeypatch.setattr(Graph, "start", lambda self: started.append(found := start(self)) or found)
    cp = launch.cupy()
    (a, b), shape = operands(direction)
    a, b = (cp.asarray(v, DTYPES[precision]) for v in (a, b))
    call = getattr(winolab, f"conv_{direction}")
    how = {"padding": 1, "precision": precision}
    stream = cp.cuda.Stream(non_blocking=True)
    cp.cuda.Device().synchronize()
    with stream:
        first = call(a, b, *shape, **how)
        out, expected = cp.full_like(first, cp.nan), cp.empty_like(first)
        for scale in (1, 2, -3):
            a *= scale
            started.clear()
            for _ in range(REPEATS + 1):
                call(a, b, *shape, **how, out=out)
            assert started[-1] == 0
            call(a.copy(), b, *shape, **how, out=expected)  # elsewhere: by launches
            assert bool((out == expected).all())
            out.fill(cp.nan)
        stream.begin_capture()
        call(a, b, *shape, **how, out=out)
        captured = stream.end_capture()
        assert 0 not in started[REPEATS + 1 :]
        assert bool(cp.isnan(out).all())
        captured.launch(stream)
        assert bool((out == expected).all())
        others = [a.copy() for _ in range(40)]  # the oldest graphs go, while the last ones run
        for other in (other for other in others for _ in range(REPEATS + 1)):
            call(other, b, *shape, **how, out=out)
        assert bool((out == expected).all())
    stream.synchronize()


@pytest.mark.gpu
def test_a_graph_takes_little_memory() -> None:
    """126 KB of the device, measured on an H100; more than 192 KiB would be another story."""
    cp = launch.cupy()
    function = cp.RawKernel('extern "C" __global__ void k(long long* x) { if (x) *x = 1; }', "k")
    params = Layout(("x", POINTER)).pack(0)
    buffer = params.buffer()
    pointers = (ctypes.c_void_p * 1)(ctypes.addressof(buffer))
    kernel = launch.Kernel("k", function.kernel.ptr, 0, function)
    four = [launch.Launch(kernel, (1, 1, 1), 32, ctypes.addressof(pointers), False)] * 4
    stream = cp.cuda.Stream(non_blocking=True)
    kept, free = [], []
    for _ in range(3):
        kept += [Graph(four, stream.ptr) for _ in range(200)]
        assert not any(one.start() for one in kept)
        stream.synchronize()
        free.append(cp.cuda.runtime.memGetInfo()[0])
    print(f"{(free[0] - free[2]) / 400} B a graph")
    assert free[0] - free[2] <= 400 * (192 << 10)
