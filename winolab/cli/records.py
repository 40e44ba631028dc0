"""The command ``winolab records``: the best algorithms known, by F(n, r) and format."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Group
from rich.text import Text

from winolab.cli import process
from winolab.cli.screen import fitted
from winolab.cli.screen.fitted import Wide
from winolab.cli.screen.render import AsJson, document
from winolab.points import shortened
from winolab.ref.algebra.points import published
from winolab.ref.records.protocols import PRECISIONS, PROTOCOLS
from winolab.ref.records.table import Record, records

LEGEND = (
    "More states than n + r - 1 buy accuracy. Errors are simulated, the mean of five seeds; gain "
    "is the noise gain, and of optimum how many times the least that real points have, in place "
    "of fractions; counts are of AT, G and BT."
)


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(name="records")(command)


def command(
    n: Annotated[int | None, typer.Argument(metavar="N", help="Outputs of a tile.")] = None,
    r: Annotated[int | None, typer.Argument(metavar="R", help="Taps of the filter.")] = None,
    precision: Annotated[str, typer.Option(help=f"Of the data: {', '.join(PRECISIONS)}.")] = "fp32",
    everyone: Annotated[
        bool, typer.Option("--published", help="With the sets of others that lost.")
    ] = False,
    wide: Wide = False,
    as_json: AsJson = False,
) -> None:
    """The best algorithms known for F(N, R): modulus, states, saving, error, who found it.

    For example:

    ```
    winolab records 6 5
    winolab records 10 3 --published
    winolab records --precision fp16 --json
    ```
    """
    found = records(n, r, precision)
    if everyone:
        found = records(n, r, None)
    if as_json:
        print(document({"records": [c.to_dict() for c in found], **_sources()}))
    else:
        process.console(wide).print(_table(found, wide))


def _sources() -> dict:
    return {
        "protocols": {name: p.what for name, p in PROTOCOLS.items()},
        "not_compared": published()["not_compared"],
    }


def _error(value: float | str | None) -> str:
    return "inf" if value is None else value if isinstance(value, str) else f"{value:.2e}"


def _table(found: tuple[Record, ...], wide: bool) -> Group:
    """The records as a table, their moduli whole where it is ``wide``, and what its words mean."""
    known = [name for c in found for name in c.errors]
    shown = list(dict.fromkeys(known))
    lines = [
        (
            f"F({c.n},{c.r})",
            str(c.states),
            f"{c.saving:.2f}",
            f"{c.gain:.4g}",
            f"{c.gain / c.optimum:.2f}" if c.optimum else "",
            *(_error(c.errors.get(name, "")) for name in shown),
            str(c.additions),
            str(c.multiplications + c.fmas),
            c.points if wide else shortened(c.points),
            c.found,
        )
        for c in found
    ]
    heads = ("states", "saving", "gain", "of optimum", *shown, "additions", "multiplications, FMAs")
    titles = [*fitted.texts("F(n,r)"), *fitted.numbers(*heads), *fitted.texts("modulus", "found")]
    said = [
        f"{name}: {p.what}"
        for name, p in PROTOCOLS.items()
        if any(column.split()[0] == name for column in shown)
    ]
    cut = not wide and any(shortened(c.points) != c.points for c in found)
    whole = ["Moduli that end in … are whole with --wide."] if cut else []
    legend = " ".join([LEGEND, *whole, *(["; ".join(said) + "."] if said else [])])
    return Group(fitted.of_rows(titles, lines), Text(), Text(legend, style="dim"))
