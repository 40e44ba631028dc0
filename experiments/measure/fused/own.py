"""On a GPU: what the fused kernel's own policies gain, beside each other in one run.

``python -m experiments.measure.fused.own [--lists NAMES]`` replaces the rows of those lists in
experiments/results/fused2d.jsonl. "vgg_e_16": Lavin & Gray's layers at N = 1 to 64 in 16-bit
storage, and in FP32 beside it, sums in parts and not; "gradients": F(3×3, 2×2) of these layers at
N = 32, beside the planner's choice on FFMA units; "backward_data": the layers of both papers at
N = 1 and 32, beside the planner's choice; "layouts": openCNN's layers in its memory order,
the layouts of the output transform. Rows are as ``experiments.measure.fused.beside`` has them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import repeat
from typing import Annotated, Any

import typer

from experiments.harness.machines import stored
from experiments.measure.fused import beside as fused2d
from experiments.measure.fused.beside import ALGORITHM, RESULTS, VGG_BATCHES, Ordered
from experiments.measure.throughput import compile_all
from winolab.algorithm import Problem, winograd
from winolab.bench import oracle
from winolab.bench.compare import free
from winolab.bench.contenders import Arrays, bound, unnamed
from winolab.bench.timing import FLUSH, interleave
from winolab.cli import bench
from winolab.cli.environment import cores
from winolab.cli.screen.render import plain
from winolab.device import Device
from winolab.gpu import driver
from winolab.gpu.families.fused2d.config import GRADIENT, Config, narrow
from winolab.gpu.families.fused2d.plan import Fused2dPlan, plans
from winolab.gpu.planner import planner
from winolab.gpu.planner.request import Plan
from winolab.gpu.runtime.call import kernels_of
from winolab.lines import rewrite
from winolab.spread import pool

GRADIENTS = winograd((3, 3), (2, 2))
GRADIENT_BATCH, LAYOUT_BATCHES, DATA_BATCHES = 32, ("32", "128"), (1, 32)
ROUNDS, FEW, LONG = 7, 3, 1e-3


@dataclass(frozen=True)
class Case:
    """One layer at one batch, of one group of dtypes."""

    list: str
    layer: str
    depth: int
    problem: Problem
    group: str  # "fp32" or "fp16"
    direction: str = "forward"


def cases(lists: Sequence[str]) -> Iterator[Case]:
    """The layers of both papers."""
    for one in fused2d.cases(("opencnn", "vgg_e")):
        batch = one.problem.batch
        if one.list == "opencnn":
            if "layouts" in lists and str(batch) in LAYOUT_BATCHES:
                yield Case("layouts", one.layer, 1, one.problem, "fp32")
        elif "vgg_e_16" in lists and batch in VGG_BATCHES:
            for group in ("fp32", "fp16"):
                yield Case("vgg_e_16", one.layer, one.depth, one.problem, group)
        if "backward_data" in lists and batch in DATA_BATCHES:
            yield Case("backward_data", one.layer, one.depth, one.problem, "fp32", "backward_data")
        if "gradients" in lists and one.list == "vgg_e" and batch == GRADIENT_BATCH:
            yield Case("gradients", one.layer, one.depth, one.problem, "fp32", "backward_filter")


def planned(case: Case, device: Device) -> list[Plan]:
    """The plans of a case; equal ones once."""
    request = unnamed(case.direction, case.problem, case.group, device)
    precision = "fp16_ffma" if case.group == "fp16" else "fp32"
    algorithm = ALGORITHM
    found: list[Plan] = []
    if case.list == "layouts":
        configs = fused2d.papers(split_k=1)
        configs += [Config(layout="wide", buffers=2, ahead=True), Config(ahead=True)]
    elif case.list == "gradients":
        algorithm = GRADIENTS
        single = replace(GRADIENT, teams=1)
        configs = [GRADIENT, single, replace(single, ahead=True)]
        ffma = replace(request, algorithm=None, precision="fp32_ffma")
        found.append(planner.plan(ffma))
    else:
        whole = [
            make(split_k=split)
            for make in (partial(Config, ahead=True), narrow)
            for split in (0, 1)
        ]
        configs = [*whole, Config(fused=True), Config(ahead=True, fused=True), narrow(fused=True)]
    if case.list == "backward_data":
        found.append(planner.plan(request))
    for config in configs:
        asked = replace(request, algorithm=algorithm, precision=precision, config=config)
        found += plans(asked)
    return list(dict.fromkeys(found))


def run(case: Case, found: Sequence[Plan]) -> list[dict[str, Any]]:
    """The rows of a case: of each plan that compiles and runs."""
    cp, problem = driver.cupy(), case.problem
    arrays = Arrays(case.direction, problem, case.group)
    arrays.fill(-1, 1)
    memory = cp.empty(max(1, *(p.workspace for p in found)), "uint8")
    calls: dict[str, Callable[[], Any]] = {}
    orders: dict[str, Ordered] = {}
    for p in found:
        order = getattr(p.config, "order", "nhwc")
        if order == "nhwc":
            kernels = partial(kernels_of, p, 0)
            calls[name(p)] = partial(bound(p, kernels, 0), arrays, memory.data.ptr)
        elif isinstance(p, Fused2dPlan):
            orders.setdefault(order, Ordered(arrays, order))
            calls[name(p)] = partial(fused2d.fused, p, arrays, orders[order], memory.data.ptr)
    calls = fused2d.running(calls)
    found = [p for p in found if name(p) in calls]
    if not found:
        return []
    first = interleave(calls, rounds=1, flush=FLUSH, warmup=0)
    rounds = {n: ROUNDS if first[n].median < LONG else FEW for n in calls}
    times = interleave(calls, rounds=rounds, flush=FLUSH, warmup=0)
    exact, images = _exact(case, arrays)
    rows = []
    for p in found:
        arrays.poison()
        calls[name(p)]()
        y = arrays.result("NHWC")
        if (order := getattr(p.config, "order", "nhwc")) in orders:
            y = orders[order].result
        good = bool(cp.isfinite(y).all())
        error = oracle.relative_rms(y if images is None else y[images], exact) if good else math.nan
        rows.append(
            {
                **fused2d.layer_of(case),
                "direction": case.direction,
                "precision": case.group,
                **fused2d.described(p),
                "split_k": getattr(p.config, "split_k", 0),
                **fused2d.speed(problem, times[name(p)]),
                "relative_rms_u11": error if math.isfinite(error) else "nan",
            }
        )
    return rows


def name(p: Plan) -> str:
    """No other plan's of the case."""
    return f"{p.kernel} {p.precision} {p.config}"


