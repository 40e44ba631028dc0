"""What the README says of WinRS: the error of Ω16 on a GPU."""

from __future__ import annotations

from experiments.gpu.rows import gradients, paper_alpha
from experiments.gpu.rows import stored as stored_gpu
from experiments.harness.facts import table
from experiments.report.texts import rounded_up
from papers.winrs_2025.errors import PAPER


def headline() -> str:
    """A phrase, from kept rows."""
    mine = [
        row
        for case in gradients(stored_gpu(), "fp32")
        for row in case.rows
        if row["method"] == "winolab"
        and row["products"] == "fp32"
        and paper_alpha(row["kernel"]) == 16
    ]
    positive, zero_mean = (
        max(row[metric] for row in mine if isinstance(row.get(metric), float))
        for metric in ("mare_u01", "relative_rms_u11")
    )
    (printed,) = (r["fp32"] for r in table(PAPER, 4)["rows"] if r["algorithm"] == "omega alpha 16")
    return (
        f"Ω16 on GPUs: mean relative error ≤ {rounded_up(positive)} on U[0,1] "
        f"({rounded_up(max(printed))} printed), relative RMS ≤ {rounded_up(zero_mean)} on U[−1,1]"
    )
