"""Rows of contenders beside each other on one layer, on a GPU: times, workspace, errors."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import repeat
from pathlib import Path
from typing import Any, TypeVar

from experiments.harness.machines import stored
from experiments.measure.throughput import compile_all
from winolab.algorithm import Problem
from winolab.bench import oracle
from winolab.bench.compare import free
from winolab.bench.contenders import Arrays, Contender, digest, ours
from winolab.bench.timing import FLUSH, interleave
from winolab.cli import bench
from winolab.cli.environment import cores
from winolab.cli.screen.render import plain
from winolab.device import Device
from winolab.gpu import driver
from winolab.gpu.planner.accuracy import predicted_rms
from winolab.gpu.planner.request import Plan
from winolab.lines import add
from winolab.problem import Direction
from winolab.ref.algorithms.winrs.plan import data_size
from winolab.ref.tolerance.cheapest import U11
from winolab.spread import pool

Row = dict[str, Any]
Kinds = Mapping[Plan, str]  # plans, and which each is
C = TypeVar("C")
AT_ONCE = 32  # cases that are planned and compiled before the first of them is measured


def layer_of(direction: str, problem: Problem) -> Row:
    """What a row says of its layer."""
    return {
        "direction": direction,
        "input": "x".join(map(str, problem.x_shape)),
        "filter": "x".join(map(str, problem.w_shape)),
    }


def timed(
    direction: Direction,
    problem: Problem,
    group: str,
    kinds: Kinds,
    others: Iterable[Contender] = (),
    rounds: int = 9,
    errors: bool = True,
) -> list[Row]:
    """A row a contender, interleaved, L2 overwritten before a call; ``others`` are PyTorch's."""
    arrays = Arrays(direction, problem, group)
    arrays.fill(-1, 1)
    contenders = list(ours(dict.fromkeys(kinds, False)))
    what = {c.name: kind for c, kind in zip(contenders, kinds.values(), strict=True)}
    others = list(others)
    what |= {c.name: "PyTorch" for c in others}
    space = driver.cupy().empty(max(p.workspace for p in kinds) + 1, "uint8").data
    calls = {c.name: c.call(arrays, space.ptr) for c in (*contenders, *others)}
    found = _errors(direction, problem, arrays, contenders, space.ptr) if errors else {}
    for call in calls.values():
        call()
    times = interleave(calls, rounds=rounds, flush=FLUSH, warmup=1)
    predicted = {c.name: predicted_rms(p, U11) for c, p in zip(contenders, kinds, strict=True)}
    rows = []
    for c in (*contenders, *others):
        took, data = times[c.name], data_size(problem) * (1 if group == "fp32" else 0.5)
        row = {
            **layer_of(direction, problem),
            "precision": group,
            "kind": what[c.name],
            **c.labels,
            "layout": c.order,
            "workspace": c.workspace,
            "cold_us": [round(1e6 * t, 2) for t in (took.low, took.median, took.high)],
            "tflops": round(2 * problem.macs / took.median / 1e12, 1),
        }
        if c.name in predicted:
            row["of_data"] = round((c.workspace or 0) / data, 3)
            row["predicted_rms_u11"] = predicted[c.name]
        if c.name in found:
            row["relative_rms_u11"] = found[c.name]
        rows.append(row)
    return rows


def _errors(
    direction: Direction, problem: Problem, arrays: Arrays, own: Sequence[Contender], workspace: int
) -> dict[str, float | str]:
    """Errors of our contenders' results, which are NaN before."""
    exact = oracle.fp64(direction, problem, *arrays.operands["NHWC"])
    found: dict[str, float | str] = {}
    for c in own:
        arrays.poison()
        c.call(arrays, workspace)()
        error = oracle.relative_rms(arrays.results["NHWC"], exact)
        found[c.name] = error if math.isfinite(error) else "nan"
    return found


def resumed(
    output: Path,
    seconds: float,
    cases: Sequence[C],
    key: Callable[[C], Row],
    planned: Callable[[C, Device], Kinds],
    run: Callable[[C, Kinds], list[Row]],
) -> None:
    """Add the rows of cases that lack some to a file, until time is over: rows on this GPU of the
    same ``key`` and of every plan as its source is now."""
    end = time.monotonic() + seconds
    bench.ready()
    device = driver.device(0)
    kept = stored(output)
    there = {(*_case(row, key(cases[0])), row.get("plan"), row.get("source"))
             for row in kept if row["device"] == device.name}  # fmt: skip
    machine = {**bench.context(), "run": datetime.now(UTC).isoformat(timespec="milliseconds")}
    with pool(cores()) as processes:
        for start in range(0, len(cases), AT_ONCE):
            some = cases[start : start + AT_ONCE]
            every = zip(some, processes.map(planned, some, repeat(device)), strict=True)
            left = [(case, kinds) for case, kinds in every if missing(key(case), kinds, there)]
            if time.monotonic() > end:
                return
            print(f"{compile_all(p for _, kinds in left for p in kinds)} kernels", flush=True)
            for case, kinds in left:
                if time.monotonic() > end:
                    return
                made = run(case, kinds)
                add(output, [plain({**row, **machine}) for row in made])
                print(summary(made), flush=True)
                free()


def missing(key: Row, kinds: Kinds, there: Collection[tuple[Any, ...]]) -> bool:
    """Whether rows of some plan of a case are not ``there``."""
    case = _case(key, key)
    return any((*case, str(p.config), digest(p)) not in there for p in kinds)


def _case(row: Row, key: Row) -> tuple[Any, ...]:
    """The fields of a row that are a key's."""
    return tuple(row.get(name) for name in key)


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """A line a contender."""
    first = rows[0]
    lines = [f"{first['input']} {first['filter']} {first['precision']}"]
    for r in rows:
        name = f"{r['kind']:24} {r['kernel']:20} {r.get('plan', r['layout']):44}"
        took = f"{r['cold_us'][1]:9.1f} µs ({r.get('predicted_us', 0):.1f})"
        lines.append(f"  {name} {took} {r['tflops']:6.1f} TFLOPS {r.get('of_data', 0):5.2f} data")
    return "\n".join(lines)
