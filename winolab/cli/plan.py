"""``winolab plan``: what a planner decides for a GPU that need not be there."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from winolab.algorithm import winrs
from winolab.api.plan import plan
from winolab.arguments import shapes
from winolab.arguments.arrays import precision_named
from winolab.arguments.shapes import nonempty
from winolab.cli import environment
from winolab.cli.screen.render import AsJson, document
from winolab.device import DATASHEETS, datasheet
from winolab.gpu.planner.considered import Considered, considered
from winolab.gpu.planner.planner import plan as plan_of
from winolab.gpu.planner.request import PRECISIONS, Request
from winolab.problem import Direction, Problem
from winolab.ref.algorithms.winrs.gradient import phases
from winolab.ref.algorithms.winrs.plan import Plan
from winolab.ref.algorithms.winrs.plan import plan as winrs_plan

app = typer.Typer(
    help="What a planner decides, and predicts, for a GPU that need not be there.",
    rich_markup_mode="markdown",
)


Input = Annotated[str, typer.Option(help="Batch, sizes, channels: 32x224x224x64.")]
Filter = Annotated[str, typer.Option(help="Output channels, taps: 64x3x3.")]
Padding = Annotated[str, typer.Option(help="A number, one a dimension (1x2), same or valid.")]
Stride = Annotated[str, typer.Option(help="A number, or one a dimension (1x2).")]
Dilation = Annotated[str, typer.Option(help="A number, or one a dimension.")]
Groups = Annotated[int, typer.Option(help="Groups of channels.")]
Gpu = Annotated[str, typer.Option(help=f"{', '.join(DATASHEETS)}.")]
Precision = Annotated[str, typer.Option(help=f"{', '.join(PRECISIONS)}.")]
Named = Annotated[str | None, typer.Option(help="Fixes it: gamma:8:6:3@paper, direct.")]
Limit = Annotated[
    int | None, typer.Option(min=0, metavar="BYTES", help="Plan within so many bytes.")
]
Tolerance = Annotated[
    str | None,
    typer.Option(help="Relative RMS error: 1e-5; or proven:1e-4, componentwise:1e-5, direct:4."),
]
PAPER = "WinRS's plan, by the paper's Algorithms 1 and 2 and a model of the paper's kernels"
SAME = "by the model of winolab's kernels, which the plan below has, too"
OURS = "winolab's own plan, which a call runs that names no algorithm"
OF_WINRS = {"fp32": "fp32", "fp32_ffma": "fp32", "fp16": "fp16"}  # the paper's precisions


def register(parent: typer.Typer) -> None:
    """Add the command and its own to ``parent``."""
    parent.add_typer(app, name="plan")


@app.callback(invoke_without_command=True)
def root(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


@app.command("backward-filter")
def backward_filter(
    input: Input,
    filter: Filter,
    padding: Padding = "0",
    stride: Stride = "1",
    dilation: Dilation = "1",
    groups: Groups = 1,
    device: Gpu = "h100",
    precision: Annotated[
        str,
        typer.Option(help=f"{', '.join(PRECISIONS)}; WinRS's planner has fp32 and fp16."),
    ] = "fp32",
    algorithm: Annotated[
        str | None,
        typer.Option(help="Fixes the CUDA kernels' plan: omega:8:3:6, direct. Without WinRS's."),
    ] = None,
    points: Annotated[str, typer.Option(help="Interpolation points: best, paper.")] = "best",
    segments: Annotated[
        int | None, typer.Option(min=1, help="Wanted number; by default Algorithm 1's.")
    ] = None,
    workspace_limit: Limit = None,
    tolerance: Tolerance = None,
    all_kernels: Annotated[
        bool, typer.Option("--all-kernels", help="Also kernels of a large error (α = 16).")
    ] = False,
    picture: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw dy cut into segments and units (SVG, PDF, PNG)."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """WinRS's plan of a filter gradient: kernels, segments, workspace, predicted time.

    A call that names algorithm winrs launches it, in FP16 where the filter has a kernel, and what
    that takes by the CUDA kernels' model is said ("cuda_winrs" in JSON). Behind it, in JSON as
    "cuda", the CUDA kernels' own plan; alone, where WinRS's planner has no such precision or an
    algorithm or a tolerance is named. Strides and dilation give a plan for every phase, in JSON
    those of WinRS alone; where it has none, the CUDA kernels' stands alone.

    For example:

    ```
    winolab plan backward-filter --input 32x56x56x64 --filter 64x3x3 --padding 1
    winolab plan backward-filter --input 8x9x9x64 --filter 64x3x3 --device a100
    ```
    """
    whole = _problem(input, filter, stride, padding, dilation, groups)
    precision = precision_named(precision)
    of_winrs = bool(segments or picture or all_kernels or points != "best")

    def show_own() -> None:
        how = algorithm, workspace_limit, tolerance, as_json
        _show("backward_filter", whole, device, precision, *how)

    if algorithm or tolerance or precision not in OF_WINRS:
        if of_winrs:
            raise ValueError(
                "--segments, --picture, --all-kernels and --points are WinRS's planner's, which "
                f"names its algorithm itself and has the precisions {', '.join(OF_WINRS)}; the "
                "CUDA kernels take them in the algorithm: 'omega:8:3:6@paper;segments=3'"
            )
        show_own()
        return
    try:
        plans = [
            winrs_plan(
                phase.problem,
                device,
                OF_WINRS[precision],
                points=points,
                admissible=not all_kernels,
                segments=segments,
                workspace_limit=workspace_limit,
            )
            for phase in phases(whole)
        ]
    except ValueError:
        if of_winrs:
            raise
        show_own()  # WinRS has no plan of filters 2 wide in FP16, say, or of a phase
        return
    if not plans:
        raise ValueError(
            f"input {input} leaves nothing to plan; expected outputs whose taps meet inputs"
        )
    if picture:
        _draw(plans, picture)
    asked = Request(
        whole,
        "backward_filter",
        datasheet(device),
        precision=precision,
        workspace_limit=workspace_limit,
    )
    own = run = None
    if (whole.unit or not as_json) and points == "best" and not (all_kernels or segments):
        own = _own(asked)
    if whole.unit and not all_kernels:
        run = _run(replace(asked, algorithm=winrs(points=points, segments=segments)))
    if as_json:
        shown: Any = [each.as_dict() for each in plans]
        more = {"cuda": own and own.to_dict(), "cuda_winrs": run}
        print(document({**shown[0], **more} if whole.unit else shown))
        return
    print(f"{PAPER}:\n" + "\n\n".join(map(str, plans)))
    if run:
        print(f"launched   {run['predicted_us']:.1f} µs as {run['named']}, {SAME}")
    if own:
        print(f"\n{OURS}:\n{own}")


@app.command()
def forward(
    input: Input,
    filter: Filter,
    padding: Padding = "0",
    stride: Stride = "1",
    dilation: Dilation = "1",
    groups: Groups = 1,
    device: Gpu = "h100",
    precision: Precision = "fp32",
    algorithm: Named = None,
    workspace_limit: Limit = None,
    tolerance: Tolerance = None,
    as_json: AsJson = False,
) -> None:
    """The kernel that a forward call would run, and what else was considered.

    For example:

    ```
    winolab plan forward --input 128x48x48x128 --filter 128x3x3 --padding 1
    ```
    """
    problem = _problem(input, filter, stride, padding, dilation, groups)
    how = device, precision, algorithm, workspace_limit, tolerance, as_json
    _show("forward", problem, *how)


@app.command("backward-data")
def backward_data(
    input: Input,
    filter: Filter,
    padding: Padding = "0",
    stride: Stride = "1",
    dilation: Dilation = "1",
    groups: Groups = 1,
    device: Gpu = "h100",
    precision: Precision = "fp32",
    algorithm: Named = None,
    workspace_limit: Limit = None,
    tolerance: Tolerance = None,
    as_json: AsJson = False,
) -> None:
    """The kernel that a gradient of the input would run, and what else was considered.

    For example:

    ```
    winolab plan backward-data --input 32x56x56x64 --filter 64x3x3 --padding 1
    ```
    """
    problem = _problem(input, filter, stride, padding, dilation, groups)
    _show(
        "backward_data", problem, device, precision, algorithm, workspace_limit, tolerance, as_json
    )


def _show(
    direction: Direction,
    problem: Problem,
    device: str,
    precision: str,
    algorithm: str | None,
    limit: int | None,
    tolerance: str | None,
    as_json: bool,
) -> None:
    found = plan(
        problem.x_shape,
        problem.w_shape,
        direction=direction,
        algorithm=algorithm,
        stride=problem.stride,
        padding=problem.padding,
        dilation=problem.dilation,
        groups=problem.groups,
        precision=precision,
        device=device,
        workspace_limit=limit,
        tolerance=tolerance,
    )
    print(document(found.to_dict()) if as_json else found)


def _problem(
    input: str, filter: str, stride: str, padding: str, dilation: str, groups: int
) -> Problem:
    return nonempty(
        shapes.problem(
            input, filter, stride=stride, padding=padding, dilation=dilation, groups=groups
        )
    )


def _own(request: Request) -> Considered:
    """The same beside WinRS's plan, which stands where the CUDA kernels have none."""
    try:
        return considered(request)
    except ValueError as error:
        return Considered(request, None, str(error))


def _run(request: Request) -> dict[str, Any] | None:
    """What launches WinRS's plan, and what it takes; None where no kernel does."""
    try:
        found = plan_of(request)
    except ValueError:
        return None
    return {
        "named": f"algorithm {request.algorithm}",
        "predicted_us": round(1e6 * found.predicted, 3),
        "workspace_bytes": found.workspace,
    }


def _draw(plans: list[Plan], path: Path) -> None:
    if not path.suffix:
        raise ValueError(f"picture {str(path)!r}; expected a file such as plan.svg, .pdf or .png")
    root = environment.experiments()
    parts = [each.as_dict() | each.partition() for each in plans]
    command = [sys.executable, "-m", "experiments.report.partition_picture", str(path.resolve())]
    done = subprocess.run(
        command, cwd=root, input=json.dumps(parts), text=True, check=False, capture_output=True
    )
    if done.returncode:
        *_, reason = [line for line in done.stderr.splitlines() if line.strip()] or ["no reason"]
        raise ValueError(f"{path} was not drawn: {reason}")
