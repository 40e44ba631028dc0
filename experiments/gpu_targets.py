"""What the kernels were meant to reach on an H100, and what the rows say."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from experiments import gpu_tables
from experiments.facts import facts
from experiments.gpu_rows import Measured, Row, cases, kernel, known, mean, ratio, stored
from experiments.gpu_tables import IM2COL, cell, gradients, none
from experiments.tables import Cell, Table
from winolab.ref.winrs_plan import data_size

FORWARD, DATA, FILTER = "forward", "backward_data", "backward_filter"
Pick = Callable[[Measured], Row | None]


def ffma(c: Measured) -> Row | None:
    return c.ffma


def split(c: Measured) -> Row | None:
    return c.split


def ours(c: Measured) -> Row | None:
    return c.ours


def frugal(c: Measured) -> Row | None:
    return c.frugal


def anyone(c: Measured) -> Row | None:
    return c.any


def tf32(c: Measured) -> Row | None:
    return c.tf32


def library(c: Measured) -> Row | None:
    return c.library


def aim(what: str, column: str, least: float, value: float, note: str = "") -> Iterator[Cell]:
    """A number that was to be at least so much; nothing where nothing was measured."""
    if not math.isnan(value):
        yield cell(what, column, least, value, value >= least, note=note)


def at_most(what: str, column: str, most: float, value: float, note: str = "") -> Iterator[Cell]:
    """A number that was to be at most so much."""
    if not math.isnan(value):
        yield cell(what, column, most, value, value <= most, note=note)


def over(
    what: str, mine: Sequence[Measured], a: Pick, b: Pick, average: float, least: float | None
) -> Iterator[Cell]:
    """Speed over speed: the geometric mean, and the least with the layer that has it."""
    found = {c.name: ratio(a(c), b(c)) for c in mine}
    found = {name: value for name, value in found.items() if not math.isnan(value)}
    yield from aim(what, "geometric mean", average, mean(list(found.values())),
                   f"{len(found)} layers")  # fmt: skip
    if least is not None and found:
        worst = min(found, key=lambda name: found[name])
        below = sum(value < least for value in found.values())
        note = f"{worst}; {below} of {len(found)} below"
        yield from aim(what, "least", least, found[worst], note)


def cells(rows: Sequence[Row]) -> list[Cell]:
    """Every aim that the rows can be held against."""
    every = cases(rows)

    def pick(direction: str, group: str, *lists: str) -> list[Measured]:
        return [
            c
            for c in every
            if (c.direction, c.group) == (direction, group) and c.list in (lists or (c.list,))
        ]

    grid = pick(FORWARD, "fp32", "dragon", "table3", "grid")
    return [
        *_authors(pick(FORWARD, "fp32", "dragon")),
        *_limit(grid, "FFMA over 0.90·Φ·SGEMM, n divides, channels 64", 0.9, _regular),
        *_limit(pick(FORWARD, "fp32", "resnet", "odd"), "FFMA over Φ·SGEMM, ResNet and odd", 0.54),
        *over("FFMA over cuDNN's frugal, grid", grid, ffma, frugal, 3.0, 1.5),
        *_backward(grid, pick(DATA, "fp32", "dragon", "table3", "grid")),
        *_split(pick, grid),
        *over("FP16 over cuDNN and PyTorch, forward", pick(FORWARD, "fp16"), ours, library,
              1.0, None),
        *_gradients(rows),
    ]  # fmt: skip


def _regular(c: Measured) -> bool:
    _, n, _ = kernel(c.kernel_of or "")
    return c.layer.output[1] % n == 0 and c.layer.channels % 64 == 0


def _authors(mine: Sequence[Measured]) -> Iterator[Cell]:
    """Beside the authors' own kernels, which were measured on such a card in another run."""
    for printed in facts(IM2COL)["h100_speed"]["rows"]:
        for c in mine:
            if c.name == printed["layer"] and c.ffma:
                least = 1.6 if c.kernel_of == "Γ16(8,9)" else 1.3
                value = c.ffma["tflops"] / printed["tflops"]
                yield from aim(f"authors' best build, {c.kernel_of} {c.name}", "FFMA over it",
                               least, value, "theirs from another run")  # fmt: skip


def _limit(
    mine: Sequence[Measured], what: str, least: float, accept=lambda c: True
) -> Iterator[Cell]:
    shares = {c.name: c.ffma["tflops"] / c.limit for c in mine if accept(c) and c.ffma}
    if shares:
        worst = min(shares, key=lambda name: shares[name])
        count = f"{worst}; {sum(v < least for v in shares.values())} of {len(shares)} below"
        yield from aim(what, "least", least, shares[worst], count)
        yield cell(what, "geometric mean", None, mean(list(shares.values())))


def _backward(forward: Sequence[Measured], data: Sequence[Measured]) -> Iterator[Cell]:
    ahead = {c.name: c for c in forward}
    for label, of in (("FFMA", ffma), ("split products", split)):
        shares = {c.name: ratio(of(c), of(ahead[c.name])) for c in data if c.name in ahead}
        shares = {name: value for name, value in shares.items() if not math.isnan(value)}
        if shares:
            worst = min(shares, key=lambda name: shares[name])
            note = f"{worst}; {sum(v < 0.9 for v in shares.values())} of {len(shares)} below"
            yield from aim(f"{label}: backward data over forward", "least", 0.9, shares[worst],
                           note)  # fmt: skip


