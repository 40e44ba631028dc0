"""``winolab warmup``: kernels compiled into the cache before anything is called."""

from __future__ import annotations

from typing import Annotated

import typer

from winolab.cli import process
from winolab.cli.bench import known, named
from winolab.cli.screen.render import AsJson, document
from winolab.device import DATASHEETS, datasheet
from winolab.gpu import driver, warm
from winolab.gpu.planner.request import DIRECTIONS, PRECISIONS
from winolab.options import ConvOptions


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(name="warmup")(command)


def command(
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
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    as_json: AsJson = False,
) -> None:
    """Compile every kernel that these layers call, on all cores, so that first calls are quick.

    Needs no GPU where --device names one: what is compiled is kept in WINOLAB_CACHE. winolab.torch
    has the same for a network: warmup(model, inputs).

    For example:

    ```
    winolab warmup --layers 32x56x56x64:64x3x3 --device h100
    winolab warmup --layers networks --device h100 --count
    ```
    """
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
        for layer, way, options in wanted:
            units += warm.calls_units(way, layer.problem, gpu, options)
            bar.advance(task)
        distinct = list({(unit.source, unit.arch): unit for unit in units}.values())
        if count:
            bar.stop()
            said = {"calls": len(wanted), "kernels": len(distinct), "device": gpu.name}
            print(document(said) if as_json else f"{len(wanted)} calls, {len(distinct)} kernels")
            return
        task = bar.add_task("compiling", total=len(distinct))
        done = warm.compile_all(distinct, workers, lambda: bar.advance(task))
    print(document(done.to_dict()) if as_json else done)
