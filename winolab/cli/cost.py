"""The command ``winolab cost``: what algorithms cost for a layer, before anything runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from decimal import Context
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from winolab.algorithm import Algorithm, Problem, parse_algorithm
from winolab.arguments import shapes
from winolab.cli import fitted, process
from winolab.cli.render import AsJson, document
from winolab.cli.sweep import POINTS, values
from winolab.ref.algorithms.dwm.decompose import decomposition
from winolab.ref.cost.blocks import Operations
from winolab.ref.cost.complexity import recursed
from winolab.ref.cost.count import DIRECTIONS, Cost, cost
from winolab.ref.kinds.registry import ENGINES

Row = dict[str, Any]
BYTES = 4
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
    problem = shapes.problem(
        input, filter, stride=stride, padding=padding, dilation=dilation, groups=groups
    )
    algorithms = [parse_algorithm(text) for text in values(algorithm, POINTS)]
    rows = [row(problem, cost(problem, a, direction), levels) for a in algorithms]
    if compare:
        more = [a for a in usual(problem, direction) if a not in algorithms]
        rows += _divisible(problem, more, direction, levels)
        algorithms += more
        rows.sort(key=lambda r: r["flops"])
    cuts = [a for a in algorithms if a.kind == "dwm"]
    if picture and (as_json or not cuts):
        raise ValueError(
            "--picture shows how a dwm cuts the filter, beside the table: name one, such as "
            "--algorithm dwm:3:2, without --json"
        )
    if as_json:
        print(document(rows))
        return
    console = process.console(wide)
    for a in cuts if picture else ():
        console.print(Text(f"{a}\n{decomposition(problem, a)}\n"))
    console.print(table(rows))


def _divisible(
    problem: Problem, algorithms: list[Algorithm], direction: str, levels: int
) -> Iterator[Row]:
    """Rows of algorithms that nobody named; those that Strassen cannot halve are left out aloud."""
    for algorithm in algorithms:
        found = cost(problem, algorithm, direction)
        try:
            yield row(problem, found, levels)
        except ValueError as error:
            print(f"winolab: left out: {error}", file=sys.stderr)


def usual(problem: Problem, direction: str) -> Iterator[Algorithm]:
    """Algorithms of every kind, in the sizes that papers use, where they serve."""
    for engine in ENGINES.values():
        yield from engine.usual(problem, direction)


def row(problem: Problem, found: Cost, levels: int = 0) -> Row:
    """The figures of one algorithm, flat; bytes for FP32.

    Raises ValueError where a product's sizes do not divide by 2^levels.
    """
    work = found.transforms
    inner = Operations(fmas=found.products)
    if levels:
        inner = recursed(problem, found.algorithm, levels, found.direction)
    flops = inner.flops + work.flops
    return {
        "algorithm": str(found.algorithm),
        "direction": found.direction,
        "multiplications": inner.fmas,
        "additions": inner.additions + work.additions,
        "transform_multiplications": work.multiplications,
        "shifts": work.shifts,
        "fmas": work.fmas,
        "flops": flops,
        "speedup": 2 * problem.macs / flops if flops else None,
        "workspace_bytes": BYTES * found.workspace,
        "traffic_bytes": BYTES * found.traffic,
        "intensity": flops / (BYTES * found.traffic) if found.traffic else None,
        "fused_intensity": flops / (BYTES * found.compulsory) if found.compulsory else None,
    }


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


def table(rows: list[Row]) -> RenderableType:
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
