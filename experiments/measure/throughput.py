"""On a GPU: how fast and how exact kernels are beside cuDNN's and PyTorch's, in one run.

``python -m experiments.measure.throughput [--lists NAME] [--seconds S]`` adds rows to
experiments/results/throughput.jsonl, case by case in throughput_cases.PLAN's order. A case whose
last rows on such a GPU measured the sources that the planner chooses now, and no others, and the
workspace of what it picks, does not run again; older rows of a case that ran again there are
dropped at the end. WINOLAB_COMMIT names the commit. What a row says,
``winolab.bench.compare.compare`` says. ``--changed`` tells, without a GPU, how many cases would run
on the one that was measured last.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import repeat
from pathlib import Path
from typing import Annotated

import typer

from experiments.gpu.rows import devices
from experiments.harness.facts import ROOT
from experiments.harness.machines import shortened, stored
from experiments.measure.cases import LISTS, Case, cases
from winolab.bench.compare import compare, free
from winolab.bench.contenders import digest, entered
from winolab.bench.layers import Layer
from winolab.cli import bench
from winolab.cli.environment import cores
from winolab.cli.screen.render import plain
from winolab.device import H100, Device, datasheet
from winolab.gpu import driver
from winolab.gpu.planner.request import Plan
from winolab.gpu.runtime import nvrtc
from winolab.gpu.runtime.cache import cubin
from winolab.lines import Lines, rewrite
from winolab.spread import pool

RESULTS = ROOT / "experiments" / "results" / "throughput.jsonl"
PATIENCE = 90  # seconds that a case may take before the run is given up: a first one took 31
SMALL = Layer(1, (8, 8), 64, 64, 3)
FEW = 8  # cases that are planned in this process: others take two seconds to start
GUESS = 2.0  # seconds that a case takes where none of its kind was measured


def main(
    lists: Annotated[str, typer.Option(help=f"With commas: {', '.join(LISTS)}.")] = "",
    match: Annotated[
        str, typer.Option(help="Regular expression on list, layer, direction and group of a case.")
    ] = "",
    seconds: Annotated[float, typer.Option(help="Time that the run may take.")] = 3600,
    output: Annotated[Path, typer.Option(help="File that rows are added to.")] = RESULTS,
    compile_only: Annotated[
        bool, typer.Option("--compile", help="Fill the cache of kernels, on all cores, and stop.")
    ] = False,
    changed: Annotated[
        bool,
        typer.Option("--changed", help="Say what rows measured other kernels, and stop: no GPU."),
    ] = False,
) -> None:
    """Measure what is not yet in the file on this GPU."""
    end = time.monotonic() + seconds
    kept = stored(output)
    if changed:
        device = datasheet(next(iter(devices(kept)), H100.name))
    else:
        bench.ready()
        device = driver.device(0)
    before = latest(kept, device.name)
    done = {tuple(mine[0]["case"]): sources(mine) for mine in before}
    picked = {tuple(mine[0]["case"]): picks(mine) for mine in before}
    wanted = [c for c in cases(lists) if re.search(match, " ".join((c.list, *c.key)))]
    todo = [
        (case, plans, digests)
        for case, plans, digests in planned(wanted, device)
        if digests != done.get(case.key)
        or not picked[case.key] <= {(digest(p), p.workspace) for p, is_ in plans.items() if is_}
    ]
    if changed or compile_only:
        print("\n".join(estimate([case for case, *_ in todo], latest(kept))), flush=True)
    if changed:
        return
    if compile_only:
        print(f"{compile_all(plan for _, plans, _ in todo for plan in plans)} kernels", flush=True)
        for direction, group in dict.fromkeys(case.key[1:] for case, *_ in todo):
            compare(direction, SMALL.problem, group)  # compiles what CuPy runs besides
        return
    compare("forward", SMALL.problem)  # loads libraries, which no case is to wait for
    machine = {**bench.context(), "run": datetime.now(UTC).isoformat(timespec="milliseconds")}
    with Lines(output) as file:
        for case, plans, digests in todo:
            if time.monotonic() > end:
                break
            labels = {
                "list": case.list,
                "case": case.key,
                "kernel_of": bench.kernel_name(case.layer),
                **machine,
            }
            rows = measured(case, plans, {**labels, "sources": sorted(digests)}, file)
            for row in rows:
                file.append(plain({**labels, **row}))
            print(f"{end - time.monotonic():5.0f} s left {summary(case, rows)}", flush=True)
    last = latest(stored(output))
    rewrite(output, shortened(row for mine in last for row in mine))


def latest(rows: Iterable[bench.Row], device: str | None = None) -> list[list[bench.Row]]:
    """The rows of each case's last run on ``device``, or on each, in the order of the first."""
    found: dict[tuple, list[bench.Row]] = {}
    rows = (row for row in rows if device in (None, row["device"]))
    for row in sorted(rows, key=lambda row: row.get("run", "")):
        mine = found.setdefault((row["device"], *row["case"]), [])
        if mine and mine[0].get("run") != row.get("run"):
            mine.clear()
        mine.append(row)
    return list(found.values())


