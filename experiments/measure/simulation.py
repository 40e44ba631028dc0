"""What the simulation of arithmetics does in a second of one core: NumPy's blocks, Numba's loops.

``python -m experiments.measure.simulation`` multiplies matrices of a layer's size in every order of
summation and counts the processor's seconds, the least of some rounds, the two in turn. Rows
replace experiments/results/simulation.jsonl; ``aim`` is what Numba's loops are to gain at least.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from experiments.harness.facts import ROOT
from winolab.cli.environment import installed, provenance
from winolab.gpu.machine import install
from winolab.ref.arithmetic import loops
from winolab.ref.arithmetic.simulated import arithmetic

RESULTS = ROOT / "experiments" / "results" / "simulation.jsonl"
AIM = 4.0
GROUPS, M, K, N = 4, 64, 576, 256
PRECISIONS = (
    "fp32",
    "fp32,fused=no",
    "fp32,accumulation=two_level:32",
    "fp32,accumulation=pairwise",
    "fp32,accumulation=kahan",
    "fp16",
    "bf16",
    "tf32",
    "fp32_split",
    "fp16,accumulate=fp16,accumulation=sequential",
    "fp16,accumulate=fp16,accumulation=pairwise",
    "fp16,accumulate=fp16,accumulation=kahan",
    "bf16,accumulate=bf16,accumulation=sequential",
)


def seconds(function: Callable[[], Any], enough: int) -> float:
    """Seconds of the processor, with Numba's loops (0) or without them (sys.maxsize)."""
    loops.ENOUGH = enough
    started = time.process_time()
    function()
    return time.process_time() - started


def row(precision: str, rounds: int) -> dict[str, Any]:
    """Multiply-adds a second of both."""
    run, rng = arithmetic(precision), np.random.default_rng(0)
    a = run.asarray(rng.standard_normal((GROUPS, M, K)))
    b = run.asarray(rng.standard_normal((GROUPS, K, N)))
    some = a[:1], b[:1]
    seconds(lambda: run.matmul(*some), 0)  # compiles
    taken = {0: np.inf, sys.maxsize: np.inf}
    for _ in range(rounds):
        for enough, before in taken.items():
            taken[enough] = min(before, seconds(lambda: run.matmul(a, b), enough))
    numba, numpy = (GROUPS * M * K * N / s for s in taken.values())
    return {
        "precision": precision,
        "shape": f"{GROUPS}x{M}x{K}x{N}",
        "numpy_per_second": numpy,
        "numba_per_second": numba,
        "ratio": numba / numpy,
        "aim": AIM,
        "rounds": rounds,
        "numba": installed("numba"),
        **provenance(),
    }


def main(
    output: Annotated[Path, typer.Option(help="File that is written.")] = RESULTS,
    rounds: Annotated[int, typer.Option(min=1, help="Of which the least counts.")] = 5,
) -> None:
    """Measure on one core of this machine."""
    if loops.installed() is None:
        raise SystemExit(f"numba is not installed: {install('fast')}")
    rows = []
    for precision in PRECISIONS:
        rows.append(row(precision, rounds))
        rates = (f"{rows[-1][name]:.3g}" for name in ("numpy_per_second", "numba_per_second"))
        print(f"{precision:48} {' '.join(rates)} {rows[-1]['ratio']:.1f}", flush=True)
    output.write_text("".join(json.dumps(r, sort_keys=True) + "\n" for r in rows))


if __name__ == "__main__":
    typer.run(main)
