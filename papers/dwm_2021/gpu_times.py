"""On a GPU: DWM's single layers, a sample of 2,000 shapes and whole networks, beside cuDNN's.

``python -m papers.dwm_2021.gpu_times [--steps layers,networks,grid] [--seconds S]`` adds rows to
experiments/results/dwm.jsonl; what is there is not measured again, so that the next call goes on.
A row has quartiles in microseconds with a cold L2 cache, interleaved with the others of its case:
``dwm`` conv_forward with dwm:3:2, ``winograd`` with one tile of two outputs, ``direct``,
``phases`` a stride's phases alone, each by what the planner takes, which adds to the one before;
``winolab`` what the planner takes; ``torch`` PyTorch in each memory order in benchmark mode,
``tf32`` the same with TF32, ``fft`` cuDNN's tiled FFT. Ours are whole calls, with what the host
takes where that is longer. ``memory`` is what a call of ours takes beside its arrays. Errors are
relative RMS against PyTorch in FP64, of layers that it computes soon.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import winolab
from experiments.harness.machines import stored
from experiments.measure.layer_rows import Row
from experiments.measure.layers import RESULTS, ROUNDS, relative_rms
from experiments.measure.throughput import compile_sources
from papers.dwm_2021.networks import networks
from papers.dwm_2021.strategies import Case, grid, layers, single
from winolab.algorithm import Algorithm, Direct, Problem, dwm
from winolab.bench import cudnn
from winolab.bench.compare import free
from winolab.bench.contenders import Arrays, judges, unnamed
from winolab.bench.frameworks import frameworks
from winolab.bench.timing import FLUSH, interleave
from winolab.cli import bench
from winolab.cli.environment import cores
from winolab.device import Device
from winolab.gpu import driver
from winolab.gpu.planner.planner import plan
from winolab.gpu.planner.recast.pieces import planned
from winolab.gpu.planner.request import DTYPES, Plan, Request
from winolab.gpu.runtime.arrays import Described
from winolab.gpu.warm import calls_units
from winolab.lines import add
from winolab.options import ConvOptions
from winolab.ref.algorithms.dwm.parts import Part, parts
from winolab.spread import pool

OUTPUT = RESULTS / "dwm.jsonl"
SOURCE = "dwm"  # the same file, by the name that tables have for it
BYTES, MACS = 6e9, 1e11  # of arrays at most; of layers whose error is measured
# Every kernel with both strides once; all layers of five networks: a sitting's worth.
FIRST = {"layers": 18, "networks": 41, "grid": 0}
EACH = 3.0  # seconds of a case, about
LONG, FEW = 2e-3, 3  # seconds of a call above which it has so few rounds


def cases(steps: str) -> Iterator[Case]:
    """The cases of the steps, FIRST of each before the others; of the grid in a seeded order, so
    that any part is a sample."""
    every = {step: list(STEPS[step]()) for step in steps.split(",")}
    for step, found in every.items():
        yield from found[: FIRST[step]]
    for step, found in every.items():
        yield from found[FIRST[step] :]


def layers_of_networks() -> Iterator[Case]:
    """Table 13: every distinct layer, and of deconvolutions that whose data's gradient they are;
    networks of few layers first, since one counts when all of its layers are there."""
    for network in sorted(networks(), key=lambda network: len(set(network.layers))):
        for problem in dict.fromkeys(network.layers):
            yield "networks", network.name, problem


def sample() -> Iterator[Case]:
    """The 2,000 shapes of the strategies."""
    some = list(grid())
    random.Random(0).shuffle(some)
    for shape in some:
        yield "grid", " ".join(map(str, vars(shape).values())), shape.problem


STEPS: Mapping[str, Callable[[], Iterator[Case]]] = {
    "layers": layers, "networks": layers_of_networks, "grid": sample,
}  # fmt: skip


def key(step: str, label: str, problem: Problem) -> str:
    """What tells a case from others, in rows too."""
    shapes = "x".join(map(str, problem.x_shape)), "x".join(map(str, problem.w_shape))
    return f"{step} {label} {':'.join(shapes)}/{'x'.join(map(str, problem.stride))}"


def main(
    steps: Annotated[str, typer.Option(help="With commas.")] = ",".join(STEPS),
    seconds: Annotated[float, typer.Option(help="Time that all of it may take.")] = 300,
    precisions: Annotated[str, typer.Option(help="With commas.")] = "fp32",
    most: Annotated[int, typer.Option(help="Cases that are compiled at once.")] = 59,
    output: Annotated[Path, typer.Option(help="File of rows.")] = OUTPUT,
) -> None:
    """Measure what time allows of what is not there yet."""
    end = time.monotonic() + seconds
    bench.ready()
    machine = bench.context()
    known = {(row["case"], row["precision"]) for row in stored(output)}
    todo = [(case, unit) for unit in precisions.split(",") for case in cases(steps)
            if (key(*case), unit) not in known and size(case[2], unit) <= BYTES]  # fmt: skip
    for first in range(0, len(todo), most):
        if time.monotonic() > end:
            break
        some = todo[first : first + most]
        with pool(cores()) as processes:
            asked = [(case[2], unit, driver.device(0)) for case, unit in some]
            sources = {k: v for found in processes.map(loaded, *zip(*asked, strict=True))
                       for k, v in found.items()}  # fmt: skip
        print(f"{compile_sources(sources)} kernels of {len(some)} cases", flush=True)
        for case, unit in some:
            if time.monotonic() > end:
                break
            began = time.monotonic()
            rows = list(measured(case, unit))
            free()
            add(output, [{**machine, **row} for row in rows])
            us = ", ".join(f"{row['method']} {row['us']:.0f}" for row in rows)
            print(f"{case[1]}: {us} µs; {time.monotonic() - began:.1f} s", flush=True)
    print(f"{len(todo)} cases were left; {len(stored(output))} rows in {output}")


def outstanding(words: Sequence[str]) -> tuple[int, float]:
    """Cases in FP32 without rows, the grid's apart, which are a sample; seconds of one."""
    known = {(row["case"], row["precision"]) for row in stored(OUTPUT)}
    every = (case for case in cases("layers,networks") if size(case[2], "fp32") <= BYTES)
    return sum((key(*case), "fp32") not in known for case in every), EACH