def sources(rows: Iterable[bench.Row]) -> set[str]:
    """Digests of our kernels that these rows measured, or that failed."""
    return {name for row in rows for name in (row.get("source"), *row.get("sources", ())) if name}


def picks(rows: Iterable[bench.Row]) -> set[tuple[str, int]]:
    """Source and workspace of what was picked; of the same source, chunks differ by that."""
    return {(row["source"], row["workspace"]) for row in rows if row.get("chosen")}


def estimate(todo: Sequence[Case], before: Iterable[Sequence[bench.Row]]) -> list[str]:
    """Seconds that cases may take, by list, from what they or others of their kind took."""
    took = {tuple(mine[0]["case"]): mine[0].get("took_s", GUESS) for mine in before}
    kinds: dict[tuple, list[float]] = {}
    for key, seconds in took.items():
        kinds.setdefault(key[1:], []).append(seconds)
    lines: dict[tuple, list[float]] = {}
    for case in todo:
        alike = kinds.get(case.key[1:], [GUESS])
        seconds = took.get(case.key, sum(alike) / len(alike))
        lines.setdefault((case.list, case.direction, case.group), []).append(seconds)
    total = sum(map(sum, lines.values()))
    return [
        *(f"{' '.join(key)}: {len(mine)} cases, about {sum(mine):.0f} s"
          for key, mine in lines.items()),
        f"{len(todo)} cases, about {total:.0f} s",
    ]  # fmt: skip


def planned(todo: Sequence[Case], device: Device) -> list[tuple[Case, dict[Plan, bool], set[str]]]:
    """Every case with our plans for it on ``device``, and the digests of their sources.

    By all cores, before the first case is measured: one by one, each kept a GPU waiting for 0.2 s.
    """
    if len(todo) <= FEW:
        return [(case, *_planned(case, device)) for case in todo]
    with pool(cores()) as processes:
        found = processes.map(_planned, todo, repeat(device), chunksize=4)
        return [(case, *each) for case, each in zip(todo, found, strict=True)]


def _planned(case: Case, device: Device) -> tuple[dict[Plan, bool], set[str]]:
    algorithm = case.layer.named(case.direction)
    plans = entered(case.direction, case.layer.problem, case.group, algorithm, device)
    return plans, {digest(plan) for plan in plans}


def measured(
    case: Case, plans: dict[Plan, bool], labels: bench.Row, file: Lines
) -> list[bench.Row]:
    """The case's rows; one that says why where it fails, also where it never comes back."""
    started = time.monotonic()

    def failed(reason: str) -> bench.Row:
        common = {"direction": case.direction, "precision": case.group}
        return {**labels, "method": "failed", **common, "reason": reason}

    def give_up(reason: str) -> None:
        file.append(failed(reason))
        os._exit(3)

    watch = threading.Timer(PATIENCE, give_up, [f"no result in {PATIENCE} s"])
    watch.start()
    try:
        problem = case.layer.problem
        rows = compare(case.direction, problem, case.group, effort=case.effort, plans=plans)
        free()
    except Exception as error:
        if lost(error):
            give_up(str(error))
        rows = [failed(f"{type(error).__name__}: {error}")]
    finally:
        watch.cancel()
    took = round(time.monotonic() - started, 2)
    return [{**row, "took_s": took} for row in rows]


def lost(error: Exception) -> bool:
    """Whether the device serves this process no more."""
    return "illegal" in str(error) or "launch failure" in str(error)


def summary(case: Case, rows: Sequence[bench.Row]) -> str:
    """A line on a case."""
    if rows[0]["method"] == "failed":
        return f"{case.list} {' '.join(case.key)}: {rows[0]['reason']}"
    return f"{case.list} {bench.line([{'layer': str(case.layer), **row} for row in rows])}"


def compile_all(plans: Iterable[Plan]) -> int:
    """Compile these plans' kernels into the disk cache, on all cores; how many there are."""
    return compile_sources(
        {u.source(): u.title for plan in plans for u in plan.translation_units()}
    )


def compile_sources(titles: Mapping[str, str]) -> int:
    """The same of translation units, each with what the log calls it."""
    arch = nvrtc.architecture(driver.device(0).compute_capability)
    sources = {source: title for source, title in titles.items() if source}  # or a library has it
    with pool(cores()) as processes:
        return sum(processes.map(_compiled, sources, [arch] * len(sources), sources.values()))


def _compiled(source: str, arch: str, title: str) -> int:
    try:
        cubin(source, arch, title)
    except (RuntimeError, ValueError) as error:
        print(f"{title}: {error}", flush=True)
        return 0
    return 1


if __name__ == "__main__":
    typer.run(main)
