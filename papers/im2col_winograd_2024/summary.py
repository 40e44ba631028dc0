"""What the README says of Im2col-Winograd: the error of Γ16 on a GPU, and where it comes from."""

from __future__ import annotations

from experiments.gpu.rows import kernel
from experiments.gpu.rows import stored as stored_gpu
from experiments.harness.facts import table
from experiments.harness.jobs import Row
from experiments.harness.tables import select, stored
from experiments.report.texts import rounded_up
from papers.im2col_winograd_2024 import picture
from papers.im2col_winograd_2024.accuracy import PAPER


def headline() -> str:
    """A phrase, from kept rows."""
    rows = [
        row
        for row in select(stored_gpu(), method="winolab", products="fp32")
        if row["direction"] != "backward_filter" and kernel(row["kernel"])[0] == 16
    ]
    positive, zero_mean = (
        max(row[metric] for row in rows if isinstance(row.get(metric), float))
        for metric in ("mare_u12", "relative_rms_u11")
    )
    printed = [
        value
        for column in table(PAPER, 3)["columns"]
        if column["algorithm"].startswith("gamma:16")
        for value in column["mare"]
    ]
    return (
        f"Γ16 on GPUs: mean relative error ≤ {rounded_up(positive)} on U[1,2] "
        f"({rounded_up(max(printed))} printed), relative RMS ≤ {rounded_up(zero_mean)} on U[−1,1]"
    )


def gamma16() -> str:
    """The sentence under the picture."""
    constants, order, points = picture.factors(_table3())
    return (
        f"With 64 channels, seven-digit constants cost Γ16(8,9) a factor of {constants:.1f}, the "
        f"order of its sums {order:.1f}, its points {points:.1f}: {constants * order * points:.0f} "
        "in all. None is the price of Winograd.\n"
    )


def _table3() -> list[Row]:
    return select(stored(PAPER), table="table3")


MARKED = {"gamma16": gamma16}
PICTURES = {"im2col_table3.svg": lambda: picture.svg(_table3())}
