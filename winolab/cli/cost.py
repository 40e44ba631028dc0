"""The command ``winolab cost``: what algorithms cost for a layer, before anything runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from decimal import Context
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from winolab.algorithm import parse_algorithm
from winolab.api.cost import Row, of_problem
from winolab.arguments import shapes
from winolab.cli import process
from winolab.cli.screen import fitted
from winolab.cli.screen.render import AsJson, document
from winolab.cli.sweep import POINTS, values
from winolab.ref.algorithms.dwm.decompose import decomposition
from winolab.ref.cost.count import DIRECTIONS

LEGEND = (
    "Multiplications of the products; additions (Strassen's too), multiplications and FMAs of the "
    "transforms, with multiplications by powers of two apart. FLOP: all of it, an FMA being two; "
    "speedup: direct's FLOP over it. Workspace and FLOP a byte: FP32, stages not fused (WinRS: its "
    "buckets); fused: every tensor once."
)


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(name="cost")(command)


def command(
    input: Annotated[str, typer.Option(help="Batch, sizes, channels: 128x96x96x64.")],
    filter: Annotated[str, typer.Option(help="Output channels, taps: 64x3x3.")],
    algorithm: Annotated[
        str, typer.Option(help="One or more, with commas: dwm:3:2,winograd:4x4:3x3.")
    ] = "direct",
    stride: Annotated[str, typer.Option(help="A number, or one a dimension (1x2).")] = "1",
    padding: Annotated[str, typer.Option(help="The same, or same, or valid.")] = "0",
    dilation: Annotated[str, typer.Option(help="A number, or one a dimension.")] = "1",
    groups: Annotated[int, typer.Option(help="Of channels.")] = 1,
    direction: Annotated[str, typer.Option(help=", ".join(DIRECTIONS))] = "forward",
    levels: Annotated[
        int,
        typer.Option(
            "--strassen",
            min=0,
            max=64,
            help="Levels of Strassen, which halve products' sizes.",
        ),
    ] = 0,
    compare: Annotated[
        bool, typer.Option("--compare", help="Rank these and the usual ones, cheapest first.")
    ] = False,
    picture: Annotated[
        bool, typer.Option("--picture", help="Show how a dwm cuts the filter.")
    ] = False,
    wide: fitted.Wide = False,
    as_json: AsJson = False,
) -> None:
    """Multiplications, transform operations, traffic and workspace of algorithms for a layer.

    For example:

    ```
    winolab cost --input 1x28x28x128 --filter 128x7x7 --padding 3 --compare
    winolab cost --input 1x28x28x8 --filter 8x7x7 --algorithm dwm:3:2 --picture
    ```
    """
    problem = shapes.nonempty(
        shapes.problem(
            input, filter, stride=stride, padding=padding, dilation=dilation, groups=groups
        )
    )
    algorithms = [parse_algorithm(text) for text in values(algorithm, POINTS)]
    found = of_problem(problem, algorithms, direction, levels=levels, compare=compare)
    for reason in found.left_out:
        print(f"winolab: left out: {reason}", file=sys.stderr)
    shown = (parse_algorithm(row["algorithm"]) for row in found.rows)
    cuts = [a for a in shown if a.in_pieces]
    if picture and (as_json or not cuts):
        raise ValueError(
            "--picture shows how a dwm cuts the filter, beside the table: name one, such as "
            "--algorithm dwm:3:2, without --json"
        )
    if as_json:
        print(document(found.rows))
        return
    console = process.console(wide)
    for a in cuts if picture else ():
        console.print(Text(f"{a}\n{decomposition(problem, a)}\n"))
    console.print(table(found.rows))


# Heads of the columns, and the order in which they stay where a terminal is narrow.
TITLES = {
    "multiplications": ("multipli-\ncations", 2),
    "additions": ("additions", 3),
    "transform_multiplications": ("multiply", 6),
    "shifts": ("shifts", 7),
    "fmas": ("FMAs", 8),
    "flops": ("FLOP", 0),
    "speedup": ("speedup", 1),
    "workspace_bytes": ("workspace\nB", 4),
    "traffic_bytes": ("traffic\nB", 5),
    "intensity": ("FLOP/B", 9),
    "fused_intensity": ("fused\nFLOP/B", 10),
}


def table(rows: Sequence[Row]) -> RenderableType:
    """The rows side by side."""
    lines = [(one["algorithm"], *(_cell(one[key]) for key in TITLES)) for one in rows]
    heads, ranks = zip(*TITLES.values(), strict=True)
    columns = [*fitted.texts("algorithm"), *fitted.numbers(*heads, ranks=ranks)]
    return Group(fitted.of_rows(columns, lines), Text(), Text(LEGEND, style="dim"))


def _cell(value: float | None) -> str:
    """Four digits; of integers that FP64 does not hold, too."""
    if value is None:
        return "none"
    if abs(value) < 1 << 1023:
        return f"{value:.4g}"
    return f"{Context(prec=4).create_decimal(value).normalize():e}"
