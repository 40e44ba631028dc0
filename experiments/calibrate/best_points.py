"""Search the default interpolation points for every alpha and record them where the library reads.

    python -m experiments.calibrate.best_points [SECONDS_PER_ALPHA]

Among the sets whose score is within MARGIN of the best one found, which is about the spread of the
score over seeds, one with dyadic points is recorded where there is one (its AT and BT are exact in
binary floating point), and of those the one whose programs are shortest.
"""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import track

from winolab.algorithm import MAX_ALPHA
from winolab.ref.algebra.points import INFINITY, show
from winolab.ref.algebra.schedule import is_dyadic
from winolab.ref.algebra.transforms import transforms
from winolab.ref.error.search import Scored, best_points

TABLE = Path(__file__).parents[2] / "winolab/ref/algebra/data/best_points.json"
MARGIN = 1.05


def main(
    budget: Annotated[
        float, typer.Argument(metavar="SECONDS_PER_ALPHA", min=0, help="For each search.")
    ] = 20.0,
) -> None:
    """Search the default points of every alpha, and write them where the library reads them."""
    table = json.loads(TABLE.read_text())
    for alpha in track(range(1, MAX_ALPHA + 1), "points"):
        leaders = best_points(alpha, budget=budget)
        close = [s for s in leaders if s.score <= MARGIN * leaders[0].score]
        chosen = min(close, key=lambda s: (not _dyadic(s), _instructions(s), s.score))
        table[str(alpha)] = {
            "points": [show(p) for p in chosen.points if p != INFINITY],
            "tile": str(chosen.tile),
            "gain": float(f"{chosen.gain:.4g}"),
            "zero_mean": float(f"{chosen.zero_mean:.3g}"),
            "positive": float(f"{chosen.positive:.3g}"),
            "budget": budget,
        }
    TABLE.write_text(json.dumps(table, indent=1) + "\n")


def _dyadic(scored: Scored) -> bool:
    return all(p == INFINITY or is_dyadic(Fraction(p)) for p in scored.points)


def _instructions(scored: Scored) -> int:
    programs = transforms(scored.tile.n, scored.tile.r, scored.points).programs
    return sum(p.counts.instructions for p in (programs.AT, programs.G, programs.BT))


if __name__ == "__main__":
    typer.run(main)
