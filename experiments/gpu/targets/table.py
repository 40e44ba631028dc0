"""What the kernels were meant to reach, and what the rows say: on FMA units, and together."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from experiments.gpu import bounds as gpu_bounds
from experiments.gpu.rows import (
    Measured,
    Row,
    authors,
    cases,
    kernel,
    name_of,
    printed_errors,
    where,
    wrong,
)
from experiments.gpu.targets.aims import (
    DATA,
    FORWARD,
    GAMMA16,
    GRID,
    ROUNDED,
    Part,
    anyone,
    errors,
    fastest_ffma,
    ffma,
    frugal,
    limits,
    regular,
    speeds,
    split,
    transformed,
)
from experiments.gpu.targets.moduli import moduli
from experiments.gpu.targets.tensor import correlations, gradients
from experiments.harness.tables import Cell, Table, none
from experiments.measure.host_cost import BETWEEN, GRADIENTS, IN_TURN

SPEED = "python -m experiments.measure.throughput"
ERRORS = "python -m experiments.measure.errors"
GRID_CASES = 90  # nine kernels, ten shapes each


def cells(rows: Sequence[Row]) -> list[Cell]:
    """Every aim beside what the rows say of it."""
    every = cases([row for row in rows if "case" in row])
    if not every:
        return []

    def pick(direction: str, group: str, *lists: str) -> list[Measured]:
        return [
            c
            for c in every
            if (c.direction, c.group) == (direction, group) and c.list in (lists or (c.list,))
        ]

    return [
        *_right(every),
        *_authors(pick(FORWARD, "fp32", "dragon")),
        *_limits(every, pick),
        *_libraries(pick(FORWARD, "fp32", *GRID), pick(DATA, "fp32", *GRID)),
        *_accuracy(rows, pick(FORWARD, "fp32", "dragon")),
        *_host(rows),
        *_sanitized(rows),
        *correlations(rows, pick),
        *gradients(pick),
        *moduli(rows, pick(FORWARD, "fp32", "dragon")),
    ]


def _right(every: Sequence[Measured]) -> Iterator[Cell]:
    """Nobody's result counts that is wrong; none of ours may be."""
    part = Part("Every result checked", SPEED)
    for method in ("winolab", "cudnn", "torch"):
        rows = [row for c in every for row in c.rows if row["method"] == method]
        checked = [row for row in rows if "relative_rms_u11" in row]
        bad = [f"{c.name} {c.direction} {row['kernel']} {row['products']}" for c in every
               for row in c.rows if row["method"] == method and wrong(row)]  # fmt: skip
        note = f"{len(checked)} of {len(rows)} results held against FP64"
        note += f"; wrong: {', '.join(dict.fromkeys(bad))}" if bad else ""
        column = "wrong results"
        if method == "winolab":
            yield part.most(method, column, 0, len(bad), note)
        else:
            yield part.shown(method, column, len(bad), note)


def _authors(mine: Sequence[Measured]) -> Iterator[Cell]:
    """Beside the authors' own kernels, which were measured on an H100 in another run."""
    part = Part("FFMA", f"{SPEED} --lists dragon")
    by_name = {c.name: c for c in mine}
    for printed in authors():
        c = by_name.get(printed["layer"])
        speed = c.ffma["tflops"] if c and c.ffma else math.nan
        wide = c is not None and c.kernel_of == "Γ16(8,9)"
        what = f"over the authors' kernels, {printed['layer']}"
        note = "theirs from another run, on an H100"
        yield part.least(what, "best build", 1.6 if wide else 1.3, speed / printed["tflops"], note)
        yield part.least(what, "as shipped", 1.6 if wide else 1.4, speed / printed["shipped"], note)
        if c and (row := c.of_products("fp32", prepared=True)):
            value = row["tflops"] / printed["tflops"]
            yield part.shown(what, "best build, filter prepared", value, note)


def _limits(every: Sequence[Measured], pick) -> Iterator[Cell]:
    # The paper names the kernels of its layers; for the others the fastest counts.
    for what, lists, aim, mine, of in (
        (
            "where n divides the width, channels of 64",
            "dragon,table3,grid",
            gpu_bounds.AIM,
            regular(every),
            ffma,
        ),
        ("ResNet, N = 32", "resnet", 0.54, pick(FORWARD, "fp32", "resnet"), fastest_ffma),
        ("odd channels", "odd", 0.54, pick(FORWARD, "fp32", "odd"), fastest_ffma),
    ):
        part = Part("FFMA", f"{SPEED} --lists {lists}")
        shares = limits(mine, of)
        yield part.smallest(f"share of Φ·SGEMM, {what}", aim, shares)
        yield from part.over(f"share of Φ·SGEMM, {what}", shares, None, None)


