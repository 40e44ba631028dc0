"""How fast the reference is, beside others on the same machine, in one run: ``python -m
experiments.harness.bench [--wincnn DIR]``. Rows go to experiments/results/benchmarks.jsonl.

Rounds are interleaved, so that a machine that slows down slows everything; medians are reported.
"""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from experiments.harness.facts import ROOT
from experiments.harness.studies import modules
from winolab.algorithm import Algorithm, Problem, parse_algorithm
from winolab.cli.environment import provenance
from winolab.ref.algebra.points import named_points, show
from winolab.ref.algebra.transforms import _build, transforms
from winolab.ref.algorithms import convolution
from winolab.ref.algorithms import winograd as tiled
from winolab.ref.arithmetic import rational
from winolab.ref.arithmetic.accumulate import BLOCK
from winolab.ref.arithmetic.exact import Exact
from winolab.ref.arithmetic.simulated import arithmetic

Row = dict[str, Any]
RESULTS = ROOT / "experiments" / "results" / "benchmarks.jsonl"
SPEEDUP, LARGEST_SECONDS, SHARE, MEMORY_GIB = 100, 0.03, 0.6, 2.0
EXACTLY = 10  # times the speed of a Fraction an operation
# 128 images of 112 × 112 × 64: the largest tensor of Im2col-Winograd's Table 3.
LARGEST = ((128, 111, 111, 64), (64, 2, 2, 64), 1)
EXACT = ((1, 14, 14, 64), (64, 3, 3, 64))
EXACT_ALGORITHMS = {
    "F(4×4, 3×3)": "winograd:4x4:3x3",
    "F(6×6, 3×3), x²+1": "winograd:6x6:3x3@0,3/4,-3/4,4/3,-4/3,inf,x^2+1",
    "Γ8(6, 3)": "gamma:8:6:3",
    "direct sums": "direct",
}
LAYERS = {
    "2×2, 128×112×112×64": LARGEST,
    "3×3, 16×96×96×64": ((16, 96, 96, 64), (64, 3, 3, 64), 1),
    "3×3, 64×12×12×512": ((64, 12, 12, 512), (512, 3, 3, 512), 1),
    "9×9, 2×64×64×128": ((2, 64, 64, 128), (128, 9, 9, 128), 4),
}


def interleaved(rounds: int, **functions: Callable[[], object]) -> dict[str, float]:
    """Median seconds of each function over rounds in which each runs once; one warm-up each."""
    for function in functions.values():
        function()
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            started = time.perf_counter()
            function()
            seconds[name].append(time.perf_counter() - started)
    return {name: statistics.median(times) for name, times in seconds.items()}


def fresh(n: int, r: int, points: str) -> None:
    """transforms(n, r) with its proof, past the cache."""
    _build.cache_clear()
    transforms(n, r, points)


def matrices(wincnn: Path | None, rounds: int) -> list[Row]:
    """transforms(8, 9) with its proof against wincnn's construction and filterVerify; α = 32."""
    rows = []
    largest = interleaved(rounds, largest=lambda: fresh(16, 17, "best"))["largest"]
    rows.append(
        _row("transforms(16, 17)", largest, "s", LARGEST_SECONDS, largest < LARGEST_SECONDS)
    )
    if wincnn is None:
        return rows
    sys.path.insert(0, str(wincnn))
    import wincnn as other  # pyright: ignore[reportMissingImports]
    from sympy import Rational  # pyright: ignore[reportMissingImports]

    points = [Rational(show(p)) for p in named_points("paper", 16)[:-1]]

    def theirs() -> None:
        AT, G, BT, _ = other.cookToomFilter(points, 8, 9)
        other.filterVerify(8, 9, AT, G, BT)

    found = interleaved(rounds, winolab=lambda: fresh(8, 9, "paper"), wincnn=theirs)
    ratio = found["wincnn"] / found["winolab"]
    rows.append(_row("transforms(8, 9)", found["winolab"], "s"))
    rows.append(_row("wincnn, F(8,9) and filterVerify", found["wincnn"], "s"))
    rows.append(_row("wincnn over winolab", ratio, "ratio", SPEEDUP, ratio >= SPEEDUP))
    return rows


class EachFraction(Exact):
    """Exact arithmetic operation by operation, as the programs have them; Exact itself runs over
    integers."""


def exactly(rounds: int) -> list[Row]:
    """Exact convolutions over integers against Fractions, and what FLINT adds to it."""
    rng, (x_shape, w_shape) = np.random.default_rng(0), EXACT
    x, w = (rng.uniform(-1, 1, shape).astype(np.float32) for shape in (x_shape, w_shape))
    problem = Problem.of(x_shape, w_shape, padding=1)
    runs = {"integers": Exact(), "python": Exact(), "fractions": EachFraction()}

    def run(name: str, algorithm: Algorithm) -> None:
        with nullcontext() if name == "integers" else _without_flint():
            tiled.forward(x, w, problem, algorithm, runs[name])

    rows = []
    for what, text in EXACT_ALGORITHMS.items():
        named = parse_algorithm(text)
        seconds = interleaved(rounds, **{name: partial(run, name, named) for name in runs})
        rows += [_row(f"exact {what}, by {name}", seconds[name], "s") for name in runs]
        ratio = seconds["fractions"] / seconds["integers"]
        row = f"by integers over fractions, {what}"
        rows.append(_row(row, ratio, "ratio", EXACTLY, ratio >= EXACTLY))
    return rows


@contextmanager
def _without_flint() -> Iterator[None]:
    flint, rational.flint = rational.flint, None
    try:
        yield
    finally:
        rational.flint = flint


