"""What layers of networks were to reach, kind by kind: depthwise by taps, split FP32 without
transforms, nested in three dimensions, N×1 beside 1×N, groups; and what calls and whole networks
were.

Layers are those of networks' lists and of the lists of their kind, each once, as the last row has
it that was measured of it; those whose rows are of picks that are gone are counted apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from statistics import median

from experiments.calibrate.gone import gone
from experiments.gpu.rows import Row, mean, of_last, where
from experiments.gpu.samples import MEANS
from experiments.gpu.targets import calls, moduli
from experiments.gpu.targets.aims import DATA, FILTER, FORWARD, Part
from experiments.harness.tables import Cell, Table, none
from experiments.harness.verdicts import Verdict
from experiments.measure import layer_rows
from experiments.measure.layer_rows import LARGE
from experiments.measure.layers import LISTS
from winolab.bench.networks import distinct, parse
from winolab.problem import Problem

Groups = list[tuple[Part, list[Cell]]]
PRECISIONS = calls.PRECISIONS
WAYS = {FORWARD: "forward", DATA: "backward data", FILTER: "filter gradient"}
LEAST = {"fp32": 1.0, "fp16": 0.95, "bf16": 0.95}
# Depthwise, by taps: speeds over PyTorch's, and shares of copy speed.
DEPTHWISE = {
    "fp32": {3: 1.25, 5: 2.0, 7: 4.0},
    "fp16": {3: 1.2, 5: 1.7, 7: 2.0},
    "bf16": {3: 1.2, 5: 1.7, 7: 2.0},
}
COPY = {3: 0.7, 5: 0.6, 7: 0.5}
GRADIENTS = {"fp32": 4.0, "fp16": 2.0, "bf16": 2.0}
STRIDED = {"fp32": 2.0, "fp16": 1.1, "bf16": 1.1}
# Twice an implicit GEMM of three TF32 products, which a public library has at 47 to 70 TFLOPS.
TFLOPS, WORK, ROOFLINE = 100.0, 5e9, 0.8
NESTED_BF16, NESTED_FP32 = 1.4, 1.3  # over PyTorch channels-last, over TF32
OFF = 0.01  # of TF32's error
ALIKE = 0.95  # N×1 over 1×N: measurements of equal work differ by as much
MEASURE = "python -m experiments.measure.layers"
NETWORKS = f"{MEASURE} networks_{FORWARD} (…_{DATA}, …_{FILTER})"
MOVED = f"share of copy speed, {LARGE / 1e6:.0f} MB and more"
BOUND = "geometric mean at copy speed"


@dataclass(frozen=True)
class Pick:
    """What is picked of a layer: its speed over PyTorch's faster memory order, and over a copy of
    as many bytes."""

    problem: Problem
    row: Row
    torch: float
    copy: float

    @property
    def name(self) -> str:
        return self.row["layer"]

    @property
    def kind(self) -> tuple[str, str]:
        """Its precision and direction."""
        return self.row["precision"], self.row["direction"]

    @property
    def gone(self) -> bool:
        """Whether another is picked today."""
        return gone(self.row)

    @property
    def flops(self) -> float:
        return 2.0 * self.problem.macs

    @property
    def tflops(self) -> float:
        return self.flops / self.row["us"] / 1e6

    @property
    def depthwise(self) -> int:
        """The taps of a square depthwise filter; 0 of others."""
        p = self.problem
        square = p.ndim == 2 and len({*p.filter}) == 1
        return p.filter[0] if square and 1 < p.groups == p.in_channels else 0

    @property
    def grouped(self) -> bool:
        """Whether it has groups of several channels."""
        return self.problem.groups > 1 and not self.problem.depthwise

    @property
    def direct(self) -> bool:
        """Whether its products are split and of no transformed values."""
        plain = "(1,1)" in self.row["kernel"] or self.row["kernel"] == "implicit GEMM"
        return self.row["products"] == "fp32_split" and plain

    @property
    def moved(self) -> bool:
        """Whether memory binds it: a copy takes longer than the products at TFLOPS."""
        return self.copy * self.row["us"] > self.flops / TFLOPS / 1e6


@cache
def _listed() -> dict[str, Problem]:
    """The layers of lists without a network's text."""
    return {
        str(v): v.problem for name in ("depthwise", "strided", "grouped") for v in LISTS[name][0]
    }


