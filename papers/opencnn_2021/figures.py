"""The report's figures of openCNN."""

from __future__ import annotations

from experiments.report.figures import Drawn
from papers.opencnn_2021.layouts import figures5to8

FIGURES: dict[str, tuple[Drawn, ...]] = {
    "opencnn_2021 layouts": (
        (
            figures5to8,
            "Which lane of a warp stores which word of a state's buffer in the first round, eight "
            "rows of 128 bytes: Yan et al.'s layout, the paper's three, one that a search found.",
        ),
    ),
}
