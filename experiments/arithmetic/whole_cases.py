"""On a GPU: whole accuracy cases, of drawing, sums, oracle, bound and metrics, and full tables.

``python -m experiments.arithmetic.whole_cases`` adds rows to experiments/results/whole_cases.jsonl:
a case's seconds on the GPU and on two cores, whose parts are run side by side as two cases of half
the batch; and with ``--tables`` the seconds of every job of ``reproduce --full --gpu``, a table's
in a row. ``loops`` says whether the cores had Numba's. WINOLAB_COMMIT names the commit.
``--seconds`` ends it in time.
"""

from __future__ import annotations

import os
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from experiments.harness import jobs, studies
from experiments.harness.facts import ROOT
from experiments.harness.tables import store
from winolab.api.gpu_case import CaseOnGpu
from winolab.gpu import driver
from winolab.lines import Lines
from winolab.measure import FULL, Case
from winolab.ref.arithmetic import loops
from winolab.spread import spread

RESULTS = ROOT / "experiments" / "results" / "whole_cases.jsonl"
CASES = tuple(
    Case(algorithm, "16x28x28x512", "512x3x3", "1", precision, "u11", sample=FULL)
    for algorithm, precision in (
        ("direct", "tf32@hopper"),
        ("winograd:4x4:3x3", "fp32"),
        ("direct", "fp32"),
        ("winograd:2x2:3x3", "fp16@hopper"),
        ("gamma:8:6:3", "fp32"),
    )
)
CORES = 2


def measured(case: Case) -> dict:
    """The row that a process measures of a case."""
    return case.measure()


def seconds_on_cores(case: Case) -> tuple[float, list[dict]]:
    """Wall seconds of two processes that have half of the batch each, and their rows."""
    batch, _, rest = case.input.partition("x")
    half = replace(case, input=f"{int(batch) // CORES}x{rest}")
    halves = [replace(half, seed=seed) for seed in range(CORES)]
    small = [replace(h, input=f"1x8x8x{h.problem.in_channels}") for h in halves]
    rows: list[dict] = []
    begun = 0.0
    for i, row in spread(measured, [*small, *halves], CORES):
        if i < CORES:  # compiled and imported
            begun = time.perf_counter()
        else:
            rows.append(row)
    return time.perf_counter() - begun, rows


def compared(case: Case) -> dict:
    """A case's row: seconds, and both errors, whose data are drawn alike and not the same."""
    CaseOnGpu.of(replace(case, input=f"1x8x8x{case.problem.in_channels}")).measure()  # compiles
    begun = time.perf_counter()
    there = CaseOnGpu.of(case).measure()
    gpu = time.perf_counter() - begun
    cpu, rows = seconds_on_cores(case)
    return {
        "kind": "whole case",
        **asdict(case),
        "multiply_adds": there["multiply_adds"],
        "gpu_seconds": round(gpu, 3),
        "cores": CORES,
        "loops": loops.available(),
        "cpu_seconds": round(cpu, 3),
        "gpu_rms": there["relative_rms"],
        "cpu_rms": max(row["relative_rms"] for row in rows),
    }


def main(
    output: Annotated[Path, typer.Option(help="File that rows are added to.")] = RESULTS,
    tables: Annotated[
        bool, typer.Option("--tables", help="The tables of reproduce --full --gpu.")
    ] = False,
    only: Annotated[str, typer.Option(help="Of these, names with commas.")] = "",
    seconds: Annotated[float, typer.Option(help="No case or table begins after.")] = 600,
) -> None:
    """Measure, print and keep."""
    where = {"device": driver.device(0).name, "commit": os.environ.get("WINOLAB_COMMIT", "")}
    end = time.monotonic() + seconds
    with Lines(output) as file:
        for case in () if tables else CASES:
            if time.monotonic() < end:
                row = compared(case) | where
                file.append(row)
                print(*row.values(), flush=True)
        for table in studies.computed() if tables else ():
            wanted = only.split(",") if only else [table.name]
            work = [job for job in table.jobs(True) if isinstance(job, jobs.Job)]
            if not work or table.name not in wanted or time.monotonic() > end:
                continue
            begun = time.perf_counter()
            rows = jobs.run(work, gpu=True)
            row = {
                "kind": "full table",
                "paper": table.paper,
                "table": table.name,
                "layers": len(work),
                "outputs": sum(r["samples"] for r in rows),
                "gpu_seconds": round(time.perf_counter() - begun, 3),
            }
            store(table.paper, rows)  # under results/rows
            file.append(row | where)
            print(*row.values(), flush=True)


if __name__ == "__main__":
    typer.run(main)
