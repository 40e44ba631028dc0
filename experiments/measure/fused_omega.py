"""On a GPU: fused Ω in FP16 beside Ω in two launches, direct products, FP32 and PyTorch.

``python -m experiments.measure.fused_omega [--seconds S]`` writes
experiments/results/fused_omega.jsonl: filter gradients of 3 to 9 taps, 64 to 256 channels, N = 32.
Of fused Ω every block shape of the paper's tiles that divide the filter, and of the fastest
predicted: rows not padded (pad=0), transforms of pairs in 16 bits (half2=1), sums in FP16. A row's
``cold_us`` are quartiles with L2 overwritten before a call; ``of_data`` is the workspace over the
bytes of x, w and y; ``relative_rms_u11`` the error on U[-1, 1) against FP64, and beside it what is
predicted.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import repeat
from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.harness.facts import ROOT
from experiments.measure.throughput import compile_all
from winolab.algorithm import FUSED, FUSED_FP16, Problem, Tile, omega
from winolab.bench import oracle
from winolab.bench.compare import free
from winolab.bench.contenders import Arrays, ours, unnamed
from winolab.bench.frameworks import frameworks
from winolab.bench.timing import FLUSH, interleave
from winolab.cli import bench
from winolab.cli.environment import cores
from winolab.cli.screen.render import plain
from winolab.device import Device
from winolab.gpu import driver
from winolab.gpu.families import registry
from winolab.gpu.families.wgrad_mma.plan import PAPER
from winolab.gpu.planner.accuracy import predicted_rms
from winolab.gpu.planner.planner import plan
from winolab.gpu.planner.request import Plan, Request
from winolab.ref.algorithms.winrs.plan import data_size
from winolab.ref.tolerance.cheapest import U11
from winolab.spread import pool

RESULTS = ROOT / "experiments" / "results" / "fused_omega.jsonl"
TAPS, MAPS = (3, 5, 7, 9), ((64, 112), (128, 56), (256, 28))
ROUNDS = 9
FAMILY = {family.name: family for family in registry.FAMILIES}


def cases() -> Iterator[Problem]:
    """Square layers that keep their size."""
    for taps in TAPS:
        for channels, size in MAPS:
            x, w = (32, size, size, channels), (channels, taps, taps, channels)
            yield Problem.of(x, w, padding=taps // 2)


def planned(problem: Problem, device: Device) -> dict[Plan, str]:
    """Our plans in FP16, and which each is; the last one is FP32's on FFMA units."""
    request = unnamed("backward_filter", problem, "fp16", device)
    found: dict[Plan, str] = {}
    for tile in PAPER:
        if problem.filter[-1] % tile.n == 0:
            found |= dict.fromkeys(_fused(request, tile), "fused")
            with suppress(ValueError):
                found.setdefault(_best("wgrad_winograd", request, tile), "two launches")
    for name in ("wgrad_winograd", "wgrad_direct.columns", "wgrad_direct.narrow"):
        with suppress(ValueError):
            kind = "direct" if "direct" in name else "two launches"
            found.setdefault(_best(name, request), kind)
    found.setdefault(plan(request), "picked")
    fp32 = unnamed("backward_filter", problem, "fp32", device)
    return {**found, _best("wgrad_ffma", replace(fp32, precision="fp32")): "fused in FP32"}


def _fused(request: Request, tile: Tile) -> Iterator[Plan]:
    """Every block shape of a tile, and the best's policies."""
    sizes = tile.alpha, tile.n, tile.r
    named = replace(request, algorithm=omega(*sizes, variant=FUSED))
    shapes: dict[tuple[int, int], Any] = {}
    for p in sorted(FAMILY["wgrad_mma"].plans(named), key=lambda p: p.predicted):
        v: Any = p.config
        shapes.setdefault((v.bi, v.bo), p)
    yield from shapes.values()
    best: Any = next(iter(shapes.values()))
    halves = replace(request, algorithm=omega(*sizes, variant=FUSED_FP16))
    sums: Any = min(FAMILY["wgrad_mma"].plans(halves), key=lambda p: p.predicted)
    yield sums
    for asked, config in (
        (named, replace(best.config, pad=0)),
        (named, replace(best.config, half2=1)),
        (halves, replace(sums.config, half2=1)),
    ):
        yield from FAMILY["wgrad_mma"].plans(replace(asked, config=config))


