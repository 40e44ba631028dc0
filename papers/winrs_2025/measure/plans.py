"""On a GPU: WinRS's plan and ours beside each other, on layers of the reconstructed grid.

``python -m papers.winrs_2025.measure.plans [--seconds S]`` adds to
experiments/results/winrs_plans.jsonl: filter gradients of DRAWN layers by SEED from all 1,117,
those above 600 GFLOP among them, in FP32 and FP16, as many as there is time for. ``kind`` is
"winrs" (Algorithms 1 and 2), "omega" (the paper's kernels, our segments), "two launches" or
"direct" (16 bits), and, by itself or behind one of these, "picked" (what the planner takes).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from experiments.harness.facts import ROOT
from experiments.measure.published.rows import Kinds, Row, layer_of, resumed, timed
from papers.winrs_2025.grid import Layer, grid
from papers.winrs_2025.plans import transforming
from winolab.algorithm import Problem, winrs
from winolab.bench.contenders import unnamed
from winolab.device import Device
from winolab.gpu.families import registry
from winolab.gpu.planner.planner import plan
from winolab.gpu.planner.request import Plan, Request

RESULTS = ROOT / "experiments" / "results" / "winrs_plans.jsonl"
SEED, DRAWN = 49, 100
GROUPS = ("fp32", "fp16")
ROUNDS = 3
FAMILY = {family.name: family for family in registry.FAMILIES}
OWN = {
    "fp32": {"wgrad_ffma": "omega"},
    "fp16": {
        "wgrad_mma": "omega",
        "wgrad_winograd": "two launches",
        "wgrad_direct.columns": "direct",
        "wgrad_direct.narrow": "direct",
    },
}


@dataclass(frozen=True)
class Case:
    """One layer in one precision of arrays."""

    problem: Problem
    group: str


def drawn() -> list[Layer]:
    """The layers, the same ones every time."""
    return random.Random(SEED).sample(grid(), DRAWN)


def cases() -> Iterator[Case]:
    """Each layer in FP32, then in FP16."""
    for layer in drawn():
        for group in GROUPS:
            yield Case(layer.problem, group)


def planned(case: Case, device: Device) -> Kinds:
    """Both plans, and what else there is; equal ones once."""
    request = unnamed("backward_filter", case.problem, case.group, device)
    found: dict[Plan, str] = {}
    with suppress(ValueError):
        named = replace(request, algorithm=winrs(), precision=case.group)
        found[plan(named)] = "winrs"
    for family, kind in OWN[case.group].items():
        with suppress(ValueError):
            found.setdefault(_fastest(family, replace(request, precision=case.group)), kind)
    chosen = plan(request)
    return {**found, chosen: f"{found[chosen]}, picked" if chosen in found else "picked"}


def _fastest(name: str, request: Request) -> Plan:
    """A family's, of those that transform where it has any. ValueError where there is none."""
    family = FAMILY[name]
    return min(transforming(family, request) or family.plans(request), key=lambda p: p.predicted)


def key(case: Case) -> Row:
    """What tells a case's rows from another's."""
    return {**layer_of("backward_filter", case.problem), "precision": case.group}


def run(case: Case, kinds: Kinds) -> list[Row]:
    """Its rows; errors of so long sums are the accuracy tables'."""
    how = {"rounds": ROUNDS, "errors": False}
    return timed("backward_filter", case.problem, case.group, kinds, **how)


def main(
    seconds: Annotated[float, typer.Option(help="Time that the run may take.")] = 3600,
    output: Annotated[Path, typer.Option(help="File that rows are added to.")] = RESULTS,
) -> None:
    """Measure the cases that have no rows yet."""
    resumed(output, seconds, list(cases()), key, planned, run)


if __name__ == "__main__":
    typer.run(main)
