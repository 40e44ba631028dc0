"""What hardware counters say of the kernels, from kept rows: the roofline, and what holds each."""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from experiments.gpu.rows import Row, stored, tiles, where
from experiments.harness.tables import Cell, Table
from experiments.report.figures import INK, PHONE, SIDE_BY_SIDE, is_narrow, panels_of
from experiments.report.labels import Label, label
from experiments.report.texts import Text
from winolab.bench.layers import parse_layer

SECTOR = 32  # bytes of L2
TENSOR_FLOP = 4096  # of 16-bit products, a cycle and multiprocessor of compute capability 9.0
LANES = 128  # FFMAs a cycle and multiprocessor
PRODUCTS = {"fp32_split": 3}  # of parts, for one of FP32
WHAT = ("layer", "direction", "products", "kernel")
PLAN = (*WHAT, "plan")  # fields that rows of a plan share
OPS = ("wgmma_fp16", "wgmma_bf16", "mma_fp16", "mma_bf16")


@dataclass(frozen=True)
class Counted:
    """A plan: its kernels' rows, those that differ in their grid apart."""

    rows: tuple[Row, ...]
    more: tuple[str, ...] = ()  # fields that tell it from others of its kernel and layer

    @property
    def name(self) -> str:
        row = self.rows[0]
        direction = {"backward_filter": "gradient", "backward_data": "backward data"}
        way = direction.get(row["direction"], row["direction"])
        name = f"{row['kernel']} {row['products']}, {way} {row['layer']}"
        return ", ".join([name, *(row[field] for field in self.more)])

    @cached_property
    def seconds(self) -> float:
        """Seconds of all launches."""
        return sum(row["seconds"] * row["calls"] for row in self.rows)

    @cached_property
    def main(self) -> Row:
        """The row of the kernel that makes the products."""
        return max(self.rows, key=lambda row: (work(row), row["seconds"] * row["calls"]))

    @cached_property
    def mains(self) -> tuple[Row, ...]:
        """Its launches, whatever their grid."""
        return tuple(row for row in self.rows if row["launch"] == self.main["launch"])

    @property
    def tensor(self) -> bool:
        return self.rows[0]["products"] != "fp32"

    @cached_property
    def useful(self) -> float:
        """FLOP of the products that the algorithm needs."""
        row = self.rows[0]
        saved = math.prod(t.n * t.r / t.alpha for t in tiles(row["kernel"]))
        macs = parse_layer(row["layer"]).problem.macs
        return 2 * macs / saved * PRODUCTS.get(row["products"], 1)

    @cached_property
    def spent(self) -> float:
        """Seconds of the kernel that makes the products."""
        return sum(row["seconds"] * row["calls"] for row in self.mains)

    @property
    def peak(self) -> float:
        """FLOP a second of the unit at the clock that the kernel ran at."""
        cycle = TENSOR_FLOP if self.tensor else 2 * LANES
        return cycle * self.main["multiprocessors"] * self.main["clock_hz"]

    @cached_property
    def factors(self) -> dict[str, float]:
        """Numbers whose product is the share of the unit's peak that useful products reach."""
        row = self.main
        active = row["cycles_active"] / row["cycles"]
        done = sum(work(r) * r["calls"] for r in self.mains)
        whole = self.peak * self.spent
        return {
            "the kernel's share of the call": self.spent / self.seconds,
            "multiprocessors at work": active,
            "unit busy while they are": done / whole / active,
            "useful of the unit's work": self.useful / done,
        }

    @property
    def reached(self) -> float:
        """The share of the unit's peak that useful products reach over the whole call."""
        return float(np.prod(list(self.factors.values())))

    @property
    def stalls(self) -> list[tuple[str, float]]:
        """Why warps did not issue, the most frequent first, as a share of all samples."""
        found = self.main["stalls"]
        total = sum(found.values())
        idle = [(name, n / total) for name, n in found.items()
                if name not in ("selected", "not_selected")]  # fmt: skip
        return sorted(idle, key=lambda pair: -pair[1])

    def units(self) -> dict[str, float]:
        """Percent of what each unit sustains, over the main kernel."""
        row = self.main
        busy = self.factors["unit busy while they are"]
        busy *= self.factors["multiprocessors at work"]
        return {
            "Tensor Cores" if self.tensor else "FMA": 100 * busy,
            "issue slots": row["issue"],
            "shared memory": row["shared_pipe"],
            "L2": row["l2"],
            "DRAM": row["dram"],
        }


def work(row: Row) -> float:
    """FLOP of a launch: on Tensor Cores, or of every FMA instruction, two a lane."""
    ops = sum(row[name] or 0 for name in OPS)
    return ops if row["products"] != "fp32" else 2 * 32 * row["fma_instructions"]


