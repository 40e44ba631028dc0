"""On a GPU: nested Winograd in FP32, FP16 and BF16, of two and three dimensions, with moduli,
beside what the planner picks, what it picks without it, and PyTorch, in one run.

``python -m experiments.measure.nested [OUTPUT] [--seconds S] [--only squares]`` writes rows to
OUTPUT, by default experiments/results/nested.jsonl, in place of those of the same case; FP32 has Γ
on FFMA units beside it, of minimal tiles and of those with moduli. A row's ``us`` are quartiles
with L2 overwritten before a call, the filter's transform included; ``tflops`` are direct
convolution's operations over their median; ``relative_rms_n01`` is the error on normal data against
FP64, of a result that was NaN before.

Layers in three dimensions have causal padding, of which PyTorch gets as much on both sides.
"""

from __future__ import annotations

import importlib
import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.harness.facts import ROOT
from experiments.harness.machines import stored
from experiments.harness.pytorch import tf32
from experiments.measure.throughput import compile_all
from winolab.algorithm import Problem, Tile, parse_algorithm
from winolab.bench import oracle
from winolab.bench.compare import free
from winolab.bench.contenders import Arrays, bound, unnamed
from winolab.bench.timing import FLUSH, interleave
from winolab.cli import bench
from winolab.gpu import driver
from winolab.gpu.families.nested.plan import NestedPlan, plans
from winolab.gpu.families.nested.tiles import MODULI
from winolab.gpu.planner import planner
from winolab.gpu.planner.request import PRECISIONS, Plan, Request
from winolab.gpu.runtime.call import kernels_of
from winolab.lines import rewrite

RESULTS = ROOT / "experiments" / "results" / "nested.jsonl"
SQUARES = [(64, 56), (128, 56), (256, 56), (128, 28), (256, 28), (512, 28), (256, 14), (512, 14)]
LARGE = [
    *((256, 28, 7), (512, 14, 7), (64, 56, 7)),
    *((64, 56, 5), (128, 28, 5), (256, 28, 5)),
    *((128, 64, 9), (256, 32, 9), (64, 128, 9), (128, 28, 7)),
]
VIDEO = [(384, 5, 60, 104), (192, 9, 120, 208), (96, 17, 240, 416)]
# Nobody's pick: of the record table, what the model puts near the pick's time at half of its error
# or less, in a few states more than that; of three taps F(4×4,3×3)'s saving or nearly.
RECORDS = {
    5: (
        ("7x7", "1/3,-1/3,6/7,-6/7,3/2,-3/2,inf,x^2+5/6*x+1,x^2-5/6*x+1"),
        ("7x7", "1/4,-1/4,3/4,-3/4,9/8,-9/8,2,-2,inf,x^2+1"),
    ),
    7: (
        ("7x7", "1/4,-1/4,3/4,-3/4,9/8,-9/8,2,-2,inf,x^2+3/4*x+1,x^2-3/4*x+1"),
        ("7x7", "1/2,-1/2,15/16,-15/16,3/2,-3/2,inf,x^2+1,x^2+19/16*x+1,x^2-19/16*x+1"),
        ("6x6", "0,3/4,-3/4,5/4,-5/4,inf,x^2+1,x^2+x+1,x^2-x+1"),
    ),
    9: (
        ("8x8", "0,1/2,-1/2,6/7,-6/7,7/6,-7/6,2,-2,inf,x^2+1,x^2+7/6*x+1,x^2-7/6*x+1"),
        (
            "8x8",
            "0,2/3,-2/3,1,-1,3/2,-3/2,inf,x^2+1/2*x+1,x^2-1/2*x+1,x^2+4/3*x+1,x^2-4/3*x+1",
        ),
    ),
    3: (
        ("8x8", "0,3/4,-3/4,4/3,-4/3,inf,x^2+6/7*x+1,x^2-6/7*x+1"),
        ("9x9", "5/8,-5/8,9/8,-9/8,inf,x^2+1,x^2+5/4*x+1,x^2-5/4*x+1"),
    ),
}
# One-dimensional tiles on FFMA units: minimal, and with moduli.
FUSED = {
    3: ("8:6:3", "9:6:3@0,3/4,-3/4,4/3,-4/3,inf,x^2+1"),
    5: ("8:4:5", "12:6:5@0,3/4,-3/4,4/3,-4/3,inf,x^2+x+1,x^2-x+1"),
    7: ("16:10:7", "15:6:7@0,3/4,-3/4,5/4,-5/4,inf,x^2+1,x^2+x+1,x^2-x+1"),
    9: ("16:8:9", "19:8:9@0,1/2,-1/2,3/4,-3/4,5/4,-5/4,2,-2,inf,x^2+1,x^2+x+1,x^2-x+1"),
}
# Hardware counters are read of these: moduli beside minimal tiles, which missed aims (note 071).
_NINETEEN = MODULI[Tile(8, 9, 19)]
COUNTED = (
    ("32x56x56x64:64x3x3", "forward", "winograd:4x4:3x3"),
    ("32x56x56x64:64x3x3", "forward", f"winograd:6x6:3x3@{MODULI[Tile(6, 3, 9)]}"),
    ("32x28x28x256:256x3x3", "forward", "winograd:4x4:3x3"),
    ("32x28x28x256:256x3x3", "forward", f"winograd:6x6:3x3@{MODULI[Tile(6, 3, 9)]}"),
    ("32x56x56x64:64x5x5", "forward", f"winograd:6x6:5x5@{MODULI[Tile(6, 5, 12)]}"),
    ("32x128x128x64:64x9x9", "forward", f"winograd:8x8:9x9@{_NINETEEN}"),
    ("32x56x56x128:128x9x9", "backward_filter", "omega:16:9:8"),
    ("32x56x56x128:128x9x9", "backward_filter", f"omega:19:9:8@{_NINETEEN}"),
)
DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}


