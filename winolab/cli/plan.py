"""``winolab plan``: what a planner decides for a GPU that need not be there."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from winolab import shapes
from winolab.algorithm import parse_algorithm
from winolab.arrays import precision_named
from winolab.cli import environment
from winolab.cli.render import AsJson, document
from winolab.cli.sweep import nonempty
from winolab.device import DATASHEETS, datasheet
from winolab.gpu.planner.accuracy import predicted_rms
from winolab.gpu.planner.planner import candidates
from winolab.gpu.planner.planner import plan as gpu_plan
from winolab.gpu.planner.request import PRECISIONS, Request
from winolab.gpu.planner.request import Plan as GpuPlan
from winolab.problem import Problem
from winolab.ref.algebra.transforms import transforms
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
OF_WINRS = {"fp32": "fp32", "fp32_ffma": "fp32", "fp16": "fp16"}  # the paper's precisions


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

    Behind it, in JSON as "cuda", the CUDA kernels' own plan; alone, where WinRS's planner has no
    such precision or an algorithm is named. Strides and dilation give a plan for
    every phase.

    For example:

    ```
    winolab plan backward-filter --input 32x56x56x64 --filter 64x3x3 --padding 1
    winolab plan backward-filter --input 8x9x9x64 --filter 64x3x3 --device a100
    ```
    """
    whole = _problem(input, filter, stride, padding, dilation, groups)
    precision = precision_named(precision)
    if algorithm or precision not in OF_WINRS:
        if segments or picture or all_kernels or points != "best":
            raise ValueError(
                "--segments, --picture, --all-kernels and --points are WinRS's planner's, which "
                f"names its algorithm itself and has the precisions {', '.join(OF_WINRS)}; the "
                "CUDA kernels take them in the algorithm: 'omega:8:3:6@paper;segments=3'"
            )
        _show("backward_filter", whole, device, precision, algorithm, workspace_limit, as_json)
        return
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
    if not plans:
        raise ValueError(f"input {input} leaves nothing to plan")
    if picture:
        _draw(plans, picture)
    own = None
    if whole.unit and points == "best" and not (all_kernels or segments):
        own = _own(
            Request(
                whole,
                "backward_filter",
                datasheet(device),
                precision=precision,
                workspace_limit=workspace_limit,
            )
        )
    if as_json:
        shown: Any = [plan.as_dict() for plan in plans]
        print(document({**shown[0], "cuda": own and own.as_dict()} if whole.unit else shown))
    else:
        print("\n\n".join(map(str, plans)))
        if own:
            print(f"\nthe CUDA kernels' own plan:\n{own}")


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
    as_json: AsJson = False,
) -> None:
    """The kernel that a forward call would run, and what else was considered.

    For example:

    ```
    winolab plan forward --input 128x48x48x128 --filter 128x3x3 --padding 1
    ```
    """
    problem = _problem(input, filter, stride, padding, dilation, groups)
    _show("forward", problem, device, precision, algorithm, workspace_limit, as_json)


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
    as_json: AsJson = False,
) -> None:
    """The kernel that a gradient of the input would run, and what else was considered.

    For example:

    ```
    winolab plan backward-data --input 32x56x56x64 --filter 64x3x3 --padding 1
    ```
    """
    problem = _problem(input, filter, stride, padding, dilation, groups)
    _show("backward_data", problem, device, precision, algorithm, workspace_limit, as_json)


def _show(
    direction: str,
    problem: Problem,
    device: str,
    precision: str,
    algorithm: str | None,
    limit: int | None,
    as_json: bool,
) -> None:
    wanted = None if algorithm is None else parse_algorithm(algorithm)
    gpu = datasheet(device)
    precision = precision_named(precision)
    found = kernels(Request(problem, direction, gpu, wanted, precision, workspace_limit=limit))
    print(document(found.as_dict()) if as_json else found)