def plans(rows: Sequence[Row]) -> list[Counted]:
    """The rows by plan and GPU. Plans of one kernel and layer that differ in their policies, and
    GPUs where there are several, stand apart, and are named by these."""
    found: dict[tuple, list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[field] for field in (*PLAN, "device")), []).append(row)
    alike = Counter(plan[: len(WHAT)] for plan in {key[: len(PLAN)] for key in found})
    gpus = ("device",) if len({key[-1] for key in found}) > 1 else ()
    return [
        Counted(tuple(mine), (*(("plan",) if alike[key[: len(WHAT)]] > 1 else ()), *gpus))
        for key, mine in found.items()
    ]


def cells(rows: Sequence[Row]) -> list[Cell]:
    """Shares of the unit's peak, their factors, and what other units do."""
    found = []
    for plan in plans(rows):
        stalled = ", ".join(f"{name} {share:.0%}" for name, share in plan.stalls[:3])
        row = plan.main
        conflicts = sum(r["bank_conflicts"] for r in plan.mains)
        waves = max(1, sum(r["shared_wavefronts"] for r in plan.mains))
        values = {
            "share of the unit's peak": (plan.reached, f"warps wait: {stalled}"),
            **{name: (value, "") for name, value in plan.factors.items()},
            **{f"{name}, %": (value, "") for name, value in plan.units().items()},
            "bank conflicts a wavefront": (conflicts / waves, ""),
            "clock, MHz": (row["clock_hz"] / 1e6, ""),
            "registers a thread": (row["registers"], ""),
            "shared memory a block, KiB": (row["shared_bytes"] / 1024, ""),
            "µs, all launches": (plan.seconds * 1e6, row["plan"]),
        }
        found += [
            Cell(plan.name, column, None, value, value, value, note=note)
            for column, (value, note) in values.items()
        ]
    return found


def holds(rows: Sequence[Row]) -> list[str]:
    """A sentence a plan on what holds it below its limit."""
    return [*(held(plan) for plan in plans(rows)), f"Counted on an {where(rows)}."]


def held(plan: Counted) -> str:
    """A sentence on what holds a plan below its limit."""
    unit = "Tensor Cores'" if plan.tensor else "FMA units'"
    factors = " · ".join(f"{value:.2f} {name}" for name, value in plan.factors.items())
    others = {name: v for name, v in plan.units().items() if name not in ("FMA", "Tensor Cores")}
    busiest = max(others, key=lambda name: others[name])
    stalled = ", ".join(f"{name.replace('_', ' ')} {share:.0%}" for name, share in plan.stalls[:3])
    return (
        f"{plan.name}: {plan.reached:.2f} of the {unit} peak = {factors}. Busiest beside them: "
        f"{busiest} ({others[busiest]:.0f} %). Warps that do not issue wait for {stalled}."
    )


def roofline(rows: Sequence[Row]) -> Figure:
    """Products' FLOP a second against FLOP a byte, of DRAM (filled) and L2 (hollow)."""
    every = plans(rows)
    kinds = [(name, mine) for name, tensor in (("FFMA", False), ("Tensor Cores", True))
             if (mine := [p for p in every if p.tensor == tensor])]  # fmt: skip
    across = 36 if is_narrow() else 90
    names = [[textwrap.fill(f"{i}  {p.name}", across) for i, p in enumerate(mine, 1)]
             for _, mine in kinds]  # fmt: skip
    longest = max((sum(name.count("\n") + 1 for name in mine) for mine in names), default=0)
    # inches, with the names below, line by line
    width, heights = (PHONE, 4.6 + 0.18 * longest) if is_narrow() else (9, 5.6 + 0.17 * longest)
    figure, panels = panels_of(len(kinds), 1, (width, heights * len(kinds)), sharey=False)
    SIDE_BY_SIDE.add(figure)
    numbers: list[Label] = []
    marks: list[tuple[Axes, tuple[float, float]]] = []
    for panel, (title, mine), labels in zip(panels, kinds, names, strict=True):
        intensities = np.geomspace(2, 5e3, 200)
        first = mine[0]
        row = max((p.main for p in mine), key=lambda row: row["l2"])
        levels = {
            "DRAM": max(_bandwidth(p.main, "dram") for p in mine),
            "L2": _bandwidth(row, "l2"),
        }
        for (name, rate), style in zip(levels.items(), ("-", "--"), strict=True):
            top = np.minimum(intensities * rate, first.peak) / 1e12
            panel.plot(intensities, top, style, color=INK, linewidth=0.9,
                       label=f"{name}, {rate / 1e12:.1f} TB/s")  # fmt: skip
        for i, plan in enumerate(mine, 1):
            speed = plan.useful / plan.spent / 1e12
            colour = colormaps["tab10"](i % 10)
            places = [plan.useful / _bytes(plan, level) for level in ("dram", "l2")]
            panel.plot(places, [speed] * 2, color=colour, linewidth=0.6)
            panel.plot(places[0], speed, "o", color=colour, label=labels[i - 1], markersize=5)
            panel.plot(places[1], speed, "o", color=colour, markerfacecolor="white", markersize=5)
            marks += [(panel, (place, speed)) for place in places]
            numbers.append(Label(panel, (places[0], speed), str(i), colour))
        panel.set(xscale="log", yscale="log", title=title, xlabel="useful FLOP a byte")
        slowest = min(plan.useful / plan.spent for plan in mine)
        panel.set_ylim(slowest * 0.8 / 1e12, first.peak / 1e12 * 1.3)
        low, high = panel.get_ylim()
        ticks = [v for v in (5, 10, 20, 40, 60, 100, 200, 400, 600, 1000) if low <= v <= high]
        panel.set_yticks(ticks, [str(v) for v in ticks])
        panel.set_yticks([], minor=True)
        below = (-0.22, -0.16) if is_narrow() else (-0.08, -0.13)
        panel.legend(loc="upper left", bbox_to_anchor=below, handlelength=1)
        panel.set_ylabel("TFLOPS of products that the algorithm needs")
    label(figure, numbers, marks, 8.5)
    return figure


