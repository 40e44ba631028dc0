"""On a GPU: errors of the fused kernel beside the reference's, on openCNN's layers.

``python -m experiments.measure.fused.errors`` replaces experiments/results/fused2d_errors.jsonl.
Data are uniform on [1, 2) ("u12") and [-1, 1) ("u11"). A row has the kernel's relative RMS error
and, on [1, 2), its mean relative one (MARE), against FP64 on some images; what is predicted of its
arithmetic, sums in parts included; and, of sums that are whole, what the reference errs in the
kernel's order on the first image (``simulated_…``), whose bits the kernel's are (``equal``);
backward data's, too.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from experiments.harness.facts import ROOT
from experiments.measure.fused import beside
from experiments.measure.fused.own import GRADIENTS
from experiments.measure.fused.replaced import Row, replaced
from experiments.measure.throughput import compile_all
from winolab.algorithm import Problem
from winolab.bench import oracle
from winolab.bench.contenders import Arrays, bound, unnamed
from winolab.cli import bench
from winolab.device import Device
from winolab.gpu import driver
from winolab.gpu.families.fused2d.config import GRADIENT, KC, Config, narrow
from winolab.gpu.families.fused2d.plan import Fused2dPlan
from winolab.gpu.planner import planner
from winolab.gpu.planner.accuracy import U11, UNITS, predicted_rms
from winolab.gpu.planner.request import Plan
from winolab.gpu.runtime.call import kernels_of
from winolab.ref.algorithms import winograd as reference
from winolab.ref.arithmetic.order import Order
from winolab.ref.arithmetic.simulated import arithmetic
from winolab.ref.error.predict import CONSTANT, Moments, predict

RESULTS = ROOT / "experiments" / "results" / "fused2d_errors.jsonl"
BATCH, IMAGES = 32, 4
ENDS = {"u12": (1, 2), "u11": (-1, 1)}
U12 = Moments(1.5, 1 / 12)


def plans(problem: Problem, device: Device) -> Iterator[Plan]:
    """The fused kernel whole and in parts, of 16-bit numbers and gradients, and split products in
    three launches."""
    for group, precision, config in (
        ("fp32", "fp32", Config(ahead=True, split_k=1)),
        ("fp32", "fp32", narrow(fused=True, split_k=1)),
        ("fp32", "fp32", Config(ahead=True, split_k=4)),
        ("fp16", "fp16_ffma", Config(ahead=True, split_k=1)),
        ("fp32", "fp32_split", None),
    ):
        request = unnamed("forward", problem, group, device)
        asked = replace(request, algorithm=beside.ALGORITHM, precision=precision, config=config)
        yield planner.plan(asked)
    for direction, algorithm, config in (
        ("backward_data", beside.ALGORITHM, Config(ahead=True, split_k=1)),
        ("backward_filter", GRADIENTS, GRADIENT),
    ):
        request = unnamed(direction, problem, "fp32", device)
        asked = replace(request, algorithm=algorithm, precision="fp32", config=config)
        yield planner.plan(asked)


def predicted(p: Plan, data: str) -> dict[str, float]:
    """What the reference predicts; of data that is not of mean 0 for correlations of this kernel
    in FP32 alone."""
    if data == "u11":
        return {"predicted_rms": predicted_rms(p, U11)}
    if not isinstance(p, Fused2dPlan) or p.gradient or p.precision != "fp32":
        return {}
    problem = p.problem if p.direction == "forward" else reference.data_adjoint(p.problem)
    channels = -(-problem.in_channels // p.split_k)
    (*x, _), (outputs, *taps, _) = problem.x_shape, problem.w_shape
    part = Problem.of((*x, channels), (outputs, *taps, channels), padding=problem.padding)
    found = predict(U12, U12, part, p.algorithm, arithmetic(p.simulated))
    rms = found.relative_rms
    if p.split_k > 1:  # parts err independently, and their means add up; the sum is rounded
        rms = math.hypot(rms / math.sqrt(p.split_k), math.sqrt(CONSTANT) * UNITS["float32"])
    made = {"predicted_rms": rms}
    if not math.isnan(found.mare):  # outputs at borders of a small map differ too much in size
        made["predicted_mare"] = found.mare * rms / found.relative_rms
    return made


def errors(y: Any, exact: Any, data: str) -> dict[str, float]:
    """Relative RMS of arrays on either side, and on [1, 2) the mean relative error."""
    found = {"rms": math.sqrt(float(((y - exact) ** 2).sum() / (exact**2).sum()))}
    if data == "u12":
        found["mare"] = float((abs(y - exact) / abs(exact)).mean())
    return found


def simulated(p: Fused2dPlan, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The reference's results of one image, in the order of the kernel's sums."""
    one = replace(p.problem, batch=1)
    run = arithmetic("fp32")  # numbers of 16 bits lie in FP32, results are rounded once
    made = getattr(reference, p.direction)  # forward or backward_data
    y = made(x[None], w, one, beside.ALGORITHM, run, None, Order(KC))
    return y[0].astype(p.out_dtype).astype("float32")


