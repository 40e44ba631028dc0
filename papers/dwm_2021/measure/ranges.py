"""On a GPU: the layers of papers.dwm_2021.ranges by FP16 kernels, on data of a wide range.

``python -m papers.dwm_2021.measure.ranges [--seconds S]`` adds rows to
experiments/results/dwm_ranges.jsonl; a layer that has rows of this GPU is not measured again. Of
every kind of layer of a network it is the one with the largest map, whole, data of ``SPREAD`` and
``PEAKS`` there, cut off at FP16's largest number. A row has one contender: ``dwm`` conv_forward
with dwm:3:2, ``direct``, ``winograd`` one tile of two outputs (nested, in three dimensions along a
row) of the simulation's points, ``winograd, best points``, ``torch`` PyTorch in benchmark mode,
channels last; and the part of its outputs that is not finite at each scale, and the relative RMS
of those that are at scale 1, against FP64 of the same FP16 numbers.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import winolab
from experiments.harness.machines import stored
from experiments.measure.layer_rows import Row
from experiments.measure.layers import RESULTS
from experiments.measure.throughput import compile_sources
from papers.dwm_2021.gpu_times import Named, loaded, ours
from papers.dwm_2021.ranges import GPU_SOURCE, NETWORKS, PEAKS, POINTS, SPREAD, described
from papers.dwm_2021.strategies import single
from winolab.algorithm import Direct, Problem, dwm
from winolab.bench import oracle
from winolab.bench.compare import free
from winolab.bench.contenders import Arrays
from winolab.bench.frameworks import frameworks
from winolab.cli import bench
from winolab.cli.environment import cores
from winolab.gpu import driver
from winolab.lines import add
from winolab.spread import pool

OUTPUT = RESULTS / f"{GPU_SOURCE}.jsonl"
UNIT, SEED = "fp16", 0
EACH = 2.0  # seconds of a layer, about, kernels' compiling included
LARGEST = float(np.finfo(np.float16).max)
Case = tuple[str, Problem]  # network, layer


def cases() -> Iterator[Case]:
    """Each network's kinds of layers, by the one of most multiplications."""
    for name, layers in NETWORKS.items():
        found: dict[tuple[Any, ...], Problem] = {}
        for problem in sorted(layers(), key=lambda p: -p.macs):
            if max(problem.filter) > 1:
                found.setdefault((problem.in_channels, problem.filter, problem.stride), problem)
        for problem in found.values():
            yield name, problem


def named(problem: Problem) -> Named:
    """What each contender of ours asks for."""
    return {
        "direct": [Direct()],
        "dwm": [dwm()],
        "winograd": [*single(problem, POINTS)],
        "winograd, best points": [*single(problem)],
    }


def key(name: str, problem: Problem) -> tuple[Any, ...]:
    """What tells a case from others, as rows have it."""
    shapes = ("x".join(map(str, shape)) for shape in (problem.x_shape, problem.w_shape))
    return name, *shapes, "x".join(map(str, problem.stride))


def data(problem: Problem) -> tuple[Any, Any]:
    """The operands in FP32 at scale 1: normal numbers, of x with magnitudes far apart."""
    cp = driver.cupy()
    rng = cp.random.default_rng(SEED)
    x, w = (rng.standard_normal(s, dtype="float32") for s in (problem.x_shape, problem.w_shape))
    x *= cp.exp2(-SPREAD * rng.random(problem.x_shape, dtype="float32"))
    w *= math.sqrt(2 / math.prod(problem.w_shape[1:]))
    return x, w


def calls(problem: Problem, arrays: Arrays) -> dict[str, tuple[str, Callable[[], Any]]]:
    """Each contender's algorithm and its call, which returns channels-last numbers."""
    x, w = arrays.operands["NHWC"]
    how = {"stride": problem.stride, "padding": problem.padding, "out": arrays.results["NHWC"]}
    found: dict[str, tuple[str, Callable[[], Any]]] = {}
    for method, algorithm in ours(problem, UNIT, methods=named):
        call = partial(winolab.conv_forward, x, w, algorithm=algorithm, **how)
        found[method] = str(algorithm), call
    for other in frameworks("forward", problem, UNIT):
        if other.order == "NHWC":
            found["torch"] = other.name, partial(_of_torch, other, arrays)
    return found


def _of_torch(other: Any, arrays: Arrays) -> Any:
    return driver.cupy().from_dlpack(other.run(arrays, 0).movedim(1, -1))


def measured(name: str, problem: Problem) -> list[Row]:
    """The rows of a case."""
    cp = driver.cupy()
    arrays = Arrays("forward", problem, UNIT)
    x, w = data(problem)
    contenders = calls(problem, arrays)
    broken: dict[str, list[float]] = {method: [] for method in contenders}
    lost: dict[str, float | None] = {}
    for peak in PEAKS:
        arrays.assign(cp.clip(2.0**peak * x, -LARGEST, LARGEST), w)
        exact = None if peak else oracle.fp64("forward", problem, *arrays.operands["NHWC"])
        for method, (_, call) in contenders.items():
            arrays.poison()
            y = call().astype("float64")
            finite = cp.isfinite(y)
            broken[method].append(1 - float(finite.mean()))
            if exact is not None:
                error = (y - exact)[finite]
                size = float((exact**2).mean())
                lost[method] = float((error**2).mean() / size) ** 0.5 if error.size else None
    network, *shapes, _ = key(name, problem)
    common = {**described("ranges_measured", network, problem, SEED), "spread": SPREAD,
              "peaks": list(PEAKS), "input": shapes[0], "filter": shapes[1]}  # fmt: skip
    return [
        {**common, "column": method, "algorithm": algorithm, "precision": UNIT,
         "samples": math.prod(problem.y_shape), "relative_rms": lost[method],
         "not_finite": broken[method]}
        for method, (algorithm, _) in contenders.items()
    ]  # fmt: skip


def outstanding(words: Sequence[str]) -> tuple[int, float]:
    """Layers without rows of any GPU, and seconds of one."""
    there = {_of(row) for row in stored(OUTPUT)}
    return sum(key(*case) not in there for case in cases()), EACH


def _of(row: Row) -> tuple[Any, ...]:
    """The key of a row's case."""
    return row["network"], row["input"], row["filter"], row["stride"]


def main(
    seconds: Annotated[float, typer.Option(help="Time that all of it may take.")] = 200,
    output: Annotated[Path, typer.Option(help="File of rows.")] = OUTPUT,
) -> None:
    """Measure what time allows of what is not there yet."""
    end = time.monotonic() + seconds
    bench.ready()
    machine = bench.context()
    there = {_of(row) for row in stored(output) if row["device"] == machine["device"]}
    todo = [case for case in cases() if key(*case) not in there]
    problems = list(dict.fromkeys(problem for _, problem in todo))
    how = (repeat(UNIT), repeat(driver.device(0)), repeat(named), repeat(False))
    with pool(cores()) as processes:
        sources = {k: v for found in processes.map(loaded, problems, *how)
                   for k, v in found.items()}  # fmt: skip
    print(f"{compile_sources(sources)} kernels of {len(todo)} layers", flush=True)
    for number, case in enumerate(todo):
        if time.monotonic() > end:
            print(f"no time for {len(todo) - number} layers; call again to go on")
            break
        rows = measured(*case)
        free()
        add(output, [{**machine, **row} for row in rows])
        last = ", ".join(f"{row['column']} {row['not_finite'][-1]:.2g}" for row in rows)
        print(f"{' '.join(key(*case))}: not finite at the largest scale: {last}", flush=True)


if __name__ == "__main__":
    typer.run(main)
