"""On a GPU: the policies of the fused F(2×2,3×3) beside our picks, PyTorch and cuDNN, in one run.

``python -m experiments.measure.fused.beside [--lists opencnn,vgg_e] [--seconds S]`` replaces the
rows of those lists in experiments/results/fused2d.jsonl. "opencnn": the paper's Table 2 at its
batches, every layout and block; "vgg_e": Lavin & Gray's Table 3 at N = 1 to 64. A row's ``cold_us``
are quartiles with L2 overwritten before a call, the filter's transform included; ``tflops`` are
direct convolution's operations over their median (openCNN's equation 6 divides them by 2.25);
``relative_rms_u11`` is the error on U[-1, 1) against FP64.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.harness.facts import ROOT
from experiments.harness.machines import stored
from experiments.measure.throughput import compile_all
from winolab.algorithm import Problem, direct, gamma, winograd
from winolab.bench import oracle
from winolab.bench.compare import free
from winolab.bench.contenders import Arrays, Contender, digest, judges, ours, unnamed
from winolab.bench.frameworks import frameworks
from winolab.bench.layers import RESNET
from winolab.bench.timing import FLUSH, Times, interleave
from winolab.cli import bench
from winolab.cli.environment import cores
from winolab.cli.screen.render import plain
from winolab.device import Device
from winolab.gpu import driver
from winolab.gpu.families.fused2d.config import Config, narrow
from winolab.gpu.families.fused2d.layouts import layouts
from winolab.gpu.families.fused2d.plan import Fused2dPlan, plans
from winolab.gpu.params import View
from winolab.gpu.planner import planner
from winolab.gpu.planner.request import Plan
from winolab.gpu.runtime.call import kernels_of
from winolab.lines import rewrite
from winolab.spread import pool

RESULTS = ROOT / "experiments" / "results" / "fused2d.jsonl"
ALGORITHM = winograd((2, 2), (3, 3))
BATCHES = (32, 64, 96, 128)
# Lavin & Gray's Table 3: name, times that the layer occurs, channels, size, output channels.
VGG_E = (
    ("conv 1.1", 1, 3, 224, 64),
    ("conv 1.2", 1, 64, 224, 64),
    ("conv 2.1", 1, 64, 112, 128),
    ("conv 2.2", 1, 128, 112, 128),
    ("conv 3.1", 1, 128, 56, 256),
    ("conv 3.2", 3, 256, 56, 256),
    ("conv 4.1", 1, 256, 28, 512),
    ("conv 4.2", 3, 512, 28, 512),
    ("conv 5", 4, 512, 14, 512),
)
VGG_BATCHES = (1, 2, 4, 8, 16, 32, 64)
SQUARE_BOX: dict[str, Any] = {"images": 1, "rows": 4, "columns": 8}  # of 32 tiles
HOPELESS, ROUNDS, LONG, FEW = 1.6, 9, 2e-3, 4  # as in bench.compare
ERRORS = 3e9  # FLOP of the images that errors are measured on


@dataclass(frozen=True)
class Case:
    """One layer at one batch."""

    list: str
    layer: str
    depth: int
    problem: Problem


def cases(lists: Sequence[str]) -> Iterator[Case]:
    """The layers of both papers, at their batches."""
    if "opencnn" in lists:
        for number, (channels, size) in enumerate(RESNET.items(), 2):
            for batch in BATCHES:
                yield Case("opencnn", f"Conv{number}", 1, _layer(batch, channels, size, channels))
    if "vgg_e" in lists:
        for name, depth, channels, size, out_channels in VGG_E:
            for batch in VGG_BATCHES:
                yield Case("vgg_e", name, depth, _layer(batch, channels, size, out_channels))


def _layer(batch: int, channels: int, size: int, out_channels: int) -> Problem:
    return Problem.of((batch, size, size, channels), (out_channels, 3, 3, channels), padding=1)


def configs(case: Case) -> list[Config]:
    """The policies that a case is measured with: openCNN's as the paper has them, CHWN and 32
    images a block, and of both papers ours for NHWC, with the filter transformed apart and not."""
    own = [make(fused=fused) for make in (Config, narrow) for fused in (False, True)]
    own += [Config(ahead=True), Config(ahead=True, fused=True)]
    if case.list != "opencnn":
        return own
    others = [
        Config(buffers=2),
        Config(**SQUARE_BOX),
        Config(group=2),
        Config(order="nchw", layout="sts64_final", buffers=2),
        Config(order="nchw", layout="sts64_final", **SQUARE_BOX),
    ]
    return [*own, *papers(), *others]


def papers(**more: Any) -> list[Config]:
    """openCNN's layouts in its memory order, for each kind of block; ``more``: other fields."""
    chwn: dict[str, Any] = {"order": "chwn", "images": 32, "rows": 1, "columns": 1}
    return [
        make(layout=v.name, buffers=v.buffers, **chwn, **more)
        for make in (Config, partial(Config, ahead=True), narrow)
        for v in layouts(64)
        if v.along != "filters"
    ]


