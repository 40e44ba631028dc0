"""The report's figures of DWM."""

from __future__ import annotations

from papers.dwm_2021 import frontier

FIGURES = {
    frontier.FRONTIER.key: (
        (
            frontier.figure,
            "Lines: predicted along the front. Crosses: measured. Circles: DWM's own choice.",
        ),
    ),
}