def _best(name: str, request: Request, tile: Tile | None = None) -> Plan:
    """The fastest predicted plan of a family. Raises ValueError where there is none."""
    if tile:
        request = replace(request, algorithm=omega(tile.alpha, tile.n, tile.r))
    return min(FAMILY[name].plans(request), key=lambda p: p.predicted)


def run(problem: Problem, found: Mapping[Plan, str]) -> list[dict[str, Any]]:
    """The rows of a case: one a contender, of which ``found`` are ours."""
    rows: list[dict[str, Any]] = []
    for group in ("fp16", "fp32"):
        own = {p: kind for p, kind in found.items() if p.precision == group}
        arrays = Arrays("backward_filter", problem, group)
        arrays.fill(-1, 1)
        contenders = list(ours(dict.fromkeys(own, False)))
        kinds = {c.name: kind for c, kind in zip(contenders, own.values(), strict=True)}
        others = list(frameworks("backward_filter", problem, group)) if group == "fp16" else []
        kinds |= {c.name: "PyTorch" for c in others}
        space = driver.cupy().empty(max(p.workspace for p in own) + 1, "uint8").data
        calls = {c.name: c.call(arrays, space.ptr) for c in (*contenders, *others)}
        errors = _errors(problem, arrays, contenders, space.ptr)
        for call in calls.values():
            call()
        times = interleave(calls, rounds=ROUNDS, flush=FLUSH, warmup=1)
        predicted = {c.name: predicted_rms(p, U11) for c, p in zip(contenders, own, strict=True)}
        for c in (*contenders, *others):
            took, data = times[c.name], data_size(problem) * (1 if group == "fp32" else 0.5)
            row = {
                "input": "x".join(map(str, problem.x_shape)),
                "filter": "x".join(map(str, problem.w_shape)),
                "precision": group,
                "kind": kinds[c.name],
                **c.labels,
                "layout": c.order,
                "workspace": c.workspace,
                "cold_us": [round(1e6 * t, 2) for t in (took.low, took.median, took.high)],
                "tflops": round(2 * problem.macs / took.median / 1e12, 1),
            }
            if c.name in errors:
                row["of_data"] = round((c.workspace or 0) / data, 3)
                row["relative_rms_u11"] = errors[c.name]
                row["predicted_rms_u11"] = predicted[c.name]
            rows.append(row)
    return rows


def _errors(
    problem: Problem, arrays: Arrays, own: Sequence[Any], workspace: int
) -> dict[str, float | str]:
    """Errors of our contenders' results, which are NaN before."""
    exact = oracle.fp64("backward_filter", problem, *arrays.operands["NHWC"])
    found: dict[str, float | str] = {}
    for c in own:
        arrays.poison()
        c.call(arrays, workspace)()
        error = oracle.relative_rms(arrays.results["NHWC"], exact)
        found[c.name] = error if math.isfinite(error) else "nan"
    return found


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """A line a contender."""
    lines = []
    for r in rows:
        name = f"{r['kind']:13} {r['kernel']:9} {r.get('plan', r['layout']):40}"
        took = (
            f"{r['cold_us'][1]:8.1f} µs ({r.get('predicted_us', 0):.1f}) {r['tflops']:6.1f} TFLOPS"
        )
        lines.append(f"  {name} {took}")
        if "plan" in r:
            errs = f"rms {r['relative_rms_u11']:.2e} ({r['predicted_rms_u11']:.2e})"
            lines[-1] += f" {r['of_data']:5.2f} data, {errs}"
    return "\n".join(lines)


def main(
    seconds: Annotated[float, typer.Option(help="Time that the run may take.")] = 3600,
    output: Annotated[Path, typer.Option(help="File of the rows.")] = RESULTS,
) -> None:
    """Measure all cases."""
    end = time.monotonic() + seconds
    bench.ready()
    wanted = list(cases())
    with pool(cores()) as processes:
        found = list(processes.map(planned, wanted, repeat(driver.device(0))))
    print(f"{compile_all(p for plans in found for p in plans)} kernels", flush=True)
    machine = {**bench.context(), "run": datetime.now(UTC).isoformat(timespec="milliseconds")}
    rows: list[dict[str, Any]] = []
    for problem, own in zip(wanted, found, strict=True):
        if time.monotonic() > end:
            break
        made = run(problem, own)
        rows += [plain({**row, **machine}) for row in made]
        output.write_text("".join(json.dumps(row) + "\n" for row in rows))
        print(f"{problem.x_shape} {problem.filter}\n{summary(made)}", flush=True)
        free()


if __name__ == "__main__":
    typer.run(main)