def picks(rows: Iterable[Row]) -> list[Pick]:
    """Every layer, direction and precision once: the row of the last run, of today's pick where one
    is, on the GPU of the last run."""
    timed = [row for row in rows if {"layer", "method", "us"} <= row.keys()]
    found: dict[tuple, Pick] = {}
    for own, torch, copy in layer_rows.ratios(layer_rows.latest(of_last(timed))):
        text = own["layer"]
        if problem := parse(text).problem if ">" in text else _listed().get(text):
            one = Pick(problem, own, torch, copy)
            key = (problem, *one.kind)
            if key not in found or _order(one) >= _order(found[key]):
                found[key] = one
    return list(found.values())


def _order(p: Pick) -> tuple[bool, str]:
    return not p.gone, p.row.get("run", "")


def cells(rows: Sequence[Row]) -> list[Cell]:
    """Every aim beside what the rows say of it."""
    return [cell for _, mine in groups(rows) for cell in mine]


def groups(rows: Sequence[Row]) -> Groups:
    """The aims by part; of a part without rows there is nothing."""
    every = picks(rows)
    kinds = (
        ("Depthwise", f"{MEASURE} depthwise, {NETWORKS}", _depthwise,
         [p for p in every if p.depthwise in COPY]),
        ("Strided layers, stems too", f"{MEASURE} strided, {NETWORKS}", _strided,
         [p for p in every if p.problem.groups == 1 and max(p.problem.stride) > 1]),
        ("Grouped", f"{MEASURE} grouped, {NETWORKS}", _grouped, [p for p in every if p.grouped]),
        ("Split FP32 without transforms", f"{MEASURE} strided, {NETWORKS}", _direct,
         [p for p in every if p.direct]),
        ("N×1 over 1×N", NETWORKS, _turned, [p for pair in pairs(every) for p in pair]),
    )  # fmt: skip
    others = [
        (Part("Nested 3-D", f"{moduli.NESTED} --only video"), partial(_nested, tf32_error(rows)),
         [c for c in moduli.layers(rows) if c.ndim == 3]),
        *calls.parts(rows),
    ]  # fmt: skip
    found = [_judged(*kind) for kind in kinds if kind[-1]]
    return found + [(part, [*make(part, mine)]) for part, make, mine in others if mine]


def _judged(
    name: str,
    command: str,
    make: Callable[[Part, Sequence[Pick]], Iterable[Cell]],
    mine: Sequence[Pick],
) -> tuple[Part, list[Cell]]:
    """A part by the picks of today. An aim that is reached without those that are gone and missed
    with them, as they were, is missed until what is picked today is measured."""
    kept = _kept(mine)
    rest = f"; left out as their picks are gone: {len(mine) - len(kept)}"
    part = Part(name, f"{command}; {where(p.row for p in kept)}" + rest * (len(kept) < len(mine)))
    once = {(c.where, c.column): c for c in make(part, mine)}
    return part, [_held(cell, once[cell.where, cell.column]) for cell in make(part, kept)]


def _held(cell: Cell, once: Cell) -> Cell:
    if (cell.verdict, once.verdict) != (Verdict.REACHED, Verdict.MISSED):
        return cell
    note = f"{_number(once.ours)} with picks that are gone; {cell.note}"
    return replace(cell, accepted=(math.inf, math.inf), note=note)  # which nothing reaches


def _kept(mine: Iterable[Pick]) -> list[Pick]:
    return [p for p in mine if not p.gone]


def _depthwise(part: Part, mine: Sequence[Pick]) -> Iterator[Cell]:
    for precision, direction in ((p, d) for d in (FORWARD, DATA) for p in PRECISIONS):
        for taps, aim in DEPTHWISE[precision].items():
            these = [p for p in mine if (p.kind, p.depthwise) == ((precision, direction), taps)]
            what = f"{PRECISIONS[precision]} {WAYS[direction]}, {taps}×{taps}"
            yield from part.over(what, {p.name: p.torch for p in these}, aim, LEAST[precision])
            yield _at_copy_speed(part, what, aim, these)
            yield _share(part, what, COPY[taps], these)
    for precision, name in PRECISIONS.items():
        these = [p for p in mine if p.kind == (precision, FILTER)]
        speeds = {p.name: p.torch for p in these}
        what = f"{name} {WAYS[FILTER]}"
        yield from part.over(what, speeds, GRADIENTS[precision], LEAST[precision])
        yield _at_copy_speed(part, what, GRADIENTS[precision], these)


