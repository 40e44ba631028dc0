"""The command ``winolab``: one short function a command; errors are one line and exit code 2."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from winolab.cli import (
    bench,
    environment,
    listing,
    process,
    render,
    sweep,
    tables,
)
from winolab.cli import (
    cost as costs,
)
from winolab.cli import (
    plan as plans,
)
from winolab.cli.fitted import Wide
from winolab.cli.render import AsJson
from winolab.ref.algebra.transforms import SCALINGS
from winolab.ref.algebra.transforms import transforms as build_transforms
from winolab.ref.error.search import best_points
from winolab.version import __version__

app = typer.Typer(
    name="winolab",
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(plans.app, name="plan")


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


@app.command()
def transforms(
    n: Annotated[int, typer.Argument(metavar="N", help="Outputs of a tile.")],
    r: Annotated[int, typer.Argument(metavar="R", help="Taps of the filter.")],
    points: Annotated[
        str, typer.Option(help='best, paper, wincnn, or a list such as "0,1,-1,1/2,inf".')
    ] = "best",
    scaling: Annotated[
        str, typer.Option(help=f"Of the rows: none, {', '.join(SCALINGS)} (of G alone: filter).")
    ] = "none",
    format: Annotated[str, typer.Option(help=f"{', '.join(render.FORMATS)}.")] = "text",
    as_json: AsJson = False,
) -> None:
    """The exact matrices AT, G, BT of F(N, R), proved to be convolution.

    For example:

    ```
    winolab transforms 6 3
    winolab transforms 2 3 --points "0,1,-1,inf" --format latex
    ```
    """
    if format not in render.FORMATS:
        raise ValueError(f"unknown format {format!r}; expected one of {', '.join(render.FORMATS)}")
    shape = render.FORMATS["json" if as_json else format]
    print(shape(build_transforms(n, r, points, scaling)))


@app.command()
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
    wide: Wide = False,
    as_json: AsJson = False,
) -> None:
    """Search for better interpolation points; shows the leaders, scored by their errors.

    For example:

    ```
    winolab points 16 --r 9 --budget 60
    ```
    """
    with _clock("searching", budget, quiet=as_json):
        leaders = tables.leaders(best_points(alpha, r, budget=budget))
    if as_json:
        print(render.document({"alpha": alpha, "r": r, "leaders": leaders}))
    else:
        process.console(wide).print(tables.points(leaders))


@app.command()
def accuracy(
    algorithm: Annotated[
        str,
        typer.Option(
            metavar="LIST",
            help="direct, winograd:4x4:3x3 for F(4x4,3x3), gamma:8:6:3 for Γ8(6,3) of "
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
        str, typer.Option(metavar="LIST", help="1, or 1x2 for one a dimension, or same, valid.")
    ] = "0",
    precision: Annotated[
        str,
        typer.Option(
            metavar="LIST",
            help="fp32, tf32, bf16, fp16, fp64, exact, fp32_split; mixed as fp32,storage=fp16 or "
            "fp32_split,scale=peaks:2.",
        ),
    ] = "fp32",
    data: Annotated[
        str,
        typer.Option(
            metavar="LIST",
            help="u12 (uniform on [1, 2]), u01, u11 (on [-1, 1]), normal, relu, wide (exponents).",
        ),
    ] = "u12",
    constants: Annotated[
        str,
        typer.Option(
            metavar="LIST", help="exact, or the significant digits that hand-typed ones keep."
        ),
    ] = "exact",
    sample: Annotated[
        str, typer.Option(metavar="LIST", help="How many outputs are computed, or full for all.")
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
    wide: Wide = False,
    as_json: AsJson = False,
) -> None:
    """The error of a simulated convolution against its oracle, its bound and its prediction.

    A LIST is one value or several, as a,b,c: all combinations are run, one row each. An interrupted
    sweep goes on with the same command and --out.

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
        precision=sweep.values(precision, sweep.PARTS),
        seed=[_integer("seed", value) for value in sweep.values(seed)],
        groups=[_integer("groups", value) for value in sweep.values(groups)],
        **{name: sweep.values(text) for name, text in lists.items()},
    )
    rows = _swept(todo, out, workers or environment.cores(), quiet=as_json)
    if as_json:
        print(render.document(rows))
    else:
        process.console(wide).print(tables.accuracy(rows))


def _swept(todo: list[sweep.Case], out: Path | None, workers: int, quiet: bool) -> list[sweep.Row]:
    """The rows of the cases, with a progress bar; an interrupt says how to go on."""
    file = sweep.RowFile(out) if out else None
    for damaged in file.damaged if file else ():
        print(f"winolab: {damaged}", file=sys.stderr)
    with _progress(quiet) as bar:
        task = bar.add_task("cases", total=len(todo))
        try:
            return sweep.run(
                todo, file=file, workers=workers, advance=lambda part: bar.advance(task, part)
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


@app.command()
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
    as_json: AsJson = False,
) -> None:
    """The papers' tables beside ours: their number, ours, the ratio, and whether it agrees.

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
    arguments = [text for text in (paper, table) if text]
    arguments += [flag for flag, wanted in flags.items() if wanted]
    arguments += ["--workers", str(workers)] if workers else []
    _become([sys.executable, "-m", environment.REPRODUCE, *arguments], root)


def _become(command: list[str], folder: Path) -> NoReturn:
    """Run a command in place of this process, which signals reach; where the system has that."""
    sys.stdout.flush()
    if sys.platform == "win32":
        raise typer.Exit(subprocess.run(command, cwd=folder, check=False).returncode)
    os.chdir(folder)
    os.execv(command[0], command)


@app.command()
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


costs.register(app)
bench.register(app)
listing.register(app)


def _integer(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{name} {text[:60]!r}; expected an integer") from None


def _progress(quiet: bool) -> Progress:
    """A bar with the time left, on a terminal only, gone when done."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.3g} of {task.total:.3g}, left:"),
        TimeRemainingColumn(),
    )
    return Progress(
        *columns,
        console=Console(stderr=True),
        transient=True,
        disable=quiet or not sys.stderr.isatty(),
    )


@contextmanager
def _clock(name: str, seconds: float, quiet: bool) -> Iterator[None]:
    """A bar that runs with the time, for work that takes a stated number of seconds."""
    done = Event()
    with _progress(quiet) as bar:
        task = bar.add_task(name, total=seconds)
        started = time.monotonic()

        def run() -> None:
            while not done.wait(0.2):
                bar.update(task, completed=min(seconds, time.monotonic() - started))

        ticking = Thread(target=run)
        ticking.start()
        try:
            yield
        finally:
            done.set()
            ticking.join()


def main() -> None:
    """Run the command, as ``process.run`` says."""
    process.run(app)


if __name__ == "__main__":
    main()
