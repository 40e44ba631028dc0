"""What the README says of Lavin & Gray: the errors of nested tiles beside direct sums'."""

from __future__ import annotations

from statistics import geometric_mean

from experiments.harness.tables import select, stored
from papers.lavin_gray_2016.accuracy import PAPER, layers


def headline() -> str:
    """A phrase, from kept rows."""
    rows = select(stored(PAPER), table="table4", variant="fp32")
    largest = {(row["layer"], row["column"]): row["layer_max"] for row in rows}
    told = []
    for column, name in (("F2x2", "F(2×2,3×3)"), ("F4x4", "F(4×4,3×3)")):
        ours = [largest[each["layer"], column] / largest[each["layer"], "direct"]
                for each in layers()]  # fmt: skip
        printed = [each[column] / each["direct"] for each in layers()]
        told.append(f"{name} {geometric_mean(ours):.1f} ({geometric_mean(printed):.1f} printed)")
    return f"largest FP32 error on VGG-E over direct's: {', '.join(told)}"
