"""The command ``winolab judge``: whether a kernel computes what it claims, and how fast."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from winolab.arguments.words import plural
from winolab.cli import environment, process
from winolab.cli.bench import named
from winolab.cli.screen.render import AsJson, document, plain
from winolab.judge.apart import LIMIT, judge_apart
from winolab.judge.claim import DTYPES, Claim
from winolab.judge.judgement import Judgement
from winolab.judge.problems import EXAMPLE
from winolab.judge.report import page
from winolab.judge.trial import CHECKS
from winolab.lines import Lines
from winolab.ref.error.roundings import DIRECTIONS, known

REFUSED = 1  # exit code of a kernel that is not what it claims


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(name="judge")(command)


def command(
    kernel: Annotated[
        str,
        typer.Argument(
            metavar="FILE:FUNCTION",
            help="A function (x, w, stride, padding, dilation, groups, out: those that it has), a "
            "module of torch or its class, of a file or an importable module; or FILE.so, "
            "FILE.cubin with a signature.",
        ),
    ],
    algorithm: Annotated[
        str, typer.Option(help="What it claims, by the names of winolab tolerance.")
    ] = "direct",
    precision: Annotated[str, typer.Option(help=f"{', '.join(DTYPES)}.")] = "fp32",
    direction: Annotated[str, typer.Option(help=f"{', '.join(DIRECTIONS)}.")] = "forward",
    serves: Annotated[
        str, typer.Option(help=f"What it serves, such as {EXAMPLE}; other problems are not asked.")
    ] = "",
    layout: Annotated[
        str | None, typer.Option(help="channels_last, or channels_first (torch's default).")
    ] = None,
    arrays: Annotated[
        str | None, typer.Option(help="numpy, torch, cupy; by default what its file imports.")
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="cpu or cuda; by default cuda where there is one.")
    ] = None,
    dims: Annotated[int | None, typer.Option(help="Spatial dimensions: 1, 2 or 3.")] = None,
    signature: Annotated[
        str | None,
        typer.Option(help="TOML, or its file, of a compiled kernel; by default FILE.toml."),
    ] = None,
    layers: Annotated[
        str | None, typer.Option(help="Layers to time it on, as of winolab bench.")
    ] = None,
    count: Annotated[int, typer.Option(help="Random problems beside the fixed ones.")] = 40,
    seed: Annotated[str, typer.Option(help="Of the random problems.")] = "0",
    limit: Annotated[float, typer.Option(help="Seconds that a call may take.")] = LIMIT,
    skip: Annotated[str, typer.Option(help=f"Left out, with commas: {', '.join(CHECKS)}.")] = "",
    report: Annotated[Path | None, typer.Option(help="An HTML file to write.")] = None,
    out: Annotated[Path | None, typer.Option(help="A file that rows are added to.")] = None,
    as_json: AsJson = False,
) -> None:
    """Judge a kernel that you did not write: exit code 0 if it is accepted, 1 if refused.

    For example:

    ```
    winolab judge mine:conv --algorithm "F(4x4,3x3)" --precision fp16
    winolab judge torch.nn.functional:conv2d --report judged.html
    winolab judge mine.cubin --serves "filter=3 stride=1" --layers resnet
    ```
    """
    known(direction)
    if not limit > 0:
        raise ValueError(f"limit {limit:g}; expected seconds, more than 0")
    if count < 0:
        raise ValueError(f"count {count}; expected 0 or more")
    for name, value, expected in (
        ("device", device, ("cpu", "cuda")),
        ("layout", layout, ("channels_last", "channels_first")),
        ("dims", dims, (1, 2, 3)),
    ):
        if value is not None and value not in expected:
            raise ValueError(f"{name} {value!r}; expected {', '.join(map(str, expected))}")
    claim = Claim(algorithm, precision, direction)
    left_out = frozenset(name for name in skip.split(",") if name)
    timed = named(layers) if layers else []
    loaded = {
        "arrays": arrays, "device": device, "layout": layout, "direction": direction,
        "serves": serves, "signature": signature, "dims": dims,
    }  # fmt: skip
    how = {"count": count, "seed": seed, "skip": left_out}
    if report:
        report.open("a").close()  # which says that it cannot be written before minutes of trials
    with Lines(out).checked() if out else nullcontext() as file:
        with process.progress(as_json) as bar:
            task = bar.add_task("trials", total=100 + count)
            found, untimed = judge_apart(
                kernel, claim, loaded, how, limit=limit,
                layers=[(str(layer), layer.problem) for _, layer in timed],
                told=lambda number: bar.update(task, completed=number),
            )  # fmt: skip
        found.facts |= environment.provenance()
        for said in untimed:
            print(f"winolab: {said}", file=sys.stderr)
        for row in (*found.rows, *found.times) if file else ():
            file.append(plain({**found.facts, **row}))  # pyright: ignore[reportOptionalMemberAccess]
    if report:
        report.write_text(page(found))
    print(document(told(found)) if as_json else screen(found))
    if not found:
        raise typer.Exit(REFUSED)


def told(found: Judgement) -> dict:
    """The judgement, as JSON has it."""
    return {
        "accepted": bool(found),
        "verdict": found.verdict,
        "faults": [str(fault) for fault in found.faults],
        "left": found.left,
        **found.facts,
        "rows": [*found.rows, *found.times],
    }


def screen(found: Judgement) -> str:
    """The verdict, other faults, what was left out, and the times."""
    lines = [found.verdict]
    lines += [f"also {fault}" for fault in found.faults[1:]]
    lines += [
        f"{plural(count, 'trial')} left out: {why[:160]}" for why, count in found.left.items()
    ]
    for row in found.times:
        if "tflops" in row:
            who = f"{row['layer']} {row['method']} {row.get('kernel', '')}".rstrip()
            beside = row.get("held_bytes", row["workspace"])
            lines.append(
                f"{who}: {row['tflops']} TFLOPS, {row['share']:.0%} of {row['ceiling_tflops']}; "
                f"cold {row['cold_us'][1]} us, warm {row['warm_us'][1]} us"
                + ("" if beside is None else f"; {beside} B beside the result")
            )
    return "\n".join(lines)
