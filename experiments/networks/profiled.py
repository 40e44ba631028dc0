"""Where a network's time goes on a GPU: ``python -m experiments.networks.profiled``.

A step of some images, by winolab and by PyTorch: ``wall_ms`` from an idle GPU to one that is done,
``host_ms`` until the host has launched all, medians of ROUNDS after WARM steps, and ``gpu_ms``, the
kernels' own time by PyTorch's profiler, with the longest of them. Where ``host_ms`` is nearly all
of ``wall_ms`` and ``gpu_ms`` is not, faster kernels change nothing: ``functions`` has where the
host's time goes, by Python's profiler. Rows replace those of the same case in
experiments/results/profiled.jsonl; usual cases take a minute and a half.

All cases are timed before the first is profiled: CUPTI stays on behind it (PyTorch's issue 144455).
Rows of commit 6ac09f07, which were timed behind it but for the first, have 5.7 ms where end_to_end
had 2.8, for a forward pass in FP32.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from cProfile import Profile
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch.profiler import ProfilerActivity, profile

from experiments.harness.facts import ROOT
from experiments.harness.machines import stored
from experiments.networks.end_to_end import STEPS, WARM, Case, Step, built, machine
from winolab.cli.environment import provenance
from winolab.lines import rewrite

RESULTS = ROOT / "experiments" / "results" / "profiled.jsonl"
ROUNDS, PROFILED, LONGEST = 5, 2, 12
METHODS = ("winolab", "torch")
Row = dict[str, Any]


def main(
    networks: Annotated[str, typer.Option(help="With commas.")] = "resnet18,resnet50",
    formats: Annotated[str, typer.Option(help="fp32, fp16, bf16.")] = "fp32,fp16",
    orders: Annotated[str, typer.Option(help="first, last.")] = "last",
    batches: Annotated[str, typer.Option(help="With commas.")] = "32",
    seconds: Annotated[float, typer.Option(help="No case is profiled later.")] = float("inf"),
    output: Annotated[Path, typer.Option(help="File of rows.")] = RESULTS,
) -> None:
    """Profile steps."""
    if not torch.cuda.is_available():
        raise SystemExit("profiles are of a GPU, and torch sees none")
    parts = (v.split(",") for v in (networks, formats, orders, batches))
    cases = [
        Case(name, int(batch), kind, order, "eager", step)
        for name, kind, order, batch, step in product(*parts, reversed(STEPS))
    ]
    end, kept = time.monotonic() + seconds, stored(output)
    steps = {(case, who): warm(case, who) for case in cases for who in METHODS}
    timed = {each: times(step) for each, step in steps.items()}
    for (case, method), took in timed.items():
        if time.monotonic() > end:
            print("time is over; name fewer cases to go on")
            break
        step = steps.pop((case, method))
        common = {**asdict(case), **provenance(), **machine("cuda")}
        row = {**common, "method": method, **took, **functions(step), **kernels(step)}
        kept = [old for old in kept if key(old) != key(row)] + [row]
        rewrite(output, kept)
        print(said(row), flush=True)


def key(row: Row) -> tuple[Any, ...]:
    """The case of a row, and whose it is."""
    return tuple(row[name] for name in (*Case.__dataclass_fields__, "method"))


def said(row: Row) -> str:
    """A line."""
    case = f"{row['network']} {row['format']} channels {row['order']} {row['step']}"
    case += f" of {row['batch']}"
    times = ", ".join(f"{name} {row[f'{name}_ms']:.2f} ms" for name in ("wall", "host", "gpu"))
    return f"{case} {row['method']}: {times}"


def warm(case: Case, method: str) -> Step:
    """A step of winolab or of PyTorch that was made WARM times."""
    model, x, _ = built(case, "cuda" if torch.cuda.is_available() else "cpu")
    step = Step(case, method, model, x)
    if method == "winolab" and x.is_cuda:
        step.compile_kernels()
    for _ in range(WARM):
        step()
    return step


def times(step: Step) -> Row:
    """Milliseconds from an idle GPU to one that is done, and until the host is."""
    walls, hosts = [], []
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        step()
        hosts.append(time.perf_counter() - begin)
        torch.cuda.synchronize()
        walls.append(time.perf_counter() - begin)
    wall, host = (round(1e3 * statistics.median(v), 3) for v in (walls, hosts))
    return {"wall_ms": wall, "host_ms": host}


def functions(step: Step) -> Row:
    """The functions that take the host longest by themselves, gradients in the same thread:
    milliseconds, which Python's profiler lengthens, and calls by name."""
    profiler = Profile()
    with torch.autograd.set_multithreading_enabled(False), profiler:
        for _ in range(PROFILED):
            step()
    longest: dict[str, list[float]] = {}
    entries = sorted(profiler.getstats(), key=lambda entry: -entry.inlinetime)
    for entry in entries[:LONGEST]:
        code: Any = entry.code  # a name where C computes
        name = code if isinstance(code, str) else f"{Path(code.co_filename).name}:{code.co_name}"
        milliseconds, calls = 1e3 * entry.inlinetime / PROFILED, entry.callcount / PROFILED
        longest[name] = [round(milliseconds, 4), round(calls, 1)]
    return {"functions": longest}


def kernels(step: Step) -> Row:
    """Milliseconds of all kernels of a step, how many there are, and those that take the longest:
    milliseconds and launches by name."""
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        for _ in range(PROFILED):
            step()
        torch.cuda.synchronize()
    took: Counter[str] = Counter()
    count: Counter[str] = Counter()
    for event in profiled.events() or ():
        if str(event.device_type).endswith("CUDA"):
            took[event.name[:80]] += event.device_time / PROFILED
            count[event.name[:80]] += 1
    longest = {
        name: [round(us / 1e3, 4), round(count[name] / PROFILED, 1)]
        for name, us in took.most_common(LONGEST)
    }
    gpu, launches = round(sum(took.values()) / 1e3, 3), sum(count.values()) / PROFILED
    return {"gpu_ms": gpu, "launches": round(launches), "longest": longest}


if __name__ == "__main__":
    typer.run(main)
