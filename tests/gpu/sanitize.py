"""Runs compute-sanitizer's four tools over a small problem of every kernel; needs a GPU.

    python -m tests.gpu.sanitize [FAMILY...] [--rows FILE] [--changed] [--jobs N]

A group of kernels shares a process; where a tool finds something, each is run again by itself.
``--changed`` leaves out what FILE has a clean row of, of the present sources.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from functools import cache
from pathlib import Path
from shutil import which
from typing import Any

import numpy as np

from experiments.harness.machines import stored
from tests.gpu.guarded import ROOMLESS, Mold, limits
from tests.gpu.support import policies
from tests.gpu.support.molds import PLANES, algorithms
from tests.gpu.support.policies import Policy
from winolab.bench.contenders import digest
from winolab.cli import environment
from winolab.gpu import driver
from winolab.gpu.families.gamma_wgmma.plan import GammaWgmmaPlan
from winolab.gpu.families.registry import FAMILIES
from winolab.gpu.params import View
from winolab.gpu.planner.fallback import PlanWithFallback
from winolab.gpu.planner.planner import candidates
from winolab.gpu.planner.request import DTYPES, Request
from winolab.gpu.runtime.array_layout import ArrayLayout
from winolab.gpu.runtime.call import kernels_of
from winolab.problem import shapes
from winolab.ref.algorithms import convolution

TOOLS = ("memcheck", "initcheck", "synccheck", "racecheck")  # the slowest last
GROUP = 5  # kernels of a process
DRAWN = 30  # problems of which the smallest is run
AXES = {"nhwc": (0, 1, 2, 3), "nchw": (0, 3, 1, 2), "chwn": (3, 1, 2, 0)}  # as memory has them
SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)")


Case = Mold | Policy


def molds(families: Collection[str]) -> list[Case]:
    """One compiled form of every kernel, and of the fused kernel each policy."""
    named = list(policies.policies()) if policies.FAMILY in families else []
    return [*named, *_molds(families)]


def _molds(families: Collection[str]) -> list[Mold]:
    return [
        Mold(family.name, algorithm, precision, number)
        for family in FAMILIES
        if family.name in families and not family.library  # whose kernels are not ours
        for precision in family.precisions
        for algorithm in algorithms(family.name, precision)
        for number in ((0, PLANES, PLANES + 2) if family.name == "depthwise" else (0,))
    ]


def case_of(text: str) -> Case:
    """A mold or a policy by its text."""
    family, name, precision, number = text.split()
    if family == policies.FAMILY:
        return Policy(name, precision, int(number))
    return Mold(family, name, precision, int(number))


def planned(mold: Case) -> Any:
    """The plan of the mold's smallest problem."""
    return min((mold.problem(k)[0] for k in range(DRAWN)), key=lambda plan: plan.problem.macs)


def with_fallback(plan: Any) -> PlanWithFallback | None:
    """The plan with what computes again what it lost, of split products that check it."""
    if plan.precision != "fp32_split" or not plan.checks_accuracy:
        return None
    asked = Request(plan.problem, plan.direction, plan.device, None, "fp32_ffma")
    plans = (p for p in candidates(asked).plans if p.fallback_correlation or p.fallback_launches)
    return PlanWithFallback.of(plan, next(plans))


