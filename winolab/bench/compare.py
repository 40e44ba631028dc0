"""Everybody who can compute a case, timed side by side, with their errors against FP64."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from winolab.algorithm import Algorithm, Problem
from winolab.bench import oracle
from winolab.bench.contenders import Arrays, Contender, entered, judges, ours, unserved
from winolab.bench.frameworks import frameworks
from winolab.bench.timing import FLUSH, Times, interleave
from winolab.gpu import driver
from winolab.gpu.machine import MachineError
from winolab.gpu.planner.request import Plan

Row = dict[str, Any]
# Who is this many times slower than the fastest of its kind is timed once, not in every round; ours
# and those that are judged are not.
HOPELESS = 1.25
# Calls this long (seconds) are timed in few rounds: of 342 of them the quartiles were 0.2 % apart
# (median; 0.7 % for nine tenths), and the L2 cache's 50 MB take 15 µs at an H100's 3.4 TB/s.
LONG, FEW = 1e-3, 3
SPARE = 1 << 30  # bytes of device memory left alone
SAMPLE = 4e9  # FLOP of the images that errors are measured on
SGEMM = 8192
REASON = 500


@dataclass(frozen=True)
class Effort:
    """How much time a case gets.

    ``tf32``: all of cuDNN's algorithms with TF32 allowed too, and not only the frugal ones;
    ``prepared``: our kernels with their filter transformed before, too; ``errors``: everybody's,
    and not only those of the fastest of each kind.
    """

    rounds: int = 7
    torch: bool = True
    tf32: bool = True
    prepared: bool = False
    errors: bool = True


def compare(
    direction: str,
    problem: Problem,
    group: str = "fp32",
    algorithm: Algorithm | None = None,
    effort: Effort = Effort(),
    plans: Mapping[Plan, bool] | None = None,
    guests: Sequence[Contender] = (),
) -> list[Row]:
    """One row a contender, on GPU 0, and one that says who is left out, and why: plans whose
    kernels do not run, algorithms of cuDNN; winolab, cudnn or torch as a whole.

    ``plans`` are ours, by default those of ``contenders.entered``; ``guests`` take part, too.

    A row's times are quartiles in microseconds, ``cold_us`` with the L2 cache overwritten before a
    call and ``warm_us`` right after another call; ``rounds`` counts the cold ones, 1 for who was
    hopelessly slow. ``tflops`` are direct convolution's FLOP over the cold median.
    ``relative_rms_u11`` is the error on U[-1, 1), ``mare_u12`` on U[1, 2) or, WinRS's data for
    filter gradients, ``mare_u01`` on U[0, 1), against FP64 sums of the same rounded data.
    """
    absent = ""
    if plans is None:
        plans = entered(direction, problem, group, algorithm)
        absent = "" if plans else unserved(direction, problem, group)
    contenders, refused = _contenders(direction, problem, group, plans, effort)
    contenders += guests
    arrays = Arrays(direction, problem, group)
    contenders, too_large = _that_fit(contenders)
    workspace = driver.cupy().empty(max((c.workspace or 0 for c in contenders), default=0), "uint8")
    arrays.fill(-1, 1)
    calls = {c.name: c.call(arrays, workspace.data.ptr) for c in contenders}
    if len(calls) < len(contenders):  # one would get the other's times and errors
        raise ValueError(f"contenders of the same name: {sorted(c.name for c in contenders)}")
    failed = {name: text for name, call in calls.items() if (text := failure(call))}
    contenders = [c for c in contenders if c.name not in failed]
    calls = {c.name: calls[c.name] for c in contenders}
    times = _times(contenders, calls, effort)
    checked = contenders if effort.errors else _leaders(contenders, times)
    errors = _errors(direction, problem, arrays, checked, calls)
    common = {
        "input": "x".join(map(str, problem.x_shape)),
        "filter": "x".join(map(str, problem.w_shape)),
        "padding": "x".join(str(low) for low, _ in problem.padding),
        "direction": direction,
        "precision": group,
    }
    rows = [
        {
            **common,
            **c.labels,
            "layout": c.order,
            "workspace": c.workspace,
            **_speed(problem, *times[c.name]),
            **errors.get(c.name, {}),
        }
        for c in contenders
    ]
    reasons = {**({"winolab": absent} if absent else {}), **refused, **too_large, **failed}
    if reasons:
        rows.append({**common, "method": "refused", "reasons": reasons})
    return rows


def _contenders(direction, problem, group, plans, effort: Effort):
    found = list(ours(plans, 0, effort.prepared))
    refused: dict[str, str] = {}
    try:
        for judge in judges(direction, problem, group):
            if isinstance(judge, Contender):
                if effort.tf32 or judge.labels["frugal"] or judge.labels["products"] == group:
                    found.append(judge)
            else:
                name, _, status = str(judge).partition(": ")
                refused[name] = status
    except (ValueError, MachineError) as error:  # none of cuDNN's
        refused["cudnn"] = str(error)
    try:
        found += frameworks(direction, problem, group) if effort.torch else ()
    except MachineError as error:
        refused["torch"] = str(error)
    return found, refused


def _that_fit(contenders: Sequence[Contender]) -> tuple[list[Contender], dict[str, str]]:
    """Those whose workspace device memory has, and a sentence on each of the others."""
    cp = driver.cupy()
    cp.get_default_memory_pool().free_all_blocks()
    free = cp.cuda.Device().mem_info[0] - SPARE
    large = {
        c.name: f"workspace of {c.workspace >> 20} MiB, {free >> 20} MiB free"
        for c in contenders
        if c.workspace and c.workspace > free
    }
    return [c for c in contenders if c.name not in large], large


def fastest_of_cudnn(direction: str, problem: Problem, arrays: Arrays) -> list[Contender]:
    """The fastest of cuDNN's algorithms in either memory order, FP32 without TF32, each timed
    alike, on arrays that are filled; none where it runs none. Raises MachineError without it."""
    try:
        named = list(judges(direction, problem, arrays.group, maths=("fma",)))
    except ValueError:  # what its descriptors cannot say
        return []
    found, _ = _that_fit([judge for judge in named if isinstance(judge, Contender)])
    workspace = driver.cupy().empty(max((c.workspace or 0 for c in found), default=0), "uint8")
    calls = {c.name: c.call(arrays, workspace.data.ptr) for c in found}
    calls = {name: call for name, call in calls.items() if not failure(call)}
    times = interleave(calls, rounds=3, flush=FLUSH, warmup=0) if calls else {}
    ran = [c for c in found if c.name in times]
    return sorted(ran, key=lambda c: times[c.name].median)[:1]


def failure(call: Callable[[], Any]) -> str:
    """Why a first call fails: cuDNN's status, memory, what the machine lacks; "" where it does not.

    At most REASON characters: what to change stands at a text's end.
    """
    try:
        call()
        driver.cupy().cuda.get_current_stream().synchronize()
    except (ValueError, RuntimeError, MemoryError) as error:
        if "illegal" in str(error):  # the device is lost: nothing after it means anything
            raise
        return " ".join(str(error).split())[:REASON]
    return ""


def _times(
    contenders: Sequence[Contender], calls: dict[str, Callable[[], Any]], effort: Effort
) -> dict[str, tuple[Times, Times]]:
    """Cold and warm times: one round for all, the others for the fastest of each kind."""
    found: dict[str, tuple[Times, Times]] = {}
    if not calls:
        return found
    first = interleave(calls, rounds=1, flush=FLUSH, warmup=0)
    for name, once in first.items():
        found[name] = once, once
    best: dict[Any, float] = {}
    for c in contenders:
        best[_kind(c)] = min(best.get(_kind(c), float("inf")), first[c.name].median)
    serious = {
        c.name: calls[c.name]
        for c in contenders
        if c.labels["method"] in ("winolab", "judged")
        or first[c.name].median <= HOPELESS * best[_kind(c)]
    }
    rounds = {name: effort.rounds if first[name].median < LONG else min(effort.rounds, FEW)
              for name in serious}  # fmt: skip
    cold = interleave(serious, rounds=rounds, flush=FLUSH, warmup=0)
    once = {name: n if first[name].median < LONG else 1 for name, n in rounds.items()}
    warm = interleave(serious, rounds=once, flush=FLUSH, warmup=0, warm=True)
    return found | {name: (cold[name], warm[name]) for name in serious}


def _leaders(
    contenders: Sequence[Contender], times: Mapping[str, tuple[Times, Times]]
) -> list[Contender]:
    """Who was timed more than once, and the fastest of each kind in each memory order."""
    best: dict[tuple, Contender] = {}
    for c in sorted(contenders, key=lambda c: times[c.name][0].median):
        best.setdefault((*_kind(c), c.order), c)
    return [c for c in contenders if times[c.name][0].rounds > 1 or c in best.values()]


def _kind(contender: Contender) -> tuple:
    """Whom a contender is the fastest among."""
    labels = contender.labels
    return labels["method"], labels["products"], labels.get("frugal")


def _errors(direction, problem, arrays: Arrays, contenders, calls) -> dict[str, Row]:
    """Both errors of these, on images of SAMPLE FLOP spread over the batch, its last one too (a
    filter's gradient: on all of it). A result that is not finite anywhere has the error "nan"."""
    cp = driver.cupy()
    found: dict[str, Row] = {c.name: {} for c in contenders}
    if not contenders:
        return found
    gradient = direction == "backward_filter"
    count = max(1, min(problem.batch, int(SAMPLE * problem.batch / max(1, 2 * problem.macs))))
    images = sorted({i * problem.batch // count for i in range(count)} | {problem.batch - 1})
    few = replace(problem, batch=problem.batch if gradient else len(images))
    for metric, measure, low, high in (
        ("mare_u01", oracle.mean_relative, 0, 1)
        if gradient
        else ("mare_u12", oracle.mean_relative, 1, 2),
        ("relative_rms_u11", oracle.relative_rms, -1, 1),
    ):
        arrays.fill(low, high, scale=_scale(arrays.group, gradient))
        first, second = (arrays.values(a) for a in arrays.operands["NHWC"])
        exact = oracle.fp64(direction, few, first if gradient else first[images], second)
        for c in contenders:
            arrays.poison()
            returned = calls[c.name]()
            result = arrays.result(c.order) if returned is None else _numbers(returned)
            error = math.nan
            if bool(cp.isfinite(result).all()):
                error = measure(result if gradient else result[images], exact)
            found[c.name][metric] = error if math.isfinite(error) else str(error)
    return found


def _scale(group: str, gradient: bool) -> float:
    """The second operand's scale: no sum leaves FP16's range; gradients have WinRS's 0.01."""
    if group == "fp32":
        return 1.0
    return 0.01 if gradient else 2.0**-6


def _numbers(tensor: Any) -> Any:
    """A torch result as a CuPy array, channels last, as CuPy's own are."""
    cp = driver.cupy()
    if isinstance(tensor, cp.ndarray):
        return tensor
    return cp.moveaxis(cp.from_dlpack(tensor.detach().float()), 1, -1)


def _speed(problem: Problem, cold: Times, warm: Times) -> Row:
    return {
        "cold_us": _microseconds(cold),
        "warm_us": _microseconds(warm),
        "rounds": cold.rounds,
        "tflops": round(2 * problem.macs / cold.median / 1e12, 2),
    }


def _microseconds(times: Times) -> list[float]:
    return [round(t * 1e6, 2) for t in (times.low, times.median, times.high)]


def sgemm(size: int = SGEMM) -> float:
    """TFLOPS of a square FP32 matrix product by cuBLAS, without TF32."""
    cp = driver.cupy()
    a, b = (cp.random.default_rng(i).random((size, size), dtype="float32") - 0.5 for i in range(2))
    out = cp.empty_like(a)
    times = interleave({"sgemm": lambda: cp.matmul(a, b, out=out)}, rounds=5)
    return 2 * size**3 / times["sgemm"].median / 1e12


def free() -> None:
    """Give memory that earlier cases used back to the device."""
    driver.cupy().get_default_memory_pool().free_all_blocks()
    if torch := sys.modules.get("torch"):
        torch.cuda.empty_cache()