def direct(rounds: int) -> list[Row]:
    """Direct FP64 convolution against one matrix product of the same multiply-adds."""
    rows = []
    for name, (x_shape, w_shape, padding) in LAYERS.items():
        problem = Problem.of(x_shape, w_shape, padding=padding)
        rng = np.random.default_rng(0)
        x = rng.random(x_shape, dtype=np.float32)
        w = rng.random(w_shape, dtype=np.float32)
        a, b = _gemm(problem, rng)
        seconds = interleaved(
            rounds,
            direct=lambda x=x, w=w, p=problem: convolution.forward(x, w, p),
            matmul=lambda a=a, b=b: a @ b,
        )
        rate = problem.macs / seconds["direct"]
        share = rate / (a.shape[0] * a.shape[1] * b.shape[1] / seconds["matmul"])
        rows.append(_row(f"direct FP64, {name}", rate / 1e9, "1e9 multiply-adds/s"))
        rows.append(_row(f"over NumPy's matmul, {name}", share, "ratio", SHARE, share >= SHARE))
    peak = _peak_gib()
    rows.append(_row("peak memory, largest shape", peak, "GiB", MEMORY_GIB, peak < MEMORY_GIB))
    return rows


def _gemm(problem: Problem, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Operands of an im2col matrix product of this layer, some thousand rows of it."""
    depth = problem.macs // math.prod(problem.y_shape)
    return rng.random((4096, depth)), rng.random((depth, problem.out_channels))


def _peak_gib() -> float:
    """Peak resident memory of a process that convolves the largest shape, its tensors included."""
    script = (
        "import resource, numpy as np\n"
        "from winolab.algorithm import Problem\n"
        "from winolab.ref import convolution\n"
        f"x_shape, w_shape, padding = {LARGEST!r}\n"
        "x, w = np.ones(x_shape, np.float32), np.ones(w_shape, np.float32)\n"
        "convolution.forward(x, w, Problem.of(x_shape, w_shape, padding=padding))\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return int(done.stdout) / 2**20  # Linux counts KiB


def simulated(rounds: int) -> list[Row]:
    """Simulated multiply-adds a second, in a matrix product.

    A fused multiply-add of FP32 is five passes of NumPy over a block of float64: product, sum, a
    shift that finds ties, and the roundings to float32 and back. Their rate over a block that stays
    in the second-level cache is the ceiling; the rest is the search for ties and the transforms.
    """
    rng = np.random.default_rng(0)
    a, b = rng.random((16, 64, 1024)), rng.random((16, 1024, 256))
    kinds = {"fp32": "fp32", "tf32": "tf32", "pairwise": "fp32,accumulation=pairwise"}
    runs = {name: arithmetic(text) for name, text in kinds.items()}
    operands = {name: (run.asarray(a), run.asarray(b)) for name, run in runs.items()}
    functions = {
        name: lambda run=run, ab=operands[name]: run.matmul(*ab) for name, run in runs.items()
    }
    seconds = interleaved(rounds, **functions, passes=_passes)
    macs = a.size * b.shape[-1]
    ceiling = BLOCK * PASSES / seconds["passes"]
    rows = [
        _row(f"simulated {name} matmul", macs / seconds[name] / 1e6, "1e6 multiply-adds/s")
        for name in runs
    ]
    rows.append(_row("five passes over a block in cache", ceiling / 1e6, "1e6 elements/s"))
    rows.append(_row("fp32 over that ceiling", macs / seconds["fp32"] / ceiling, "ratio"))
    return rows


PASSES = 64


def _passes() -> None:
    x, y, acc = (np.ones(BLOCK) for _ in range(3))
    low, single = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.float32)
    for _ in range(PASSES):
        np.multiply(x, y, out=x)
        np.add(x, acc, out=y)
        np.left_shift(y.view(np.int64), 35, out=low)
        np.copyto(single, y, casting="same_kind")
        np.copyto(acc, single)


def _row(what: str, value: float, unit: str, target: float | None = None, met=None) -> Row:
    return {"what": what, "value": value, "unit": unit, "target": target, "met": met}


def main(
    wincnn: Annotated[Path | None, typer.Option(help="A checkout of wincnn; needs sympy.")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Interleaved rounds.")] = 5,
    only: Annotated[
        list[str] | None, typer.Option(help="A part to measure; rows of others are kept.")
    ] = None,
) -> None:
    """Measure, print, and keep the rows."""
    parts: Mapping[str, Callable[[], list[Row]]] = {
        "matrices": lambda: matrices(wincnn, rounds),
        "exactly": lambda: exactly(rounds),
        "direct": lambda: direct(rounds),
        "simulated": lambda: simulated(rounds),
    }
    where = provenance()
    if wrong := [name for name in only or () if name not in parts]:
        raise typer.BadParameter(f"no part {wrong[0]}; expected {', '.join(parts)}")
    rows = [row | where for name in only or parts for row in parts[name]()]
    for module in () if only else modules("rates"):
        rows += [row | where for row in module.rates(interleaved, rounds)]
    kept = [json.loads(line) for line in RESULTS.read_text().splitlines()] if only else []
    new = {row["what"] for row in rows}
    kept = [row for row in kept if row["what"] not in new]
    RESULTS.write_text("".join(json.dumps(row) + "\n" for row in (*kept, *rows)))
    for row in rows:
        met = {None: "", True: "met", False: "MISSED"}[row["met"]]
        target = "" if row["target"] is None else f"target {row['target']:g}"
        print(f"{row['what']:44} {row['value']:10.4g} {row['unit']:22} {target:12} {met}")


if __name__ == "__main__":
    typer.run(main)
