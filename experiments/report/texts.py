"""What the report says of a table: what the paper did, what is done here, what came out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal

from experiments.harness.tables import Cell, Table
from experiments.report.counts import counts


@dataclass(frozen=True)
class Text:
    """Paragraphs of a section; ``found`` reads its numbers from the cells."""

    did: str
    do: str
    read: str
    found: Callable[[Sequence[Cell]], list[str]]


def absent(table: Table) -> Text:
    """The text of a table that is not reproduced."""
    return Text(
        f"{table.title}; the numbers that survived in the text stand below.",
        f"Nothing: {table.tolerance}.",
        "paper: the printed number.",
        lambda cells: [counts(cells).text + "."],
    )


def ratios(cells: Sequence[Cell]) -> str:
    """How many agree, and the range of ours over the paper's."""
    judged = [c for c in cells if c.agrees is not None]
    values = [c.ratio for c in judged if c.ratio is not None]
    count = f"{sum(bool(c.agrees) for c in judged)} of {len(judged)} agree"
    return f"{count}; ours over the paper's {min(values):.2f} to {max(values):.2f}"


def rounded_up(value: float) -> str:
    """Two digits that are no less, as what stands behind "≤" has to be.

    >>> rounded_up(3.12e-06), rounded_up(9.91e-05), rounded_up(0.5)
    ('3.2e-06', '1.0e-04', '5.0e-01')
    """
    return f"{float(Decimal(value).normalize(Context(2, ROUND_CEILING))):.1e}"
