"""WinRS's remedies on gradients that a training run recorded, by rows of a GPU.

The last run on the GPU that was measured last counts. Judged is what can be finite: dy is, and dw
in FP64 lies within FP16.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from experiments.gpu.rows import mean, of_last, stored, where
from experiments.harness.tables import Cell, Table, none, one, select
from experiments.harness.verdicts import at_most
from experiments.report.figures import by_kernel
from experiments.report.texts import Text
from papers.winrs_2025.grid import PAPER
from winolab.ref.arithmetic.formats import FORMATS

Row = dict[str, Any]
LARGEST = FORMATS["fp16"].max
RECORD = ("step", "name")


def last(rows: Sequence[Row]) -> list[Row]:
    """The rows of the last run."""
    if not rows:
        return []
    mine = of_last(rows)
    return select(mine, run=max(row["run"] for row in mine))


def fits(row: Row) -> bool:
    """Whether an exact kernel's result would be finite."""
    return row["dy_finite"] and isinstance(row["dw_max"], float) and row["dw_max"] <= LARGEST


def cells(rows: Sequence[Row]) -> list[Cell]:
    """By kind: results that are not finite, and errors beside those of what is picked."""
    rows = last(rows)
    found: list[Cell] = []
    if not rows:
        return found
    mine = [row for row in rows if fits(row)]
    records = {tuple(row[name] for name in RECORD) for row in rows}
    judged = {tuple(row[name] for name in RECORD) for row in mine}
    found.append(one("records", "tensor pairs", None, float(len(records))))
    found.append(one("records", "of these dw fits FP16", None, float(len(judged))))
    direct = {tuple(row[name] for name in RECORD): row["relative_rms"]
              for row in select(mine, kind="picked")}  # fmt: skip
    for kind in dict.fromkeys(row["kind"] for row in rows):
        some = select(mine, kind=kind)
        lost = float(sum(not row["finite"] for row in some))
        aim = {"accepted": at_most(0), "aim": 0.0} if kind == "fused" else {}
        found.append(one(kind, "results that are not finite", None, lost, **aim,
                         note=f"of {len(some)}"))  # fmt: skip
        finite = [row for row in some if isinstance(row["relative_rms"], float)]
        for word, of in (("minimum", min), ("maximum", max)):
            if finite:
                error = of(row["relative_rms"] for row in finite)
                found.append(one(kind, f"relative RMS, {word}", None, error))
        ratios = [
            row["relative_rms"] / other
            for row in finite
            if isinstance(other := direct.get(tuple(row[name] for name in RECORD)), float)
        ]
        if ratios and not math.isnan(mean(ratios)):
            found.append(one(kind, "error over the pick's, average", None, mean(ratios)))
    return found


def _where(name: str) -> list[str]:
    rows = last(stored(name))
    if not rows:
        return []
    scales = sorted({row["loss_scale"] for row in rows})
    return [f"On an {where(rows)}; loss scales {', '.join(f'{s:.0f}' for s in scales)}."]


TABLE = Table(
    PAPER, "recorded_kernels", "Gradients recorded in a training run, on a GPU", none, cells,
    "an aim: no result of fused Ω with its remedies is infinite where dw is not",
    sources=("winrs_recorded",), values=("relative_rms",),
)  # fmt: skip
COMMANDS = {"winrs_recorded": "python -m experiments.training.recorded"}
FIGURES = {
    TABLE.key: (
        (lambda rows: by_kernel([c for c in cells(rows) if "imum" in c.column],
                                "relative RMS error", "log"),
         "Relative RMS error on recorded gradients, least and largest, by kind of kernel."),
    ),
}  # fmt: skip
TEXTS = {
    TABLE.key: Text(
        "Section 6.3 scales dy against overflow, and trains ResNets in FP16.",
        "x and dy of four 3×3 layers of ResNet-34, at four steps of a run under autocast with a "
        "growing loss scale, PyTorch's convolutions; on them fused Ω, its remedies off in turn, Ω "
        "in two launches, and what is picked.",
        "ours: relative RMS against FP64 of the same numbers. Where the loss scale has made dy "
        "infinite, or dw exceeds FP16, no kernel's result is finite, and nothing is judged.",
        lambda found: [f"{len(found)} numbers.", *_where("winrs_recorded")],
    ),
}
