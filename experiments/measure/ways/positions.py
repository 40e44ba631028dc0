"""On a GPU: direct products whose copies walk positions, beside our other plans and PyTorch.

``python -m experiments.measure.ways.positions [--seconds S]`` measures networks' layers that the
tensor maps of ``im2col`` and ``wgrad_im2col`` reach, those whose rows are not there yet or whose
pick has changed, in an order that makes what time allows a sample: first FP32, filter gradients
before correlations, beside which stand all blocks of TF32 parts, those of more rounds than the
planner offers too; then 16 bits. Rows go to experiments/results/positions.jsonl, as
``experiments.measure.layers`` has them: ``winolab`` is what the planner picks (``chosen``), the
MOST block shapes of this family of the least predicted time, a FEW others and the fastest predicted
of every other family; ``torch`` each memory order in benchmark mode.

``--summary`` shows of the rows that are there, without a GPU, by direction, batch and the layers'
group: speeds over PyTorch's of the pick and of the fastest plan that has no such copies.
With them the device model's sections are fitted: ``python -m experiments.calibrate.device_model``.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from statistics import geometric_mean

from experiments.calibrate.rows import POSITIONS
from experiments.measure.layer_rows import Row, by_case
from experiments.measure.layers import RESULTS
from experiments.measure.ways.sample import Case, Sample, command, firsts
from winolab.bench.contenders import unnamed
from winolab.bench.networks import BatchedLayer, distinct
from winolab.device import Device, datasheet
from winolab.gpu.families.im2col.config import TF32_CONFIGS
from winolab.gpu.families.im2col.plan import Im2colPlan
from winolab.gpu.families.im2col.plan import plans as of_correlations
from winolab.gpu.families.wgrad_im2col.config import TF32_CONFIGS as GRADIENTS_TF32_CONFIGS
from winolab.gpu.families.wgrad_im2col.plan import WgradIm2colPlan
from winolab.gpu.families.wgrad_im2col.plan import plans as of_gradients
from winolab.gpu.planner.correlation import CORRELATIONS
from winolab.gpu.planner.planner import candidates, plan
from winolab.gpu.planner.request import DIRECTIONS, Plan

OUTPUT, MOST, FEW = RESULTS / "positions.jsonl", 6, 3
AHEAD = 48  # cases that are planned and compiled at once
H200 = datasheet("h200")
KINDS = (Im2colPlan, WgradIm2colPlan)
REACHED = dict.fromkeys(CORRELATIONS, of_correlations) | {"backward_filter": of_gradients}
PARTS = dict.fromkeys(CORRELATIONS, TF32_CONFIGS) | {"backward_filter": GRADIENTS_TF32_CONFIGS}


def served(layer: BatchedLayer, direction: str) -> bool:
    """Whether tensor maps reach a layer."""
    try:
        return any(
            True for _ in REACHED[direction](unnamed(direction, layer.problem, "fp16", H200))
        )
    except ValueError:
        return False


def cases() -> list[Case]:
    """Every layer that is served, of FP32's parts, then of FP16 and BF16 in turn, in the order of
    measuring."""
    found = [(layer, way) for layer in distinct() for way in DIRECTIONS if served(layer, way)]
    random.Random(0).shuffle(found)
    split = [(*case, "fp32") for case in found if any(parts(*case))]
    split.sort(key=lambda case: case[1] in CORRELATIONS)
    return split + [(*case, ("fp16", "bf16")[i % 2]) for i, case in enumerate(found)]


def parts(layer: BatchedLayer, direction: str, device: Device = H200) -> Iterator[Plan]:
    """Every block of TF32 parts."""
    request = unnamed(direction, layer.problem, "fp32_split", device)
    for v in PARTS[direction] if layer.problem.groups == 1 else ():
        with suppress(ValueError):  # blocks of other sizes than backward data has
            yield from REACHED[direction](replace(request, config=v))


def plans(layer: BatchedLayer, direction: str, group: str, device: Device) -> dict[Plan, bool]:
    """What is picked, some of this family by prediction and by chance, the first of every other."""
    request = unnamed(direction, layer.problem, group, device)
    picked = plan(request)
    every = sorted(candidates(request, near=True).plans, key=lambda p: p.predicted)
    mine: list[Plan] = [p for p in every if isinstance(p, KINDS)]
    rest = mine[MOST:]
    mine = mine[:MOST] + random.Random(str(layer)).sample(rest, min(FEW, len(rest)))
    if group == "fp32":
        mine += parts(layer, direction, device)
    return dict.fromkeys([picked, *mine, *firsts(every, KINDS)], False) | {picked: True}


def summarized(rows: Iterable[Row]) -> Iterator[str]:
    """Geometric means by direction, batch and group."""
    groups: dict[str, list[tuple[float, float, float]]] = {}
    for case in by_case(rows).values():
        torch = [r["us"] for r in case if r["method"] == "torch"]
        ours = [r for r in case if r["method"] == "winolab"]
        picked = [r["us"] for r in ours if r["chosen"]]
        before = [r["us"] for r in ours if POSITIONS not in r["plan"]]
        if torch and picked and before:
            batch = case[0]["layer"].partition("x")[0]
            name = f"{case[0]['direction']}, {batch} images, {case[0]['group']}"
            if case[0]["precision"] == "fp32":
                name += ", FP32"
            found = groups.setdefault(name, [])
            found.append((min(torch), picked[0], min(before)))
    for name, found in sorted(groups.items()):
        pick = geometric_mean(t / p for t, p, _ in found)
        other = geometric_mean(t / b for t, _, b in found)
        yield (
            f"{name}: {len(found)} layers, over PyTorch the pick {pick:.2f}, without such copies "
            f"{other:.2f}; below 0.95 {sum(t / p < 0.95 for t, p, _ in found)}"
        )


if __name__ == "__main__":
    command(lambda: Sample(cases(), plans, AHEAD), summarized, OUTPUT)
