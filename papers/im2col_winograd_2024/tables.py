"""The tables and figures of Im2col-Winograd that are computed anew."""

from __future__ import annotations

from papers.im2col_winograd_2024 import accuracy, kernels, training, variants

TABLES = (
    accuracy.TABLE3,
    accuracy.FIGURE10,
    accuracy.H100,
    *kernels.TABLES,
    *variants.TABLES,
    *training.TABLES,
)
COMMANDS = training.COMMANDS | {
    variants.MEASURED: "python -m experiments.measure.published.im2col",
}
