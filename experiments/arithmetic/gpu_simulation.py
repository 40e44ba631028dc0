"""On a GPU: the simulation's bits beside NumPy's, and its multiply-adds a second.

``python -m experiments.arithmetic.gpu_simulation`` adds a row an arithmetic to
experiments/results/gpu_simulation.jsonl: of 2 × 200 × 170 results of 1100 products how many have
the CPU's bits; ``kernel_per_second`` multiply-adds of 2048 × 2048 × 2048 by the kernel alone, and
``call_per_second`` with the copies to and from the GPU. WINOLAB_COMMIT names the commit.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from experiments.harness.facts import ROOT
from winolab.gpu import driver
from winolab.gpu.codegen import simulated
from winolab.gpu.runtime.loader import load
from winolab.gpu.runtime.simulation import OnGpu, on_gpu
from winolab.lines import Lines
from winolab.ref.arithmetic.simulated import arithmetic

RESULTS = ROOT / "experiments" / "results" / "gpu_simulation.jsonl"
EDGE = 2048
ARITHMETICS = (
    *("fp32", "fp32,accumulation=two_level:32", "fp32,accumulation=pairwise"),
    *("fp32,accumulation=kahan", "fp32,fused=no", "tf32@hopper", "fp16", "fp16@hopper"),
    *("bf16@hopper", "fp16,accumulate=fp16,accumulation=sequential", "fp32_split"),
    "fp16,product=fp8_e4m3,accumulate=fp8_e5m2,accumulation=kahan",
)


def equal(run: OnGpu, text: str) -> tuple[int, int]:
    """Results of the GPU with the CPU's bits, and all."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((2, 200, 1100), (1100, 170)))
    a *= np.exp2(rng.integers(-4, 5, a.shape)).astype(np.float32)
    a[rng.random(a.shape) < 1e-5] = np.inf
    y, expected = (one.to_float64(one.matmul(a, b)) for one in (run, arithmetic(text)))
    same = (y == expected) & (np.signbit(y) == np.signbit(expected))
    return int((same | (np.isnan(y) & np.isnan(expected))).sum()), y.size


def speeds(run: OnGpu) -> tuple[float, float]:
    """Multiply-adds a second of the kernel, and of a call with NumPy's arrays."""
    cp = driver.cupy()
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((EDGE, EDGE), np.float32) for _ in range(2))
    a, b = (run.product.round(v).astype(np.float32) for v in (a, b))
    run.summed_products(a, b)
    begun = time.perf_counter()
    run.summed_products(a, b)
    whole = time.perf_counter() - begun
    order, edge = run.accumulation, simulated.tile(run.accumulation)
    source = simulated.source(order, run.accumulate, run.fused, EDGE.bit_length(), run.product)
    kernels = load(source, f"simulated {order} sums", {simulated.KERNEL: 0}, 0)
    arrays = cp.asarray(a), cp.asarray(b), cp.empty((EDGE, EDGE), np.float32)
    times = []
    for _ in range(3):
        marks = [cp.cuda.Event() for _ in range(2)]
        marks[0].record()
        pointers = [v.data.ptr for v in arrays]
        simulated.launch(kernels, pointers, (1, EDGE, EDGE, EDGE), edge)
        marks[1].record()
        marks[1].synchronize()
        times.append(cp.cuda.get_elapsed_time(*marks) / 1e3)
    return EDGE**3 / sorted(times)[1], EDGE**3 / whole


def main(
    output: Annotated[Path, typer.Option(help="File that rows are added to.")] = RESULTS,
) -> None:
    """Compare and time."""
    where = {
        "device": driver.device(0).name,
        "cuda": driver.cupy().cuda.runtime.driverGetVersion(),
        "commit": os.environ.get("WINOLAB_COMMIT", ""),
    }
    with Lines(output) as file:
        for text in ARITHMETICS:
            run = on_gpu(arithmetic(text))
            same, results = equal(run, text)
            once = replace(run, parts=1) if run.parts > 1 else run
            kernel, call = speeds(once)
            row = {
                "precision": text,
                "results": results,
                "equal": same,
                "kernel_per_second": float(f"{kernel:.4g}"),
                "call_per_second": float(f"{call:.4g}"),
            }
            file.append(row | where)
            print(*row.values(), flush=True)


if __name__ == "__main__":
    typer.run(main)
