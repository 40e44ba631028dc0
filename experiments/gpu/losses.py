"""Where what ``conv_*`` picks is slower than another library, by how much, and why, from rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from matplotlib.figure import Figure

from experiments.gpu import counters as counters_tables
from experiments.gpu.frontier import KINDS
from experiments.gpu.rows import WRONG, Measured, Row, cases, mean, ratio, stored, tiles, where
from experiments.harness.tables import Cell, Table
from experiments.report.figures import INK, lines_of, with_legend
from experiments.report.texts import Text
from winolab.bench.contenders import GROUPS

MIB = 1 << 20
WAYS = {"forward": "forward", "backward_data": "backward data", "backward_filter": "gradient"}
NAMES = {
    "dragon": "authors' shapes",
    "table3": "Table 3",
    "grid": "grid",
    "resnet": "ResNet, N = 32",
    "resnet1": "ResNet, N = 1",
    "pointwise": "1×1 of ResNet-50",
    "odd": "odd channels",
    "winrs": "WinRS's grid",
}
COLUMNS = tuple(product(GROUPS, WAYS, NAMES))
SHORT = 50.0  # microseconds: a call this short is mostly launches, first loads and last stores


@dataclass(frozen=True)
class Compared:
    """What is picked, and the fastest of other libraries in the arrays' own precision."""

    case: Measured
    mine: Row
    theirs: Row

    @property
    def ratio(self) -> float:
        return ratio(self.mine, self.theirs)

    @property
    def left_out(self) -> Row | None:
        """The result that was faster than theirs and is wrong."""
        fastest = self.case.library_any
        return fastest if fastest and fastest["tflops"] > self.theirs["tflops"] else None

    @property
    def ratio_over_all(self) -> float:
        """Speed over the fastest of other libraries, wrong or not."""
        return ratio(self.mine, self.left_out or self.theirs)

    @property
    def kind(self) -> str:
        """Who was the fastest: PyTorch, or a kind of cuDNN's algorithms."""
        if self.theirs["method"] == "torch":
            return "PyTorch"
        return f"cuDNN's {KINDS.get(self.theirs['kernel'], 'GEMM')}"

    @property
    def saved(self) -> float:
        """Multiplications of direct convolution over those of what is picked, on whole tiles."""
        taps, product = self.case.layer.taps, 1.0
        for tile in tiles(self.mine["kernel"]):
            n, r = tile.n, tile.r
            if self.case.direction == "backward_filter":
                n, r = r, n  # Ω's outputs are the taps
            product *= n * taps / (tile.alpha * -(-taps // r))
        return product

    @property
    def used(self) -> float:
        """The share of its unit's peak that the picked kernel's products reach, over the call."""
        products = counters_tables.PRODUCTS.get(self.mine["products"], 1)
        device = self.case.device
        peak = device.fp32_peak if self.mine["products"] == "fp32" else device.fp16_peak
        return self.mine["tflops"] * 1e12 / self.saved * products / peak

    @property
    def why(self) -> str:
        """What the rows say of the reason."""
        unit = "FMA units" if self.mine["products"] == "fp32" else "Tensor Cores"
        parts = [
            f"{self.mine['tflops']:.0f} by {self.mine['kernel']} {self.mine['products']} against "
            f"{self.theirs['tflops']:.0f} TFLOPS by {self.kind}",
            f"ours makes {_fewer([self.saved])}, at {self.used:.0%} of the {unit}' peak",
        ]
        if (space := self.theirs["workspace"] or 0) > MIB:
            parts.append(f"theirs takes {space / MIB:.0f} MiB of workspace")
        microseconds = self.mine["cold_us"][1]
        if microseconds < SHORT:
            parts.append(f"the call takes {microseconds:.0f} µs")
        best = self.case.ours_any
        if best and best["tflops"] > 1.02 * self.mine["tflops"]:
            parts.append(f"{best['kernel']} {best['products']} reaches {best['tflops']:.0f}")
        return "; ".join(parts)


def compared(every: Sequence[Measured]) -> list[Compared]:
    """The cases in which both ran, the furthest behind first."""
    found = [Compared(c, c.ours, c.library) for c in every if c.ours and c.library]
    return sorted(found, key=lambda one: one.ratio)


def slower(every: Sequence[Measured]) -> list[Compared]:
    """The cases in which a library is faster."""
    return [one for one in compared(every) if one.ratio < 1]


def means_of(mine: Sequence[Compared], why: bool = False) -> str:
    """The geometric mean; where wrong results of others were faster, the one over these in
    brackets, with ``why`` how many they are and how wrong.

    >>> means_of([])
    'nan'
    """
    told = f"{mean([one.ratio for one in mine]):.2f}"
    wrong = [row for one in mine if (row := one.left_out)]
    if not wrong:
        return told
    limit, several = WRONG[wrong[0]["precision"]], "s" * (len(wrong) > 1)
    reason = f" with {len(wrong)} result{several} of relative RMS above {limit:.0e}" * why
    return f"{told} ({mean([one.ratio_over_all for one in mine]):.2f}{reason})"


def left_out(every: Sequence[Compared]) -> str:
    """A sentence on the results that were faster and count for nothing, being wrong."""
    found: dict[tuple[str, str, str], list[Row]] = {}
    for one in every:
        if row := one.left_out:
            method = "cuDNN's" if row["method"] == "cudnn" else "PyTorch's"
            where = f"{one.case.group.upper()} {WAYS[one.case.direction]}"
            found.setdefault((method, row["kernel"], where), []).append(row)
    if not found:
        return ""
    told = []
    for (method, kernel, where), mine in found.items():
        group = mine[0]["precision"]
        errors = _range([float(row["relative_rms_u11"] or math.nan) for row in mine], ".1e")
        cases_ = "case" if len(mine) == 1 else "cases"
        told.append(f"{method} {kernel} in {len(mine)} {cases_} of {where}, whose relative RMS on "
                    f"U[−1, 1], {errors}, is above {WRONG[group]:.0e}")  # fmt: skip
    return (
        f"Left out as wrong, by more than rounding explains: {'; '.join(told)}; means with them "
        "stand in brackets."
    )


def by_list(every: Sequence[Compared]) -> dict[tuple[str, str, str], list[Compared]]:
    """What was compared by precision, direction and list, in the order of GROUPS, WAYS, NAMES."""
    found: dict[tuple[str, str, str], list[Compared]] = {key: [] for key in COLUMNS}
    for one in every:
        found[one.case.group, one.case.direction, one.case.list].append(one)
    return {key: mine for key, mine in found.items() if mine}


def label(group: str, way: str, name: str) -> str:
    """What a key of ``by_list`` is called: "FP32, gradient, WinRS's grid"."""
    return f"{group.upper()}, {WAYS[way]}, {NAMES[name]}"


def cells(rows: Sequence[Row]) -> list[Cell]:
    """Each loss with its reason."""
    return [
        Cell(f"{WAYS[one.case.direction]} {one.case.group} {one.case.name}",
             NAMES.get(one.case.list, one.case.list), None, one.ratio, one.ratio, one.ratio,
             note=one.why)
        for one in slower(cases(rows))
    ]  # fmt: skip


def told(rows: Sequence[Row], counted: Sequence[Row]) -> list[str]:
    """Counts by precision and direction, the losses by who wins, and counters of the furthest."""
    groups: dict[tuple[str, str], list[Compared]] = {key: [] for key in product(GROUPS, WAYS)}
    for one in compared(cases(rows)):
        groups[one.case.group, one.case.direction].append(one)
    lines = list(filter(None, [left_out([one for mine in groups.values() for one in mine])]))
    for (group, direction), mine in groups.items():
        if not mine:
            continue
        ratios = [one.ratio for one in mine]
        ahead = sum(value >= 1 for value in ratios)
        torch = sum(any(r["method"] == "torch" for r in one.case.rows) for one in mine)
        beside = "" if torch == len(mine) else f" (measured in {torch})"
        lines.append(
            f"{WAYS[direction].capitalize()}, {group}: faster than every algorithm of cuDNN and "
            f"PyTorch{beside} in {ahead} of {len(mine)} cases; geometric mean {means_of(mine)}, "
            f"least {ratios[0]:.2f}, greatest {ratios[-1]:.2f}."
        )
        lost: dict[tuple[bool, int, str], list[Compared]] = {}
        for one in mine[: len(mine) - ahead]:
            lost.setdefault((one.case.list == "resnet1", one.case.layer.taps, one.kind), []).append(
                one
            )
        lines += [_behind(*key, several) for key, several in sorted(lost.items())]
    return [*lines, *_counters(rows, counted)]


def _behind(single: bool, taps: int, kind: str, mine: Sequence[Compared]) -> str:
    """A sentence on the cases that one kind of algorithm wins for one size of filter."""
    first = mine[0].case
    where = f"{WAYS[first.direction]}, {first.group}, {taps}×{taps}{', N = 1' if single else ''}"
    spaces = [space / MIB for one in mine if (space := one.theirs["workspace"] or 0) > MIB]
    held = f" in {_range(spaces, '.0f')} MiB of workspace" if spaces else ""
    direct = [one.theirs["tflops"] * 1e12 / first.device.fp16_peak for one in mine]
    why = {
        "FFT": f"it multiplies less often,{held}",
        "Winograd": f"its tiles save products in both dimensions, transformed apart{held}",
        "GEMM": "it makes all products and no transforms",
        "PyTorch": "PyTorch picks among cuDNN's graphs",
    }[kind.split()[-1]]
    if first.group != "fp32":
        why += f", at {_range(direct, '.0%')} of the Tensor Cores' peak if they are direct's"
    ratio_ = _range([one.ratio for one in mine], ".2f")
    return (
        f"Behind {kind}: {where}, {len(mine)} of them, {ratio_} of its speed: {why}. Ours makes "
        f"{_fewer([one.saved for one in mine])}, at {_range([one.used for one in mine], '.0%')} of "
        "its unit's peak."
    )


def _fewer(saved: Sequence[float]) -> str:
    """How many products there are, by what direct convolution makes over them."""
    if max(saved) == 1:
        return "all products too"
    return f"{_range(saved, '.2f')} times fewer products than direct"


def _range(values: Sequence[float], form: str) -> str:
    """The least and the greatest, once where they print alike."""
    low, high = format(min(values), form), format(max(values), form)
    return low if low == high else f"{low} to {high}"


def _counters(rows: Sequence[Row], counted: Sequence[Row]) -> list[str]:
    """What counters say of the losses that were profiled."""
    plans = {
        tuple(plan.main[field] for field in counters_tables.PLAN): plan
        for plan in counters_tables.plans(counted)
    }
    found = []
    for one in slower(cases(rows)):
        mine = one.mine["products"], one.mine["kernel"]
        plan = plans.get((one.case.name, one.case.direction, *mine))
        if plan:
            found.append(f"{one.ratio:.2f} of the fastest. {counters_tables.held(plan)}")
    return [*found, f"Counters: {where(counted)}."] if found else []


def ratios(rows: Sequence[Row]) -> Figure:
    """Speed over the fastest library's, a line a list, a colour a size of filter."""
    every = compared(cases(rows))
    columns = by_list(every)
    names = [label(*key) for key in columns]
    figure, panel = lines_of(names, (7.2, 0.3 * len(columns) + 1.2), 0.46)
    taps = sorted({one.case.layer.taps for one in every})
    rng = np.random.default_rng(0)
    for i, mine in enumerate(columns.values()):
        for one in mine:
            place = taps.index(one.case.layer.taps)
            at = i + (place - (len(taps) - 1) / 2) * 0.05 + rng.uniform(-0.02, 0.02)
            panel.plot(one.ratio, at, "o", color=f"C{place}", markersize=3.5, alpha=0.8)
    for place, size in enumerate(taps):
        panel.plot([], [], "o", color=f"C{place}", markersize=4, label=f"{size}×{size}")
    panel.axvline(1, color=INK, linewidth=0.8)
    panel.set(xscale="log", xlabel="speed over the fastest library's")
    low, high = panel.get_xlim()
    ticks = [v for v in (0.1, 0.2, 0.5, 1, 2, 5, 10) if low <= v <= high]
    panel.set_xticks(ticks, [f"{v:g}" for v in ticks])
    panel.set_xticks([], minor=True)
    return with_legend(figure, panel, columns=5)


LOSSES = Table(
    "gpu", "losses", "Beside the fastest of cuDNN and PyTorch, and where it is faster",
    lambda full: [], cells, "nothing is judged",
    sources=("throughput",),
)  # fmt: skip
FIGURES = {
    LOSSES.key: (
        (ratios, "What winolab picks over the fastest of all cuDNN's algorithms and PyTorch, in "
         "the same precision of the arrays (FP32 without TF32). Left of the line: the losses."),
    ),
}  # fmt: skip
TEXTS = {
    LOSSES.key: Text(
        "Every case that was measured, and those in which another library is faster.",
        "What conv_* picks by itself beside the fastest algorithm of cuDNN of any workspace and "
        "layout and PyTorch's choice, all in the arrays' own precision, FP32 without TF32. Shares "
        "of peaks are of the whole call, at the clock of the data sheet.",
        "ours: speed over the fastest library's.",
        lambda _: told(stored(), stored("counters")),
    ),
}
