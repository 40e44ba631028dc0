"""The command ``accuracy``: errors of simulated convolutions, one case or a sweep."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from winolab.cli import environment, process, sweep
from winolab.cli.process import progress
from winolab.cli.screen import render, tables
from winolab.cli.screen.fitted import Wide
from winolab.cli.screen.render import AsJson
from winolab.spread import Dask


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(name="accuracy")(accuracy)


def accuracy(
    algorithm: Annotated[
        str,
        typer.Option(
            metavar="LIST",
            help="direct, winograd:4x4:3x3 or F(4x4,3x3), gamma:8:6:3 for Γ8(6,3) of "
            "Im2col-Winograd, dwm:3:2, fft:8:3; behind it @paper for the points, ;scaling=l1 for "
            "the rows. DWM and FFT need --sample full.",
        ),
    ],
    input: Annotated[
        str, typer.Option(metavar="LIST", help="Batch, sizes and channels, as 128x96x96x64.")
    ],
    filter: Annotated[
        str, typer.Option(metavar="LIST", help="Output channels and taps, as 64x3x3.")
    ],
    padding: Annotated[
        str,
        typer.Option(
            metavar="LIST",
            help="1, 1x2 for one a dimension, 0:1x1 with both ends, same, valid.",
        ),
    ] = "0",
    precision: Annotated[
        str,
        typer.Option(
            metavar="LIST",
            help="fp32, tf32, bf16, fp16, fp64, exact, fp32_split; Tensor Cores are Ampere's, "
            "fp16@hopper's others; mixed as fp32,storage=fp16 or fp32_split,scale=peaks:2; "
            "int8:state, fp8_e4m3:channel by scales, rns of exact sums, with --sample full.",
        ),
    ] = "fp32",
    data: Annotated[
        str,
        typer.Option(
            metavar="LIST",
            help="u11 (uniform on [-1, 1]), u01, u12 (on [1, 2]), normal, relu, wide (exponents).",
        ),
    ] = "u11",
    constants: Annotated[
        str,
        typer.Option(
            metavar="LIST", help="exact, or the significant digits that hand-typed ones keep."
        ),
    ] = "exact",
    sample: Annotated[
        str,
        typer.Option(
            metavar="LIST",
            help="About how many outputs are computed, of whole tiles; or full for all.",
        ),
    ] = "4096",
    seed: Annotated[
        str, typer.Option(metavar="LIST", help="Seeds of the data and of the sample.")
    ] = "0",
    direction: Annotated[
        str,
        typer.Option(
            metavar="LIST",
            help="forward; backward_data and backward_filter need --sample full.",
        ),
    ] = "forward",
    stride: Annotated[
        str, typer.Option(metavar="LIST", help="2, or 1x2 for one a dimension.")
    ] = "1",
    dilation: Annotated[
        str, typer.Option(metavar="LIST", help="2, or 1x2 for one a dimension.")
    ] = "1",
    groups: Annotated[
        str, typer.Option(metavar="LIST", help="Groups of channels; they need --sample full.")
    ] = "1",
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="JSON Lines that rows are added to; those in it do not run again."
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Processes; by default one a core."),
    ] = None,
    gpu: Annotated[
        bool,
        typer.Option("--gpu", help="Simulate on a GPU: the same bits, sooner."),
    ] = False,
    dask: Dask = None,
    wide: Wide = False,
    as_json: AsJson = False,
) -> None:
    """The error of a simulated convolution against its oracle, its bound and its prediction.

    A LIST is one value or several, as a,b,c: all combinations are run, one row each. An interrupted
    sweep goes on with the same command and --out. With --dask, cases run on Dask's workers, and
    again where one is lost; --workers are those of "local".

    For example:

    ```
    winolab accuracy --algorithm gamma:8:6:3 --input 8x48x48x64 --filter 64x3x3
    winolab accuracy --algorithm direct,gamma:4:2:3 --input 8x99x8 --filter 8x3
    winolab accuracy --algorithm direct --input 8x9x8 --filter 8x3 --seed 0,1
    winolab accuracy --algorithm direct --input 8x9x8 --filter 8x3 --out a.jsonl
    ```
    """
    lists = {
        "input": input, "filter": filter, "padding": padding, "data": data,
        "constants": constants, "sample": sample, "direction": direction, "stride": stride,
        "dilation": dilation,
    }  # fmt: skip
    todo = sweep.cases(
        algorithm=sweep.values(algorithm, sweep.POINTS),
        precision=sweep.values(precision, sweep.FIELDS),
        seed=[_integer("seed", value) for value in sweep.values(seed)],
        groups=[_integer("groups", value) for value in sweep.values(groups)],
        **{name: sweep.values(text) for name, text in lists.items()},
    )
    if gpu and dask:
        raise ValueError("--gpu with --dask: one GPU serves this process; give one of the two")
    rows = _swept(todo, out, workers or environment.cores(), dask, quiet=as_json, gpu=gpu)
    if as_json:
        print(render.document(rows))
    else:
        process.console(wide).print(tables.accuracy(rows))


def _swept(
    todo: list[sweep.Case],
    out: Path | None,
    workers: int,
    dask: str | None,
    quiet: bool,
    gpu: bool,
) -> list[sweep.Row]:
    """The rows of the cases, with a progress bar; an interrupt says how to go on."""
    file = sweep.RowFile(out) if out else None
    for damaged in file.damaged if file else ():
        print(f"winolab: {damaged}", file=sys.stderr)
    missing = [case for case in todo if not file or case not in file.rows]
    with progress(quiet) as bar:
        task = bar.add_task("cases", total=len(todo))
        try:
            if not quiet:
                seconds = sweep.seconds(missing, workers, gpu)
                process.announce("cases", len(missing), seconds, workers, gpu)
            return sweep.run(
                todo,
                file=file,
                workers=workers,
                dask=dask,
                advance=lambda part: bar.advance(task, part),
                gpu=gpu,
            )
        except KeyboardInterrupt:
            kept = (
                f"its rows are in {out}; the same command goes on" if out else "no --out was given"
            )
            bar.stop()
            print(f"winolab: interrupted; {kept}", file=sys.stderr)
            raise typer.Exit(process.INTERRUPTED) from None
        finally:
            if file:
                file.close()


def _integer(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{name} {text[:60]!r}; expected an integer") from None
