"""On a GPU: what a call costs on the host once warm: ``python -m experiments.measure.host_cost``.

Each way of calling is made CALLS times in a row on layers whose kernels take a few microseconds,
so that the queue never fills, one way after another, ROUNDS times over: a processor that others
use, too, is slow for seconds. A row has the least mean of a way's series, in microseconds. Of
BETWEEN ways every call is timed by itself, behind what a network does between two convolutions, and
the row has the median. A CUDA graph of each call is replayed and its bits compared. What comes
again with the same addresses is itself launched as a graph (``winolab.gpu.runtime.cuda_graphs``);
of IN_TURN calls none is. A row of GRADIENTS is of three calls.

Rows "batch_invariant" have microseconds from call to call on the GPU with and without it, of
IMAGES. Rows replace experiments/results/host.jsonl. All of it takes a minute, of which compiling
what the cache lacks, on all cores, is half.
"""

from __future__ import annotations

import importlib
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from importlib.util import find_spec
from itertools import cycle, product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import winolab
from experiments.harness.facts import ROOT
from experiments.harness.machines import stored
from experiments.harness.pytorch import tf32
from winolab.cli import bench
from winolab.gpu import driver, warm
from winolab.gpu.planner.request import DIRECTIONS
from winolab.gpu.runtime.call import GRAPHS
from winolab.lines import rewrite
from winolab.options import ConvOptions
from winolab.problem import Problem

RESULTS = ROOT / "experiments" / "results" / "host.jsonl"
# x (dy's too), w and the precision: of two launches on FFMA units, of the four and more of split
# products, which the planner takes where a GPU is busy for longer than a call takes the host.
LAYERS = {
    "": ((1, 8, 8, 8), (8, 3, 3, 8), "fp32"),
    ", split products": ((1, 8, 8, 64), (64, 3, 3, 64), "fp32_split"),
}
CALLS, ROUNDS, WARM = 100, 20, 20
APART = 100  # calls that are timed one by one, a round
RESULTS_IN_TURN = 2 * GRAPHS
IN_TURN = f", {RESULTS_IN_TURN} results in turn"
GRADIENTS = "both gradients"
BETWEEN = ", between other work"
TOUCHED = 1 << 18  # doubles that other work reads: 2 MB, as much as a core's caches hold
IMAGES = ((1, 56, 56, 64), (8, 56, 56, 64), (32, 56, 56, 64), (32, 14, 14, 256))
INVARIANT = "batch_invariant"
TIMED = 20  # calls on the GPU, in a row
Row = dict[str, Any]
Way = tuple[str, str]  # what is called, and of whose arrays


def seconds(
    calls: Mapping[Way, Callable[[], Any]],
    wait: Callable[[], Any],
    clock: Callable[[], float] = time.perf_counter,
) -> dict[Way, float]:
    """Seconds of one call in every way, by the host's clock: the least of its series' means."""
    for call in calls.values():
        for _ in range(WARM):
            call()
    found = dict.fromkeys(calls, float("inf"))
    for _ in range(ROUNDS):
        for way, call in calls.items():
            wait()
            started = clock()
            for _ in range(CALLS):
                call()
            found[way] = min(found[way], (clock() - started) / CALLS)
    wait()
    return found


def between(
    calls: Mapping[Way, Callable[[], Any]],
    other: Callable[[], Any],
    wait: Callable[[], Any],
    clock: Callable[[], float] = time.perf_counter,
) -> dict[Way, float]:
    """Seconds of one call in every way where ``other`` work is done before each: the median."""
    took: dict[Way, list[float]] = {way: [] for way in calls}
    for _ in range(ROUNDS):
        for way, call in calls.items():
            wait()
            for _ in range(APART):
                other()
                started = clock()
                call()
                took[way].append(clock() - started)
    wait()
    return {way: statistics.median(each) for way, each in took.items()}


