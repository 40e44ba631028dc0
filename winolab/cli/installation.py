"""The commands ``doctor`` and ``reproduce``: what is installed, and what a checkout adds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from winolab.cli import environment, process
from winolab.cli.screen import render, tables
from winolab.cli.screen.render import AsJson
from winolab.spread import Dask


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command(name="reproduce")(reproduce)
    app.command(name="doctor")(doctor)


def reproduce(
    paper: Annotated[
        str | None, typer.Argument(help="A paper, such as im2col_winograd_2024.")
    ] = None,
    table: Annotated[str | None, typer.Argument(help="One of its tables, such as table3.")] = None,
    list_: Annotated[
        bool, typer.Option("--list", help="Name the papers and their tables.")
    ] = False,
    every: Annotated[bool, typer.Option("--all", help="The tables that take minutes too.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Compute all outputs, no sample.")] = False,
    workers: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Processes; by default one a core."),
    ] = None,
    dask: Dask = None,
    as_json: AsJson = False,
    update: Annotated[
        bool, typer.Option("--update", help="Rewrite the rows that the checkout keeps.")
    ] = False,
) -> None:
    """The papers' tables beside ours: their number, ours, the ratio, and whether it agrees.

    Writes under results/ of the checkout alone: the report and the rows. With --update the rows
    that are kept in experiments/results are rewritten too.

    Tables that a GPU measured are shown from kept rows; --list has the commands that measure them.

    Needs the checkout (papers/ and experiments/ are not in the wheel) and the extra "experiments".

    For example:

    ```
    winolab reproduce --list
    winolab reproduce lavin_gray_2016 table4
    ```
    """
    root = environment.experiments()
    flags = {"--list": list_, "--all": every, "--full": full, "--json": as_json}
    flags["--update"] = update
    arguments = [text for text in (paper, table) if text]
    arguments += [flag for flag, wanted in flags.items() if wanted]
    arguments += ["--workers", str(workers)] if workers else []
    arguments += ["--dask", dask] if dask else []
    _become([sys.executable, "-m", environment.REPRODUCE, *arguments], root)


def _become(command: list[str], folder: Path) -> NoReturn:
    """Run a command in place of this process, which signals reach; where the system has that."""
    sys.stdout.flush()
    if sys.platform == "win32":
        raise typer.Exit(subprocess.run(command, cwd=folder, check=False).returncode)
    os.chdir(folder)
    os.execv(command[0], command)


def doctor(as_json: AsJson = False) -> None:
    """Versions, which extras are installed, which GPU is there and what its kernels need.

    For example:

    ```
    winolab doctor
    ```
    """
    report: dict[str, Any] = {
        **environment.provenance(),
        "core": {name: environment.installed(name) for name in environment.CORE},
        "extras": environment.extras(),
        "gpus": environment.gpus(),
        "compilers": environment.compilers(),
        "cuda": environment.cuda(),
        "checkout": str(environment.checkout() or "") or None,
    }
    if as_json:
        print(render.document(report))
    else:
        process.console().print(tables.doctor(report))
