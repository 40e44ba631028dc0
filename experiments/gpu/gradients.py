"""Every filter gradient of the sample by itself: what is picked, and the fastest by its error."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from matplotlib.figure import Figure

from experiments.gpu.ceilings import product_bound, transform_bound
from experiments.gpu.rows import Measured, Row, gradients, kernel, ratio, tiles
from experiments.harness.tables import Cell, Table, none, one
from experiments.report.figures import INK, panels_of, with_legend
from experiments.report.texts import Text
from winolab.ref.error.metrics import ADMISSIBLE, error_ratio

WAYS = ("picked", "admissible, any workspace", "any error and workspace")


def admissible(row: Row) -> bool:
    """Whether a planner that nobody tells a kernel may take it: direct, and tiles whose predicted
    error on zero-mean data is at most ADMISSIBLE times direct's."""
    return all(error_ratio(tile, row["points"]) <= ADMISSIBLE for tile in tiles(row["kernel"]))


def of_sample(rows: Sequence[Row]) -> list[Cell]:
    """Three cells a layer and precision: speed over the fastest of cuDNN and PyTorch."""
    return [found for group in ("fp32", "fp16", "bf16") for c in gradients(rows, group)
            for found in _layer(c)]  # fmt: skip


def _layer(c: Measured) -> Iterator[Cell]:
    of = c.ours, c.fastest(lambda r: _ours(r) and admissible(r)), c.ours_any
    for column, row in zip(WAYS, of, strict=True):
        if row and c.library:
            over = ratio(row, c.library)
            yield one(f"{c.group} {c.name}", column, None, over, note=_told(c, row))


def _ours(row: Row) -> bool:
    return row["method"] == "winolab" and not row.get("prepared")


def _told(c: Measured, row: Row) -> str:
    """Kernel, speed and workspace, and what shares of its ceilings that is."""
    told = f"{row['kernel']} {row['products']}, {row['tflops']:.0f} TFLOPS, {row['workspace']} B"
    if row["products"] == "fp32":
        return told
    shares = f"{row['tflops'] / product_bound(row):.2f} of what products allow"
    if kernel(row["kernel"])[0] > 1:
        shares = f"{row['tflops'] / transform_bound(c, row):.2f} of what transforms, {shares}"
    return f"{told}; {shares}"


GRADIENTS = Table(
    "gpu", "gradients", "Every filter gradient of WinRS's sample over the fastest library", none,
    of_sample, "nothing is judged",
    sources=("throughput",),
)  # fmt: skip


def picture(rows: Sequence[Row]) -> Figure:
    """A panel a precision, a place a layer."""
    found = of_sample(rows)
    groups = list(dict.fromkeys(c.where.split()[0] for c in found))
    names = list(dict.fromkeys(c.where.split()[1] for c in found))
    size = (3 * len(groups) + 1.5, 0.2 * len(names) + 1.2)
    figure, panels = panels_of(1, len(groups), size)
    for group, panel in zip(groups, panels, strict=True):
        mine = [c for c in found if c.where.split()[0] == group]
        for i, way in enumerate(WAYS):
            values = {c.where.split()[1]: c.ours for c in mine if c.column == way}
            at = [names.index(name) for name in values]
            panel.plot(list(values.values()), at, "os^"[i], color=f"C{i}", markersize=4, label=way)
        panel.axvline(1, color=INK, linewidth=0.8)
        panel.set_yticks(range(len(names)), names)
        panel.set(title=group, xscale="log", ylim=(len(names) - 0.5, -0.5))
        panel.set_xlabel("speed over the fastest library")
    return with_legend(figure, panels[-1])


FIGURES = {
    GRADIENTS.key: (
        (picture, "Every filter gradient of the sample: what is picked, and the fastest kernels."),
    ),
}
TEXTS = {
    GRADIENTS.key: Text(
        "Each layer and precision three times: what a call picks by itself, within the usual "
        "workspace; the fastest kernel whose error is admissible, of any workspace; the fastest of "
        "any error.",
        "The note has the kernel, its effective TFLOPS and workspace, and what share that is of "
        "the speed at which memory would hold its transforms, and Tensor Cores its products.",
        "ours: speed over the fastest library.",
        lambda _: [],
    ),
}
