"""On a GPU: fused Ω in FP16 beside Ω in two launches, direct products, FP32 and PyTorch.

``python -m experiments.measure.published.omega [--seconds S] [--policy NAMES] [--channels C]`` adds
to experiments/results/fused_omega.jsonl: filter gradients of 3 to 9 taps, 32 to 256 channels or C
alone, N = 32.
Of fused Ω every block shape of the paper's tiles that divide the filter, without policies, and of
the fastest predicted: rows not padded (pad=0), transforms of pairs in 16 bits (half2=1), sums in
FP16, columns in shared memory before they are transformed (ahead=1, 2), rows of transforms one by
one (paired=0), staged rows not padded (staged=0; FP32's lanes stage floats in no turn: turned=0). A
row's ``cold_us`` are quartiles with L2 overwritten before a call; ``of_data`` is the workspace over
the bytes of x, w and y; ``relative_rms_u11`` the error on U[-1, 1) against FP64, and beside it what
is predicted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.harness.facts import ROOT
from experiments.measure.published.rows import Kinds, Row, layer_of, resumed, timed
from winolab.algorithm import Problem, Tile, omega
from winolab.arguments.variants import FUSED, FUSED_FP16
from winolab.bench.contenders import unnamed
from winolab.bench.frameworks import frameworks
from winolab.device import Device
from winolab.gpu.families import registry
from winolab.gpu.families.wgrad_mma.plan import PAPER
from winolab.gpu.planner.planner import plan
from winolab.gpu.planner.request import Plan, Request

RESULTS = ROOT / "experiments" / "results" / "fused_omega.jsonl"
TAPS, MAPS = (3, 5, 7, 9), ((64, 112), (128, 56), (256, 28), (32, 224))
ROUNDS = 9
AHEAD = (1, 2)  # steps; what shared memory does not hold is left out
FAMILY = {family.name: family for family in registry.FAMILIES}


def cases(only: int | None = None) -> Iterator[Problem]:
    """Square layers that keep their size, of all numbers of channels or of ``only`` one."""
    for taps in TAPS:
        for channels, size in MAPS:
            if only in (None, channels):
                x, w = (32, size, size, channels), (channels, taps, taps, channels)
                yield Problem.of(x, w, padding=taps // 2)


def planned(problem: Problem, device: Device) -> dict[Plan, str]:
    """Our plans in FP16, and which each is; the last one is FP32's on FFMA units."""
    request = unnamed("backward_filter", problem, "fp16", device)
    found: dict[Plan, str] = {}
    for tile in PAPER:
        if problem.filter[-1] % tile.n == 0:
            found |= dict.fromkeys(_fused(request, tile), "fused")
            with suppress(ValueError):
                found.setdefault(_best("wgrad_winograd", request, tile), "two launches")
    for name in ("wgrad_winograd", "wgrad_direct.columns", "wgrad_direct.narrow"):
        with suppress(ValueError):
            kind = "direct" if "direct" in name else "two launches"
            found.setdefault(_best(name, request), kind)
    found.setdefault(plan(request), "picked")
    fp32 = replace(unnamed("backward_filter", problem, "fp32", device), precision="fp32")
    return {**found, **dict.fromkeys(_ffma(fp32), "fused in FP32")}


def _ffma(request: Request) -> Iterator[Plan]:
    """FP32's, and what of the paper's can be turned off in it."""
    best: Any = _best("wgrad_ffma", request)
    yield best
    for policy in ("paired", "turned"):
        yield replace(best, config=replace(best.config, **{policy: 0}))


def with_and_without(policies: str, problem: Problem, device: Device) -> dict[Plan, str]:
    """Plans of ``planned`` by name: fused Ω whose config has one of these, and those that lack it
    alone."""
    found: dict[Plan, str] = {}
    fused = {p: k for p, k in planned(problem, device).items() if k.startswith("fused")}
    for policy in policies.split(","):
        plain = dict.fromkeys((policy, "stages"), 0)  # as many stages as fit beside
        alike: dict[Any, list[Plan]] = {}
        for p in fused:
            config: Any = p.config
            if hasattr(config, policy):
                alike.setdefault((p.kernel, replace(config, **plain)), []).append(p)
        found |= {p: fused[p] for mine in alike.values() if len(mine) > 1 for p in mine}
    return found


def _fused(request: Request, tile: Tile) -> Iterator[Plan]:
    """Every block shape of a tile, and the best's policies."""
    sizes = tile.alpha, tile.n, tile.r
    named = replace(request, algorithm=omega(*sizes, variant=FUSED))
    shapes: dict[tuple[int, int], Any] = {}
    for p in _plain(named):
        shapes.setdefault((p.config.bi, p.config.bo), p)
    yield from shapes.values()
    best: Any = next(iter(shapes.values()))
    halves = replace(request, algorithm=omega(*sizes, variant=FUSED_FP16))
    sums = _plain(halves)[0]
    yield sums
    for asked, config in (
        (named, replace(best.config, pad=0)),
        (named, replace(best.config, half2=1)),
        *((named, replace(best.config, **off)) for off in ({"paired": 0}, {"staged": 0})),
        (halves, replace(sums.config, half2=1)),
        *((named, replace(best.config, ahead=ahead)) for ahead in AHEAD),
        (named, replace(best.config, ahead=1, half2=1)),
        (halves, replace(sums.config, ahead=1, half2=1)),
    ):
        yield from FAMILY["wgrad_mma"].plans(replace(asked, config=config))


def _plain(request: Request) -> list[Any]:
    """Fused Ω's plans that load columns into registers, the fastest predicted first."""
    found: list[Any] = list(FAMILY["wgrad_mma"].plans(request))
    return sorted((p for p in found if not p.config.ahead), key=lambda p: p.predicted)


def _best(name: str, request: Request, tile: Tile | None = None) -> Plan:
    """The fastest predicted plan of a family. Raises ValueError where there is none."""
    if tile:
        request = replace(request, algorithm=omega(tile.alpha, tile.n, tile.r))
    return min(FAMILY[name].plans(request), key=lambda p: p.predicted)


def run(problem: Problem, found: Kinds) -> list[Row]:
    """The rows of a case: one a contender, of which ``found`` are ours."""
    rows: list[Row] = []
    for group in ("fp16", "fp32"):
        own = {p: kind for p, kind in found.items() if p.precision == group}
        if not own:
            continue
        others = list(frameworks("backward_filter", problem, group)) if group == "fp16" else []
        rows += timed("backward_filter", problem, group, own, others, ROUNDS)
    return rows


def key(problem: Problem) -> Row:
    """What tells a layer's rows from another's."""
    return layer_of("backward_filter", problem)


def main(
    seconds: Annotated[float, typer.Option(help="Time that the run may take.")] = 3600,
    output: Annotated[Path, typer.Option(help="File that rows are added to.")] = RESULTS,
    policy: Annotated[
        str, typer.Option(help="Fused Ω with and without these, commas between.")
    ] = "",
    channels: Annotated[int | None, typer.Option(help="Layers of so many channels alone.")] = None,
) -> None:
    """Measure the layers that have no rows yet."""
    asked = list(cases(channels))
    if not asked:
        known = ", ".join(str(c) for c, _ in sorted(MAPS))
        raise SystemExit(f"no layer has {channels} channels; expected one of {known}")
    made = partial(with_and_without, policy) if policy else planned
    resumed(output, seconds, asked, key, made, run)


if __name__ == "__main__":
    typer.run(main)
