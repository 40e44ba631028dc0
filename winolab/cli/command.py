"""The command ``winolab``: a module a command; errors are one line and exit code 2."""

from __future__ import annotations

from typing import Annotated

import typer

from winolab.cli import (
    accuracy,
    bench,
    cost,
    installation,
    judge,
    listing,
    matrices,
    plan,
    process,
    records,
    tolerance,
)
from winolab.version import __version__

app = typer.Typer(
    name="winolab",
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Winograd convolution, exact: its matrices, its errors, and the papers' tables.

    Start with:

    ```
    winolab transforms 6 3
    winolab accuracy --algorithm gamma:8:6:3 --input 32x48x48x64 --filter 64x3x3
    winolab algorithms
    ```
    """
    if version:
        print(f"winolab {__version__}")
    elif context.invoked_subcommand is None:
        print(context.get_help())


# In the order in which the help names them.
app.add_typer(plan.app, name="plan")
matrices.register(app)
records.register(app)
accuracy.register(app)
installation.register(app)
cost.register(app)
tolerance.register(app)
judge.register(app)
bench.register(app)
listing.register(app)


def main() -> None:
    """Run the command, as ``process.run`` says."""
    process.run(app)


if __name__ == "__main__":
    main()