TENSOR = {
    "128x96x96x64:64x3x3": 270,
    "128x48x48x128:128x3x3": 330,
    "128x24x24x256:256x3x3": 350,
    "128x12x12x512:512x3x3": 350,
}


def _split(pick: Any, grid: Sequence[Measured]) -> Iterator[Cell]:
    four = [c for c in pick(FORWARD, "fp32", "dragon") if c.name in TENSOR]
    for c in four:
        if c.split:
            yield from aim(f"split products, {c.name}", "TFLOPS", TENSOR[c.name],
                           c.split["tflops"])  # fmt: skip
    yield from over("split over cuDNN FP32 of any workspace, four 3×3", four, split, anyone, 3, 3)
    yield from over("split over TF32, four 3×3", four, split, tf32, 1, None)
    narrow = [c for c in grid if c.layer.taps <= 7]
    narrow += pick(FORWARD, "fp32", "resnet", "resnet1")
    yield from over("picked over cuDNN FP32 of any workspace, widths 2 to 7 and ResNet", narrow,
                    ours, anyone, 2.5, 1.0)  # fmt: skip
    wide = [c for c in grid if c.layer.taps > 7]
    yield from over("picked over cuDNN FP32 of any workspace, widths 8 and 9", wide, ours, anyone,
                    1.0, None)  # fmt: skip
    for direction in (FORWARD, DATA):
        yield from _errors(pick(direction, "fp32"), direction)


def _errors(mine: Sequence[Measured], direction: str) -> Iterator[Cell]:
    """The picked kernels' errors beside cuDNN's implicit GEMM in FP32."""
    shares, mares = {}, {}
    for c in mine:
        gemm = c.cudnn("IMPLICIT_PRECOMP_GEMM", "ALGO_1", layout="NHWC")
        if c.ours is None:
            continue
        mares[c.name] = c.ours["mare_u12"]
        if gemm and "relative_rms_u11" in gemm:
            shares[c.name] = c.ours["relative_rms_u11"] / gemm["relative_rms_u11"]
    if shares:
        worst = max(shares, key=lambda name: shares[name])
        yield from at_most(f"picked, {direction}: relative RMS over cuDNN's FP32 GEMM", "largest",
                           1.0, shares[worst], worst)  # fmt: skip
    if mares:
        worst = max(mares, key=lambda name: mares[name])
        yield from at_most(f"picked, {direction}: MARE", "largest", 6e-7, mares[worst], worst)


def _gradients(rows: Sequence[Row]) -> Iterator[Cell]:
    full = gradients(rows, "fp32")
    yield from over("gradient, FFMA over cuDNN's GEMM class", full, ffma, frugal, 3.0, 1.3)
    yield from over("gradient, split over cuDNN's GEMM class", full, split, frugal, 6.0, None)
    yield from over("gradient, split over cuDNN FP32 of any workspace", full, split, anyone, 2.0,
                    None)  # fmt: skip
    ahead = known(ratio(c.split, c.any) for c in full)
    if ahead:
        share = sum(value > 1 for value in ahead) / len(ahead)
        yield from aim("gradient, split faster than any cuDNN FP32", "share of layers", 0.9, share)
    used = [c.ours["workspace"] / data_size(c.layer.problem) for c in full if c.ours]
    if used:
        yield from at_most("gradient, workspace over data", "average", 0.18, sum(used) / len(used))
    half = gradients(rows, "fp16")
    for taps, least in (((3, 5), 1.0), ((7, 9), 1.5)):
        mine = [c for c in half if c.layer.taps in taps]
        names = " and ".join(f"{r}×{r}" for r in taps)
        yield from over(f"gradient, FP16 {names}, admissible over cuDNN", mine, ours,
                        library, least, None)  # fmt: skip
        yield from over(f"gradient, FP16 {names}, any error over cuDNN", mine,
                        lambda c: c.ours_any, library, least, None)  # fmt: skip


TARGETS = Table(
    "gpu", "targets", "What the kernels were to reach on an H100", none, cells,
    "the aim, under paper, is reached",
)  # fmt: skip
# Each table with the file of rows that it comes from.
SOURCES = (
    (TARGETS, "throughput"),
    (gpu_tables.TABLE2, "throughput"),
    (gpu_tables.TABLE3, "gpu_errors"),
    (gpu_tables.FIGURE10, "gpu_errors"),
    (gpu_tables.WINRS2, "throughput"),
    (gpu_tables.WINRS3, "throughput"),
    (gpu_tables.WINRS4, "throughput"),
)


def results() -> list[tuple[Table, list[Row]]]:
    """Every table that the kept rows fill, with its rows."""
    found = []
    for one, source in SOURCES:
        rows = [row for row in stored(source) if row["method"] not in ("refused", "failed")]
        if rows and one.cells(rows):
            found.append((one, rows))
    return found
