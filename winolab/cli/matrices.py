"""The commands ``transforms`` and ``points``: exact matrices, and a search for better points."""

from __future__ import annotations

from functools import partial
from math import isnan
from pathlib import Path
from typing import Annotated

import typer

from winolab.algorithm import SCALINGS
from winolab.cli import process
from winolab.cli.process import clock
from winolab.cli.screen import render, tables
from winolab.cli.screen.fitted import Wide
from winolab.cli.screen.render import AsJson
from winolab.ref.algebra.transforms import transforms as build_transforms
from winolab.ref.error.search import Scored, best_points
from winolab.spread import Dask, spread


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command(name="transforms")(transforms)
    app.command(name="points")(points)


def transforms(
    n: Annotated[int | None, typer.Argument(metavar="N", help="Outputs of a tile.")] = None,
    r: Annotated[int | None, typer.Argument(metavar="R", help="Taps of the filter.")] = None,
    points: Annotated[
        str | None,
        typer.Option(
            help='best, paper, wincnn, or a list such as "0,1,-1,1/2,inf", which may have other '
            'factors, "0,1,-1,inf,x^2+1"; karatsuba, sfc:6, legendre.',
            show_default="best",
        ),
    ] = None,
    matrices: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Your own AT, G and BT, in place of N, R and points: JSON, or a name and rows of "
            "fractions, line by line.",
        ),
    ] = None,
    scaling: Annotated[
        str, typer.Option(help=f"Of the rows: none, {', '.join(SCALINGS)} (of G alone: filter).")
    ] = "none",
    format: Annotated[str, typer.Option(help=f"{', '.join(render.FORMATS)}.")] = "text",
    as_json: AsJson = False,
) -> None:
    """The exact matrices AT, G, BT of F(N, R), proved to be convolution; or yours, proved.

    For example:

    ```
    winolab transforms 6 3
    winolab transforms 2 3 --points "0,1,-1,inf" --format latex
    winolab transforms 6 3 --points "0,3/4,-3/4,4/3,-4/3,inf,x^2+1"
    winolab transforms --matrices mine.txt
    ```
    """
    if format not in render.FORMATS:
        raise ValueError(f"unknown format {format!r}; expected one of {', '.join(render.FORMATS)}")
    if as_json and format not in ("text", "json"):
        raise ValueError(f"--json and --format {format}; give one of them")
    shape = render.FORMATS["json" if as_json else format]
    if matrices is None and (n is None or r is None):
        raise ValueError("transforms takes N and R, such as 6 3, or --matrices FILE")
    if matrices is not None and not (n is r is points is None):
        raise ValueError("--matrices says what F(N, R) is; give it alone, or N, R and --points")
    print(shape(build_transforms(n, r, points, scaling, matrices=matrices)))


def points(
    alpha: Annotated[int, typer.Argument(metavar="ALPHA", help="How many points: N + R - 1.")],
    r: Annotated[
        int | None,
        typer.Option(
            "--r", metavar="R", help="Filter taps to search for; by default all of 2 to 9."
        ),
    ] = None,
    budget: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="Time that the search may take.")
    ] = 10.0,
    dask: Dask = None,
    workers: Annotated[
        int, typer.Option(min=1, metavar="N", help="Searches from other starts at a time.")
    ] = 1,
    wide: Wide = False,
    as_json: AsJson = False,
) -> None:
    """Search for better interpolation points; shows the leaders, scored by their errors.

    For example:

    ```
    winolab points 16 --r 9 --budget 60
    ```
    """
    with clock("searching", budget, quiet=as_json):
        leaders = tables.leaders(_searched(alpha, r, budget, workers, dask))
    if as_json:
        print(render.document({"alpha": alpha, "r": r, "leaders": leaders}))
    else:
        process.console(wide).print(tables.points(leaders))


def _searched(
    alpha: int, r: int | None, budget: float, workers: int, dask: str | None
) -> list[Scored]:
    """The leaders of so many searches, a seed each, the best first."""
    if workers == 1 and not dask:
        return best_points(alpha, r, budget=budget)
    best_points(alpha, r, budget=0)  # which raises here what the processes would
    search = partial(_from_seed, alpha, r, budget)
    found = {s.points: s for _, some in spread(search, range(workers), workers, dask) for s in some}
    return sorted(found.values(), key=lambda s: (isnan(s.score), s.score))


def _from_seed(alpha: int, r: int | None, budget: float, seed: int) -> list[Scored]:
    return best_points(alpha, r, budget=budget, seed=seed)
