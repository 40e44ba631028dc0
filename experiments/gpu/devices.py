"""Whether what holds on one GPU holds on others: geometric means by list, a column a GPU."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from experiments.gpu.losses import COLUMNS, by_list, compared, label
from experiments.gpu.rows import Row, cases, devices, mean, stored, where
from experiments.harness.tables import Cell, Table
from experiments.report.figures import INK, lines_of, with_legend
from experiments.report.texts import Text

Means = dict[tuple[str, str, str], tuple[float, int]]


def means(rows: Sequence[Row]) -> dict[str, Means]:
    """By GPU, the one that was measured last first, and by precision, direction and list: the
    geometric mean of what is picked over the fastest library, and of how many cases."""
    return {
        gpu: {
            key: (mean([one.ratio for one in mine]), len(mine))
            for key, mine in by_list(compared(cases(rows, gpu))).items()
        }
        for gpu in devices(rows)
    }


def cells(rows: Sequence[Row]) -> list[Cell]:
    """A line a list, a column a GPU."""
    found = means(rows)
    cells = []
    for key in COLUMNS:
        for gpu, mine in found.items():
            if key in mine:
                value, count = mine[key]
                cells.append(
                    Cell(label(*key), gpu, None, value, value, value, note=f"{count} cases")
                )
    return cells


def told(rows: Sequence[Row]) -> list[str]:
    """How many cases each GPU's rows have, and the commits that they measured."""
    every = [[c.rows[0] for c in cases(rows, gpu)] for gpu in devices(rows)]
    return [f"{len(mine)} cases: {where(mine)}." for mine in every]


def picture(rows: Sequence[Row]) -> Figure:
    """The geometric means, a line a list, a marker a GPU."""
    found = means(rows)
    keys = [key for key in COLUMNS if any(key in mine for mine in found.values())]
    figure, panel = lines_of([label(*key) for key in keys], (7.5, 1 + 0.24 * len(keys)))
    for i, (gpu, mine) in enumerate(found.items()):
        places = [(mine[key][0], line) for line, key in enumerate(keys) if key in mine]
        panel.plot(*zip(*places, strict=True), "os^D"[i % 4], color=f"C{i}", label=gpu,
                   markersize=5, alpha=0.8)  # fmt: skip
    panel.axvline(1, color=INK, linewidth=0.8)
    panel.set(xlabel="speed over the fastest library's, geometric mean", xlim=(0, None))
    return with_legend(figure, panel)


DEVICES = Table(
    "gpu", "devices", "What is picked over the fastest library, GPU by GPU",
    lambda full: [], cells, "nothing is judged",
    sources=("throughput",),
)  # fmt: skip
FIGURES = {
    DEVICES.key: (
        (picture, "What winolab picks over the fastest library, by GPU. Left of the line: losses."),
    ),
}  # fmt: skip
TEXTS = {
    DEVICES.key: Text(
        "The same comparison on every GPU that has rows.",
        "As in the table of losses: geometric means by list of what conv_* picks over the fastest "
        "of cuDNN's algorithms and PyTorch in the arrays' own precision. A GPU's rows may be of "
        "earlier kernels than another's: their commits stand below.",
        "ours: speed over the fastest library's, geometric mean.",
        lambda _: told(stored()),
    ),
}
