"""On a GPU: cuBLASLt's products beside our plans and PyTorch, of networks' layers of one tap.

``python -m experiments.measure.ways.pointwise [--seconds S]`` measures layers of stride 1 in three
directions and three precisions, those whose rows are not there yet or whose pick has changed, in an
order that makes what time allows a sample. Rows go to experiments/results/pointwise.jsonl, as
``experiments.measure.layers`` has them: ``winolab`` is what the planner picks (``chosen``), the
next MOST plans that it could and cuBLASLt with a workspace and without, by name; ``torch`` each
memory order in benchmark mode, ``copy`` as many bytes. Rows of cuBLASLt have its version.

``--summary`` shows of the rows that are there, without a GPU, speeds of cuBLASLt and of the pick
over PyTorch's, in how many cases cuBLASLt is the fastest, and what either workspace is worth.
With them the device model's section is fitted: ``python -m experiments.calibrate.device_model``.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import product
from statistics import geometric_mean

from experiments.measure.layer_rows import Row, key
from experiments.measure.layers import RESULTS, measured
from experiments.measure.ways.sample import Case, Sample, command
from winolab.bench.contenders import digest, unnamed
from winolab.bench.networks import BatchedLayer, distinct
from winolab.device import Device
from winolab.gpu import cublaslt
from winolab.gpu.families.axes import pointwise
from winolab.gpu.families.cublaslt.plan import NAMED, CublasltPlan
from winolab.gpu.planner.planner import candidates, plan
from winolab.gpu.planner.request import DIRECTIONS, Plan

OUTPUT, MOST = RESULTS / "pointwise.jsonl", 5
AHEAD = 128  # cases that are planned and compiled at once
PRECISIONS = ("fp32", "fp16", "bf16")


def cases() -> list[Case]:
    """Every layer of one tap in every direction and precision, in the order of measuring."""
    layers = [layer for layer in distinct() if pointwise(layer.problem)]
    found: list[Case] = list(product(layers, DIRECTIONS, PRECISIONS))
    random.Random(0).shuffle(found)
    return found


def plans(layer: BatchedLayer, direction: str, group: str, device: Device) -> dict[Plan, bool]:
    """What is picked, the next by prediction, and cuBLASLt's."""
    request = unnamed(direction, layer.problem, group, device)
    picked = plan(request)
    others = sorted(candidates(request, near=True).plans, key=lambda p: p.predicted)
    ours = [p for p in others if not isinstance(p, CublasltPlan) and p.out_dtype == request.dtype]
    named = candidates(replace(request, algorithm=NAMED)).plans
    next_ = [p for p in ours if digest(p) != digest(picked) or p.config != picked.config][:MOST]
    return dict.fromkeys([picked, *next_, *named], False) | {picked: True}


def rows_of(case: Case, found: Mapping[Plan, bool]) -> Iterator[Row]:
    """The rows of a case; those of cuBLASLt have its version."""
    for row in measured(*case, found):
        ours = row.get("kernel") == CublasltPlan.kernel
        yield row | {"cublaslt": cublaslt.version()} if ours else row


def summarized(rows: Iterable[Row]) -> Iterator[str]:
    """Geometric means by direction and precision."""
    groups: dict[tuple[str, str], dict[tuple[str, str, str], list[Row]]] = {}
    for row in rows:
        mine = groups.setdefault((row["direction"], row["precision"]), {})
        mine.setdefault(key(row), []).append(row)
    for which, mine in sorted(groups.items()):
        best = [times(case) for case in mine.values()]
        best = [t for t in best if len(t) == len(KINDS)]
        if not best:
            continue
        library, without, pick, torch = ([t[kind] for t in best] for kind in KINDS)
        least = [min(pair) for pair in zip(library, without, strict=True)]

        def speed(some: list[float], others: list[float]) -> str:
            pairs = zip(some, others, strict=True)
            return f"{geometric_mean(b / a for a, b in pairs):.2f}"

        wins = sum(a < b for a, b in zip(least, pick, strict=True))
        yield (
            f"{' '.join(which)}: {len(best)} layers, over PyTorch cuBLASLt {speed(least, torch)}, "
            f"the pick {speed(pick, torch)}; cuBLASLt over the pick {speed(least, pick)}, faster "
            f"in {wins}; its workspace {speed(library, without)}"
        )


KINDS = ("cuBLASLt", "cuBLASLt without workspace", "pick", "torch")


def times(rows: Iterable[Row]) -> dict[str, float]:
    """Microseconds of a case by KINDS; PyTorch's in its faster memory order."""
    found: dict[str, float] = {}
    for row in rows:
        kinds = []
        if row.get("kernel") == CublasltPlan.kernel:
            kinds.append(KINDS[not row["workspace"]])
        if row.get("chosen"):
            kinds.append("pick")
        if row["method"] == "torch":
            kinds.append("torch")
        for kind in kinds:
            found[kind] = min(row["us"], found.get(kind, row["us"]))
    return found


def sample() -> Sample:
    """What is measured."""
    cublaslt.version()  # who lacks it is told before anything is timed
    return Sample(cases(), plans, AHEAD, rows_of)


if __name__ == "__main__":
    command(sample, summarized, OUTPUT)