def _exact(case: Case, arrays: Arrays) -> tuple[Any, list[int] | None]:
    """The exact result, of a gradient all of it, and the images that it is of."""
    problem, (a, b) = case.problem, arrays.operands["NHWC"]
    if case.direction == "backward_filter":
        return oracle.fp64(case.direction, problem, a, b), None
    images = sorted({0, problem.batch - 1})
    some = replace(problem, batch=len(images))
    return oracle.fp64(case.direction, some, a[images], b), images


def main(
    lists: Annotated[
        str, typer.Option(help="With commas: as above.")
    ] = "layouts,gradients,backward_data,vgg_e_16",
    seconds: Annotated[float, typer.Option(help="Time that the run may take.")] = 600,
) -> None:
    """Measure all cases, and replace their rows."""
    bench.ready()
    end = time.monotonic() + seconds
    wanted = sorted(cases(lists.split(",")), key=lambda c: lists.index(c.list))
    with pool(cores()) as processes:
        found = list(processes.map(planned, wanted, repeat(driver.device(0))))
    print(f"{compile_all(plan for plans in found for plan in plans)} kernels", flush=True)
    machine = {**bench.context(), "run": datetime.now(UTC).isoformat(timespec="milliseconds")}
    kept = stored(RESULTS)
    keys = ("list", "layer", "batch", "precision")
    for case, own in zip(wanted, found, strict=True):
        if time.monotonic() > end:
            print(f"no time for {case.list} {case.layer} N={case.problem.batch}", flush=True)
            continue
        rows = run(case, own)
        free()
        if not rows:
            continue
        mine = case.list, case.layer, case.problem.batch, case.group
        kept = [row for row in kept if tuple(row[k] for k in keys) != mine]
        kept += [plain({**row, **machine}) for row in rows]
        shown = ", ".join(f"{row['plan'].split(' ', 1)[1]} {row['tflops']:.1f}" for row in rows)
        worst = max(float(row["relative_rms_u11"]) for row in rows)
        left = end - time.monotonic()
        print(f"{left:3.0f} {case.list} {case.layer} {case.group} N={case.problem.batch} rms "
              f"{worst:.1e}: {shown}", flush=True)  # fmt: skip
    rewrite(RESULTS, kept)


if __name__ == "__main__":
    typer.run(main)