def _libraries(grid: Sequence[Measured], data: Sequence[Measured]) -> Iterator[Cell]:
    part = Part("FFMA", f"{SPEED} --lists dragon,table3,grid")
    count = sum(c.ffma is not None for c in grid)
    yield part.least("grid of nine kernels, ten shapes each", "measured", GRID_CASES, count)
    what = "over cuDNN's frugal algorithms, FMA"
    yield from part.over(what, speeds(grid, ffma, frugal), 3.0, 1.5)
    warm = speeds(grid, ffma, frugal, "warm_us")
    yield from part.over(f"{what}, warm L2", warm, None, None)
    yield from part.over("over cuDNN FP32 of any workspace", speeds(grid, ffma, anyone), None, None)
    ahead = {c.name: c for c in grid}
    for name, of in (("FFMA", ffma), ("Split", split)):
        shares = {
            c.name: back["tflops"] / forth["tflops"]
            for c in data
            if c.name in ahead and (back := of(c)) and (forth := of(ahead[c.name]))
        }
        part = Part(name, f"{SPEED} --lists dragon,table3,grid")
        yield part.smallest("backward data over forward", 0.9, shares)
    part = Part("FFMA", SPEED)
    used = {c.name: c.ffma["workspace"] / transformed(c, c.ffma) for c in grid if c.ffma}
    yield part.largest("workspace over the transformed filter", 1.0, used)


def _accuracy(rows: Sequence[Row], dragon: Sequence[Measured]) -> Iterator[Cell]:
    part = Part("FFMA", ERRORS)
    best: dict = {"data": "u12", "points": "best", "products": "fp32", "method": "winolab"}
    eight: dict[str, float] = {}
    sixteen: dict[str, float] = {}
    for column in printed_errors():
        name = name_of(column["algorithm"])
        found = errors(rows, kernel_of=name, **best)
        for paper, shape in zip(column["mare"], column["shapes"], strict=True):
            for text, row in found.items():
                if text.startswith("x".join(map(str, shape)) + ":"):
                    if kernel(name)[0] == 16:
                        sixteen[f"{name} {text}"] = row["mare"]
                    else:
                        eight[f"{name} {text}"] = row["mare"] / paper
    yield part.largest("MARE over the paper's Table 3, Γ8", 1 + ROUNDED, eight)
    yield part.largest("MARE of Γ16 on U[1, 2]", GAMMA16, sixteen)
    by_name = {c.name: c for c in dragon}
    shares = {
        printed["layer"]: c.ffma["relative_rms_u11"] / printed["relative_rms"]
        for printed in authors()
        if (c := by_name.get(printed["layer"])) and c.kernel_of == "Γ16(8,9)" and c.ffma
    }
    part = Part("FFMA", f"{SPEED} --lists dragon")
    yield part.largest("relative RMS over the authors' Γ16(8,9)", 1 / 3, shares)


def _sanitized(rows: Sequence[Row]) -> Iterator[Cell]:
    part = Part("compute-sanitizer", "make sanitize")
    mine = [row for row in rows if "tool" in row]
    for tool in ("memcheck", "initcheck", "synccheck", "racecheck"):
        ran = [row for row in mine if row["tool"] == tool]
        bad = [row["kernel"].removesuffix(" 0") for row in ran if row["found"] or row["exit"]]
        first = ", ".join(bad[:3]) + (f" and {len(bad) - 3} more" if len(bad) > 3 else "")
        note = f"{len(ran)} kernels, {where(ran)}" + (f"; reported: {first}" if bad else "")
        yield part.most(tool, "kernels reported", 0, len(bad) if ran else math.nan, note)


def _host(rows: Sequence[Row]) -> Iterator[Cell]:
    part = Part("Front", "python -m experiments.measure.host_cost")
    mine = [row for row in rows if "host_us" in row]
    costs = {f"{r['call']}, {r['arrays']}": r["host_us"] for r in mine if r["method"] == "winolab"}
    between = {call: costs.pop(call) for call in list(costs) if BETWEEN in call}
    changing = {call: cost for call, cost in costs.items() if IN_TURN in call}
    three = {call: cost for call, cost in costs.items() if GRADIENTS in call}
    found = {c: cost for c, cost in costs.items() if c not in changing and c not in three}
    beside = next((f", beside {row['beside']}" for row in mine if "beside" in row), "")
    yield part.largest(f"host's µs a call, warm{beside}", 20.0, found)
    for call, cost in changing.items():
        yield part.shown("host's µs a call, addresses that do not come again", call, cost)
    for call, cost in three.items():
        yield part.shown("host's µs a call and its two gradients", call, cost)
    for call, cost in between.items():
        yield part.shown("host's µs a call", call, cost)
    for row in mine:
        if row["method"] != "winolab":
            yield part.shown(f"host's µs a call, {row['method']}", row["call"], row["host_us"])
    graphs = [row for row in rows if row.get("call") == "in a CUDA graph"]
    right = sum(row["replayed"] for row in graphs) / len(graphs) if graphs else math.nan
    yield part.least("a CUDA graph captures a call and replays its bits", "share", 1.0, right)


TARGETS = Table(
    "gpu", "targets", "What the kernels were to reach", none, cells,
    "aims of ours, not a paper's; what was not measured has missed",
    sources=("throughput", "gpu_errors", "host", "sanitizer", "nested"),
)  # fmt: skip