def run(mold: Case) -> None:
    """One small problem, of split products one that is computed again, too. Copies from the host
    only: no kernel but ours runs."""
    cp = driver.cupy()
    cp.cuda.set_allocator(None)  # each array its own allocation, whose ends memcheck knows
    plan = planned(mold)
    p, dtype = plan.problem, DTYPES[mold.precision]
    rng = np.random.default_rng(0)
    shapes_ = shapes(plan.direction, p)
    if dtype == "bfloat16":
        data = [rng.integers(0x3F00, 0x3F80, s).astype("uint16") for s in shapes_[:2]]
    else:
        data = [rng.uniform(-1, 1, s).astype(dtype) for s in shapes_[:2]]
    written = np.dtype("uint16" if mold.shape[3] == "bfloat16" else mold.shape[3])
    last = tuple(range(len(shapes_[0])))  # channels last: 0 of an axis is its place in memory
    order, filter_at = plan.config.memory_order, 2 if mold.gradient else 1
    axes = [last if i == filter_at or order == "nhwc" else AXES[order] for i in range(3)]
    back = [tuple(of.index(axis) for axis in last) for of in axes]
    arrays = [
        cp.empty([d.shape[a] for a in of], d.dtype) for d, of in zip(data, axes, strict=False)
    ]
    for array, values, of in zip(arrays, data, axes, strict=False):
        array.set(np.ascontiguousarray(values.transpose(of)))
    out = cp.empty([shapes_[2][a] for a in axes[2]], written)
    views = []
    for i, array in enumerate((*arrays, out)):
        views.append(ArrayLayout.fresh(array.shape).view(array.data.ptr, filter=i == filter_at))
        if axes[i] != last:
            n, h, w, c = (array.strides[a] // array.itemsize for a in back[i])
            views[i] = View(array.data.ptr, (n, 0, h, w, c))

    def computed(plan: Any) -> np.ndarray:
        workspace = cp.empty(max(1, plan.workspace), "uint8")
        plan.launch(kernels_of(plan, 0), *views, workspace.data.ptr, 0)
        return out.get().transpose(back[2])

    result = computed(plan)
    if isinstance(plan, GammaWgmmaPlan) and plan.parts == 2 and plan.config.clusters:
        paired = replace(plan, device=ROOMLESS)  # a large filter's kernel, on this one
        prepared = cp.empty(plan.prepared_size, "uint8")
        paired.prepare(kernels_of(plan, 0), views[1], prepared.data.ptr, 0)
        prepared.get()
    if whole := with_fallback(plan):
        arrays[0].set(np.full_like(data[0], np.inf))
        again = computed(whole)
        assert np.array_equal(again, computed(whole.fallback), equal_nan=True), whole
    if dtype == "bfloat16":
        data = [(d.astype("uint32") << 16).view("float32") for d in data]
    if written == np.uint16:
        result = (result.astype("uint32") << 16).view("float32")
    exact = getattr(convolution, plan.direction)(*data, p)
    bound = limits(plan)[0]
    assert (abs(result - exact) <= bound + 2.0**-8 * (abs(exact) + bound)).all(), plan


def started(group: list[Case]) -> list[str]:
    """The command that runs these."""
    return [sys.executable, "-m", "tests.gpu.sanitize", "--run", *map(str, group)]


def sanitized(tool: str, group: list[Case]) -> list[dict[str, Any]]:
    """A row for each mold: what the tool counted, and its report where that is not 0."""
    begin = time.monotonic()
    command = ["compute-sanitizer", "--tool", tool, *started(group)]
    done = subprocess.run(command, capture_output=True, text=True)
    text = done.stdout + done.stderr
    found = SUMMARY.search(text)
    count = int(found[1]) if found else None
    if len(group) > 1 and (count or count is None or done.returncode):
        return [row for mold in group for row in sanitized(tool, [mold])]
    seconds = round((time.monotonic() - begin) / len(group), 1)
    row = {"tool": tool, "found": count, "exit": done.returncode, "seconds": seconds}
    if count != 0 or done.returncode:
        row["report"] = text[-1500:]
    return [{"kernel": str(mold), "sources": sources(mold), **row} for mold in group]


@cache
def sources(mold: Case) -> list[str]:
    """Digests of what the mold runs."""
    plan = planned(mold)
    return [digest(p) for p in (plan, with_fallback(plan)) if p]


def clean(path: Path) -> set[tuple[str, str, tuple[str, ...]]]:
    """Kernel, tool and sources of every row of a file in which nothing was found."""
    return {
        (row["kernel"], row["tool"], tuple(row["sources"]))
        for row in stored(path)
        if row["found"] == 0 and not row["exit"] and "sources" in row
    }


def keep(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Write the rows to a file in place of those of the same kernels and tools."""
    machine = {"commit": environment.commit(), "device": driver.device(0).name}
    anew = {(row["kernel"], row["tool"]) for row in rows}
    before = [row for row in stored(path) if (row["kernel"], row["tool"]) not in anew]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in (
        *before, *({**machine, **row} for row in rows))))  # fmt: skip


def grouped(chosen: list[Case]) -> list[list[Case]]:
    """What shares a process."""
    return [chosen[i : i + GROUP] for i in range(0, len(chosen), GROUP)]


def cell(row: dict[str, Any]) -> str:
    """What was found, or that the run failed."""
    return "failed" if row["exit"] else str(row["found"])


def main() -> int:
    names = [*(family.name for family in FAMILIES), policies.FAMILY]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="*", default=names, help=", ".join(names))
    parser.add_argument("--rows", type=Path, help="file that gets the rows")
    parser.add_argument("--changed", action="store_true", help="only what has no clean row there")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes at once")
    parser.add_argument("--run", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.run:
        for text in given.run:
            run(case_of(text))
        return 0
    if not which("compute-sanitizer"):
        parser.error("compute-sanitizer, of the CUDA toolkit, is not on the PATH")
    chosen = molds(given.families)
    known = clean(given.rows) if given.changed and given.rows else set()
    asked = {
        tool: [mold for mold in chosen if (str(mold), tool, tuple(sources(mold))) not in known]
        for tool in TOOLS
    }
    groups = grouped([mold for mold in chosen if any(mold in asked[tool] for tool in TOOLS)])
    with ThreadPoolExecutor(given.jobs) as pool:
        for _ in pool.map(lambda group: subprocess.run(started(group), check=False), groups):
            pass  # compiled by one process each
        jobs = [pool.submit(sanitized, tool, g) for tool in TOOLS for g in grouped(asked[tool])]
        rows = []
        for job in as_completed(jobs):
            found = job.result()
            rows += found
            if given.rows:  # at once: a run may be cut short
                keep(found, given.rows)
    print(f"{'kernel':44}" + "".join(f"{tool:>14}" for tool in TOOLS))
    for mold in chosen:
        mine = {row["tool"]: row for row in rows if row["kernel"] == str(mold)}
        cells = [cell(mine[tool]) if tool in mine else "clean before" for tool in TOOLS]
        print(f"{mold!s:44}" + "".join(f"{text:>14}" for text in cells))
    return int(any(row["found"] != 0 or row["exit"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