def _at_copy_speed(part: Part, what: str, aim: float, mine: Sequence[Pick]) -> Cell:
    """What the mean over PyTorch would be if each layer ran as fast as a copy."""
    value = mean([p.torch / p.copy for p in mine])
    return part.shown(what, BOUND, value, "the aim is beyond it" * (value < aim))


def _share(part: Part, what: str, aim: float, mine: Sequence[Pick]) -> Cell:
    """The least share of copy speed where much is moved."""
    shares = {p.name: p.copy for p in mine if p.row["bytes"] >= LARGE}
    return replace(part.smallest(what, aim, shares), column=MOVED)


def _strided(part: Part, mine: Sequence[Pick]) -> Iterator[Cell]:
    for precision, direction in ((p, d) for d in WAYS for p in PRECISIONS):
        these = {p.name: p.torch for p in mine if p.kind == (precision, direction)}
        what = f"{PRECISIONS[precision]} {WAYS[direction]}"
        yield from part.over(what, these, STRIDED[precision], LEAST[precision])


def _grouped(part: Part, mine: Sequence[Pick]) -> Iterator[Cell]:
    listed = (*LISTS["grouped"][0], *distinct())
    every = len({v.problem for v in listed if v.group == "grouped"})
    for precision, direction in ((p, d) for d in WAYS for p in PRECISIONS):
        these = {p.name: p.torch for p in mine if p.kind == (precision, direction)}
        what = f"{PRECISIONS[precision]} {WAYS[direction]}"
        yield from part.over(what, these, MEANS[precision], LEAST[precision])
        yield part.shown(what, f"measured, of {every} layers", len(these) / every)


def _direct(part: Part, mine: Sequence[Pick]) -> Iterator[Cell]:
    for direction, way in WAYS.items():
        these = [p for p in mine if p.kind == ("fp32", direction)]
        worked = {p.name: p.tflops for p in these if not p.moved and p.flops >= WORK}
        what = f"TFLOPS, {WORK / 1e9:.0f} GFLOP and more, {way}"
        yield from part.over(what, worked, TFLOPS, TFLOPS)
        moved = {p.name: p.copy for p in these if p.moved and p.row["bytes"] >= LARGE}
        if moved:
            what = f"share of copy speed where that binds, {LARGE / 1e6:.0f} MB and more, {way}"
            yield from part.over(what, moved, ROOFLINE, ROOFLINE)


def tf32_error(rows: Iterable[Row]) -> float:
    """The median relative RMS of TF32 forward, of layers in two dimensions: its operands' rounding,
    whatever the layer."""
    found = [row["relative_rms_u11"] for row in rows
             if (row.get("products"), row.get("direction")) == ("tf32", FORWARD)
             and isinstance(row.get("relative_rms_u11"), float)]  # fmt: skip
    return median(found) if found else math.nan


def _nested(tf32: float, part: Part, mine: Sequence[moduli.Beside]) -> Iterator[Cell]:
    for group, name, aim, products, order in (
        ("bf16", "BF16, over PyTorch channels-last", NESTED_BF16, "bf16", "NHWC"),
        ("fp32", "FP32, over TF32", NESTED_FP32, "tf32", None),
    ):
        these = [c for c in mine if c.group == group]
        theirs = {
            c.name: min((r["us"][1] for r in c.rows if r["method"] == "torch"
                         and r["products"] == products and order in (None, r["order"])),
                        default=math.nan) for c in these
        }  # fmt: skip
        for who, of in (
            ("the fastest nested", {c.name: c.nested for c in these}),
            ("what is picked",
             {c.name: c.fastest(lambda r: r.get("role") == "picked") for c in these}),
        ):  # fmt: skip
            ran = {place: row for place, row in of.items() if row}
            ratios = {place: theirs[place] / row["us"][1] for place, row in ran.items()}
            what = f"{name}, {who}"
            yield from part.over(what, ratios, aim, aim)
            off = max((row["relative_rms_n01"] for row in ran.values()), default=math.nan)
            yield part.shown(what, "largest relative RMS", off)
            if group == "fp32":
                note = f"TF32's {tf32:.1e} is of layers in two dimensions"
                yield part.most(what, "over TF32's", OFF, off / tf32, note)


def pairs(every: Iterable[Pick]) -> Iterator[tuple[Pick, Pick]]:
    """Layers N×1 with those 1×N that are the same but for the order of their dimensions."""
    found = {(p.problem, *p.kind): p for p in every if p.problem.ndim == 2}
    for (problem, *_), one in found.items():
        other = found.get((turned(problem), *one.kind))
        if problem.filter[0] > problem.filter[1] == 1 and other:
            yield one, other


