"""How fast and how exact the CUDA kernels are beside cuDNN's and PyTorch's, in one run.

``python -m experiments.throughput [--lists NAME] [--seconds S]`` adds rows to
experiments/results/throughput.jsonl, case by case in throughput_cases.PLAN's order; a case whose
rows are there, in all the precisions that the kernels have, does not run again. What a row says,
``winolab.gpu.compare.compare`` says.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated

import typer

from experiments.facts import ROOT
from experiments.throughput_cases import LISTS, Case, cases
from winolab import bench
from winolab.environment import cores
from winolab.gpu import launch, nvrtc
from winolab.gpu.compare import compare, free
from winolab.gpu.contenders import candidates
from winolab.gpu.plan import Plan

RESULTS = ROOT / "experiments" / "results" / "throughput.jsonl"
PATIENCE = 20  # seconds that a case may take before the run is given up


def main(
    lists: Annotated[str, typer.Option(help=f"With commas: {', '.join(LISTS)}.")] = "",
    seconds: Annotated[float, typer.Option(help="Time that the run may take.")] = 3600,
    output: Annotated[Path, typer.Option(help="File that rows are added to.")] = RESULTS,
    compile_only: Annotated[
        bool, typer.Option("--compile", help="Fill the cache of kernels, on all cores, and stop.")
    ] = False,
) -> None:
    """Measure what is not yet in the file on this GPU."""
    end = time.monotonic() + seconds
    bench.ready()
    todo = list(cases(lists))
    if compile_only:
        print(f"{compile_all(p for case in todo for p in kernels(case))} kernels", flush=True)
        return
    done: dict[tuple, set[str]] = {}
    for row in stored(output):
        if row["method"] in ("winolab", "failed"):
            done.setdefault(tuple(row["case"]), set()).add(row.get("products", "failed"))
    machine = {**bench.context(), "run": datetime.now(UTC).isoformat(timespec="seconds")}
    with output.open("a") as file:
        for case in todo:
            ours = {plan.precision for plan in kernels(case)}
            known = done.get(case.key, set())
            if ours <= known or "failed" in known:
                continue
            if time.monotonic() > end:
                break
            rows = measured(case, file)
            labels = {
                "list": case.list,
                "case": case.key,
                "kernel_of": bench.kernel_name(case.layer),
            }
            file.writelines(json.dumps({**labels, **row, **machine}) + "\n" for row in rows)
            file.flush()
            print(f"{end - time.monotonic():5.0f} s left {summary(case, rows)}", flush=True)


def kernels(case: Case) -> dict[Plan, bool]:
    """Our plans for a case, none where no kernel runs it."""
    algorithm = None if case.direction == "backward_filter" else case.layer.algorithm
    return candidates(case.direction, case.layer.problem, case.group, algorithm)


def measured(case: Case, file) -> list[bench.Row]:
    """The case's rows; one that says why where it fails, also where it never comes back."""
    started = time.monotonic()

    def give_up() -> None:
        file.write(json.dumps(_failed(case, f"no result in {PATIENCE} s")) + "\n")
        file.flush()
        os._exit(3)

    watch = threading.Timer(PATIENCE, give_up)
    watch.start()
    try:
        algorithm = None if case.direction == "backward_filter" else case.layer.algorithm
        rows = compare(case.direction, case.layer.problem, case.group, algorithm, case.effort)
        free()
    except Exception as error:
        if "illegal" in str(error) or "launch failure" in str(error):  # the device is lost
            file.write(json.dumps(_failed(case, str(error))) + "\n")
            file.flush()
            os._exit(3)
        rows = [_failed(case, f"{type(error).__name__}: {error}")]
    finally:
        watch.cancel()
    took = round(time.monotonic() - started, 2)
    return [{**row, "took_s": took} for row in rows]


def _failed(case: Case, reason: str) -> bench.Row:
    return {
        "list": case.list,
        "case": case.key,
        "method": "failed",
        "direction": case.direction,
        "precision": case.group,
        "reason": reason,
    }


def summary(case: Case, rows: Sequence[bench.Row]) -> str:
    """A line on a case."""
    if rows[0]["method"] == "failed":
        return f"{case.list} {' '.join(case.key)}: {rows[0]['reason']}"
    return f"{case.list} {bench.line([{'layer': str(case.layer), **row} for row in rows])}"


def compile_all(plans: Iterable[Plan]) -> int:
    """Compile these plans' kernels into the disk cache, on all cores; how many there are."""
    arch = nvrtc.architecture(launch.device(0).compute_capability)
    sources = {plan.source(): f"{plan.kernel} {plan.precision} {plan.variant}" for plan in plans}
    with ProcessPoolExecutor(cores(), mp_context=get_context("spawn")) as pool:
        return sum(pool.map(_compiled, sources, [arch] * len(sources), sources.values()))


def _compiled(source: str, arch: str, title: str) -> int:
    try:
        launch.cubin(source, arch, title)
    except (RuntimeError, ValueError) as error:
        print(f"{title}: {error}", flush=True)
        return 0
    return 1


def stored(path: Path = RESULTS) -> list[bench.Row]:
    """The rows of a file, none where there is none."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


if __name__ == "__main__":
    typer.run(main)
