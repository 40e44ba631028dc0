"""The commands ``doctor``, ``reproduce`` and ``warmup``: what is installed, what a checkout adds,
and kernels that are compiled before anything is called.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from winolab.arguments.words import plural
from winolab.bench import picks
from winolab.cli import environment, process
from winolab.cli.bench import known, named
from winolab.cli.screen import render, tables
from winolab.cli.screen.render import AsJson, document
from winolab.device import DATASHEETS, datasheet
from winolab.gpu import driver, warm
from winolab.gpu.planner.request import DIRECTIONS, PRECISIONS
from winolab.gpu.runtime.cache import plans
from winolab.options import ConvOptions
from winolab.spread import Dask


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command(name="reproduce")(reproduce)
    app.command(name="doctor")(doctor)
    app.command(name="warmup")(warmup)


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
    gpu: Annotated[
        bool, typer.Option("--gpu", help="Simulate layers on a GPU: minutes of --full, not hours.")
    ] = False,
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

    Writes under results/ of the checkout alone: the rows and a report of everything, or of what is
    named. With --update the rows that are kept in experiments/results are rewritten too.

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
    flags |= {"--gpu": gpu, "--update": update}
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


def warmup(
    layers: Annotated[
        str,
        typer.Option(help="With commas, as those of winolab bench: networks, 32x56x56x64:64x3x3."),
    ] = "networks",
    direction: Annotated[
        str, typer.Option(help=f"With commas: {', '.join(DIRECTIONS)}.")
    ] = "forward",
    precision: Annotated[str, typer.Option(help=f"With commas: {', '.join(PRECISIONS)}.")] = "fp32",
    device: Annotated[
        str | None,
        typer.Option(help=f"{', '.join(DATASHEETS)}; by default the GPU that is there."),
    ] = None,
    tolerance: Annotated[
        str | None, typer.Option(help="Relative RMS error that is admitted: 1e-5, direct:4.")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Threads; one a core.")] = None,
    count: Annotated[bool, typer.Option("--count", help="Count kernels, compile none.")] = False,
    measure: Annotated[
        bool, typer.Option("--measure", help="Time plans beside the planner's, on this GPU.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    as_json: AsJson = False,
) -> None:
    """Compile every kernel that these layers call, on all cores, so that first calls are quick.

    Needs no GPU where --device names one: what is compiled is kept in WINOLAB_CACHE. winolab.torch
    has the same for a network: warmup(model, inputs).

    With --measure it times, too, what is predicted to take nearly as long as the planner's picks,
    and keeps the seconds: processes with WINOLAB_TIMED=1 take what was the fastest.

    For example:

    ```
    winolab warmup --layers 32x56x56x64:64x3x3 --device h100
    winolab warmup --layers networks --device h100 --count
    ```
    """
    if measure and (device or count):
        raise typer.BadParameter(
            "--measure runs on the GPU that is there; give no --device, --count"
        )
    gpu = datasheet(device) if device else driver.device(0)
    wanted = [
        (layer, way, ConvOptions(precision=each, tolerance=tolerance).checked())
        for _, layer in named(layers)
        for way in known("direction", direction, DIRECTIONS)
        for each in known("precision", precision, tuple(PRECISIONS))
    ]
    units: list[warm.Unit] = []
    with process.progress(quiet) as bar:
        task = bar.add_task("planning", total=len(wanted))
        with plans.observed() as requests:
            for layer, way, options in wanted:
                units += warm.calls_units(way, layer.problem, gpu, options)
                bar.advance(task)
        distinct = list({(unit.source, unit.arch): unit for unit in units}.values())
        if count:
            bar.stop()
            said = {"calls": len(wanted), "kernels": len(distinct), "device": gpu.name}
            text = f"{plural(len(wanted), 'call')}, {plural(len(distinct), 'kernel')}"
            print(document(said) if as_json else text)
            return
        task = bar.add_task("compiling", total=len(distinct))
        done = warm.compile_all(distinct, workers, lambda: bar.advance(task))
        if measure:
            task = bar.add_task("measuring", total=len(requests))
            timed = picks.prefer(requests, workers, lambda: bar.advance(task))
            done = replace(done, timed=timed)
    print(document(done.to_dict()) if as_json else done)
