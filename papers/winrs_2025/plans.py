"""WinRS's plan beside ours on the grid, and where its conclusion holds, by our device model.

Nothing here is measured. Times are those by which the planner chooses (docs/architecture.md), which
are fitted to H100s; for other GPUs they follow data sheets.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from experiments.harness.tables import Cell, Table, one, select
from papers.winrs_2025.grid import FILTERS, PAPER, grid
from winolab.algorithm import Problem, direct, winrs
from winolab.arguments.tolerance import Tolerance
from winolab.device import DATASHEETS, Device
from winolab.gpu.families import registry
from winolab.gpu.families.wgrad_ffma.plan import WgradFfmaPlan
from winolab.gpu.families.wgrad_mma.cost import unit_cycles
from winolab.gpu.families.wgrad_mma.plan import WgradMmaPlan
from winolab.gpu.families.winrs import PairPlan
from winolab.gpu.planner.request import Plan, Request
from winolab.ref.algorithms.winrs.plan import data_size
from winolab.ref.error.metrics import ADMISSIBLE

Row = dict[str, Any]
FAMILY = {family.name: family for family in registry.FAMILIES}
FUSED = {"fp32": "wgrad_ffma", "fp16": "wgrad_mma"}
DEVICES = ("h100", "h200", "a100", "rtx4090", "l40s", "rtx3090", "a5000")
PAPERS = ("rtx4090", "l40s", "a5000")  # section 6: those that ran FP16
TAPS, CHANNELS = (3, 5, 7, 9), (32, 64, 128, 256, 512)
POSITIONS = 64 * 112  # channels times width, of layers of 32 images and equal work


def transforming(family: registry.Family, request: Request) -> list[Plan]:
    """A family's plans that transform in FP32, by whatever tile errs no more than the paper's."""
    found = family.plans(replace(request, tolerance=Tolerance("direct", ADMISSIBLE)))
    wide = (p for p in found if not getattr(p.config, "half2", 0))
    return [p for p in wide if any(t.alpha > 1 for t in p.tiles)]


def omega(
    problem: Problem, device: Device, precision: str, family: str = "", limit: int | None = None
) -> Plan | None:
    """The fastest predicted of the fused kernels on segments of our own, or of another family; in
    at most ``limit`` bytes of workspace."""
    request = Request(problem, "backward_filter", device, None, precision, workspace_limit=limit)
    with suppress(ValueError):
        found = transforming(FAMILY[family or FUSED[precision]], request)
        return min(found, key=lambda p: p.predicted, default=None)
    return None


def products(problem: Problem, device: Device, precision: str) -> Plan:
    """The fastest predicted direct products of any family."""
    request = Request(problem, "backward_filter", device, direct(), precision)
    found: list[Plan] = []
    for family in registry.FAMILIES:
        if precision in family.precisions and "backward_filter" in family.directions:
            with suppress(ValueError):
                found += family.plans(request)
    return min(found, key=lambda p: p.predicted)


def papers(problem: Problem, device: Device, precision: str) -> Plan | None:
    """What Algorithms 1 and 2 launch, or None where FP16 has no kernel for the filter."""
    request = Request(problem, "backward_filter", device, winrs(), precision)
    with suppress(ValueError):
        return next(iter(FAMILY[FUSED[precision]].plans(request)))
    return None


def segmented(found: Plan | None) -> WgradFfmaPlan | WgradMmaPlan | PairPlan:
    """The plan of fused kernels, which sum in segments. Raises TypeError for others and None."""
    if not isinstance(found, WgradFfmaPlan | WgradMmaPlan | PairPlan):
        raise TypeError(f"{found} has no segments; expected a plan of fused kernels")
    return found


@dataclass(frozen=True)
class PlansJob:
    """Both plans of all layers of a filter size, on one device."""

    device: str
    precision: str
    taps: int
    cost: float = 1.0

    def run(self) -> list[Row]:
        device = DATASHEETS[self.device]
        pairs = []
        for layer in (g for g in grid() if g.taps == self.taps):
            theirs = papers(layer.problem, device, self.precision)
            own = omega(layer.problem, device, self.precision)
            if theirs and own:
                data = data_size(layer.problem) * (1 if self.precision == "fp32" else 0.5)
                pairs.append((own.predicted / theirs.predicted,
                              theirs.workspace / data, own.workspace / data))  # fmt: skip
        if not pairs:
            return []
        ratios, of_theirs, of_own = zip(*pairs, strict=True)
        return [
            {
                "paper": PAPER,
                "table": "plans",
                "planned_for": self.device,
                "precision": self.precision,
                "taps": self.taps,
                "layers": len(pairs),
                "speedup": [_mean(ratios), min(ratios), max(ratios)],
                "faster": sum(r > 1 for r in ratios),
                "workspace": sum(of_theirs) / len(pairs),
                "own_workspace": sum(of_own) / len(pairs),
            }
        ]


def _mean(ratios: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def jobs_plans(full: bool) -> list[PlansJob]:
    return [
        PlansJob(device, precision, taps)
        for device in ("h100", "rtx4090")
        for precision in FUSED
        for taps in FILTERS
    ]


def cells_plans(rows: Sequence[Row]) -> list[Cell]:
    """Our plan's time over WinRS's, and both workspaces over the data."""
    found = []
    for row in rows:
        where = f"{row['planned_for']}, {row['precision']}, {row['taps']}×{row['taps']}"
        note = f"{row['faster']} of {row['layers']} layers are faster by WinRS's plan"
        for word, value in zip(("average", "minimum", "maximum"), row["speedup"], strict=True):
            found.append(one(where, f"WinRS's plan over ours, {word}", None, value, note=note))
        for name, column in (("workspace", "WinRS's"), ("own_workspace", "our")):
            text = f"{column} workspace, multiple of the data"
            found.append(one(where, text, None, row[name]))
    return found


SHARES = (0.18, 0.09, 0.0)  # of the data as workspace: the paper's average, half of it, none


@dataclass(frozen=True)
class SharesJob:
    """What less workspace costs fused Ω in FP16 on segments of our own, all layers of a filter."""

    device: str
    taps: int
    cost: float = 1.0

    def run(self) -> list[Row]:
        device, found = DATASHEETS[self.device], []
        for problem in (g.problem for g in grid() if g.taps == self.taps):
            data = data_size(problem) / 2
            plans = [omega(problem, device, "fp16", limit=limit and int(limit[0] * data))
                     for limit in (None, *((share,) for share in SHARES))]  # fmt: skip
            if all(plans):
                found.append([(p.predicted, p.workspace / data) for p in plans if p])
        if not found:
            return []
        (times, spaces) = zip(*(zip(*each, strict=True) for each in found), strict=True)
        costs = [[mine[i] / mine[0] for mine in times] for i in range(len(SHARES) + 1)]
        return [
            {
                "paper": PAPER,
                "table": "shares",
                "planned_for": self.device,
                "taps": self.taps,
                "layers": len(found),
                "share": share,
                "within": sum(mine[0] <= SHARES[0] for mine in spaces),
                "workspace": sum(mine[i] for mine in spaces) / len(found),
                "cost": [_mean(costs[i]), min(costs[i]), max(costs[i])],
            }
            for i, share in enumerate((None, *SHARES))
        ]


def jobs_shares(full: bool) -> list[SharesJob]:
    return [SharesJob("h100", taps) for taps in TAPS]


def cells_shares(rows: Sequence[Row]) -> list[Cell]:
    """Time in a share of the data over the time that takes what it likes, and what is taken."""
    found = []
    for row in rows:
        share = "as it likes" if row["share"] is None else f"at most {row['share']} of the data"
        where, note = f"{row['taps']}×{row['taps']}, {share}", f"{row['layers']} layers"
        if row["share"] is None:
            note += f", {row['within']} of them within {SHARES[0]}"
        found.append(
            one(where, "workspace of the data, average", None, row["workspace"], note=note)
        )
        if row["share"] is not None:
            for word, value in zip(("average", "minimum", "maximum"), row["cost"], strict=True):
                found.append(one(where, f"time over as it likes, {word}", None, value))
    return found


def layer(channels: int, taps: int) -> Problem:
    """32 images, so wide that all layers of a filter have the same work but for edges."""
    size = POSITIONS // channels
    x, w = (32, size, size, channels), (channels, taps, taps, channels)
    return Problem.of(x, w, padding=taps // 2)


@dataclass(frozen=True)
class ConclusionJob:
    """Fused Ω in FP16 against direct products on one device, by filter and channels."""

    device: str
    cost: float = 2.0

    def run(self) -> list[Row]:
        device = DATASHEETS[self.device]
        return [self._row(device, taps, channels) for taps in TAPS for channels in CHANNELS]

    def _row(self, device: Device, taps: int, channels: int) -> Row:
        problem = layer(channels, taps)
        own, other = omega(problem, device, "fp16"), products(problem, device, "fp16")
        apart = omega(problem, device, "fp16", "wgrad_winograd")
        assert isinstance(own, WgradMmaPlan)
        cycles = unit_cycles(own.tile, own.config, device)
        binds = max(cycles, key=lambda name: cycles[name])
        saved = own.tile.n * own.tile.r / own.tile.alpha
        return {
            "paper": PAPER,
            "table": "conclusion",
            "planned_for": self.device,
            "taps": taps,
            "channels": channels,
            "kernel": own.kernel,
            "us": own.predicted * 1e6,
            "direct_us": other.predicted * 1e6,
            "speedup": other.predicted / own.predicted,
            "over_two_launches": apart.predicted / own.predicted if apart else None,
            # Products alone, at mma.sync's rate, would bring the saving; what binds brings less.
            "saved": saved,
            "binds": binds,
            "share_of_products": cycles["products"] / cycles[binds],
        }


def jobs_conclusion(full: bool) -> list[ConclusionJob]:
    return [ConclusionJob(device) for device in DEVICES]


def crossing(rows: Sequence[Row], device: str, taps: int) -> int:
    """The most channels with which fused Ω is faster than direct products; 0: with none."""
    mine = select(rows, planned_for=device, taps=taps)
    return max((r["channels"] for r in mine if r["speedup"] > 1), default=0)


def cells_conclusion(rows: Sequence[Row]) -> list[Cell]:
    """Speedups over direct products, and the crossing point of each filter."""
    found = []
    for device in dict.fromkeys(row["planned_for"] for row in rows):
        name = DATASHEETS[device].name.removeprefix("NVIDIA ")
        for taps in TAPS:
            where = f"{name}, {taps}×{taps}"
            for row in select(rows, planned_for=device, taps=taps):
                note = (
                    f"{row['kernel']} saves {row['saved']:.2f}; {row['binds']} bind, products "
                    f"would take {row['share_of_products']:.0%} of that"
                )
                text = f"over direct products, {row['channels']} channels"
                found.append(one(where, text, None, row["speedup"], note=note))
                if row["over_two_launches"]:
                    text = f"over two launches, {row['channels']} channels"
                    found.append(one(where, text, None, row["over_two_launches"]))
            most = crossing(rows, device, taps)
            found.append(one(where, "faster up to so many channels", None, float(most)))
    return found


PLANS = Table(
    PAPER,
    "plans",
    "WinRS's plan beside ours on the grid, by our device model",
    jobs_plans,
    cells_plans,
    "nothing is judged: the paper has no such table",
    long=True,
    values=("speedup",),
)
CONCLUSION = Table(
    PAPER,
    "conclusion",
    "Where fused Ω in FP16 is faster than direct products, by data sheets",
    jobs_conclusion,
    cells_conclusion,
    "nothing is judged: predicted, not measured",
    values=("speedup",),
)
SHARES_TABLE = Table(
    PAPER,
    "shares",
    "What a workspace of 0.18 of the data costs fused Ω in FP16, by our device model",
    jobs_shares,
    cells_shares,
    "nothing is judged: predicted, not measured",
    long=True,
    values=("cost",),
)
TABLES = (PLANS, CONCLUSION, SHARES_TABLE)
