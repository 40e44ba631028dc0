"""openCNN's Figures 4 to 14, drawn from the layouts' data; eight lanes a colour."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from experiments.harness.jobs import Row
from experiments.report.figures import Drawn
from papers.opencnn_2021.layouts import of
from papers.opencnn_2021.orders import (
    FIGURE13,
    LANES,
    PAD,
    Grid,
    buffer,
    first_round,
    free_orders,
    lanes,
    named,
    readings,
    shuffled,
    stores_of_y,
    wide_orders,
    wide_words,
)
from winolab.gpu.families.fused2d.banks import TURING

SHOWN = ("yan", "sts64", "sts64_final", "compact", "wide")  # Figures 5 to 8, and one of ours
ROWS = 8  # of 128 bytes that are shown of a buffer
PALETTE = np.array([[0xC4, 0x4E, 0x52], [0xDD, 0x84, 0x52], [0x55, 0xA8, 0x68], [0x4C, 0x72, 0xB0]])
BLANK = 245


def coloured(grid: Grid) -> np.ndarray:
    """The picture of a grid of lanes: eight lanes a colour, paler and darker."""
    found = np.full((len(grid), len(grid[0]), 3), BLANK)
    for row, each in enumerate(grid):
        for column, lane in enumerate(each):
            if lane != PAD:
                shade = 0.45 + 0.55 * (lane % 8) / 7
                found[row, column] = 255 - shade * (255 - PALETTE[lane // 8])
    return found


def drawn(
    panel: Axes,
    grid: Grid,
    title: str,
    width: int = 1,
    text: Callable[[int, int], str] | None = None,
) -> None:
    """A grid of lanes, cells of ``width`` words as one; ``text``: of a row and a column, else the
    lane; banks below where a row is 128 bytes."""
    panel.imshow(coloured(grid), aspect="auto", interpolation="nearest")
    count = len(grid[0])
    for row, each in enumerate(grid):
        for column in range(0, count, width):
            shown = text(row, column) if text else str(each[column])
            if each[column] != PAD:
                x = column + (width - 1) / 2
                panel.text(x, row, shown, ha="center", va="center", fontsize=6.5)
    panel.set_xticks(np.arange(0, count + 1, width) - 0.5, minor=True)
    panel.set_yticks(np.arange(len(grid) + 1) - 0.5, minor=True)
    panel.grid(which="minor", color="white", linewidth=0.8)
    panel.grid(which="major", visible=False)
    panel.tick_params(which="minor", length=0)
    panel.set_yticks([])
    if count == LANES:
        panel.set_xticks([0, 15, 31], ["bank 0", "15", "31"])
    panel.set_title(title, fontsize=8.5, loc="left")


def figures4and5(rows: Sequence[Row]) -> Figure:
    """The lane of each cell of 4 × 4 sums, and which are stored first."""
    figure = Figure(figsize=(9, 4.6), layout="constrained")
    for panel, name in zip(figure.subplots(1, 2, sharey=True), ("yan", "sts64"), strict=True):
        first, grid = first_round(named(name)), lanes()
        figures = "Figures 4 and 5, left" if name == "yan" else "The same of 64-bit stores (sts64)"
        drawn(panel, grid, figures)
        stored = np.array(first) > 0
        share = np.array(first)[stored].mean() / 16
        for row, column in np.argwhere(~stored):
            veil = Rectangle(
                (column - 0.5, row - 0.5), 1, 1, color="white", alpha=0.72, linewidth=0
            )
            panel.add_patch(veil)
        panel.set_xticks(range(0, 16, 2), range(0, 64, 8))
        panel.set_yticks(range(8), range(0, 32, 4))
        panel.set_xlabel(f"filter; bright: {share:.0%} of a cell's sums go in round 1")
        panel.tick_params(length=0)
    figure.axes[0].set_ylabel("tile")
    return figure


def figures5to8(rows: Sequence[Row]) -> Figure:
    """A panel a layout: lanes of the first round in a state's buffer."""
    figure = Figure(figsize=(9, 9.5), layout="constrained")
    for panel, name in zip(figure.subplots(len(SHOWN), 1), SHOWN, strict=True):
        cost = of(name)
        throughput = TURING.bytes_a_cycle(cost.stores, stores=True)
        drawn(
            panel,
            buffer(cost.layout)[:ROWS],
            f"{cost.layout.shown.partition(':')[0]} ({name}): {cost.layout.bytes / 1024:g} KB, "
            f"{cost.stores.idle_share:.0%} of lanes idle, {throughput:.1f} bytes a cycle",
            cost.layout.width,
        )
    return figure