def planned(case: Case, device: Device) -> dict[Plan, str]:
    """Our plans, and which each is: a policy of the fused kernel, what is picked, Γ on FFMA units,
    direct products on them."""
    request = unnamed("forward", case.problem, "fp32", device)
    found: dict[Plan, str] = {}
    for config in configs(case):
        asked = replace(request, algorithm=ALGORITHM, precision="fp32", config=config)
        found |= dict.fromkeys(plans(asked), "fused2d")
    found.setdefault(planner.plan(request), "picked")
    for name, algorithm in (("gamma", gamma(8, 6, 3)), ("direct", direct())):
        with suppress(ValueError):
            asked = replace(request, algorithm=algorithm, precision="fp32_ffma")
            found.setdefault(planner.plan(asked), name)
    return found


class Ordered:
    """Operands and result in the memory order of a config; the result is the arrays' memory."""

    def __init__(self, arrays: Arrays, order: str) -> None:
        cp = driver.cupy()
        self._arrays, self._axes, self._filled = arrays, AXES[order], -1
        x, self.w = arrays.operands["NHWC"]
        self.x = cp.empty([x.shape[a] for a in self._axes], "float32")
        y = arrays.results["NHWC"]
        self.y = y.reshape(-1).reshape([y.shape[a] for a in self._axes])

    def fill(self) -> None:
        """The arrays' operands, where they are others than before."""
        if self._filled != self._arrays.filled:
            self.x[...] = self._arrays.operands["NHWC"][0].transpose(self._axes)
            self._filled = self._arrays.filled

    def view(self, array: Any) -> View:
        """The array as the plan takes it."""
        n, h, w, c = (array.strides[self._axes.index(a)] // 4 for a in range(4))
        return View(array.data.ptr, (n, 0, h, w, c))

    @property
    def result(self) -> Any:
        """The result, channels last."""
        return self.y.transpose([self._axes.index(a) for a in range(4)])


AXES = {"nhwc": (0, 1, 2, 3), "nchw": (0, 3, 1, 2), "chwn": (3, 1, 2, 0)}


def fused(
    plan: Fused2dPlan,
    arrays: Arrays,
    ordered: Ordered,
    workspace: int,
    kernels: Mapping[str, Any] | None = None,
) -> None:
    """Launch a policy of the fused kernel; ``kernels``: by default as they are loaded."""
    ordered.fill()
    n, h, w, c = (s // 4 for s in ordered.w.strides)
    filters = View(ordered.w.data.ptr, (n, 0, h, w, c))
    views = ordered.view(ordered.x), filters, ordered.view(ordered.y)
    plan.launch(kernels or kernels_of(plan, 0), *views, workspace, 0)


def run(case: Case, found: Mapping[Plan, str]) -> list[dict[str, Any]]:
    """The rows of a case: one a contender, of which ``found`` are ours."""
    cp, problem = driver.cupy(), case.problem
    arrays = Arrays("forward", problem, "fp32")
    arrays.fill(-1, 1)
    policies = [p for p in found if isinstance(p, Fused2dPlan)]
    others = [p for p in found if not isinstance(p, Fused2dPlan)]
    contenders: list[Contender] = list(ours({p: found[p] == "picked" for p in others}))
    # What cuDNN and PyTorch refuse is left out: the algorithms that run are compared.
    contenders += [j for j in judges("forward", problem, "fp32") if isinstance(j, Contender)
                   and j.labels["math"] == "fma"]  # fmt: skip
    contenders += [f for f in frameworks("forward", problem, "fp32")
                   if f.labels["products"] == "fp32"]  # fmt: skip
    size = max([p.workspace for p in found] + [c.workspace or 0 for c in contenders])
    workspace = cp.empty(size, "uint8").data
    orders = {v: Ordered(arrays, v) for v in {p.config.order for p in policies}}
    calls: dict[str, Callable[[], Any]] = {
        str(p.config): partial(fused, p, arrays, orders[p.config.order], workspace.ptr)
        for p in policies
    }
    calls |= {c.name: c.call(arrays, workspace.ptr) for c in contenders}
    calls = running(calls)
    first = interleave(calls, rounds=1, flush=FLUSH, warmup=0)
    best: dict[str, float] = {}
    for name, once in first.items():
        best[name.split()[0]] = min(best.get(name.split()[0], math.inf), once.median)
    serious = {
        name: call
        for name, call in calls.items()
        if name.split()[0] not in ("cudnn", "torch")
        or first[name].median <= HOPELESS * best[name.split()[0]]
    }
    rounds = {n: ROUNDS if first[n].median < LONG else FEW for n in serious}
    times = first | interleave(serious, rounds=rounds, flush=FLUSH, warmup=0)
    errors = _errors(case, arrays, calls, policies, orders)
    labels = {c.name: {**c.labels, "layout": c.order, "workspace": c.workspace} for c in contenders}
    for p in policies:
        labels[str(p.config)] = described(p)
    common = {**layer_of(case), "direction": "forward", "precision": "fp32"}
    return [
        {**common, **labels[name], **speed(problem, found), **errors.get(name, {})}
        for name, found in times.items()
    ]


def running(calls: Mapping[str, Callable[[], Any]]) -> dict[str, Callable[[], Any]]:
    """Those calls, by name, that compile and run; a line is printed of each other. What reads or
    writes outside of its arrays raises: nothing runs on that device any more."""
    found = {}
    for name, call in calls.items():
        try:
            call()
            driver.cupy().cuda.get_current_stream().synchronize()
        except (ValueError, RuntimeError, MemoryError) as error:
            if "illegal" in str(error):
                raise
            print(f"{name} does not run: {' '.join(str(error).split())[:200]}", flush=True)
        else:
            found[name] = call
    return found


def layer_of(case: Any) -> dict[str, Any]:
    """What a row says of a case's layer: of a Case here, or in another list."""
    return {
        "list": case.list,
        "layer": case.layer,
        "depth": case.depth,
        "batch": case.problem.batch,
        "input": "x".join(map(str, case.problem.x_shape)),
        "filter": "x".join(map(str, case.problem.w_shape)),
    }


def described(p: Plan) -> dict[str, Any]:
    """What a row says of a plan, of the fused kernel or another."""
    config = p.config
    return {
        "method": "winolab",
        "kernel": p.kernel,
        "products": p.precision,
        "plan": str(config),
        "source": digest(p),
        "output_layout": getattr(config, "layout", ""),
        "bm": getattr(config, "bm", 0),
        "fused": getattr(config, "fused", False),
        "layout": getattr(config, "order", "nhwc").upper(),
        "predicted_us": round(p.predicted * 1e6, 2),
        "workspace": p.workspace,
    }


def speed(problem: Problem, found: Times) -> dict[str, Any]:
    """What a row says of a call's times."""
    return {
        "cold_us": [round(1e6 * t, 2) for t in (found.low, found.median, found.high)],
        "rounds": found.rounds,
        "tflops": round(2 * problem.macs / found.median / 1e12, 2),
    }


def _errors(
    case: Case,
    arrays: Arrays,
    calls: Mapping[str, Callable[[], Any]],
    policies: Sequence[Fused2dPlan],
    orders: Mapping[str, Ordered],
) -> dict[str, dict[str, Any]]:
    """Errors of the fused kernel's policies, on the first and last images of the batch."""
    cp, problem = driver.cupy(), case.problem
    count = max(1, min(problem.batch, int(ERRORS * problem.batch / (2 * problem.macs))))
    images = sorted({*range(count), problem.batch - 1})
    x, w = arrays.operands["NHWC"]
    exact = oracle.fp64("forward", replace(problem, batch=len(images)), x[images], w)
    found = {}
    for p in policies:
        arrays.poison()
        calls[str(p.config)]()
        y = orders[p.config.order].result
        error = oracle.relative_rms(y[images], exact) if bool(cp.isfinite(y).all()) else math.nan
        found[str(p.config)] = {"relative_rms_u11": error if math.isfinite(error) else "nan"}
    return found


def summary(case: Case, rows: Sequence[Mapping[str, Any]]) -> str:
    """A line on a case: TFLOPS of all that are ours, and of the fastest of each other."""
    own = [r for r in rows if r["method"] == "winolab"]
    text = [f"{r['plan']}{'' if 'output_layout' in r else ' ' + r['products']}={r['tflops']:.1f}"
            for r in own]  # fmt: skip
    for method in ("cudnn", "torch"):
        mine = [r for r in rows if r["method"] == method]
        if mine:
            top = max(mine, key=lambda r: r["tflops"])
            text.append(f"{method} {top['kernel']} {top['layout']}={top['tflops']:.1f}")
    worst = max((r["relative_rms_u11"] for r in own if "relative_rms_u11" in r), key=float)
    return f"{case.layer} N={case.problem.batch} rms {worst}: " + "; ".join(text)


def main(
    lists: Annotated[str, typer.Option(help="With commas: opencnn, vgg_e.")] = "opencnn,vgg_e",
    batches: Annotated[str, typer.Option(help="Only these, with commas.")] = "",
    seconds: Annotated[float, typer.Option(help="Time that the run may take.")] = 3600,
    output: Annotated[Path, typer.Option(help="File of the rows.")] = RESULTS,
) -> None:
    """Measure all cases, and replace their rows."""
    bench.ready()
    wanted = [case for case in cases(lists.split(","))
              if not batches or str(case.problem.batch) in batches.split(",")]  # fmt: skip
    with pool(cores()) as processes:
        found = list(processes.map(planned, wanted, repeat(driver.device(0))))
    print(f"{compile_all(plan for plans in found for plan in plans)} kernels", flush=True)
    machine = {**bench.context(), "run": datetime.now(UTC).isoformat(timespec="milliseconds")}
    kept = stored(output)
    end, key = time.monotonic() + seconds, ("list", "layer", "batch")
    for case, own in zip(wanted, found, strict=True):
        if time.monotonic() > end:
            break
        try:
            rows = run(case, own)
        except Exception as error:  # says what failed, and goes on with the next
            print(
                f"{case.layer} N={case.problem.batch}: {type(error).__name__}: {error}", flush=True
            )
            if "illegal" in str(error):
                break
            continue
        finally:
            free()
        mine = case.list, case.layer, case.problem.batch
        kept = [row for row in kept if tuple(row[k] for k in key) != mine]
        kept += [plain({**row, **machine}) for row in rows]
        print(f"{end - time.monotonic():5.0f} s left {summary(case, rows)}", flush=True)
        rewrite(output, kept)


if __name__ == "__main__":
    typer.run(main)
