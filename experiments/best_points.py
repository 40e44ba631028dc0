"""Search the default interpolation points for every alpha and record them where the library reads.

    python -m experiments.best_points [SECONDS_PER_ALPHA]

Among the sets whose score is within MARGIN of the best one found, the one with the most dyadic
points is recorded: its BT and AT are exact in binary floating point, and the margin is about the
spread of the score over seeds.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from rich.progress import track

from winolab.nouns import MAX_ALPHA
from winolab.ref.points import INFINITY, show
from winolab.ref.program import is_dyadic
from winolab.ref.search import Scored, best_points

TABLE = Path(__file__).parents[1] / "winolab/ref/data/best_points.json"
MARGIN = 1.05


def main(budget: float = 20.0) -> None:
    table = json.loads(TABLE.read_text())
    for alpha in track(range(1, MAX_ALPHA + 1), "points"):
        leaders = best_points(alpha, budget=budget)
        close = [s for s in leaders if s.score <= MARGIN * leaders[0].score]
        chosen = max(close, key=lambda s: (_dyadic(s), -s.score))
        table[str(alpha)] = {
            "points": [show(p) for p in chosen.points if p != INFINITY],
            "tile": str(chosen.tile),
            "gain": float(f"{chosen.gain:.4g}"),
            "zero_mean": float(f"{chosen.zero_mean:.3g}"),
            "positive": float(f"{chosen.positive:.3g}"),
            "budget": budget,
        }
    TABLE.write_text(json.dumps(table, indent=1) + "\n")


def _dyadic(scored: Scored) -> int:
    return sum(p != INFINITY and is_dyadic(p) for p in scored.points)  # type: ignore[arg-type]


if __name__ == "__main__":
    main(*map(float, sys.argv[1:]))