def size(problem: Problem, unit: str) -> float:
    """Bytes of the arrays, operands in both memory orders."""
    arrays = 2 * (_count(problem.x_shape) + _count(problem.w_shape)) + _count(problem.y_shape)
    return arrays * (4 if unit == "fp32" else 2)


def _count(shape: tuple[int, ...]) -> float:
    found = 1.0
    for n in shape:
        found *= n
    return found


Named = dict[str, list[Algorithm | None]]  # what a method asks for, the first that a kernel runs


def named(problem: Problem) -> Named:
    """What each method of ours asks for."""
    return {"winolab": [None], "direct": [Direct()], "winograd": [*single(problem)],
            "dwm": [dwm()]}  # fmt: skip


def ours(
    problem: Problem,
    unit: str,
    device: Device | None = None,
    methods: Callable[[Problem], Named] = named,
) -> dict[tuple[str, Algorithm | None], list[Plan]]:
    """The plans behind each of the methods that there is."""
    request = unnamed("forward", problem, unit, device)
    found = {}
    for method, algorithms in methods(problem).items():
        for algorithm in algorithms:
            with suppress(ValueError):
                found[method, algorithm] = _plans(replace(request, algorithm=algorithm))
                break
    return found


def _plans(request: Request) -> list[Plan]:
    if request.algorithm != dwm():
        return [plan(request)]
    return [p for *_, p in planned(replace(request, out_dtype="float32", aligned=False))]


def loaded(
    problem: Problem,
    unit: str,
    device: Device,
    methods: Callable[[Problem], Named] = named,
    phased: bool = True,
) -> dict[str, str]:
    """The translation units that our calls of a case load, each with a title: what is compiled in a
    call is compiled alone. ``phased``: those of ``phases``, too."""
    found = {u.source(): u.title
             for (method, _), plans in ours(problem, unit, device, methods).items()
             for p in plans if method != "dwm" for u in p.translation_units()}  # fmt: skip
    shapes = problem.x_shape, problem.w_shape, problem.y_shape
    x, w, y = (np.empty(shape, DTYPES[unit]) for shape in shapes)

    def add_of(part: Part, algorithm: Algorithm | None, residual: Described | None) -> None:
        first, second = (_described(v[(slice(None), *part.of(name))])
                         for v, name in ((x, "x"), (w, "w")))  # fmt: skip
        # Pieces are added up in FP32, phases in the type of the arrays.
        out = "float32" if algorithm else None
        options = ConvOptions(algorithm=algorithm, precision=unit, out_dtype=out)
        asked = "forward", part.problem, device, options, first, second, residual
        found.update((each.source.printed(), each.title) for each in calls_units(*asked))

    request = replace(unnamed("forward", problem, unit, device), algorithm=dwm())
    for part, algorithm, _ in planned(replace(request, out_dtype="float32", aligned=False)):
        add_of(part, algorithm, None)
    whole = problem.unit or not phased
    for i, part in enumerate(() if whole else parts(problem, dwm(max(problem.filter), 2))):
        add_of(part, None, _described(y) if i else None)
    return found