def measured(problem: Problem, p: Plan, data: str) -> dict[str, Any]:
    """The row of a plan; gradients, whose every weight sums all images, are of the whole batch."""
    cp = driver.cupy()
    group = "fp16" if p.precision == "fp16_ffma" else "fp32"
    arrays = Arrays(p.direction, problem, group)
    arrays.fill(*ENDS[data])
    arrays.poison()
    memory = cp.empty(max(1, p.workspace), "uint8")
    bound(p, partial(kernels_of, p, 0), 0)(arrays, memory.data.ptr)
    a, b = arrays.operands["NHWC"]
    y = arrays.result("NHWC").astype("float64")
    if p.direction == "backward_filter":
        exact = oracle.fp64(p.direction, problem, a, b)
        return errors(y, exact, "u11") | predicted(p, data)
    exact = oracle.fp64(p.direction, replace(problem, batch=IMAGES), a[:IMAGES], b)
    row = errors(y[:IMAGES], exact, data) | predicted(p, data)
    if isinstance(p, Fused2dPlan) and p.split_k == 1:
        mine = simulated(p, *(cp.asnumpy(v).astype("float32") for v in (a[0], b)))
        same = errors(mine.astype("float64"), cp.asnumpy(exact[0]), data)
        row |= {f"simulated_{name}": value for name, value in same.items()}
        row["equal"] = bool(np.array_equal(mine, cp.asnumpy(y[0]).astype("float32")))
    return row


def cases() -> Iterator[tuple[beside.Case, Plan, str]]:
    """Every layer of openCNN's at one batch, plan and kind of data."""
    for case in beside.cases(["opencnn"]):
        if case.problem.batch == BATCH:
            for p in plans(case.problem, driver.device(0)):
                yield from ((case, p, data) for data in ENDS)


def run(asked: tuple[beside.Case, Plan, str], _: Row) -> Iterator[Row]:
    """The one row of a case."""
    case, p, data = asked
    common = beside.layer_of(case) | {"direction": p.direction, "data": data}
    what = {"kernel": p.kernel, "products": p.precision, "plan": str(p.config)}
    yield {**common, **what, **measured(case.problem, p, data)}


def named(asked: tuple[beside.Case, Plan, str]) -> str:
    """What a case is called where it is told."""
    case, p, data = asked
    return f"{case.layer} {p.kernel} {p.precision} {data}"


def told(rows: list[Row]) -> str:
    """The errors, and whether bits are equal."""
    return ", ".join(f"{k} {v:.2e}" if isinstance(v, float) else f"{k} {v}"
                     for k, v in rows[0].items() if isinstance(v, float | bool))  # fmt: skip


def main(
    output: Annotated[Path, typer.Option(help="File of the rows.")] = RESULTS,
    seconds: Annotated[float, typer.Option(help="Time that the run may take.")] = 120,
) -> None:
    """Measure every layer, and replace the file."""
    bench.ready()
    end, asked = time.monotonic() + seconds, list(cases())
    print(f"{compile_all(p for _, p, _ in asked)} kernels", flush=True)
    replaced(output, end, asked, run, named, told)


if __name__ == "__main__":
    typer.run(main)