def ways(
    x: Any, w: Any, dy: Any, out: dict[str, Any], precision: str
) -> dict[str, Callable[[], Any]]:
    """Ways to call this package with these arrays; ``out["ys"]`` are results to take in turn."""
    how: Any = {"padding": 1, "precision": precision}
    x_shape, w_shape = tuple(x.shape), tuple(w.shape)
    prepared = winolab.prepare_filter(w, x_shape, **how)
    return {
        "forward": lambda: winolab.conv_forward(x, w, **how, out=out["y"]),
        "forward, new result": lambda: winolab.conv_forward(x, w, **how),
        "forward" + IN_TURN: lambda: winolab.conv_forward(x, w, **how, out=next(out["ys"])),
        "forward, filter prepared": lambda: winolab.conv_forward(x, prepared, **how, out=out["y"]),
        "backward data": lambda: winolab.conv_backward_data(dy, w, x_shape, **how, out=out["dx"]),
        "backward filter": lambda: winolab.conv_backward_filter(
            x, dy, w_shape, **how, out=out["dw"]
        ),
    }


def rows() -> Iterator[Row]:
    """A row a way of calling, with CuPy's arrays and with torch's."""
    cp = driver.cupy()
    rng = cp.random.default_rng(0)
    torch: Any = importlib.import_module("torch") if find_spec("torch") else None
    calls: dict[Way, Callable[[], Any]] = {}
    drawn = {}
    for layer, (image, filter_, precision) in LAYERS.items():
        drawn[layer] = tuple(
            rng.random(shape, dtype="float32") for shape in (image, filter_, image)
        )
        arrays = {"CuPy": drawn[layer]}
        if torch:
            arrays["torch"] = tuple(torch.from_dlpack(a) for a in drawn[layer])
            for name, call in _framework(torch, *arrays["torch"], precision).items():
                calls[name + layer, "torch"] = call
        for library, (a, b, c) in arrays.items():
            empty = cp.empty_like if library == "CuPy" else torch.empty_like
            out = {"y": empty(a), "dx": empty(a), "dw": empty(b)}
            out["ys"] = cycle([empty(a) for _ in range(RESULTS_IN_TURN)])
            for name, call in ways(a, b, c, out, precision).items():
                calls[name + layer, library] = call
    compile_kernels(cp.cuda.Device().id)
    wait = cp.cuda.runtime.deviceSynchronize
    with tf32(True) if torch else nullcontext():
        costs = seconds(calls, wait)
        if torch:
            costs |= _between(torch, calls, wait)
    for (name, library), cost in costs.items():
        method = "torch" if name.startswith("conv2d") else "winolab"
        yield {"call": name, "arrays": library, "method": method, "host_us": cost * 1e6}
    for layer, arrays in drawn.items():
        yield from _graphs(layer, LAYERS[layer][-1], *arrays)
    if torch:
        yield from _invariant(torch)


def compile_kernels(index: int) -> None:
    """Compile what the layers' calls load, on all cores; wait for the module past Python, too."""
    units = [
        unit
        for image, filter_, precision in LAYERS.values()
        for each in (precision, "fp16")
        for direction in DIRECTIONS
        for unit in warm.calls_units(
            direction, Problem.of(image, filter_, padding=1), driver.device(index),
            ConvOptions(precision=each).checked(), kept=direction != "backward_filter",
        )
    ]  # fmt: skip
    warm.compile_all(units)


def _between(
    torch: Any, calls: Mapping[Way, Callable[[], Any]], wait: Callable[[], Any]
) -> dict[Way, float]:
    """The ways of PyTorch's convolution and of the operator, each behind a normalization in
    training, an activation and a sum, and what a core's caches hold."""
    importlib.import_module("winolab.torch.plain").NATIVE.wait()
    ours = {way: call for way, call in calls.items() if "conv2d" in way[0]}
    image, norm = torch.randn(1, 8, 8, 8, device="cuda"), torch.nn.BatchNorm2d(8).cuda()
    cached = np.ones(TOUCHED)

    def other() -> None:
        torch.relu(norm(image)).add_(image)
        cached.sum()

    found = between(ours, other, wait)
    return {(name + BETWEEN, library): cost for (name, library), cost in found.items()}


