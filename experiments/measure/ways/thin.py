"""On a GPU: layers of few channels on one side, by the kernels of thin layers and by what else
there is, beside PyTorch.

``python -m experiments.measure.ways.thin [--seconds S] [--direction D] [--kernel K]`` takes
networks' layers that the families thin, patches and wgrad_thin serve, all directions in three
precisions, those first that they are picked for: the FASTEST of the plans of each by prediction
(``--fastest N``: others), and the fastest of all others, interleaved with PyTorch in both memory
orders and with a copy, a cold L2 cache before each. Rows are as of ``experiments.measure.layers``,
in experiments/results/thin.jsonl; what has rows of these kernels is not measured again.
``--summary`` shows, without a GPU, what rows say: for each case how long the fastest of these
kernels took over its prediction, over the others' kernel and over PyTorch, and whether the faster
of both was picked.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import Annotated

import typer

from experiments.harness.facts import ROOT
from experiments.harness.machines import stored
from experiments.measure.layer_rows import Row, by_case, key
from experiments.measure.layers import Case, added, timed
from winolab.bench.contenders import digest, unnamed
from winolab.bench.networks import distinct
from winolab.cli import bench
from winolab.device import Device
from winolab.gpu import driver
from winolab.gpu.families.patches import plan as patches
from winolab.gpu.families.registry import FAMILIES, Family
from winolab.gpu.families.thin import plan as thin
from winolab.gpu.families.wgrad_thin import plan as wgrad_thin
from winolab.gpu.planner.planner import candidates
from winolab.gpu.planner.request import DIRECTIONS, Plan, Request

RESULTS = ROOT / "experiments" / "results" / "thin.jsonl"
FASTEST = 3  # plans of the family, by prediction
OWN = (thin.ThinPlan, patches.PatchesPlan, wgrad_thin.WgradThinPlan)
KERNELS = tuple(dict.fromkeys(p.kernel for p in OWN))
PRECISIONS = ("fp32", "fp16", "bf16")


def plans(case: Case, device: Device, fastest: int = FASTEST) -> dict[Plan, bool]:
    """What is measured of a case, and which of it is picked, that first; nothing of layers that
    no family of thin layers serves."""
    layer, direction, precision = case
    request = unnamed(direction, layer.problem, precision, device)
    names = ("wgrad_thin",) if direction == "backward_filter" else ("thin", "patches")
    own = []
    for family in FAMILIES:
        if family.name in names and precision in family.precisions:
            own += sorted(_offered(family, request), key=lambda p: p.predicted)[:fastest]
    if not own:
        return {}
    every = candidates(request, near=True).plans
    others = [p for p in every if not isinstance(p, OWN)][:1]
    found = dict.fromkeys([every[0], *others, *own], False)
    return found | {every[0]: True}


def _offered(family: Family, request: Request) -> list[Plan]:
    try:
        return [*family.plans(request)]
    except ValueError:
        return []


def cases(
    device: Device, directions: Sequence[str] = DIRECTIONS, fastest: int = FASTEST
) -> list[tuple[Case, dict[Plan, bool]]]:
    """Every case with its plans: those first for which a thin kernel is picked, in random order."""
    every = [(layer, d, p) for layer, d, p in product(distinct(), directions, PRECISIONS)
             if min(layer.channels, layer.filters or 1) <= thin.CHANNELS]  # fmt: skip
    random.Random(0).shuffle(every)
    found = [(case, mine) for case in every if (mine := plans(case, device, fastest))]
    return sorted(found, key=lambda each: not isinstance(next(iter(each[1])), OWN))


def compared(rows: Iterable[Row]) -> Iterator[tuple[Row, Row, float, bool]]:
    """Each case's fastest thin row, the others' row, PyTorch's time and whether the faster of both
    was picked."""
    for mine in by_case(rows).values():
        ours = [r for r in mine if r["method"] == "winolab"]
        own = [r for r in ours if r["kernel"] in KERNELS]
        others = [r for r in ours if r not in own]
        if own and others:
            best, other = (min(some, key=lambda r: r["us"]) for some in (own, others))
            torch = min((r["us"] for r in mine if r["method"] == "torch"), default=math.nan)
            well = (best["us"] < other["us"]) == any(r["chosen"] for r in own)
            yield best, other, torch, well


def summarized(rows: Iterable[Row]) -> Iterator[str]:
    """What rows say, those first that gain most."""
    found = sorted(compared(rows), key=lambda each: each[0]["us"] / each[1]["us"])
    for best, other, torch, well in found:
        us, predicted = best["us"], best["predicted_us"]
        yield (
            f"{' '.join(key(best))}: {us} µs by {best['plan']}, {us / predicted:.2f} of what is "
            f"predicted, {us / other['us']:.2f} of {other['kernel']}'s, {us / torch:.2f} of "
            f"PyTorch's" + "; the slower is picked" * (not well)
        )
    if found:
        off = [best["us"] / best["predicted_us"] for best, *_ in found]
        mean, spread = (f(list(map(math.log, off))) for f in (statistics.fmean, statistics.pstdev))
        picked = sum(well for *_, well in found)
        yield (
            f"{len(found)} cases: {math.exp(mean):.2f} of the prediction, spread {spread:.2f}; the "
            f"faster is picked in {picked}"
        )


def main(
    seconds: Annotated[float, typer.Option(help="Time that all of it may take.")] = 120,
    direction: Annotated[str, typer.Option(help="One alone.")] = "",
    kernel: Annotated[str, typer.Option(help="Cases that this one is picked for, alone.")] = "",
    fastest: Annotated[int, typer.Option(min=1, help="Plans of a family.")] = FASTEST,
    summary: Annotated[bool, typer.Option("--summary", help="Show what rows say, stop.")] = False,
) -> None:
    """Measure what time allows of what is not there yet, or whose kernels have changed since."""
    end, rows = time.monotonic() + seconds, stored(RESULTS)
    if not summary:
        bench.ready()
        kept = {(*key(row), row.get("source")) for row in rows}
        todo = []
        directions = (direction,) if direction else DIRECTIONS
        for case, mine in cases(driver.device(0), directions, fastest):
            which = str(case[0]), *case[1:]
            if kernel and next(iter(mine)).kernel != kernel:
                continue
            if any((*which, digest(p)) not in kept for p in mine):
                todo.append((case, mine))
        rows = added(RESULTS, timed(todo, end))
    print("\n".join(summarized(rows)))


if __name__ == "__main__":
    typer.run(main)
