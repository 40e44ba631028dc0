"""Im2col-Winograd's Table 3 and Figure 10 from the CUDA kernels: ``python -m
experiments.gpu_errors``. Rows replace experiments/results/gpu_errors.jsonl.

The paper's shapes, inputs and filters uniform on [1, 2), against FP64 on the GPU, with the papers'
points and with the best, beside cuDNN's GEMM without and with TF32.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.facts import ROOT
from experiments.im2col_winograd import FIGURE_CHANNELS
from experiments.outputs import BINS
from winolab import bench
from winolab.gpu import launch, oracle
from winolab.gpu.contenders import Arrays, Contender, judges, ours
from winolab.layers import TABLE3_CHANNELS, Layer, grid
from winolab.nouns import gamma

RESULTS = ROOT / "experiments" / "results" / "gpu_errors.jsonl"
GEMM = "IMPLICIT_PRECOMP_GEMM"
FLOP = 2e10  # of the images that are computed


def few(layer: Layer) -> Layer:
    """The layer with as many images as FLOP allows, at least one: each is as exact as another."""
    work = 2 * layer.problem.macs
    return replace(layer, batch=max(1, min(layer.batch, int(FLOP * layer.batch / work))))


def contenders(layer: Layer) -> Iterator[tuple[str, Contender]]:
    """Points and kernel: Γ with both sets of points in every FP32 precision, and cuDNN's GEMM."""
    seen = set()
    alpha, n, r = layer.kernel or (0, 0, 0)
    for points in ("paper", "best"):
        algorithm = gamma(alpha, n, r, points=points)
        for one in ours("forward", layer.problem, "fp32", algorithm):
            if one.labels["kernel"] == bench.kernel_name(layer) and one.name not in seen:
                seen.add(one.name)
                yield one.labels["points"], one
    for judge in judges("forward", layer.problem, "fp32", layouts=("NHWC",)):
        if isinstance(judge, Contender) and judge.labels["kernel"] == GEMM:
            yield "", judge


def measured(layer: Layer) -> Iterator[dict[str, Any]]:
    """A row a contender."""
    cp = launch.cupy()
    small = few(layer)
    problem = small.problem
    arrays = Arrays("forward", problem, "fp32")
    arrays.fill(1, 2)
    x, w = arrays.operands["NHWC"]
    exact = oracle.fp64("forward", problem, x, w)
    edges = cp.asarray(BINS)
    for points, one in contenders(small):
        workspace = cp.empty(one.workspace or 0, "uint8")
        arrays.poison()
        one.run(arrays, workspace.data.ptr)
        relative = abs(arrays.result(one.order).astype("float64") - exact) / abs(exact)
        row = {
            "kernel_of": bench.kernel_name(layer),
            "shape": str(layer),
            "channels": layer.channels,
            "images": small.batch,
            "points": points,
            **{name: one.labels[name] for name in ("method", "kernel", "products")},
            "mare": float(relative.mean()),
            "max_relative": float(relative.max()),
        }
        if layer.kernel and layer.kernel[0] == 16 and layer.channels in FIGURE_CHANNELS:
            decades = cp.log10(cp.clip(relative, 10.0 ** BINS[0], 1.0))
            row["histogram"] = cp.histogram(decades, edges)[0].tolist()
        yield row


def main(output: Annotated[Path, typer.Option(help="File that is written.")] = RESULTS) -> None:
    """Measure all shapes of Table 3 on this GPU."""
    bench.ready()
    machine = bench.context()
    with output.open("w") as file:
        for layer in grid(TABLE3_CHANNELS):
            for row in measured(layer):
                file.write(json.dumps({**row, **machine}) + "\n")
                print(row["shape"], row["kernel"], row["products"], row["points"],
                      f"{row['mare']:.2e}", flush=True)  # fmt: skip


if __name__ == "__main__":
    typer.run(main)