def _invariant(torch: Any) -> Iterator[Row]:
    """What the same bits whatever the batch cost: microseconds from call to call on the GPU."""
    ours = importlib.import_module("winolab.torch")
    for (batch, *sizes, channels), dtype in product(IMAGES, (torch.float32, torch.float16)):
        shape = {"dtype": dtype, "device": "cuda"}
        x = torch.randn(batch, channels, *sizes, **shape).to(memory_format=torch.channels_last)
        w = torch.randn(channels, channels, 3, 3, **shape).to(memory_format=torch.channels_last)
        for invariant in (False, True):
            took = []
            for _ in range(WARM):
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                torch.cuda.synchronize()
                begin.record()
                for _ in range(TIMED):
                    ours.conv2d(x, w, padding=1, batch_invariant=invariant)
                end.record()
                end.synchronize()
                took.append(1e3 * begin.elapsed_time(end) / TIMED)
            yield {
                "call": INVARIANT, "of": "x".join(map(str, (batch, *sizes, channels))),
                "arrays": "torch", "method": "winolab", "format": str(dtype).split(".")[1],
                "invariant": invariant, "gpu_us": min(took),
            }  # fmt: skip


def _graphs(layer: str, precision: str, x: Any, w: Any, dy: Any) -> Iterator[Row]:
    """Whether a captured call's replay has the bits of the call."""
    cp = driver.cupy()
    out: dict[str, Any] = {"y": cp.empty_like(x), "dx": cp.empty_like(x), "dw": cp.empty_like(w)}
    stream = cp.cuda.Stream(non_blocking=True)
    for name, call in ways(x, w, dy, out, precision).items():
        if name in ("forward, new result", "forward" + IN_TURN):
            continue
        cp.cuda.Device().synchronize()
        with stream:
            expected = call().copy()
            stream.begin_capture()
            result = call()
            graph = stream.end_capture()
            result.fill(cp.nan)
            graph.launch(stream)
            stream.synchronize()
            same = bool((result == expected).all())
        yield {"call": "in a CUDA graph", "of": name + layer, "arrays": "CuPy", "replayed": same}


def _framework(torch: Any, x: Any, w: Any, dy: Any, precision: str) -> dict[str, Callable[[], Any]]:
    """PyTorch's convolution and this package's operator, without and with a place in its graph, and
    with both gradients, also under autocast."""
    ours = importlib.import_module("winolab.torch")
    a, b, upstream = (t.movedim(-1, 1) for t in (x, w, dy))
    c = b.detach().clone().requires_grad_()
    d = a.detach().clone().requires_grad_()
    half, theirs, how = upstream.half(), torch.nn.functional.conv2d, {"padding": 1}
    mine: dict[str, Any] = {**how, "precision": precision}

    def both(conv: Any, result: Any, **how: Any) -> Any:
        return torch.autograd.grad(conv(d, c, **how), (d, c), result)

    def cast(conv: Any) -> Any:
        with torch.autocast("cuda", dtype=torch.float16):
            y = conv(d, c, **how)
        return torch.autograd.grad(y, (d, c), half)

    return {
        "conv2d": lambda: theirs(a, b, **how),
        "conv2d, requires grad": lambda: theirs(a, c, **how),
        f"conv2d, {GRADIENTS}": lambda: both(theirs, upstream, **how),
        f"conv2d, autocast, {GRADIENTS}": lambda: cast(theirs),
        "torch.conv2d": lambda: ours.conv2d(a, b, **mine),
        "torch.conv2d, requires grad": lambda: ours.conv2d(a, c, **mine),
        f"torch.conv2d, {GRADIENTS}": lambda: both(ours.conv2d, upstream, **mine),
        f"torch.conv2d, autocast, {GRADIENTS}": lambda: cast(ours.conv2d),
    }


def main(
    invariant: Annotated[
        bool, typer.Option("--invariant", help="Rows of batch_invariant alone; others stay.")
    ] = False,
    output: Annotated[Path, typer.Option(help="File that is written.")] = RESULTS,
) -> None:
    """Measure on this machine, whose processor matters as much as its GPU."""
    bench.ready()
    found = list(_invariant(importlib.import_module("torch")) if invariant else rows())
    others = (row for row in stored(output) if row["call"] != INVARIANT) if invariant else ()
    machine = bench.context()
    rewrite(output, [*others, *({**row, **machine} for row in found)])
    for row in found:
        us = row.get("host_us", row.get("gpu_us"))
        said = (row["call"], row.get("of", ""), row.get("format", ""), row.get("invariant", ""))
        print(*said, row["arrays"], row["replayed"] if us is None else f"{us:.1f} µs")


if __name__ == "__main__":
    typer.run(main)