def _described(view: np.ndarray) -> Described:
    """How a part of an array lies whose memory begins at a multiple of 16."""
    base, size = view if view.base is None else view.base, view.itemsize
    place = view.ctypes.data - base.ctypes.data
    strides = tuple(s // size for s in view.strides)
    return Described(view.shape, strides, view.dtype.name, 0, place % 16 == 0)


def phases(x: Any, w: Any, problem: Problem) -> Any:
    """The convolution of channels-last arrays as the sum of its phases, each stored as it is added
    to those before; their algorithms are the planner's."""
    y = None
    for part in parts(problem, dwm(max(problem.filter), 2)):
        views = (v[(slice(None), *part.of(name))] for v, name in ((x, "x"), (w, "w")))
        y = winolab.conv_forward(
            *views, padding=part.problem.padding, groups=problem.groups, residual=y
        )
    return y


def measured(case: Case, unit: str) -> Iterator[Row]:
    """The rows of a case."""
    step, label, problem = case
    cp = driver.cupy()
    arrays = Arrays("forward", problem, unit)
    arrays.fill(-1, 1)
    x, w = arrays.operands["NHWC"]
    out = arrays.results["NHWC"]
    how = {"stride": problem.stride, "padding": problem.padding, "out": out}
    plans = ours(problem, unit)
    calls: dict[str, Callable[[], Any]] = {
        method: partial(winolab.conv_forward, x, w, algorithm=algorithm, **how)
        for method, algorithm in plans
    }
    if not problem.unit:
        calls["phases"] = partial(phases, x, w, problem)
    memory = {name: _memory(cp, call) for name, call in calls.items()}
    errors = {}
    for name, call in calls.items() if problem.macs <= MACS else ():
        arrays.poison()
        if name == "phases":
            out[...] = call()
        else:
            call()
        errors[name] = relative_rms("forward", problem, arrays)
    others = [*frameworks("forward", problem, unit), *_tiled_ffts(problem, unit)]
    workspace = cp.empty(max([c.workspace or 0 for c in others] + [1]), "uint8")
    for other in others:
        calls[other.name] = other.call(arrays, workspace.data.ptr)
    common = {"step": step, "label": label, "case": key(*case), "precision": unit,
              "macs": problem.macs, "bytes": sum(v.nbytes for v in (x, w, out)),
              "kernel_taps": list(problem.filter), "stride": list(problem.stride),
              "batch": problem.batch}  # fmt: skip
    once = interleave(calls, rounds=1, flush=FLUSH, warmup=1)
    rounds = {name: ROUNDS if t.median < LONG else FEW for name, t in once.items()}
    for name, t in interleave(calls, rounds=rounds, flush=FLUSH, warmup=0).items():
        low, mid, high = (round(1e6 * v, 2) for v in (t.low, t.median, t.high))
        method = "tf32" if name.endswith("tf32") else name.split()[0]
        row = {**common, "method": method, "us": mid, "quartiles_us": [low, high]}
        if name in memory:
            row |= {"memory": memory[name], "relative_rms": errors.get(name)}
        for (own, algorithm), some in plans.items():
            if own == name:
                row |= {"algorithm": str(algorithm), "pieces": len(some),
                        "predicted_us": round(1e6 * sum(p.predicted for p in some), 2)}  # fmt: skip
        yield row


def _tiled_ffts(problem: Problem, unit: str) -> Iterator[Any]:
    """cuDNN's tiled FFT, where it serves the layer."""
    for found in judges("forward", problem, unit, layouts=("NCHW",), maths=("fma",)):
        if not isinstance(found, cudnn.Unsupported) and "fft_tiling" in str(found.name).lower():
            yield replace(found, name="fft")


def _memory(cp: Any, call: Callable[[], Any]) -> int:
    """Bytes that a call takes from a pool of its own, by what that then holds.

    The default pool does not say: what is left of blocks that others hold a part of serves a call
    without the pool's growing.
    """
    pool = cp.cuda.MemoryPool()
    call()
    with cp.cuda.using_allocator(pool.malloc):
        call()
        cp.cuda.Device().synchronize()
    return pool.total_bytes()


if __name__ == "__main__":
    typer.run(main)
