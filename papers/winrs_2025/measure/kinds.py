"""Rows of a layer by kind: the last run's, the fastest of a kind, and ratios of their times."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from experiments.gpu.rows import known, mean, of_last
from experiments.harness.tables import Cell, one
from experiments.harness.verdicts import Verdict
from papers.winrs_2025.grid import WORDS

Row = dict[str, Any]
Layers = dict[tuple[str, ...], list[Row]]
OTHER = {"standing": Verdict.NOT_COMPARABLE}  # another device than the paper's


def layers(rows: Sequence[Row]) -> Layers:
    """The rows of each layer and precision: its last run on the GPU that was measured last."""
    found: Layers = {}
    for row in sorted(of_last(rows), key=lambda row: row["run"]):
        mine = found.setdefault((row["input"], row["filter"], row["precision"]), [])
        if mine and mine[0]["run"] != row["run"]:
            mine.clear()
        mine.append(row)
    return found


def fastest(rows: Sequence[Row], accept: Callable[[Row], bool]) -> Row | None:
    """The row that took least, of those that are accepted."""
    return min(filter(accept, rows), key=lambda row: row["cold_us"][1], default=None)


def is_(kind: str) -> Callable[[Row], bool]:
    """Whether a row is of that kind, or of it among others: "omega, picked" is "picked"."""
    return lambda row: row["kind"] == kind or row["kind"].endswith(f", {kind}") or (
        row["kind"] == f"{kind}, picked"
    )  # fmt: skip


def over(mine: Row | None, other: Row | None) -> float:
    """Speed over speed; NaN where one of them is missing."""
    return other["cold_us"][1] / mine["cold_us"][1] if mine and other else math.nan


def spread(
    where_: str, column: str, values: Sequence[float], paper: Any = None, **more: Any
) -> Iterator[Cell]:
    """Average, minimum and maximum of ratios, beside the paper's."""
    values = known(values)
    if not values:
        return
    ours = (mean(values), min(values), max(values))
    note = f"{len(values)} layers"
    for word, value, theirs in zip(WORDS, ours, paper or (None,) * 3, strict=True):
        standing = OTHER if paper else {}
        extra = more if word == "average" else {}
        yield one(where_, f"{column}, {word}", theirs, value, note=note, **standing, **extra)


def flop(row: Row) -> float:
    """Direct convolution's."""
    return row["tflops"] * 1e12 * row["cold_us"][1] * 1e-6
