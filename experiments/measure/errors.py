"""On a GPU: Im2col-Winograd's Table 3 and Figure 10 from the kernels: ``python -m
experiments.measure.errors``. Rows go to experiments/results/gpu_errors.jsonl.

The paper's shapes, inputs and filters uniform on [1, 2), with the papers' points and with the best,
beside cuDNN's GEMM without and with TF32; and, on the shapes of LISTS, data that is not uniform.
Every batch is computed whole, as it is planned, and some of its images are held against FP64.
A shape runs again only where its rows measured another source than the planner chooses now, or
another GPU, whose rows are dropped.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.harness.facts import ROOT
from experiments.harness.machines import stored
from experiments.harness.outputs import BINS, DISTRIBUTIONS
from experiments.measure.throughput import compile_all, latest, sources
from winolab.algorithm import gamma
from winolab.bench import oracle
from winolab.bench.compare import free
from winolab.bench.contenders import Arrays, Contender, digest, entered, judges, ours
from winolab.bench.layers import SQUARES, TABLE3_CHANNELS, Layer, grid
from winolab.cli import bench
from winolab.cli.screen.render import plain
from winolab.gpu import driver
from winolab.gpu.planner.request import Plan
from winolab.lines import Lines, rewrite

RESULTS = ROOT / "experiments" / "results" / "gpu_errors.jsonl"
GEMM = "IMPLICIT_PRECOMP_GEMM"
FLOP = 2e10  # of the images that are held against FP64
LISTS = ("dragon", "resnet")
WIDE = 20  # binades of the inputs' factors, as winolab.measure has them
Row = dict[str, Any]


def images(layer: Layer) -> list[int]:
    """Images, at least one, of FLOP operations if convolved directly, spread over the batch."""
    count = max(1, min(layer.batch, int(FLOP * layer.batch / (2 * layer.problem.macs))))
    return [i * layer.batch // count for i in range(count)]


def plans(layer: Layer, data: str) -> dict[Plan, bool]:
    """On the paper's data Γ of the layer's kernel with both sets of points, in every precision of
    FP32; else what the planner takes in each."""
    if data != "u12":
        return entered("forward", layer.problem, "fp32", None)
    alpha, n, r = layer.kernel or (0, 0, 0)
    found = {}
    for points in ("paper", "best"):
        algorithm = gamma(alpha, n, r, points=points)
        found |= entered("forward", layer.problem, "fp32", algorithm)
    return {plan: False for plan in found if plan.kernel == bench.kernel_name(layer)}


def contenders(layer: Layer, mine: Mapping[Plan, bool]) -> Iterator[Contender]:
    """Our kernels, and cuDNN's GEMM."""
    yield from ours(mine)
    for judge in judges("forward", layer.problem, "fp32", layouts=("NHWC",)):
        if isinstance(judge, Contender) and judge.labels["kernel"] == GEMM:
            yield judge


def fill(arrays: Arrays, data: str) -> None:
    """Inputs and filters on [1, 2) ("u12"), or of winolab.measure's "relu" and "wide"."""
    cp = driver.cupy()
    if data == "u12":
        arrays.fill(1, 2)
        return
    rng = cp.random.default_rng(0)
    x, w = (rng.standard_normal(shape, dtype="float32") for shape in arrays.shapes[:2])
    if data == "relu":
        x = cp.maximum(x, 0)
    else:
        x *= cp.exp2(-WIDE * rng.random(x.shape, dtype="float32"))
    arrays.assign(x, w)


def measured(layer: Layer, data: str, mine: Mapping[Plan, bool]) -> Iterator[Row]:
    """A row a contender; ``mine`` are our plans."""
    cp = driver.cupy()
    problem, some = layer.problem, images(layer)
    arrays = Arrays("forward", problem, "fp32")
    fill(arrays, data)
    x, w = arrays.operands["NHWC"]
    exact = oracle.fp64("forward", replace(problem, batch=len(some)), x[some], w)
    edges = cp.asarray(BINS)
    for one in contenders(layer, mine):
        workspace = cp.empty(one.workspace or 0, "uint8")
        arrays.poison()
        one.run(arrays, workspace.data.ptr)
        result = arrays.result(one.order)[some].astype("float64")
        row = {
            "kernel_of": bench.kernel_name(layer),
            "case": [str(layer), data],
            "shape": str(layer),
            "channels": layer.channels,
            "images": len(some),
            "data": data,
            "points": one.labels.get("points", ""),
            "plan": one.labels.get("plan", ""),
            "source": one.labels.get("source"),
            **{name: one.labels[name] for name in ("method", "kernel", "products")},
            "relative_rms": oracle.relative_rms(result, exact),
        }
        if data == "u12":
            relative = abs(result - exact) / abs(exact)
            row |= {"mare": float(relative.mean()), "max_relative": float(relative.max())}
            if layer.kernel and layer.kernel[0] == 16 and layer.channels in DISTRIBUTIONS:
                decades = cp.log10(cp.clip(relative, 10.0 ** BINS[0], 1.0))
                row["histogram"] = cp.histogram(decades, edges)[0].tolist()
        yield row
    free()


def todo(match: str = "") -> Iterator[tuple[Layer, str]]:
    """Layers and their data: of all, those with ``match`` in their names."""
    lists = [layer for name in LISTS for layer in SQUARES[name]]
    found = [(layer, "u12") for layer in grid(TABLE3_CHANNELS)]
    found += [(layer, data) for layer in lists for data in ("relu", "wide")]
    yield from ((layer, data) for layer, data in found if match in f"{layer} {data}")


def main(
    output: Annotated[Path, typer.Option(help="File that rows are added to.")] = RESULTS,
    seconds: Annotated[float, typer.Option(help="Time that the run may take.")] = 3600,
    match: Annotated[str, typer.Option(help="Part of a layer and its data, as printed.")] = "",
    compile_only: Annotated[
        bool, typer.Option("--compile", help="Fill the cache of kernels and stop.")
    ] = False,
) -> None:
    """Measure what is not yet in the file on this GPU."""
    end = time.monotonic() + seconds
    bench.ready()
    gpu = driver.device(0).name
    done = {tuple(mine[0]["case"]): sources(mine) for mine in latest(stored(output), gpu)}
    found = ((layer, data, plans(layer, data)) for layer, data in todo(match))
    missing = (
        (layer, data, mine)
        for layer, data, mine in found
        if not {digest(plan) for plan in mine} <= done.get((str(layer), data), set())
    )
    if compile_only:
        print(f"{compile_all(plan for *_, mine in missing for plan in mine)} kernels")
        return
    machine = {**bench.context(), "run": datetime.now(UTC).isoformat(timespec="milliseconds")}
    with Lines(output) as file:
        for layer, data, mine in missing:
            if time.monotonic() > end:
                break
            rows = [{**row, **machine} for row in measured(layer, data, mine)]
            for row in rows:
                file.append(plain(row))
            errors = ", ".join(
                f"{row['kernel']} {row['products']} {row['points']} "
                f"{row.get('mare', row['relative_rms']):.2e}"
                for row in rows
            )
            print(f"{end - time.monotonic():5.0f} s left {layer} {data}: {errors}", flush=True)
    last = latest(stored(output), gpu)
    rewrite(output, (row for mine in last for row in mine))


if __name__ == "__main__":
    typer.run(main)
