"""On a GPU: what the planner picks beside others: ``python -m experiments.measure.picks STEP``.

For every case of throughput_cases the plans of each precision whose predicted time is near the
least, by the algorithm that the case names and by any, run interleaved on this GPU. Their rows go
to experiments/results/throughput_variants.jsonl under the name STEP; what picks lose is printed.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Sequence
from itertools import repeat
from pathlib import Path
from typing import Annotated

import typer

from experiments.harness.facts import ROOT
from experiments.measure.cases import Case, cases
from experiments.measure.throughput import compile_all
from winolab.bench import timing
from winolab.bench.compare import free
from winolab.bench.contenders import Arrays, offered, ours, unnamed
from winolab.cli import bench
from winolab.cli.environment import cores
from winolab.cli.screen.render import plain
from winolab.device import Device
from winolab.gpu import driver
from winolab.gpu.planner.request import Plan
from winolab.lines import Lines
from winolab.spread import pool

RESULTS = ROOT / "experiments" / "results" / "throughput_variants.jsonl"
ROUNDS = 7


def main(
    step: Annotated[str, typer.Argument(help="What the rows are called.")],
    prediction: Annotated[str, typer.Option(help="What is expected.")] = "picks are the fastest",
    lists: Annotated[str, typer.Option(help="As of experiments.measure.throughput.")] = "",
    match: Annotated[
        str, typer.Option(help="Regular expression on layer, direction and group of a case.")
    ] = "",
    kernel: Annotated[str, typer.Option(help="Regular expression on kernel and precision.")] = "",
    near: Annotated[float, typer.Option(help="Times the least predicted time.")] = 1.2,
    most: Annotated[int, typer.Option(help="Plans beside one another.")] = 8,
    output: Annotated[Path, typer.Option(help="File that rows are added to.")] = RESULTS,
) -> None:
    """Time plans side by side on this GPU."""
    bench.ready()
    wanted = [c for c in cases(lists) if re.search(match, " ".join(c.key))]
    with pool(cores()) as processes:
        device = driver.device(0)
        found = processes.map(
            rivals, wanted, *map(repeat, (device, kernel, near, most)), chunksize=4
        )
        todo = [(c, plans) for c, each in zip(wanted, found, strict=True) for plans in each]
    print(f"{compile_all(p for _, plans in todo for p in plans)} kernels", flush=True)
    labels = {"step": step, "prediction": prediction}
    machine = bench.context()
    losses = []
    with Lines(output) as file:
        for case, plans in todo:
            seconds = timed(case, plans)
            for plan, took in zip(plans, seconds, strict=True):
                file.append(plain(labels | row(case, plan, took) | machine))
            losses.append((seconds[0] / min(seconds) - 1, f"{' '.join(case.key)} {name(plans[0])}"))
    print("\n".join(told(losses)))


def rivals(case: Case, device: Device, kernel: str, near: float, most: int) -> list[list[Plan]]:
    """Plans of the case side by side, the picked one first, as often as there are two or more."""
    request = unnamed(case.direction, case.layer.problem, case.group, device)
    found: dict[tuple[str, ...], list[Plan]] = {}
    for _, plans in offered(request, case.layer.named(case.direction)):
        alike: dict[str, Plan] = {}
        for p in plans:
            if re.search(kernel, name(p)):
                alike.setdefault(name(p), p)
        if alike:
            first, *others = alike.values()  # the first is not always the fastest
            close = [p for p in others if p.predicted <= near * first.predicted]
            kept = [first, *sorted(close, key=lambda p: p.predicted)][:most]
            found.setdefault(tuple(map(name, kept)), kept)
    return [plans for plans in found.values() if len(plans) > 1]


def name(p: Plan) -> str:
    """Kernel, precision and block shape."""
    return f"{p.kernel} {p.precision} {p.config}"


def timed(case: Case, plans: Sequence[Plan]) -> list[float]:
    """Seconds of each plan's call, medians of interleaved rounds with a cold L2 cache."""
    arrays = Arrays(case.direction, case.layer.problem, case.group)
    arrays.fill(-1, 1)
    contenders = list(ours(dict.fromkeys(plans, False)))
    size = max(c.workspace or 0 for c in contenders)
    workspace = driver.cupy().empty(max(1, size), "uint8")
    calls = {c.name: c.call(arrays, workspace.data.ptr) for c in contenders}
    times = timing.interleave(calls, rounds=ROUNDS, flush=timing.FLUSH, warmup=1)
    del arrays, calls, workspace
    free()
    return [times[c.name].median for c in contenders]


def row(case: Case, p: Plan, seconds: float) -> bench.Row:
    """What a row of variants says of a plan."""
    layer = case.layer
    return {
        "batch": layer.batch,
        "output": layer.output[1],
        "channels": layer.problem.in_channels,
        "filter": layer.taps,
        "variant": f"{p.kernel} {p.config}",
        "products": p.precision,
        "direction": case.direction,
        "group": case.group,
        "us": round(seconds * 1e6, 2),
        "predicted_us": round(p.predicted * 1e6, 2),
        "tflops": round(2 * layer.problem.macs / seconds / 1e12, 2),
    }


def told(losses: Iterable[tuple[float, str]]) -> list[str]:
    """What the picks take more than the fastest beside them, and the worst of them."""
    worst = sorted(losses, reverse=True)
    if not worst:
        return ["no case has two such plans"]
    mean = statistics.mean(loss for loss, _ in worst)
    lines = [f"{len(worst)} picks take {mean:.1%} more than the fastest on average"]
    return [*lines, *(f"{loss:.1%} {what}" for loss, what in worst[:10] if loss > 0.01)]


if __name__ == "__main__":
    typer.run(main)
