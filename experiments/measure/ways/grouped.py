"""On a GPU: grouped layers of few channels a group, by every block shape of the kernels for them
and by the fastest other one, beside PyTorch.

``python -m experiments.measure.ways.grouped [--seconds S] [--directions D] [--precisions P]`` takes
ResNeXt-50's grouped layers, of one image and of 32, and layers of 8, 16 and 32 channels a group:
all plans of the families ``grouped`` and ``wgrad_grouped`` and the fastest other one by prediction,
interleaved with PyTorch in both memory orders and with a copy, a cold L2 cache before each. Rows
are as of ``experiments.measure.layers``, in experiments/results/grouped_products.jsonl, in the
place of those of the same case. ``--summary`` shows, without a GPU, what rows say.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from itertools import product
from typing import Annotated

import typer

from experiments.harness.facts import ROOT
from experiments.harness.machines import stored
from experiments.measure.layer_rows import Row, by_case
from experiments.measure.layers import Layer, added, timed
from winolab.bench.contenders import unnamed
from winolab.cli import bench
from winolab.device import Device
from winolab.gpu import driver
from winolab.gpu.planner.planner import candidates
from winolab.gpu.planner.request import DIRECTIONS, Plan

RESULTS = ROOT / "experiments" / "results" / "grouped_products.jsonl"
# Sizes, channels and strides of ResNeXt-50's; groups of the layers of more channels a group.
RESNEXT = (
    (56, 128, 1), (28, 256, 1), (14, 512, 1), (7, 1024, 1),
    (56, 256, 2), (28, 512, 2), (14, 1024, 2),
)  # fmt: skip
WIDE = (16, 8, 4)
OWN = "grouped"  # what kernels of both families are called


def layers() -> Iterator[Layer]:
    """Those of many images first."""
    for batch in (32, 1):
        for size, channels, stride in RESNEXT:
            yield Layer("X", size, channels, 3, stride, batch, filters=channels, groups=32)
        if batch > 1:
            yield from (Layer("X", 56, 128, 3, filters=128, groups=groups) for groups in WIDE)


def plans(layer: Layer, direction: str, precision: str, device: Device) -> dict[Plan, bool]:
    """What is measured of a case, and which is the family's fastest by prediction, that first."""
    every = candidates(unnamed(direction, layer.problem, precision, device)).plans
    ranked = sorted(every, key=lambda p: p.predicted)
    own = [p for p in ranked if p.kernel == OWN]
    other = next(p for p in ranked if p.kernel != OWN)
    return {p: p is own[0] for p in (*own, other)}


def summarized(rows: Iterable[Row]) -> Iterator[str]:
    """Each case's times in microseconds."""
    for case, mine in by_case(rows).items():
        torch = min(row["us"] for row in mine if row["method"] == "torch")
        own = [row for row in mine if row.get("kernel") == OWN]
        other = next(r for r in mine if r["method"] == "winolab" and r["kernel"] != OWN)
        best, first = min(own, key=lambda row: row["us"]), next(r for r in own if r["chosen"])
        yield (
            f"{' '.join(case)}: PyTorch {torch}, {other['kernel']} {other['us']}, "
            f"picked {first['us']} (predicted {first['predicted_us']}), best {best['us']} "
            f"by {best['plan']}"
        )


def main(
    seconds: Annotated[float, typer.Option(help="Time that all of it may take.")] = 60,
    directions: Annotated[str, typer.Option(help="With commas.")] = ",".join(DIRECTIONS),
    precisions: Annotated[str, typer.Option(help="With commas.")] = "fp16",
    summary: Annotated[bool, typer.Option("--summary", help="Show what rows say, stop.")] = False,
) -> None:
    """Measure what time allows."""
    end, rows = time.monotonic() + seconds, stored(RESULTS)
    if not summary:
        bench.ready()
        device = driver.device(0)
        asked = product(layers(), directions.split(","), precisions.split(","))
        todo = [(case, plans(*case, device)) for case in asked]
        rows = added(RESULTS, timed(todo, end))
    print("\n".join(summarized(rows)))


if __name__ == "__main__":
    typer.run(main)
