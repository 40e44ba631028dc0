"""On a GPU: what the planner picks beside others: ``python -m experiments.measure.picks STEP``.

For every case of throughput_cases the plans of each precision whose predicted time is near the
least, by the algorithm that the case names and by any, run interleaved on this GPU. Their rows go
to experiments/results/throughput_variants.jsonl under the name STEP; what picks lose is printed.

``--changed FILE`` times instead what experiments.calibrate.picks has put into that list, by custom
experiments/measure/picks_to_time.jsonl, under STEP:
of each case the pick before a change and the one after it, by their names. Rows go to
experiments/results/changed_picks.jsonl, and a call goes on where another ended; what is over SLOWER
times as long is printed.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.calibrate.plans import cut_to, takes
from experiments.harness.facts import ROOT
from experiments.harness.machines import shortened, stored
from experiments.measure.cases import Case, cases
from experiments.measure.published.rows import Kinds
from experiments.measure.published.rows import resumed as added
from experiments.measure.published.rows import timed as side_by_side
from experiments.measure.throughput import compile_all
from experiments.measure.ways.two_trees import SLOWER
from winolab.bench import picks as clocked
from winolab.bench import timing
from winolab.bench.compare import free
from winolab.bench.contenders import Arrays, offered, ours, unnamed
from winolab.bench.networks import parse
from winolab.cli import bench
from winolab.cli.environment import cores
from winolab.cli.screen.render import plain
from winolab.device import Device
from winolab.gpu import driver
from winolab.gpu.planner.planner import candidates, usual_limit
from winolab.gpu.planner.request import Plan, Request
from winolab.gpu.planner.rivals import rivals as nearest
from winolab.gpu.warm import Timed
from winolab.lines import Lines, add, rewrite
from winolab.spread import pool

RESULTS = ROOT / "experiments" / "results" / "throughput_variants.jsonl"
CHANGED = RESULTS.with_name("changed_picks.jsonl")
RIVALS = RESULTS.with_name("rivals.jsonl")  # what was timed of networks' layers to pick by a clock
ROUNDS = 7
SIDES = ("before", "after")
Row = dict[str, Any]


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
    changed: Annotated[Path | None, typer.Option(help="List of changed picks.")] = None,
    seconds: Annotated[float, typer.Option(help="Time that changed picks may take.")] = 90,
    output: Annotated[Path | None, typer.Option(help="File that rows are added to.")] = None,
) -> None:
    """Time plans side by side on this GPU."""
    if changed:
        resume(step, stored(changed), seconds, output or CHANGED)
        return
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
    with Lines(output or RESULTS) as file:
        for case, plans in todo:
            times = timed(case, plans)
            for plan, took in zip(plans, times, strict=True):
                file.append(plain(labels | row(case, plan, took) | machine))
            losses.append((times[0] / min(times) - 1, f"{' '.join(case.key)} {name(plans[0])}"))
    print("\n".join(told(losses)))


def resume(step: str, listed: Iterable[Row], seconds: float, output: Path) -> None:
    """Time a step's changed picks of this GPU that have no rows, and say what the rows say."""
    name = driver.device(0).name
    pairs = [row for row in listed if row["step"] == step and row["device"] == name]
    if not pairs:
        raise typer.BadParameter(f"the list has no pick of an {name} that step {step!r} changed")
    added(output, seconds, pairs, case_of, both, beside)
    rewrite(output, shortened(stored(output)))
    print("\n".join(slower(row for row in stored(output) if row["step"] == step)))


def case_of(pair: Row) -> Row:
    """What tells the rows of a changed pick from another's."""
    return {what: pair[what] for what in ("step", "layer", "direction", "precision")}


def both(pair: Row, device: Device) -> Kinds:
    """The plans of a changed pick, by name and workspace, before and after; none, which is said,
    where there is no plan of such a name any more."""
    request = unnamed(pair["direction"], parse(pair["layer"]).problem, pair["precision"], device)
    offered = [*candidates(request).plans]
    if request.direction == "backward_filter":
        offered += candidates(replace(request, workspace_limit=usual_limit(request))).plans
    found: dict[Plan, str] = {}
    for side in SIDES:
        wanted, size = pair[side]
        named = (cut_to(p, size) for p in offered if name(p) == wanted)
        alike = [p for p in named if takes(p, size)]
        if not alike:
            print(
                f"{pair['layer']}: no plan is {wanted} with {size} bytes of workspace", flush=True
            )
            return {}
        found[min(alike, key=lambda p: abs(p.workspace - size))] = side
    return found


def beside(pair: Row, kinds: Kinds) -> list[Row]:
    """The rows of a changed pick."""
    problem = parse(pair["layer"]).problem
    rows = side_by_side(pair["direction"], problem, pair["precision"], kinds, errors=False)
    return [{**case_of(pair), **row} for row in rows]


def slower(rows: Iterable[Row]) -> Iterator[str]:
    """How much longer the picks of each GPU take after a change, by its rows."""
    took: dict[str, dict[tuple[str, ...], dict[str, float]]] = {}
    for row in rows:
        case = tuple(case_of(row).values())
        took.setdefault(row["device"], {}).setdefault(case, {})[row["kind"]] = row["cold_us"][1]
    for device, found in took.items():
        ratios = {case: us["after"] / us["before"] for case, us in found.items()}
        late = sorted(((r, case) for case, r in ratios.items() if r > SLOWER), reverse=True)
        mean = statistics.geometric_mean(ratios.values())
        yield (
            f"{device}: {len(ratios)} changed picks take {mean:.3f} times as long as before, "
            f"{len(late)} over {SLOWER}"
        )
        for ratio, (_, *case) in late:
            yield f"  {ratio:.3f} {' '.join(case)}"


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


def near(cases: Sequence[tuple[Any, str, str]], device: Device) -> list[Plan]:
    """What a clock is to choose from, of layers with directions and precisions that are served."""
    with pool(cores()) as processes:
        found = processes.map(_near, cases, repeat(device), chunksize=4)
        return [plan for plans in found for plan in plans]


def _near(case: tuple[Any, str, str], device: Device) -> list[Plan]:
    layer, direction, group = case
    with suppress(ValueError):
        return nearest(unnamed(direction, layer.problem, group, device))
    return []


def by_clock(case: Row, request: Request) -> Timed:
    """What a clock picks, timed anew; all that was timed is added to RIVALS, as names, workspace,
    predicted and measured microseconds."""
    found = clocked.timed(request, again=True)
    plans = [[name(p), p.workspace, *(round(1e6 * s, 2) for s in (p.predicted, took))]
             for p, took in found.times]  # fmt: skip
    labels = {what: case[what] for what in ("layer", "direction", "precision")}
    add(
        RIVALS, [labels | {"device": request.device.name, "pick": name(found.pick), "plans": plans}]
    )
    return found


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
