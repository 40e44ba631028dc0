"""Where a training step's time goes by optimizer: ``python -m experiments.training.profiled``.

A network of 32² in batches of 512 (plan ``cifar`` of ``run.py``) is trained on a GPU under each
optimizer; at steps AT PyTorch's profiler takes the kernels of a step: all of them, the longest, and
the fallbacks behind split products. ``again`` is how many of these did compute something again: the
others end at once. Rows replace those of the same optimizer and device; both take a minute.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import nn
from torch.profiler import ProfilerActivity, profile

from experiments.harness.facts import ROOT
from experiments.harness.machines import stored
from experiments.networks.end_to_end import machine
from experiments.training.run import CIFAR
from experiments.training.runs import Run
from experiments.training.trainer import OPTIMIZERS, train
from winolab.cli.environment import provenance
from winolab.lines import rewrite

RESULTS = ROOT / "experiments" / "results" / "training_profiled.jsonl"
AT = (8, 196)  # steps: kernels are compiled, and a loss of 1e-4
LONGEST = 8
IDLE = 10.0  # microseconds: a launch that ends at once takes 1.1 to 1.9
Row = dict[str, Any]
KEY = ("network", "optimizer", "batch", "method", "device")


def main(
    optimizers: Annotated[str, typer.Option(help="With commas.")] = ",".join(OPTIMIZERS),
    network: Annotated[str, typer.Option(help="As run.py has them.")] = "resnet18",
    steps: Annotated[int, typer.Option(min=1)] = CIFAR.steps,
    output: Annotated[Path, typer.Option(help="File of rows.")] = RESULTS,
) -> None:
    """Train, and profile steps."""
    if not torch.cuda.is_available():
        raise SystemExit("profiles are of a GPU, and torch sees none")
    for optimizer in optimizers.split(","):
        run = replace(CIFAR, network=network, optimizer=optimizer, steps=steps, tested=0)
        row = {**profiled(run, "cuda"), **provenance(), **machine("cuda")}
        kept = [old for old in stored(output) if key(old) != key(row)] if output.exists() else []
        rewrite(output, [*kept, row])
        for line in said(row):
            print(line, flush=True)


def key(row: Row) -> tuple[Any, ...]:
    """Whose a row is."""
    return tuple(row[name] for name in KEY)


def profiled(run: Run, device: str) -> Row:
    """A run's row, with the kernels of its steps AT by number."""
    found: dict[str, Row] = {}

    @contextmanager
    def watch(at: int, model: nn.Module, scale: float) -> Iterator[None]:
        if at not in AT:
            yield
            return
        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            yield
            torch.cuda.synchronize()
        events = [e for e in profiler.events() or () if str(e.device_type).endswith("CUDA")]
        found[str(at)] = shares((event.name, event.device_time) for event in events)

    return {**train(run, device, watch), "profiled": found}


def shares(spans: Iterable[tuple[str, float]]) -> Row:
    """Milliseconds of all kernels, of the longest and of fallbacks, of names and microseconds: each
    with its launches, and with those that computed something again."""
    took: dict[str, list[float]] = {}
    for name, us in spans:
        took.setdefault(name[:80], []).append(us)
    sums = {name: round(sum(each) / 1e3, 4) for name, each in took.items()}
    names = sorted(took, key=lambda name: -sums[name])
    return {
        "gpu_ms": round(sum(map(sum, took.values())) / 1e3, 3),
        "longest": {name: [sums[name], len(took[name])] for name in names[:LONGEST]},
        "fallbacks": {
            name: [sums[name], len(took[name]), sum(us > IDLE for us in took[name])]
            for name in names
            if name.endswith("_fallback")
        },
    }


def said(row: Row) -> Iterator[str]:
    """Lines about a row."""
    yield (
        f"{row['network']} {row['optimizer']}: {row['step_ms']:.2f} ms a step (median), "
        f"last loss {row['losses'][-1]}"
    )
    for at, found in row["profiled"].items():
        yield f"  step {at}: kernels {found['gpu_ms']:.2f} ms"
        for name, (ms, launches) in found["longest"].items():
            yield f"    {ms:8.3f} ms {launches:4d} × {name}"
        for name, (ms, launches, again) in found["fallbacks"].items():
            yield f"    {ms:8.3f} ms {launches:4d} × {name}: {again} again"


if __name__ == "__main__":
    typer.run(main)
