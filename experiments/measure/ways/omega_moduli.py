"""On a GPU: Ω with moduli beyond points beside minimal Ω, in two launches and on FFMA units.

``python -m experiments.measure.ways.omega_moduli [--seconds S] [--only fp32_ffma]`` adds to
experiments/results/omega_moduli.jsonl: filter gradients of 3 to 9 taps, 64 to 256 channels, N = 32,
in two launches in split FP32 and FP16, and from 128 channels on FFMA units, in one. Beside what is
picked stand tiles of as many taps as the filter has, with a modulus ("moduli") and minimal
("minimal": the fastest predicted of those that the planner takes unasked, WinRS's of sixteen
states, and that of as many outputs as the modulus's), and the fastest predicted that it takes
unasked of all tiles that divide the filter; on FFMA units Ω4(3,2), in FP16 PyTorch. Rows are as
``experiments.measure.published.omega`` has them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from experiments.harness.facts import ROOT
from experiments.measure.published.omega import MAPS, ROUNDS, TAPS
from experiments.measure.published.rows import Kinds, Row, layer_of, resumed, timed
from winolab.algorithm import Omega, Problem, Tile
from winolab.bench.contenders import unnamed
from winolab.bench.frameworks import frameworks
from winolab.device import Device
from winolab.gpu.families.wgrad import Gradient
from winolab.gpu.families.wgrad import tiles as unasked
from winolab.gpu.families.wgrad_ffma.plan import flat_plans
from winolab.gpu.families.wgrad_winograd.plan import ADMITTED, MODULI, plans
from winolab.gpu.planner.planner import plan
from winolab.gpu.planner.request import Plan, Request
from winolab.ref.algorithms.winrs.kernels import TILES

RESULTS = ROOT / "experiments" / "results" / "omega_moduli.jsonl"
LARGE = (Tile(5, 12), Tile(7, 10), Tile(9, 8))  # WinRS's of sixteen states
SMALL = Tile(3, 2)  # of four states, which errs no more than moduli
FFMA, WIDE = "fp32_ffma", 128  # and the fewest channels on these units
GROUPS = {"fp32": "fp32_split", "fp16": "fp16", FFMA: FFMA}
Case = tuple[Problem, str]


def cases(only: str = "") -> Iterator[Case]:
    """Square layers that keep their size; FP32 first. ``only``: those of one group."""
    for group in [only] if only else GROUPS:
        for taps in TAPS:
            for channels, size in (m for m in MAPS if group != FFMA or m[0] >= WIDE):
                x, w = (32, size, size, channels), (channels, taps, taps, channels)
                yield Problem.of(x, w, padding=taps // 2), group


def planned(case: Case, device: Device) -> Kinds:
    """Plans of a case, and which each is."""
    problem, group = case
    request = unnamed("backward_filter", problem, stored(group), device)
    taps = problem.filter[-1]
    found: dict[Plan, str] = {}
    moduli = {t: points for t, points in MODULI.items() if t.n == taps}
    known = unasked(Gradient.of(problem), None, TILES["fp32"]) if group == FFMA else ADMITTED
    divides = [t for t in known if t.alpha > 1 and taps % t.n == 0]
    beside = (*LARGE, SMALL) if group == FFMA else LARGE
    same = {t for t in beside if t.n == taps} | {Tile(t.n, t.r) for t in moduli}
    for some in (divides, [t for t in divides if t.n == taps], *([t] for t in sorted(same))):
        fast = [p for t in some if (p := fastest(request, group, t, "best"))]
        if fast:
            found[min(fast, key=lambda p: p.predicted)] = "minimal"
    for tile, points in moduli.items():
        if made := fastest(request, group, tile, points):
            found[made] = "moduli"
    picked = plan(replace(request, precision=group))
    found.setdefault(getattr(picked, "primary", picked), "picked")
    return found


def stored(group: str) -> str:
    """The group of the arrays."""
    return "fp32" if group == FFMA else group


def fastest(request: Request, group: str, tile: Tile, points: str) -> Plan | None:
    """The fastest predicted plan of a tile, or None where it has none."""
    asked = replace(request, precision=GROUPS[group], algorithm=Omega((tile,), points))
    with suppress(ValueError):
        return min(flat_plans(asked) if group == FFMA else plans(asked), key=lambda p: p.predicted)
    return None


def run(case: Case, found: Kinds) -> list[Row]:
    """The rows of a case: one a contender, of which ``found`` are ours."""
    problem, group = case
    others = list(frameworks("backward_filter", problem, group)) if group == "fp16" else []
    rows = timed("backward_filter", problem, stored(group), found, others, ROUNDS)
    return [row | key(case) for row in rows]


def key(case: Case) -> Row:
    """What tells a layer's rows from another's."""
    problem, group = case
    return {**layer_of("backward_filter", problem), "precision": group}


def main(
    seconds: Annotated[float, typer.Option(help="Time that the run may take.")] = 3600,
    output: Annotated[Path, typer.Option(help="File that rows are added to.")] = RESULTS,
    only: Annotated[str, typer.Option(help="One of fp32, fp16, fp32_ffma; empty: all.")] = "",
) -> None:
    """Measure the layers that have no rows yet."""
    resumed(output, seconds, list(cases(only)), key, planned, run)


if __name__ == "__main__":
    typer.run(main)
