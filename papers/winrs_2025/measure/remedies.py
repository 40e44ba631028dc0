"""On a GPU: WinRS's Figure 12, FP16 sums with each remedy against error off in turn.

``python -m papers.winrs_2025.measure.remedies [--seconds S]`` adds to
experiments/results/winrs_remedies.jsonl: layers of papers.winrs_2025.errors, U[0, 1], dy
scaled by 0.01, the mean relative error against FP64. Buckets of "plain sum of buckets" are the
kernel's, added up in order without compensation.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.harness.facts import ROOT
from experiments.measure.published.rows import Row, layer_of
from experiments.measure.throughput import compile_all
from papers.winrs_2025.errors import LENGTHS
from papers.winrs_2025.grid import Layer
from winolab.algorithm import Tile, omega
from winolab.arguments.variants import FUSED, FUSED_FP16
from winolab.bench import oracle
from winolab.bench.compare import free
from winolab.bench.contenders import Arrays, ours
from winolab.cli import bench
from winolab.cli.screen.render import plain
from winolab.device import Device
from winolab.gpu import driver
from winolab.gpu.families.wgrad_mma.plan import WgradMmaPlan, plans
from winolab.gpu.planner.request import Request
from winolab.ref.algorithms.winrs.kernels import Kernel
from winolab.ref.algorithms.winrs.plan import plan

RESULTS = ROOT / "experiments" / "results" / "winrs_remedies.jsonl"
SCALE = 0.01  # of dy, as in the paper
WITHOUT = ("all", "one segment", "plain sum of buckets", "no scaling", "FP32 sums")


@dataclass(frozen=True)
class Case:
    """One layer with one remedy off."""

    layer: Layer
    without: str

    @property
    def tile(self) -> Tile:
        """The simulation's."""
        return Tile(3, 6) if self.layer.taps == 3 else Tile(9, 8)

    def plan(self, device: Device) -> WgradMmaPlan:
        """The kernel with the paper's points, on as many segments as Algorithm 1 wants."""
        problem, tile = self.layer.problem, self.tile
        made = plan(problem, device, "fp16", points="paper", kernel=Kernel(tile, "fp16"))
        count = 1 if self.without == "one segment" else len(made.segments)
        variant = FUSED if self.without == "FP32 sums" else FUSED_FP16
        sizes = tile.alpha, tile.n, tile.r
        named = omega(*sizes, points="paper", segments=count, variant=variant)
        request = Request(problem, "backward_filter", device, named, "fp16")
        found = min(plans(request), key=lambda p: p.predicted)
        assert isinstance(found, WgradMmaPlan)
        if self.without == "no scaling":
            return replace(found, config=replace(found.config, scaled=0))
        return found


def cases() -> Iterator[Case]:
    """Figure 12's lengths, shortest first."""
    for layer in sorted(LENGTHS, key=lambda layer: layer.problem.macs):
        yield from (Case(layer, name) for name in WITHOUT)


def run(case: Case, arrays: Arrays, exact: Any) -> Row:
    """The row of a case: its error, over outputs that are finite."""
    cp, p = driver.cupy(), case.plan(driver.device(0))
    (contender,) = ours({p: False})
    space = cp.full(max(1, p.workspace // 4), cp.nan, "float32")
    arrays.poison()
    contender.call(arrays, space.data.ptr)()
    dw = arrays.results["NHWC"]
    if case.without == "plain sum of buckets" and p.segments > 1:
        total = cp.zeros(dw.size, "float32")
        for bucket in space[: p.segments * dw.size].reshape(p.segments, -1):
            total += bucket
        dw = total.reshape(dw.shape).astype(dw.dtype)
    finite = bool(cp.isfinite(dw).all())
    error = oracle.mean_relative(dw, exact)
    return {
        **layer_of("backward_filter", case.layer.problem),
        "layer": str(case.layer),
        "taps": case.layer.taps,
        "accumulation": case.layer.accumulation,
        "variant": case.without,
        **contender.labels,
        "segments": p.segments,
        "finite": finite,
        "mare": error if math.isfinite(error) else "nan",
    }


def main(
    seconds: Annotated[float, typer.Option(help="Time that the run may take.")] = 3600,
    output: Annotated[Path, typer.Option(help="File that rows are added to.")] = RESULTS,
) -> None:
    """Measure the layers that have no rows yet."""
    end = time.monotonic() + seconds
    bench.ready()
    kept = [json.loads(line) for line in output.read_text().splitlines()] if output.exists() else []
    gpu = driver.device(0).name
    known = {(row["layer"], row["taps"]) for row in kept if row["device"] == gpu}
    device = driver.device(0)
    left = [case for case in cases() if (str(case.layer), case.layer.taps) not in known]
    print(f"{compile_all(case.plan(device) for case in left)} kernels", flush=True)
    machine = {**bench.context(), "run": datetime.now(UTC).isoformat(timespec="milliseconds")}
    for layer in dict.fromkeys(case.layer for case in left):
        if time.monotonic() > end:
            break
        arrays = Arrays("backward_filter", layer.problem, "fp16")
        arrays.fill(0, 1, scale=SCALE)
        exact = oracle.fp64("backward_filter", layer.problem, *arrays.operands["NHWC"])
        made = list(map(partial(run, arrays=arrays, exact=exact),
                        (case for case in left if case.layer == layer)))  # fmt: skip
        with output.open("a") as file:
            file.writelines(json.dumps(plain({**row, **machine})) + "\n" for row in made)
        print(layer, layer.taps, {row["variant"]: row["mare"] for row in made}, flush=True)
        free()


if __name__ == "__main__":
    typer.run(main)
