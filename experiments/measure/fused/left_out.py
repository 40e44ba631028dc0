"""On a GPU: what bounds the fused F(2×2,3×3) on FFMA units, by leaving out one step after another.

``python -m experiments.measure.fused.left_out [--seconds S]`` replaces the rows of
experiments/results/fused2d_left_out.jsonl. The kernel that the planner offers is compiled without
the producers' loads of x, without the input transform's arithmetic, without the output transform
and its stores, and with none of the three: what is left multiplies and copies transformed filters.
All but the first have wrong results, which a row says (``results``); no plan has such a source.
``share`` is of the ceiling, 2.25 × SGEMM × the share of tiles' outputs that are in the image.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.harness.facts import ROOT
from experiments.measure.fused import beside
from experiments.measure.fused.replaced import Row, replaced
from experiments.measure.throughput import compile_sources
from winolab.bench.contenders import Arrays, unnamed
from winolab.bench.timing import FLUSH, interleave
from winolab.cli import bench
from winolab.device import Device
from winolab.gpu import driver
from winolab.gpu.families.fused2d.config import Config
from winolab.gpu.families.fused2d.plan import Fused2dPlan, plans
from winolab.gpu.families.fused2d.source import LEFT_OUT, source
from winolab.gpu.runtime import loader

RESULTS = ROOT / "experiments" / "results" / "fused2d_left_out.jsonl"
BATCHES = {"opencnn": 128, "vgg_e": 64}  # that fill the GPU
STEPS: tuple[tuple[str, ...], ...] = ((), *((step,) for step in LEFT_OUT), tuple(LEFT_OUT))
ROUNDS = 9
SAVING = 4 * 9 / 16  # products of a tile, directly and by F(2×2,3×3)
BOUND_BY_MEMORY = "conv 1.1"


def useful(input_shape: str) -> float:
    """The share of tiles' outputs that are in the image, padded by 1: of 32x7x7x512, 49 of 64."""
    _, *sides, _ = map(int, input_shape.split("x"))
    return math.prod(side / (2 * -(-side // 2)) for side in sides)


@dataclass(frozen=True)
class Cut:
    """The kernel of a plan without some steps."""

    plan: Fused2dPlan
    steps: tuple[str, ...]

    @property
    def source(self) -> str:
        """Its translation unit, which is the plan's where nothing is left out."""
        p, flags = self.plan, sum(LEFT_OUT[step] for step in self.steps)
        return source(p.points, p.config, (p.dtype, p.out_dtype), left_out=flags)

    @property
    def name(self) -> str:
        """What is left out."""
        return " and ".join(self.steps) or "nothing"


def cases() -> Iterator[beside.Case]:
    """openCNN's layers and VGG-E's that memory does not bound, at the largest batch."""
    for case in beside.cases(tuple(BATCHES)):
        if case.problem.batch == BATCHES[case.list] and case.layer != BOUND_BY_MEMORY:
            yield case


def cuts(case: beside.Case, device: Device) -> list[Cut]:
    """The kernel that is offered, whole first."""
    request = unnamed("forward", case.problem, "fp32", device)
    config = Config(ahead=True, split_k=1)
    asked = replace(request, algorithm=beside.ALGORITHM, precision="fp32", config=config)
    (plan,) = plans(asked)
    return [Cut(plan, steps) for steps in STEPS]


def run(case: beside.Case, machine: Row) -> Iterator[Row]:
    """The rows of a case on a machine, whose SGEMM's TFLOPS are the measure."""
    arrays = Arrays("forward", case.problem, "fp32")
    arrays.fill(-1, 1)
    ordered = beside.Ordered(arrays, "nhwc")
    mine, sgemm = cuts(case, driver.device(0)), machine["sgemm_tflops"]
    memory = driver.cupy().empty(mine[0].plan.workspace, "uint8")
    calls: dict[str, Callable[[], Any]] = {}
    for cut in mine:
        kernels = loader.load(cut.source, cut.name, cut.plan.shared(), 0)
        calls[cut.name] = partial(beside.fused, cut.plan, arrays, ordered, memory.data.ptr, kernels)
    times = interleave(calls, rounds=ROUNDS, flush=FLUSH, warmup=1)
    for cut in mine:
        row = {
            **beside.layer_of(case),
            "kernel": cut.plan.kernel,
            "plan": str(cut.plan.config),
            "left_out": list(cut.steps),
            "results": "wrong" if cut.steps else "right",
            **beside.speed(case.problem, times[cut.name]),
        }
        row["share"] = round(row["tflops"] / (SAVING * sgemm * useful(row["input"])), 4)
        yield row


def named(case: beside.Case) -> str:
    """What a case is called where it is told."""
    return f"{case.layer} N={case.problem.batch}"


def told(rows: list[Row]) -> str:
    """The share of the ceiling that each kernel reaches."""
    shares = ", ".join(f"{'+'.join(r['left_out']) or 'whole'} {r['share']:.2f}" for r in rows)
    return f"share of the ceiling {shares}"


def main(
    output: Annotated[Path, typer.Option(help="File of the rows.")] = RESULTS,
    seconds: Annotated[float, typer.Option(help="Time that the run may take.")] = 120,
) -> None:
    """Measure all cases, and replace the file."""
    bench.ready()
    end, asked, device = time.monotonic() + seconds, list(cases()), driver.device(0)
    sources = {cut.source: cut.name for case in asked for cut in cuts(case, device)}
    print(f"{compile_sources(sources)} kernels", flush=True)
    replaced(output, end, asked, run, named, told)


if __name__ == "__main__":
    typer.run(main)