def figures9to12(rows: Sequence[Row]) -> Figure:
    """What a warp reads of a state: lanes and tiles, without and with the swap of y and z."""
    figure = Figure(figsize=(9, 6.4), layout="constrained")
    panels = figure.subplots(4, 1, height_ratios=(1, 1, 1.5, 1))
    plain, swapped = readings(named("shuffled")), readings(named("sts64"))

    def told(grid: Grid) -> Callable[[int, int], str]:
        return lambda row, column: str(grid[row][column])

    drawn(
        panels[0],
        plain.lanes,
        f"Figure 9: the lane that reads each word, 32-bit loads, {plain.cost.conflicts} conflicts",
    )
    drawn(
        panels[1], plain.lanes, "Figure 10: tiles of these words, y and z not swapped",
        text=told(plain.tiles),
    )  # fmt: skip
    made = shuffled(named("shuffled"))
    # Whose the results are: read as a lane's two; stored, an even one's second, an odd one's first
    # are the neighbour's.
    grid = [[at // 2 for at in range(32)], [at // 4 * 2 + at % 2 for at in range(32)]]
    tiles = [[t for read, _ in made[:16] for t in read], [t for _, own in made[:16] for t in own]]
    drawn(
        panels[2], grid, "Figure 11: tiles of 16 lanes' results, read above and stored below; "
        "colours: the lane that made them", text=told(tiles),
    )  # fmt: skip
    panels[2].set_xticks(np.arange(0, 32, 2) + 0.5, range(16))
    panels[2].tick_params(length=0)
    drawn(
        panels[3], swapped.lanes,
        "Figure 12: tiles that lanes read after the swap in the products: neighbours, no shuffle",
        text=told(swapped.tiles),
    )  # fmt: skip
    return figure


def figures13and14(rows: Sequence[Row]) -> Figure:
    """Orders of 64-bit loads, the paper's and one without conflicts, and stores of y."""
    figure = Figure(figsize=(9, 4.6), layout="constrained")
    panels = figure.subplots(3, 1)
    for panel, order, name in (
        (panels[0], FIGURE13, "Figure 13"),
        (panels[1], free_orders()[-1], f"one of {len(free_orders())} orders without conflicts"),
    ):
        grid = [[PAD] * LANES for _ in range(2)]
        for lane, word in enumerate(wide_words(order)):
            for at in (word, word + 1):
                grid[at // LANES][at % LANES] = lane
        cost = wide_orders()[order]
        title = (
            f"{name}: 64-bit loads, {cost.transactions} transactions, {cost.conflicts} conflicts"
        )
        drawn(panel, grid, title, 2)
    made = stores_of_y(named("sts64"))
    drawn(
        panels[2],
        made.lanes,
        f"Figure 14: a 64-bit store of y, {made.bytes} bytes in {sum(made.lines)} transactions; a "
        "line: the 32 tiles of a filter",
        2,
    )
    panels[2].set_xticks([0, 15, 31], ["image 0", "15", "31"])
    return figure


PICTURES: dict[str, tuple[Drawn, ...]] = {
    "opencnn_2021 layouts": (
        (
            figures5to8,
            "Which lane of a warp stores which word of a state's buffer in the first round, eight "
            "rows of 128 bytes: Yan et al.'s layout, the paper's three, one that a search found.",
        ),
        (
            figures4and5,
            "Which lane has which 4 × 4 sums of a state, 64 filters × 32 tiles, and which go "
            "through shared memory first.",
        ),
        (
            figures9to12,
            "Two rows of 128 bytes as a warp reads them: without the swap of y and z results have "
            "to change lanes before they are stored as neighbours.",
        ),
        (
            figures13and14,
            "64-bit loads in the order that the paper discarded, in one that a search found, and "
            "stores of y.",
        ),
    ),
}
