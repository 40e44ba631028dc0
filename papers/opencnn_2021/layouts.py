"""openCNN, section 4: what the paper says of its output layouts, and what is counted."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.harness.counted import Count, cells, claim
from experiments.harness.facts import facts
from experiments.harness.jobs import Row
from experiments.harness.tables import Table
from experiments.harness.verdicts import Verdict
from winolab.gpu.families.fused2d.banks import LANES, TURING, Cost, stored
from winolab.gpu.families.fused2d.layouts import Layout, layout

PAPER = "opencnn_2021"
SHOWN = ("yan", "sts64", "sts64_final", "compact", "wide")  # Figures 5 to 8, and one of ours
# Statements whose numbers follow from Table 1, on which the model's cycles were fitted (fits.py).
FITTED = (
    "bytes a cycle of 128-bit stores by half of the lanes",
    "bytes a cycle of 64-bit stores by all",
)
PALETTE = np.array([[0xC4, 0x4E, 0x52], [0xDD, 0x84, 0x52], [0x55, 0xA8, 0x68], [0x4C, 0x72, 0xB0]])


def of(name: str) -> Cost:
    """A layout's figures in blocks of 64 filters, as the paper has them."""
    return Cost.of(layout(name, 64))


def statements() -> list[Row]:
    """The paper's statements of the layouts, each a number, and what the model counts."""
    said = facts(PAPER)["layouts"]
    yan, merged, compact = of("yan"), of("sts64_final"), of("compact")
    found = [
        claim("KB of Yan et al.'s buffer", said["yan_kb"], yan.layout.bytes / 1024, (40, 40)),
        claim("KB of the compact one", said["compact_kb"], compact.layout.bytes / 1024, (32, 32)),
        claim("rounds of the compact layout", said["rounds"], compact.layout.rounds, (4, 4)),
        claim("share of lanes that do nothing, Yan et al.", said["idle"], yan.stores.idle_share,
              (0.5, 0.5)),
        claim("bytes of padding, compact", 0, compact.padding, (0, 0)),
        *(
            claim(f"bank conflicts, {cost.layout.name}", 0,
                  cost.stores.conflicts + cost.loads.conflicts, (0, 0))
            for cost in (yan, of("sts64"), merged, compact)
        ),
    ]  # fmt: skip
    model = "the model's cycles are those of Table 1"
    printed = (said["divergent"], said["full"])
    for text, number, cost in zip(FITTED, printed, (yan, compact), strict=True):
        counted = TURING.bytes_a_cycle(cost.stores, stores=True)
        row = claim(text, number, counted, (number, number), model)
        found.append(row | {"standing": Verdict.FITTED.value})
    return found


LAYOUTS = Table(
    PAPER,
    "layouts",
    "Layouts of the output transform's buffer, Figures 4 to 8",
    lambda full: [Count(PAPER, "layouts", statements)],
    partial(cells, unit=1),
    "equal",
)


def drawn(panel: Axes, made: Layout, rows: int = 8) -> None:
    """The first rows of 128 bytes of a state's buffer: which lane stores each word in round 1."""
    lanes = np.full((rows, LANES), -1)
    for round_, words in stored(made):
        for lane, first in enumerate(words):
            if round_ == 0 and first is not None and first < rows * LANES:
                lanes.flat[first : first + made.width] = lane
    image = np.full((rows, LANES, 3), 245)
    for at in np.ndindex(rows, LANES):
        if lanes[at] >= 0:
            shade = 0.45 + 0.55 * (lanes[at] % 8) / 7
            image[at] = 255 - shade * (255 - PALETTE[lanes[at] // 8])
    panel.imshow(image, aspect="auto", interpolation="nearest")
    for row, column in np.ndindex(rows, LANES // made.width):
        lane = lanes[row, column * made.width]
        if lane >= 0:
            x = column * made.width + (made.width - 1) / 2
            panel.text(x, row, str(lane), ha="center", va="center", fontsize=6.5)
    panel.set_xticks(np.arange(0, LANES + 1, made.width) - 0.5, minor=True)
    panel.set_yticks(np.arange(rows + 1) - 0.5, minor=True)
    panel.grid(which="minor", color="white", linewidth=0.8)
    panel.grid(which="major", visible=False)
    panel.tick_params(which="minor", length=0)
    panel.set_xticks([0, 15, 31], ["bank 0", "15", "31"])
    panel.set_yticks([])


def figures5to8(rows: Sequence[Row]) -> Figure:
    """A panel a layout: lanes of the first round in a state's buffer."""
    figure = Figure(figsize=(9, 9.5), layout="constrained")
    panels = figure.subplots(len(SHOWN), 1)
    for panel, name in zip(panels, SHOWN, strict=True):
        cost = of(name)
        drawn(panel, cost.layout)
        throughput = TURING.bytes_a_cycle(cost.stores, stores=True)
        panel.set_title(
            f"{cost.layout.shown.partition(':')[0]} ({name}): {cost.layout.bytes / 1024:g} KB, "
            f"{cost.stores.idle_share:.0%} of lanes idle, {throughput:.1f} bytes a cycle",
            fontsize=8.5, loc="left",
        )  # fmt: skip
    return figure
