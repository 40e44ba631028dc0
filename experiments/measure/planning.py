"""What planning a new shape takes of one core: ``python -m experiments.measure.planning``.

For every direction and precision a fresh process plans SHAPES random shapes, one after another,
none twice; the first of them pays for what all share: of unit strides, and (``layers`` odd) of
strides, dilation or groups. No GPU is needed. A row has the median and
the 95th percentile of the processor's milliseconds a shape, the aims that both have, and how many
processes the machine had (``load``): two that share a core take each other's cache. Rows replace
experiments/results/planning.jsonl.
"""

from __future__ import annotations

import json
import math
import os
import platform
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.harness.facts import ROOT
from winolab.algorithm import Problem
from winolab.cli.environment import commit, processor

RESULTS = ROOT / "experiments" / "results" / "planning.jsonl"
SHAPES, SEED = 100, 43
MEDIAN_MS, LATE_MS = 50.0, 150.0  # aims: of the median and of the 95th percentile
DIRECTIONS = ("forward", "backward_data", "backward_filter")
PRECISIONS = ("fp32", "fp32_ffma", "fp32_split", "fp16", "bf16")
LAYERS = ("unit", "odd")


def shapes(seed: int = SEED, count: int = SHAPES) -> Iterator[Problem]:
    """Random layers of one to three dimensions, as networks and odd tests have them."""
    rng = random.Random(seed)
    for _ in range(count):
        dimensions = rng.choices((1, 2, 3), (1, 6, 1))[0]
        taps = [rng.choice((1, 2, 3, 3, 3, 4, 5, 7, 9))] * dimensions
        if dimensions > 1 and rng.random() < 0.2:
            taps[rng.randrange(dimensions)] = rng.choice((1, 2, 3, 5, 7))
        sizes = [r - 1 + round(2 ** rng.uniform(2, 8 if dimensions < 3 else 5)) for r in taps]
        channels = [rng.choice((3, 16, 24, 32, 48, 61, 64, 96, 128, 192, 256, 512)) for _ in "xy"]
        batch = 2 ** rng.randrange(7)
        while batch > 1 and batch * math.prod(sizes) * max(channels) >= 1 << 29:
            batch //= 2
        x, w = (batch, *sizes, channels[0]), (channels[1], *taps, channels[0])
        padding = [rng.choice((0, r // 2)) for r in taps]
        yield Problem.of(x, w, padding=padding)


def odd(seed: int = SEED, count: int = SHAPES) -> Iterator[Problem]:
    """The same layers with a stride, a dilation or groups, in turn."""
    rng = random.Random(seed)
    for number, p in enumerate(shapes(seed, count)):
        step, kind = rng.choice((2, 2, 3)), number % 3
        stride, dilation = (step if kind == i else 1 for i in range(2))
        groups = math.gcd(p.in_channels, p.out_channels) if kind == 2 else 1
        groups //= rng.choice([n for n in (1, 2, 4, 8, 16, 32) if groups % n == 0])
        w = (*p.w_shape[:-1], p.in_channels // groups)
        padding = [before + (dilation if dilation > 1 else 0) for before, _ in p.padding]
        yield Problem.of(
            p.x_shape, w, padding=padding, stride=stride, dilation=dilation, groups=groups
        )


def milliseconds(direction: str, precision: str, layers: str = "unit") -> list[float]:
    """Milliseconds in this process, for every shape; what cannot run counts as well."""
    from winolab.device import H100
    from winolab.gpu.planner.planner import Request, plan

    found = []
    for problem in odd() if layers == "odd" else shapes():
        started = time.process_time()
        with suppress(ValueError):  # that no kernel serves the shape
            plan(Request(problem, direction, H100, None, precision))
        found.append(1e3 * (time.process_time() - started))
    return found


def row(direction: str, precision: str, times: list[float], layers: str = "unit") -> dict[str, Any]:
    """Quantiles of the milliseconds that shapes took."""
    return {
        "direction": direction,
        "precision": precision,
        "layers": layers,
        "shapes": len(times),
        "seed": SEED,
        "first_ms": times[0],
        "median_ms": statistics.median(times),
        "p95_ms": sorted(times)[math.ceil(0.95 * len(times)) - 1],
        "median_aim_ms": MEDIAN_MS,
        "p95_aim_ms": LATE_MS,
        "python": platform.python_version(),
        "processor": processor(),
        "load": round(os.getloadavg()[0], 1),
        "commit": commit(),
    }


def main(
    output: Annotated[Path, typer.Option(help="File that is written.")] = RESULTS,
    only: Annotated[str, typer.Option(help="Print times of direction:precision:layers.")] = "",
) -> None:
    """Measure planning on this machine's processor, a fresh process each."""
    if only:
        print(json.dumps(milliseconds(*only.split(":"))))
        return
    rows = []
    for direction, precision, layers in product(DIRECTIONS, PRECISIONS, LAYERS):
        call = [sys.executable, "-m", "experiments.measure.planning"]
        call += ["--only", f"{direction}:{precision}:{layers}"]
        done = subprocess.run(call, check=True, capture_output=True, text=True)
        rows.append(row(direction, precision, json.loads(done.stdout), layers))
        print(*(f"{k}={v}" for k, v in rows[-1].items()), flush=True)
    output.write_text("".join(json.dumps(r, sort_keys=True) + "\n" for r in rows))


if __name__ == "__main__":
    typer.run(main)