def _bytes(plan: Counted, level: str) -> float:
    """Bytes that the main kernel moved at a level."""
    if level == "l2":
        return sum(row["l2_sectors"] * SECTOR * row["calls"] for row in plan.mains)
    return sum((row["dram_read"] + row["dram_written"]) * row["calls"] for row in plan.mains)


def _bandwidth(row: Row, level: str) -> float:
    """Bytes a second that the level sustains: those moved, over the share that they were."""
    moved = row["l2_sectors"] * SECTOR if level == "l2" else row["dram_read"] + row["dram_written"]
    return moved / row["seconds"] / (row[level] / 100)


def utilisation(rows: Sequence[Row]) -> Figure:
    """Percent of each unit's peak, and why warps wait, a line a plan."""
    every = plans(rows)
    names = list(dict.fromkeys(name for plan in every for name, _ in plan.stalls[:3]))
    units = ("product unit", "issue slots", "shared memory", "L2", "DRAM")
    slim = is_narrow()
    written = [textwrap.fill(plan.name, 46 if slim else 64) for plan in every]
    # Places of a sixth of an inch: a plan's values, and its name beside them or above.
    lines = np.array([name.count("\n") + 1 for name in written])
    ends = np.cumsum(lines + 1.2 if slim else np.maximum(1.4, lines + 0.4))
    height = 2.8 + ends[-1] / 6
    if slim:
        figure, panels = panels_of(2, 1, (PHONE, 2 * height), sharey=False)
    else:
        figure, panels = panels_of(1, 2, (11, height), sharey=False, stacks=False)
    SIDE_BY_SIDE.add(figure)
    # Transparent to blue, so that ink is legible on every cell, on light pages and on dark ones.
    blues = ListedColormap([(0.19, 0.51, 0.74, share) for share in np.linspace(0, 0.6, 101)])
    values = np.array([list(plan.units().values()) for plan in every])
    stalls = np.array([[100 * dict(plan.stalls).get(name, 0) for name in names] for plan in every])
    starts = np.concatenate([[0], ends[:-1]]) + (lines if slim else 0)
    middles = (starts + ends) / 2
    for panel, (title, columns, shown) in zip(
        panels,
        (("% of what the unit sustains", units, values),
         ("% of warps' samples that wait for", [n.replace("_", " ") for n in names], stalls)),
        strict=True,
    ):  # fmt: skip
        panel.set_ylim(ends[-1], 0)
        edges = np.arange(len(columns) + 1)
        panel.set_xticks(edges[:-1] + 0.5, columns, rotation=90)
        panel.tick_params(axis="x", top=True, labeltop=True)
        panel.grid(visible=False)
        panel.set_title(title)
        panel.set_yticks([])
        for at, name, top, end, line in zip(middles, written, starts, ends, shown, strict=True):
            panel.pcolormesh(edges, [top, end], [line], cmap=blues, vmin=0, vmax=100)
            if slim:
                panel.text(0, top - 0.1, name, va="bottom").set_in_layout(False)
            for j, value in enumerate(line):
                panel.text(j + 0.5, at, f"{value:.0f}", ha="center", va="center", color=INK)
    if not slim:
        panels[0].set_yticks(middles, written)
    return figure


COUNTERS = Table(
    "gpu", "counters", "What holds the kernels below their limits", lambda full: [], cells,
    "nothing is judged",
    sources=("counters",),
)  # fmt: skip
FIGURES = {
    COUNTERS.key: (
        (roofline, "Roofline of the kernels that make the products: FLOP that the algorithm needs, "
         "over bytes of DRAM (filled) and of L2 (hollow)."),
        (utilisation, "How busy units are over the main kernel, and what warps wait for."),
    ),
}  # fmt: skip
TEXTS = {
    COUNTERS.key: Text(
        "How far from its unit's peak each kernel is, and why.",
        "One launch of each plan under ncu, clocks and caches left as they are. The share of the "
        "peak is a product: of the call's time in the main kernel, of multiprocessors at work, of "
        "the unit's cycles in use meanwhile, and of its work that is products the algorithm needs "
        "(the rest: transforms, padding). The peak is two FLOP a lane and cycle; SGEMM itself "
        "reaches 0.78 of it.",
        "ours: counted. Shares are of 1.",
        lambda cells: holds(stored("counters")),
    ),
}
