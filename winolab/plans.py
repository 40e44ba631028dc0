"""``winolab plan``: what a planner decides for a GPU that need not be there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from winolab import environment
from winolab.device import DATASHEETS, datasheet
from winolab.gpu.plan import PRECISIONS, Request, candidates
from winolab.gpu.plan import plan as gpu_plan
from winolab.measure import Case
from winolab.nouns import Algorithm, direct, parse_algorithm
from winolab.problem import Problem
from winolab.ref.arithmetic import arithmetic
from winolab.ref.errors import NORMAL, predict
from winolab.ref.winrs import phases
from winolab.ref.winrs_plan import Plan
from winolab.ref.winrs_plan import plan as winrs_plan

app = typer.Typer(
    help="What a planner decides, and predicts, for a GPU that need not be there.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


@app.command("backward-filter")
def backward_filter(
    input: Annotated[str, typer.Option(help="Batch, sizes, channels: 32x224x224x64.")],
    filter: Annotated[str, typer.Option(help="Output channels, taps: 64x3x3.")],
    padding: Annotated[
        str, typer.Option(help="A number, one a dimension (1x2), same or valid.")
    ] = "0",
    stride: Annotated[int, typer.Option(min=1, help="Of every dimension.")] = 1,
    device: Annotated[str, typer.Option(help=f"{', '.join(DATASHEETS)}.")] = "h100",
    precision: Annotated[str, typer.Option(help="fp32, or fp16 on Tensor Cores.")] = "fp32",
    points: Annotated[str, typer.Option(help="Interpolation points: best, paper.")] = "best",
    segments: Annotated[
        int | None, typer.Option(min=1, help="Wanted number; by default Algorithm 1's.")
    ] = None,
    workspace_limit: Annotated[
        int | None, typer.Option(metavar="BYTES", help="Plan within so many bytes.")
    ] = None,
    all_kernels: Annotated[
        bool, typer.Option("--all-kernels", help="Also kernels of a large error (α = 16).")
    ] = False,
    picture: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw dy cut into segments and units (SVG, PDF, PNG)."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")] = False,
) -> None:
    """WinRS's plan of a filter gradient: kernels, segments, workspace, predicted time.

    A stride gives a plan for every phase.

    For example:

        winolab plan backward-filter --input 32x224x224x64 --filter 64x3x3 --padding 1 \
            --device rtx4090
    """
    whole = Case("direct", input, filter, padding).problem
    whole = Problem.of(whole.x_shape, whole.w_shape, stride=stride, padding=whole.padding)
    plans = [
        winrs_plan(
            phase.problem,
            device,
            precision,
            points=points,
            admissible=not all_kernels,
            segments=segments,
            workspace_limit=workspace_limit,
        )
        for phase in phases(whole)
    ]
    if not plans:
        raise ValueError(f"input {input} leaves nothing to plan")
    if picture:
        _draw(plans, picture)
    if as_json:
        shown: Any = [plan.as_dict() for plan in plans]
        print(json.dumps(shown[0] if stride == 1 else shown))
    else:
        print("\n\n".join(map(str, plans)))
        if stride == 1 and points == "best" and not all_kernels:
            print("\nthe CUDA kernels' own plan:")
            limit = workspace_limit
            _kernels("backward_filter", input, filter, padding, device, precision, None, limit)


Input = Annotated[str, typer.Option(help="Batch, sizes, channels: 32x224x224x64.")]
Filter = Annotated[str, typer.Option(help="Output channels, taps: 64x3x3.")]
Padding = Annotated[str, typer.Option(help="A number, one a dimension (1x2), same or valid.")]
Gpu = Annotated[str, typer.Option(help=f"{', '.join(DATASHEETS)}.")]
Precision = Annotated[str, typer.Option(help=f"{', '.join(PRECISIONS)}.")]
Named = Annotated[str | None, typer.Option(help="Fixes it: gamma:8:6:3@paper, direct.")]
Limit = Annotated[int | None, typer.Option(metavar="BYTES", help="Plan within so many bytes.")]


@app.command()
def forward(
    input: Input,
    filter: Filter,
    padding: Padding = "0",
    device: Gpu = "h100",
    precision: Precision = "fp32",
    algorithm: Named = None,
    workspace_limit: Limit = None,
) -> None:
    """The kernel that a forward call would run, and what else was considered.

    For example:

        winolab plan forward --input 128x48x48x128 --filter 128x3x3 --padding 1
    """
    _kernels("forward", input, filter, padding, device, precision, algorithm, workspace_limit)


@app.command("backward-data")
def backward_data(
    input: Input,
    filter: Filter,
    padding: Padding = "0",
    device: Gpu = "h100",
    precision: Precision = "fp32",
    algorithm: Named = None,
    workspace_limit: Limit = None,
) -> None:
    """The kernel that a gradient of the input would run, and what else was considered."""
    _kernels("backward_data", input, filter, padding, device, precision, algorithm, workspace_limit)


def _kernels(direction, input, filter, padding, device, precision, algorithm, limit) -> None:
    problem = Case("direct", input, filter, padding).problem
    wanted = None if algorithm is None else parse_algorithm(algorithm)
    request = Request(
        problem, direction, datasheet(device), wanted, precision, workspace_limit=limit
    )
    choice = candidates(request)
    if direction == "backward_filter" and not choice.plans:
        print("; ".join(choice.reasons))
        return
    print(gpu_plan(request))
    fastest = {}
    for found in choice.plans:
        fastest.setdefault((found.kernel, found.precision), found)
    print("\nfastest predicted of every kernel")
    for (kernel, unit), found in fastest.items():
        print(
            f"{found.predicted * 1e6:10.1f} µs  {kernel} {unit}, {found.workspace} B workspace"
            + ("" if direction == "backward_filter" else _error(found, problem, direction))
        )
    for reason in choice.reasons:
        print(f"left out: {reason}")


def _error(plan: Any, problem: Problem, direction: str) -> str:
    """Predicted relative RMS error on zero-mean data; wide filters run in pieces of r taps."""
    tile, taps = plan.tile, problem.filter
    algorithm = direct() if tile.alpha == 1 else Algorithm("gamma", (tile,), plan.points)
    channels = problem.in_channels if direction == "forward" else problem.out_channels
    channels = channels // problem.groups * -(-taps[-1] // tile.r)
    shape = (*taps[:-1], tile.r, channels)
    outputs = [size + 1 for size in taps[:-1]] + [tile.r + 4 * tile.n]
    summed = Problem.of((1, *outputs, channels), (1, *shape))
    run = arithmetic(getattr(plan, "simulated", plan.precision))
    error = predict(NORMAL, NORMAL, summed, algorithm, run).relative_rms
    return f", relative RMS error {error:.1e} on normal data"


def _draw(plans: list[Plan], path: Path) -> None:
    root = environment.experiments()
    parts = [plan.as_dict() | plan.partition() for plan in plans]
    command = [sys.executable, "-m", "experiments.partition_picture", str(path.resolve())]
    done = subprocess.run(command, cwd=root, input=json.dumps(parts), text=True, check=False)
    if done.returncode:
        raise ValueError(f"{path} was not drawn")
