"""The frontier of nested algorithms F(n×n, r×r): error against saving, by format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.harness.jobs import Row
from experiments.harness.tables import Cell, interval
from experiments.harness.verdicts import at_least, at_most
from winolab.ref.records.protocols import PRECISIONS, simulated
from winolab.ref.records.table import Record, every

PAPER, TABLE = "moduli", "plane"
WIDTHS, SEEDS = (3, 5, 7, 9), 2
SFC = 3.68  # saved of 3×3 filters, as the abstract of 2407.02913 states
MOST = 300  # of the gain in one dimension: FP16 loses more than a tenth beyond
GAIN = 5 / 3  # of F(2, 3) at 0, ±1 and infinity
FORMATS = tuple(p for p in PRECISIONS if p != "bf16")  # whose errors are FP16's times eight
RULE = (
    "aims of our own: one algorithm for 3×3 filters saves what SFC's abstract states, or more, and "
    "has no more noise gain than F(2×2,3×3)"
)


def frontier(r: int) -> list[Record]:
    """Records that no other beats in saving and in noise gain, the least saving first, minimal
    F(2, r) before them."""
    found: list[Record] = []
    known = [c for c in every() if c.r == r and c.gain < MOST]
    for record in sorted(known, key=lambda c: (-c.saving, c.gain)):
        if not found or record.gain < found[-1].gain:
            found.append(record)
    least = [c for c in known if (c.n, c.states, c.default or "fp32" in c.best) == (2, r + 1, True)]
    return [*least, *found[::-1]]


def name_of(record: Record) -> str:
    """F(8×8,3×3) in 12²."""
    n, r = record.n, record.r
    return f"F({n}×{n},{r}×{r}) in {record.states}²"


@dataclass(frozen=True)
class Measured:
    """A record of the frontier, nested with itself."""

    record: Record

    @property
    def cost(self) -> float:
        return float(self.record.states**2)

    def run(self) -> list[Row]:
        c = self.record
        values = {"saving": [c.saving**2], "gain": [c.gain**2]}
        for precision in FORMATS:
            values[precision] = simulated(c.n, c.r, c.points, "u11x2", precision, SEEDS)
        labels = {"paper": PAPER, "table": TABLE, "where": name_of(c), "r": c.r, "states": c.states}
        algorithm = f"winograd:{c.n}x{c.n}:{c.r}x{c.r}@{c.points}"
        return [
            {**labels, "algorithm": algorithm, "column": column, "ours": some}
            for column, some in values.items()
        ]


def jobs(full: bool) -> list[Measured]:
    """The frontier of every filter width."""
    return [Measured(record) for r in WIDTHS for record in frontier(r)]


def cells(rows: Sequence[Row]) -> list[Cell]:
    """A cell a row; SFC's saving and F(2×2,3×3)'s gain beside the algorithm that is to have both:
    that of least gain which saves as much."""
    known = {(row["where"], row["column"]): row["ours"][0] for row in rows}
    saves = [w for w, column in known if ",3×3)" in w and known[w, "saving"] >= SFC]
    best = min(saves, key=lambda w: known[w, "gain"], default="")
    aims = {
        (best, "saving"): (SFC, at_least(SFC)),
        (best, "gain"): (limit := GAIN**2, at_most(limit)),
    }
    found = []
    for row in rows:
        aim, accepted = aims.get((row["where"], row["column"]), (None, None))
        ours, low, high = interval(row["ours"])
        found.append(
            Cell(row["where"], row["column"], None, ours, low, high, accepted, aim=aim,
                 note=row["algorithm"])
        )  # fmt: skip
    return found
