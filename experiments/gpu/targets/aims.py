"""How an aim is held against measured rows; what was not measured has failed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.gpu.rows import Measured, Row, kernel, mean, ratio
from experiments.harness.tables import Cell, one
from experiments.harness.verdicts import Range, at_least, at_most

FORWARD, DATA, FILTER = "forward", "backward_data", "backward_filter"
ROUNDED = 0.005  # of the paper's three digits, at most
GAMMA16 = 1e-6  # MARE of α = 16 on U[1, 2]; the paper has 1e-5
# Ω's largest MARE on U[0, 1], by the arrays' precision and α.
OMEGA_AIMS = {("fp32", 8): 8.3e-7, ("fp32", 16): 1e-6, ("fp16", 8): 5e-4, ("fp16", 16): 2e-3}
GRID = ("dragon", "table3", "grid")  # lists of the paper's nine kernels, ten shapes each
Pick = Callable[[Measured], Row | None]


def ffma(c: Measured) -> Row | None:
    return c.ffma


def fastest_ffma(c: Measured) -> Row | None:
    return c.fastest_ffma


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


def gemm(c: Measured) -> Row | None:
    """cuDNN's implicit GEMM, channels last, in the arrays' own precision."""
    return c.cudnn("IMPLICIT_PRECOMP_GEMM", "ALGO_1", layout="NHWC")


def speeds(mine: Sequence[Measured], a: Pick, b: Pick, when: str = "cold_us") -> dict[str, float]:
    """Speed over speed by layer, where both ran."""
    if when == "cold_us":
        return _known({c.name: ratio(a(c), b(c)) for c in mine})
    found = {c.name: (a(c), b(c)) for c in mine}
    return {name: theirs[when][1] / mine[when][1] for name, (mine, theirs) in found.items()
            if mine and theirs}  # fmt: skip


def quotients(mine: Sequence[Measured], field: str, a: Pick, b: Pick) -> dict[str, float]:
    """A field of one row over that of another, where both are numbers."""
    found = {}
    for c in mine:
        above, below = (row.get(field) if row else None for row in (a(c), b(c)))
        if isinstance(above, float) and isinstance(below, float) and below:
            found[c.name] = above / below
    return found


def limits(mine: Sequence[Measured], of: Pick) -> dict[str, float]:
    """Shares of Φ·SGEMM, Φ being that of the kernel that ran, by layer."""
    found = {}
    for c in mine:
        if row := of(c):
            alpha, n, r = kernel(row["kernel"])
            found[c.name] = row["tflops"] / (n * r / alpha * c.sgemm)
    return found


def regular(every: Sequence[Measured]) -> list[Measured]:
    """FP32 layers of GRID, forward, whose kernel has nothing but whole tiles and 64 channels."""
    return [
        c
        for c in every
        if (c.direction, c.group) == (FORWARD, "fp32")
        and c.list in GRID
        and c.layer.output[1] % kernel(c.kernel_of or "")[1] == 0
        and c.layer.channels % 64 == 0
    ]


def transformed(c: Measured, row: Row) -> int:
    """Bytes of a row's transformed filter, four an element: FP32, or two parts of 16 bits."""
    alpha, _, r = kernel(row["kernel"])
    layer = c.layer
    pieces = layer.taps * -(-layer.taps // r)
    return 4 * layer.channels * layer.out_channels * pieces * alpha


def _known(values: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in values.items() if not math.isnan(value)}


@dataclass(frozen=True)
class Part:
    """One part of the aims; ``command`` measures it anew."""

    name: str
    command: str

    def told(
        self,
        what: str,
        column: str,
        aim: float | None,
        value: float,
        accepted: Range | None,
        note: str,
    ) -> Cell:
        """A cell: the aim, what was measured, what would reach it, and the command."""
        note = "not measured" if math.isnan(value) else note
        note = "; ".join(filter(None, (note, self.command)))
        return one(f"{self.name}: {what}", column, None, value, accepted=accepted, aim=aim,
                   note=note)  # fmt: skip

    def least(self, what: str, column: str, aim: float, value: float, note: str = "") -> Cell:
        """A number that was to be at least so much."""
        return self.told(what, column, aim, value, at_least(aim), note)

    def most(self, what: str, column: str, aim: float, value: float, note: str = "") -> Cell:
        """A number that was to be at most so much."""
        return self.told(what, column, aim, value, at_most(aim), note)

    def shown(self, what: str, column: str, value: float, note: str = "") -> Cell:
        """A number without an aim."""
        return self.told(what, column, None, value, None, note)

    def smallest(self, what: str, aim: float, values: Mapping[str, float]) -> Cell:
        """The least of a number by layer, which was to be at least so much."""
        return self._extreme(what, "least", aim, values, min, lambda v: v < aim, self.least)

    def largest(self, what: str, aim: float, values: Mapping[str, float]) -> Cell:
        """The largest of a number by layer, which was to be at most so much."""
        return self._extreme(what, "largest", aim, values, max, lambda v: v > aim, self.most)

    def _extreme(self, what, column, aim, values, pick, beyond, told) -> Cell:
        if not values:
            return told(what, column, aim, math.nan)
        if absent := [name for name, value in values.items() if math.isnan(value)]:
            none = (math.nan, math.nan)  # nothing reaches it
            return self.told(what, column, aim, math.inf, none, f"not a number: {absent[0]}")
        name = pick(values, key=lambda key: values[key])
        missed = sum(beyond(value) for value in values.values())
        return told(what, column, aim, values[name], f"{name}; {missed} of {len(values)} beyond")

    def over(
        self,
        what: str,
        values: Mapping[str, float],
        average: float | None,
        least: float | None,
        of: str = "layer",
    ) -> Iterator[Cell]:
        """Ratios by layer: their geometric mean, and the least where it has an aim."""
        middle = mean(list(values.values()))
        count = f"{len(values)} {of}{'s' * (len(values) != 1)}"
        if average is None:
            yield self.shown(what, "geometric mean", middle, count)
        else:
            yield self.least(what, "geometric mean", average, middle, count)
        if least is not None:
            yield self.smallest(what, least, values)


def errors(rows: Sequence[Row], **wanted: Any) -> dict[str, Row]:
    """Rows of experiments.measure.errors by shape."""
    return {
        row["shape"]: row
        for row in rows
        if "shape" in row and all(row.get(key) == value for key, value in wanted.items())
    }