def turned(p: Problem) -> Problem:
    """The problem with its dimensions in the other order."""
    return replace(p, input=p.input[::-1], filter=p.filter[::-1], stride=p.stride[::-1],
                   padding=p.padding[::-1], dilation=p.dilation[::-1])  # fmt: skip


def _turned(part: Part, mine: Sequence[Pick]) -> Iterator[Cell]:
    both = [*pairs(mine)]
    for precision, direction in ((p, d) for d in WAYS for p in PRECISIONS):
        speeds = {a.name: b.row["us"] / a.row["us"] for a, b in both
                  if a.kind == (precision, direction)}  # fmt: skip
        if speeds:
            what = f"{PRECISIONS[precision]} {WAYS[direction]}"
            yield from part.over(what, speeds, ALIKE, ALIKE)


LAYERS = Table(
    "gpu", "layer targets", "What layers of networks were to reach, kind by kind", none, cells,
    "aims of ours, not a paper's; what was not measured has missed",
    sources=("depthwise", "strided", "grouped", *(f"networks_{way}" for way in WAYS), "nested",
             "memory_order", "host", "throughput", "end_to_end"),
)  # fmt: skip


def told(rows: Sequence[Row]) -> list[str]:
    """Every part as Markdown: a line a kind of layers, a column a measure."""
    every = _kept(picks(rows))
    judged = {layer_rows.key(row) for row in rows
              if row.get("method") == "cudnn" and "layer" in row}  # fmt: skip
    beside = sum(layer_rows.key(p.row) in judged for p in every)
    lines = [
        "Aims that were set beforehand, over PyTorch's faster memory order in the same precision "
        f"where nothing else is said; in {beside:,} of {len(every):,} cases all algorithms of "
        "cuDNN were timed, and the fastest counts. Every layer counts once, as calls pick it, of "
        "the lists of its kind and of the samples above. Behind a number stand the aim, the layer "
        "that is the least and how many miss it. Copy speed is that of a copy on the GPU of as "
        "many bytes; what the mean would be at copy speed says which aims memory excludes, softly "
        "where layers are of one image, as a launch is in the copy's time. What "
        "is reached without picks that are gone and missed with them counts as missed. "
        f"Split products were to have {TFLOPS:.0f} TFLOPS, twice a public library's implicit GEMM "
        "of three TF32 products, or memory's speed where that binds: where a copy takes longer.",
    ]
    for part, mine in groups(rows):
        if part.name != calls.NETWORKS:  # which stand beside their means
            command, _, place = part.command.partition("; ")
            again = command.replace(", python", "`, `python")
            lines += ["", f"**{part.name}.** Run again by `{again}`." + f" {place}." * bool(place)]
            lines += shown(part, mine)
    return lines if len(lines) > 1 else []


def shown(part: Part, mine: Sequence[Cell]) -> list[str]:
    """A part's cells as a table."""
    columns = list(dict.fromkeys(c.column for c in mine))
    lines = ["", f"| | {' | '.join(columns)} |", "|---|" + "---|" * len(columns)]
    for what in dict.fromkeys(c.where for c in mine):
        of = {c.column: c for c in mine if c.where == what}
        cells = (_told(part, of[name]) if name in of else "" for name in columns)
        lines.append(f"| {what.partition(': ')[2]} | {' | '.join(cells)} |")
    return lines


def _told(part: Part, cell: Cell) -> str:
    """A cell's number, its aim and whether that is reached, and the note without the command."""
    aim = ""
    if cell.aim is not None and cell.accepted is not None:
        sign = "≥" if math.isinf(cell.accepted[1]) else "≤"
        aim = f"{sign} {cell.aim:g} {cell.verdict.removeprefix('aim ')}"
    note = cell.note.removesuffix(part.command).rstrip("; ").replace("; 0 of ", "; none of ")
    behind = "; ".join(filter(None, (aim, note)))
    return _number(cell.ours) + f" ({behind})" * bool(behind)


def _number(value: float) -> str:
    """Two digits or more."""
    if math.isnan(value):
        return "–"
    if abs(value) >= 0.1:
        return f"{value:.2f}" if abs(value) < 10 else f"{value:.0f}"
    return f"{value:.2g}" if abs(value) >= 0.001 else f"{value:.1e}"
