"""What first calls take: ``python -m experiments.measure.first_calls [--only NAME] [--quick]``.

Every process is a fresh one, with the package's bytecode, as where it is installed. NAMES:
``import``, of winolab; ``plans``, the processor's seconds of planning Inception-v3 and knowing its
sources, both without a GPU, too; ``call``, the first of ``conv_forward`` in a process,
from behind the import of that function and a CUDA context to a GPU that is done, of a layer of
ResNet; ``fp32`` and ``fp16``, Inception-v3 of 32 images, channels last: its first forward pass in
evaluation and its first training step, FP16 under autocast.

A case has a process with an empty cache, then one with what that left; networks have one by PyTorch
beside them. With an empty cache ``winolab.torch.warmup`` goes before, on all cores, and counts;
``compiled`` kernels took ``compiling_seconds`` one by one, the process ``processor_seconds`` of all
cores. The module by which calls go past Python is compiled meanwhile and not waited for; networks
behind the first find it. A row's ``parts`` have where seconds go (``inside.timed``); imports and
the CUDA context stand apart. ``--quick`` leaves steps and PyTorch out, which takes 90 s.

Rows are added to experiments/results/first_calls.jsonl; what is there of a device is measured again
only where ``--again`` says so, and counts no more. ``--seconds`` ends a sitting.
"""

from __future__ import annotations

import compileall
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from experiments.harness.facts import ROOT
from experiments.harness.machines import stored
from experiments.measure.first_calls import inside
from experiments.measure.first_calls.inside import EMPTY, FILLED, NONE, Row
from winolab.cli import bench
from winolab.cli.environment import processor, provenance
from winolab.gpu import driver
from winolab.gpu.machine import MachineError
from winolab.lines import add

RESULTS = ROOT / "experiments" / "results" / "first_calls.jsonl"
NAMES = ("import", "plans", "call", "fp32", "fp16")
HOST = ("import", "plans")  # without a GPU, too
IMPORTS = 5  # processes that import
LIMIT = 300  # seconds of a process


def fresh(name: str, method: str, cache: str, folder: str, *only: str) -> Row:
    """What a process of its own says. Raises RuntimeError where it fails."""
    command = [sys.executable, "-m", inside.__name__, ",".join((name, method, cache, *only))]
    environment = {**os.environ, "WINOLAB_CACHE": folder}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT
    )
    if done.returncode:
        raise RuntimeError(f"{name}, {method}: {done.stderr.strip()[-400:]}")
    return json.loads(done.stdout.splitlines()[-1])


def measured(
    name: str, say: Callable[..., Row] = fresh, quick: bool = False, modules: Path | None = None
) -> Iterator[Row]:
    """The rows of a name; ``quick``: of forward passes by winolab alone. ``modules``: a folder with
    the module by which calls go past Python, which takes it where there is none."""
    with tempfile.TemporaryDirectory() as folder:
        if name == "import":
            rows = [say(name, "winolab", NONE, folder) for _ in range(IMPORTS)]
            median = {key: statistics.median(row[key] for row in rows) for key in rows[0]}
            yield {"first": name, "method": "winolab", "cache": NONE, **median}
            return
        known = list(modules.glob("*.so")) if modules else []
        for each in known:
            shutil.copy(each, folder)
        ways = [("winolab", EMPTY), ("winolab", FILLED)]
        network = name not in (*HOST, "call")
        ways += [("torch", NONE)] if network and not quick else []
        only = ("forward",) if quick and network else ()
        for method, cache in ways:
            row = say(name, method, cache, folder, *only)
            yield {"first": name, "method": method, "cache": cache, **row}
        if modules and not known:
            for each in Path(folder).glob("*.so"):
                shutil.copy(each, modules)


def main(
    only: Annotated[str, typer.Option(help=f"With commas: {', '.join(NAMES)}.")] = ",".join(NAMES),
    seconds: Annotated[float, typer.Option(help="No case begins later.")] = float("inf"),
    again: Annotated[bool, typer.Option("--again", help="What is there, too.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="No steps, no PyTorch.")] = False,
    output: Annotated[Path, typer.Option(help="File that rows are added to.")] = RESULTS,
) -> None:
    """Measure first calls."""
    asked = only.split(",")
    if unknown := set(asked) - set(NAMES):
        raise SystemExit(f"{', '.join(sorted(unknown))}; expected of {', '.join(NAMES)}")
    started, here = time.monotonic(), machine()
    there = {row["first"] for row in stored(output) if row["device"] == here["device"]}
    for folder in ("winolab", "experiments"):
        compileall.compile_dir(ROOT / folder, quiet=2, workers=0)
    with tempfile.TemporaryDirectory() as modules:
        for name in asked:
            if name in there and not again:
                continue
            if time.monotonic() - started > seconds:
                print("time is over; call again to go on")
                break
            if name not in HOST and here["device"] == "CPU":
                print(f"{name}: takes a GPU")
                continue
            found = measured(name, quick=quick, modules=Path(modules))
            where = {**provenance(), **here}
            rows = [{**row, **where} for row in found]
            add(output, rows)  # all of a name, or none
            for row in rows:
                print({key: value for key, value in row.items() if key not in where})


def machine() -> Row:
    """The GPU if there is one, and the cores that compile."""
    cores = {"cores": len(os.sched_getaffinity(0)), "processor": processor()}
    try:
        driver.device(0)
    except MachineError:
        return {"device": "CPU", **cores}
    return {**bench.context(), **cores}


if __name__ == "__main__":
    typer.run(main)
