"""On a GPU: filters of one tap that few positions meet, by their kernel and by what else there is.

``python -m experiments.measure.ways.skinny [--seconds S]`` measures networks' layers that the
family serves, in all directions, in FP32 and in FP16 or BF16 in turn, those whose rows are not
there yet or whose pick has changed, in an order that makes what time allows a sample. Rows go to
experiments/results/skinny.jsonl, as ``experiments.measure.layers`` has them: ``winolab`` is what
the planner picks (``chosen``), the MOST shapes of this family of the least predicted time, a FEW
others, and the fastest predicted of every other family; ``torch`` each memory order in benchmark
mode.

``--summary`` shows of the rows that are there, without a GPU, by direction, batch and precision:
speeds over PyTorch's of the pick, of the family's fastest and of the fastest of all others. With
them the device model's section is fitted: ``python -m experiments.calibrate.device_model``.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import replace
from statistics import geometric_mean

from experiments.measure.layer_rows import Row, by_case
from experiments.measure.layers import RESULTS
from experiments.measure.ways.sample import Case, Sample, command, firsts
from winolab.bench.contenders import unnamed
from winolab.bench.networks import BatchedLayer, distinct
from winolab.device import Device, datasheet
from winolab.gpu.families.skinny.config import configs
from winolab.gpu.families.skinny.plan import SkinnyPlan
from winolab.gpu.families.skinny.plan import plans as offered
from winolab.gpu.families.skinny.tiling import sizes
from winolab.gpu.planner.planner import candidates, plan
from winolab.gpu.planner.request import DIRECTIONS, ITEMSIZE, Plan

OUTPUT, MOST, FEW = RESULTS / "skinny.jsonl", 4, 4
AHEAD = 48  # cases that are planned and compiled at once
H200 = datasheet("h200")


def cases() -> list[Case]:
    """Every layer that is served, in the order of measuring."""
    found = [
        (layer, way)
        for layer in distinct()
        for way in DIRECTIONS
        if any(True for _ in offered(unnamed(way, layer.problem, "fp32", H200)))
    ]
    random.Random(0).shuffle(found)
    halves = [(*case, ("fp16", "bf16")[i % 2]) for i, case in enumerate(found)]
    return [case for i, half in enumerate(halves) for case in ((*found[i], "fp32"), half)]


def plans(layer: BatchedLayer, direction: str, group: str, device: Device) -> dict[Plan, bool]:
    """What is picked, some of this family by prediction and by chance, the first of every other."""
    request = unnamed(direction, layer.problem, group, device)
    every = candidates(request, near=True).plans
    mine = sorted(offered(request), key=lambda p: p.predicted)[:MOST]
    known = {p.config for p in mine}
    of, size = sizes(direction, layer.problem), ITEMSIZE[request.dtype]
    rest = [v for v in configs(direction, of, size) if v not in known]
    for v in random.Random(str(layer)).sample(rest, min(FEW, len(rest))):
        mine += offered(replace(request, config=v))
    picked = plan(request)
    return dict.fromkeys([picked, *mine, *firsts(every, SkinnyPlan)], False) | {picked: True}


def summarized(rows: Iterable[Row]) -> Iterator[str]:
    """Geometric means by direction, batch and precision."""
    groups: dict[str, list[tuple[float, float, float, float]]] = {}
    for case in by_case(rows).values():
        torch = [r["us"] for r in case if r["method"] == "torch"]
        ours = [r for r in case if r["method"] == "winolab"]
        picked = [r["us"] for r in ours if r["chosen"]]
        own, others = (
            [r["us"] for r in ours if (r["kernel"] == SkinnyPlan.kernel) is mine]
            for mine in (True, False)
        )
        if torch and picked and own and others:
            batch = case[0]["layer"].partition("x")[0]
            narrow = "FP32" if case[0]["precision"] == "fp32" else "16 bits"
            name = f"{case[0]['direction']}, {narrow}, {batch} images"
            found = groups.setdefault(name, [])
            found.append((min(torch), picked[0], min(own), min(others)))
    for name, found in sorted(groups.items()):
        pick, own, other = (geometric_mean(of[0] / of[i] for of in found) for i in (1, 2, 3))
        yield (
            f"{name}: {len(found)} layers, over PyTorch the pick {pick:.2f}, this family's fastest "
            f"{own:.2f}, the others' {other:.2f}"
        )


if __name__ == "__main__":
    command(lambda: Sample(cases(), plans, AHEAD), summarized, OUTPUT)