def _problem(
    input: str, filter: str, stride: str, padding: str, dilation: str, groups: int
) -> Problem:
    return nonempty(
        shapes.problem(
            input, filter, stride=stride, padding=padding, dilation=dilation, groups=groups
        )
    )


@dataclass(frozen=True)
class Kernels:
    """What the CUDA kernels' planner takes, the fastest plan of every kernel, and what has none.

    Beside WinRS's there may be none of these kernels.
    """

    request: Request
    chosen: GpuPlan | None
    fastest: tuple[GpuPlan, ...] = ()
    left_out: tuple[str, ...] = ()
    why: str = ""

    def as_dict(self) -> dict[str, Any]:
        """What ``--json`` prints."""
        request, problem = self.request, self.request.problem
        return {
            "direction": request.direction,
            "x": problem.x_shape,
            "w": problem.w_shape,
            "padding": problem.padding,
            "device": request.device.name,
            "precision": request.precision,
            "plan": _facts(self.chosen) if self.chosen else None,
            "why": self.why,
            "kernels": [_facts(found) for found in self.fastest],
            "left_out": self.left_out,
        }

    def __str__(self) -> str:
        if self.chosen is None:
            return "; ".join(self.left_out)
        lines = [
            str(self.chosen),
            f"error      {_error(self.chosen)}",
            "",
            "fastest predicted of every kernel",
            *(
                f"{found.predicted * 1e6:10.1f} µs  {found.kernel} {found.precision}, "
                f"{found.workspace} B workspace, {_error(found)}"
                for found in self.fastest
            ),
        ]
        if self.why:
            lines.append(f"taken is the first: {self.why}")
        return "\n".join(lines + [f"left out: {reason}" for reason in self.left_out])


def kernels(request: Request) -> Kernels:
    """The plan for ``request`` and what else was considered.

    Raises ValueError where the algorithm's points make no transforms, and where there is no plan.
    """
    if wanted := request.algorithm:
        for tile in wanted.tiles:
            transforms(tile.n, tile.r, wanted.points_of(tile), wanted.scaling)
    choice = candidates(request)
    chosen = gpu_plan(request)
    fastest: dict[tuple[str, str], GpuPlan] = {}
    for found in choice.plans:
        fastest.setdefault((found.kernel, found.precision), found)
    first, *others = fastest.values()
    others.sort(key=lambda found: found.predicted)
    return Kernels(
        request,
        chosen,
        (first, *others),
        choice.reasons,
        choice.why if choice.plans[0] == chosen else "",
    )


def _own(request: Request) -> Kernels:
    """The same beside WinRS's plan, which stands where the CUDA kernels have none."""
    try:
        return kernels(request)
    except ValueError as error:
        return Kernels(request, None, left_out=(str(error),))


def _error(plan: GpuPlan) -> str:
    return f"relative RMS error {predicted_rms(plan):.1e} on normal data"


def _facts(plan: GpuPlan) -> dict[str, Any]:
    return {
        "kernel": plan.kernel,
        "products": plan.precision,
        "points": plan.points,
        "variant": str(plan.variant),
        "workspace_bytes": plan.workspace,
        "predicted_us": round(1e6 * plan.predicted, 3),
        "relative_rms": predicted_rms(plan),
        "shared_bytes": plan.shared(),
        "text": str(plan),
    }


def _draw(plans: list[Plan], path: Path) -> None:
    if not path.suffix:
        raise ValueError(f"picture {str(path)!r}; expected a file such as plan.svg, .pdf or .png")
    root = environment.experiments()
    parts = [plan.as_dict() | plan.partition() for plan in plans]
    command = [sys.executable, "-m", "papers.winrs_2025.partition_picture", str(path.resolve())]
    done = subprocess.run(
        command, cwd=root, input=json.dumps(parts), text=True, check=False, capture_output=True
    )
    if done.returncode:
        *_, reason = [line for line in done.stderr.splitlines() if line.strip()] or ["no reason"]
        raise ValueError(f"{path} was not drawn: {reason}")