def cases(only: str = "") -> Iterator[tuple[Problem, str]]:
    """Layers and their precisions, those in which there is most to learn first; ``only`` "video",
    "large" or "squares"."""
    for channels, *sizes in VIDEO if only in ("", "video") else ():
        shapes = (1, *sizes, channels), (channels, 3, 3, 3, channels)
        problem = Problem.of(*shapes, padding=((2, 0), 1, 1))
        yield from ((problem, group) for group in ("bf16", "fp32", "fp16"))
    squares = [(c, s, 3) for c, s in SQUARES]
    for channels, size, taps in {"large": LARGE, "squares": squares, "video": []}.get(
        only, [*LARGE, *squares]
    ):
        shapes = (32, size, size, channels), (channels, taps, taps, channels)
        problem = Problem.of(*shapes, padding=taps // 2)
        yield from ((problem, group) for group in ("fp16", "fp32", *["bf16"] * (only == "squares")))


def named(request: Request) -> Iterator[NestedPlan]:
    """Plans of every nested algorithm that is looked at: the fastest predicted of each."""
    taps = request.problem.filter[-1]
    ends = [("4x4", ""), ("2x2", "")] if taps == 3 else [("3x3", "")] if taps == 5 else []
    ends += [(f"{t.n}x{t.n}", points) for t, points in MODULI.items() if t.r == taps]
    ends += RECORDS.get(taps, ()) if request.problem.ndim == 2 else ()
    deep = "1x" * (request.problem.ndim - 2)
    for n, points in ends:
        text = f"winograd:{deep}{n}:{deep}{taps}x{taps}" + (f"@{points}" if points else "")
        for unit in PRECISIONS[request.precision]:
            with suppress(ValueError):
                offered = replace(request, precision=unit, algorithm=parse_algorithm(text))
                if unit != "fp32":
                    yield min(plans(offered), key=lambda p: p.predicted)
    if taps == 9:  # as today: pieces
        offered = replace(request, algorithm=parse_algorithm("winograd:3x3:3x3"))
        for unit in PRECISIONS[request.precision]:
            if unit != "fp32":
                yield min(plans(replace(offered, precision=unit)), key=lambda p: p.predicted)


def contenders(problem: Problem, group: str) -> dict[Plan, str]:
    """Plans to time, and what each is: split products without their fallback."""
    request = unnamed("forward", problem, group)
    found: dict[Plan, str] = dict.fromkeys(named(request), "named")
    others = [p.primary for p in planner.candidates(request, near=True).plans]
    without = next(p for p in others if not isinstance(p, NestedPlan))
    found[without] = "picked without nested"
    found |= dict.fromkeys(fused(request), "fused")
    found[planner.plan(request).primary] = "picked"
    return found


def fused(request: Request) -> Iterator[Plan]:
    """Plans of Γ on FFMA units, of minimal tiles and of those with moduli."""
    if request.precision == "fp32" and request.problem.ndim == 2:
        for text in FUSED[request.problem.filter[-1]]:
            algorithm = parse_algorithm(f"gamma:{text}")
            yield planner.plan(replace(request, precision="fp32_ffma", algorithm=algorithm)).primary


def pytorch(problem: Problem, group: str, allowed: bool, last: bool) -> Callable[[Arrays], Any]:
    """PyTorch's convolution, within ``tf32``, whose one flag that differs between calls is set: a
    context of its own would cost a timed call more of the host's time."""
    torch = importlib.import_module("torch")

    padding = [(low + high) // 2 for low, high in problem.padding]
    found: list[Any] = []

    def run(arrays: Arrays) -> Any:
        if not found:
            for array in arrays.operands["NHWC"]:
                tensor = torch.from_dlpack(array)
                tensor = tensor.view(torch.bfloat16) if group == "bf16" else tensor
                tensor = tensor.movedim(-1, 1)
                found.append(tensor if last else tensor.contiguous())
        torch.backends.cudnn.allow_tf32 = allowed
        convolve = torch.nn.functional.conv3d if problem.ndim == 3 else torch.nn.functional.conv2d
        return convolve(*found, padding=padding)

    return run


def measured(problem: Problem, group: str, found: dict[Plan, str], rounds: int) -> Iterator[dict]:
    """Rows of one layer and precision."""
    cp = driver.cupy()
    arrays = Arrays("forward", problem, group)
    rng = cp.random.default_rng(0)
    arrays.assign(*(rng.standard_normal(s, dtype="float32") for s in arrays.shapes[:2]))
    exact = oracle.fp64("forward", problem, *map(arrays.values, arrays.operands["NHWC"]))
    calls: dict[str, Callable[[], Any]] = {}
    rows: dict[str, dict[str, Any]] = {}
    for plan, role in found.items():
        kernels = kernels_of(plan, 0)
        run = bound(plan, lambda kernels=kernels: kernels, 0)
        workspace = cp.full(max(plan.workspace, 256), 255, "uint8")
        arrays.poison()
        name = f"{plan.kernel} {plan.points} {plan.config}"
        calls[name] = lambda run=run, workspace=workspace: run(arrays, workspace.data.ptr)
        calls[name]()
        rows[name] = {
            "method": "winolab", "role": role, "kernel": plan.kernel, "points": plan.points,
            "products": plan.precision, "plan": str(plan.config), "workspace": plan.workspace,
            "predicted_us": round(plan.predicted * 1e6, 2),
            "relative_rms_n01": oracle.relative_rms(arrays.result("NHWC"), exact),
        }  # fmt: skip
    for allowed in (False, True) if group == "fp32" else (False,):
        for last in (True, False):
            name = f"torch {'channels last' if last else 'contiguous'} {'tf32' * allowed}"
            run = pytorch(problem, group, allowed, last)
            calls[name] = lambda run=run: run(arrays)
            rows[name] = {
                "method": "torch", "order": "NHWC" if last else "NCHW",
                "products": "tf32" if allowed else group,
            }  # fmt: skip
    del exact
    for name, times in interleave(calls, rounds=rounds, flush=FLUSH, warmup=2).items():
        us = [round(t * 1e6, 2) for t in (times.low, times.median, times.high)]
        flops = 2.0 * problem.batch * problem.out_channels * problem.in_channels
        for size in (*problem.output, *problem.filter):
            flops *= size
        yield rows[name] | {"us": us, "tflops": round(flops / us[1] / 1e6, 1)}
    free()


def main(
    output: Annotated[Path, typer.Argument(help="Rows.")] = RESULTS,
    seconds: Annotated[float, typer.Option(help="Cases begun, at most.")] = 60.0,
    rounds: int = 9,
    only: Annotated[str, typer.Option(help="Layers: video, large or squares; all.")] = "",
) -> None:
    """Measure, and print a line a row."""
    bench.ready()
    began = time.monotonic()
    every = [(problem, group, contenders(problem, group)) for problem, group in cases(only)]
    compile_all(p for _, _, found in every for p in found)
    print(f"compiled after {time.monotonic() - began:.0f} s", flush=True)
    facts = bench.context()
    began = time.monotonic()
    kept = stored(output)
    for problem, group, found in every:
        if time.monotonic() - began > seconds:
            break
        try:
            with tf32(False):
                made = list(measured(problem, group, found, rounds))
        except Exception as error:  # one that fails is said, the others are measured
            print("failed", problem.x_shape, problem.w_shape, group, repr(error)[:600])
            free()
            continue
        what = {"x": problem.x_shape, "w": problem.w_shape, "padding": problem.padding}
        what |= {"direction": "forward", "group": group}
        new = [json.loads(json.dumps(facts | what | row)) for row in made]
        kept = [row for row in kept if key(row) != key(new[0])] + new
        rewrite(output, kept)
        for row in made:
            shown = row.get("kernel", row.get("order")), row["products"], row.get("role", "")
            print(problem.x_shape, problem.w_shape[0], problem.filter, group, *shown,
                  row["us"][1], row["tflops"], f"{row.get('relative_rms_n01', 0):.2e}",
                  row.get("predicted_us", ""), flush=True)  # fmt: skip


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    """The case of a row."""
    return tuple(row["x"]), tuple(row["w"]), str(row["padding"]), row["group"]


if __name__ == "__main__":
    typer.run(main)
