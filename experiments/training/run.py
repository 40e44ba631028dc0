"""Train networks with and without winolab: ``python -m experiments.training.run [--plan PLAN]``.

PLANS name what is trained:

- ``seeds``: the small network to convergence, five seeds, both optimizers, each method, on a GPU
  also with WinRS's filter gradients;
- ``simulated``: a tiny one of 16² images on the CPU, five seeds, by PyTorch and by Γ8(6,3) in the
  reference, whose filter gradients are Ω8(3,6);
- ``breaks``: the same, tile by tile in FP32, TF32 and FP16 (``breaks.py``), on the CPU;
- ``cifar`` and ``ilsvrc``: Im2col-Winograd's networks (Tables 4 and 5), a fixed number of steps of
  one seed, whose step times, memory and losses are compared: 32², batch 512, and 128², batch 256;
- ``fp16``: WinRS's Figure 13: ResNet-34 and -50 of 32² under autocast with a loss scale, whose
  filter gradients are fused Ω in FP16, beside winolab's own picks, PyTorch's FP16 and its FP32;
- ``two``: VGG-16 and ResNet-50, 32 images a process. Under ``torchrun --nproc-per-node 2 -m
  experiments.training.run --plan two`` the same images are shared out; ``one`` has them on one GPU.

Images are generated (``images.py``): Cifar and ILSVRC cannot be had. A row is added to
experiments/results/training.jsonl when a run ends; what is there is trained again, and counts no
more, where its row lacks memory or is of gradients that have changed (``runs.lacks``), behind what
has no row, and where ``--again`` says so.
``--seconds`` ends a sitting, half an hour of a GPU.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from itertools import product, repeat
from pathlib import Path
from typing import Annotated

import torch
import typer

import winolab.torch
from experiments.harness.facts import ROOT
from experiments.harness.tables import stored
from experiments.networks.end_to_end import GUESS, machine
from experiments.training import breaks
from experiments.training.images import Textures
from experiments.training.runs import METHODS, OF_CIFAR, OF_ILSVRC, SEEDS, SOON, Run, key, lacks
from experiments.training.tiles import OWN
from experiments.training.trainer import agreed, built, rank, together, train, world
from winolab.cli.environment import cores, provenance
from winolab.device import Device
from winolab.gpu import driver
from winolab.lines import add
from winolab.spread import pool
from winolab.torch.plain import NATIVE

RESULTS = ROOT / "experiments" / "results" / "training.jsonl"
SMALL = Run(images=2000, tested=2000, steps=300, batch=64)  # test accuracy 0.99
TINY = Run("tiny", 16, images=640, tested=640, steps=100, batch=32, rate=0.01)
CIFAR = Run(size=32, classes=10, batch=512, images=10_000, tested=2000, steps=200)
ILSVRC = Run(size=128, classes=1000, batch=256, images=5000, tested=0, steps=50)
FUSED = "omega:8:3:6;variant=fused,omega:4:3:2;variant=fused"  # the wider where it fits
SHOWN = ("network", "optimizer", "method", "seed", "step_ms", "took_s", "test_accuracy")


def seeds(methods: list[str]) -> Iterator[Run]:
    """The small network; all methods of a seed in a row. SGD with momentum has a rate of its own,
    with which it gets somewhere in as many steps."""
    for optimizer, seed, method in product(("adam", "sgdm"), range(SEEDS), methods):
        rate = {"adam": 0.003, "sgdm": 0.05}[optimizer]
        run = replace(SMALL, optimizer=optimizer, seed=seed, method=method, rate=rate)
        yield run
        if method == "winolab" and torch.cuda.is_available():
            yield replace(run, algorithm=OWN, gradients=FUSED)


def simulated(methods: list[str]) -> Iterator[Run]:
    """The tiny network, by tiles that the reference computes."""
    tiles = {"winolab": ("gamma:8:6:3", "omega:8:3:6"), "torch": (None, None)}
    for seed, method in product(range(SEEDS), methods):
        algorithm, gradients = tiles[method]
        yield replace(TINY, seed=seed, method=method, algorithm=algorithm, gradients=gradients)


def cifar(methods: list[str]) -> Iterator[Run]:
    """Table 5's networks, TF32 last."""
    for method, name, optimizer in _pairs(methods, OF_CIFAR):
        yield replace(CIFAR, network=name, optimizer=optimizer, method=method)


def ilsvrc(methods: list[str]) -> Iterator[Run]:
    """Table 4's networks, and ResNet-50."""
    for some in (OF_ILSVRC[:SOON], OF_ILSVRC[SOON:]):
        for method, name, optimizer in _pairs(methods, some):
            yield replace(ILSVRC, network=name, optimizer=optimizer, method=method)


def _pairs(
    methods: Sequence[str], networks: Sequence[tuple[str, str]]
) -> Iterator[tuple[str, str, str]]:
    """Methods, networks and optimizers, those first that the paper's tables compare."""
    for some in ([m for m in methods if m != "tf32"], [m for m in methods if m == "tf32"]):
        yield from ((method, *network) for network, method in product(networks, some))


def two(methods: list[str]) -> Iterator[Run]:
    """VGG-16 and ResNet-50 of 224², 32 images a process."""
    for name, method in product(("vgg16", "resnet50"), methods):
        yield replace(
            ILSVRC, network=name, size=224, optimizer="sgdm", method=method, steps=30,
            batch=32 * world(), images=1000,
        )  # fmt: skip


def one(methods: list[str]) -> Iterator[Run]:
    """The same batch as two processes have, in the same halves, and half of it alone."""
    for run in two(methods):
        yield replace(run, batch=64, parts=2)
        yield replace(run, batch=32, steps=15)


def fp16(methods: list[str]) -> Iterator[Run]:
    """Figure 13's networks: PyTorch in FP32 and FP16, our picks, and the paper's gradients."""
    for name in ("resnet34", "resnet50"):
        run = replace(CIFAR, network=name, optimizer="sgdm", rate=0.05, batch=256)
        if "torch" in methods:
            yield replace(run, method="torch")
            yield replace(run, method="torch", amp="fp16")
        if "winolab" in methods:
            yield replace(run, amp="fp16")
            yield replace(run, amp="fp16", algorithm=OWN, gradients=FUSED)


PLANS: dict[str, Callable[[list[str]], Iterator[Run]]] = {
    "seeds": seeds,
    "simulated": simulated,
    "breaks": lambda methods: breaks.runs(),
    "cifar": cifar,
    "ilsvrc": ilsvrc,
    "fp16": fp16,
    "one": one,
    "two": two,
}


def main(
    plan: Annotated[str, typer.Option(help=f"{', '.join(PLANS)}.")] = "seeds",
    methods: Annotated[str, typer.Option(help="With commas; tf32 is PyTorch's on a GPU.")] = "",
    networks: Annotated[str, typer.Option(help="Some of the plan's, with commas.")] = "",
    steps: Annotated[int | None, typer.Option(min=1, help="Instead of the plan's.")] = None,
    seconds: Annotated[float, typer.Option(help="No run begins later.")] = float("inf"),
    again: Annotated[bool, typer.Option("--again", help="What is there, too.")] = False,
    output: Annotated[Path, typer.Option(help="File that rows are added to.")] = RESULTS,
) -> None:
    """Train what the file lacks."""
    if plan not in PLANS:
        raise SystemExit(f"plan {plan!r}; expected {', '.join(PLANS)}")
    kind = "cuda" if torch.cuda.is_available() else "cpu"
    usual = METHODS if kind == "cuda" else METHODS[:2]
    asked: list[str] = methods.split(",") if methods else list(usual)
    if plan in ("simulated", "breaks"):
        kind, asked = "cpu", [method for method in asked if method != "tf32"]
    if unknown := set(asked) - set(METHODS):
        raise SystemExit(f"{', '.join(sorted(unknown))}; expected of {', '.join(METHODS)}")
    runs = [replace(run, processes=world()) for run in PLANS[plan](asked)]
    if networks:
        runs = [run for run in runs if run.network in networks.split(",")]
    if steps:
        runs = [replace(run, steps=steps) for run in runs]
    started = time.monotonic()
    with together(kind) as device:
        common = {"plan": plan, **provenance(), **machine(kind)}
        left = runs if again else missing(output, runs, common["device"])
        if device == "cuda":
            print(f"{prepared(left)} kernels, {time.monotonic() - started:.0f} s", flush=True)
        for run in left:
            if agreed(time.monotonic() - started > seconds, device):
                if rank() == 0:
                    print("time is over; call again to go on")
                break
            began = time.monotonic()
            row = {**train(run, device), **common, "took_s": round(time.monotonic() - began, 1)}
            if plan == "breaks":
                row |= breaks.errors(run)
            if rank() == 0:
                add(output, [row])
                shown = {name: row.get(name) for name in SHOWN}
                print(shown | {"loss": row["losses"][-1]}, flush=True)


def prepared(runs: Sequence[Run]) -> int:
    """Compile what the runs of this GPU call, in a process a network, while images are made here
    and what calls go by without Python is compiled; how many kernels there are."""
    own = {replace(run, method="winolab", optimizer="adam", seed=0, rate=0.0): None
           for run in runs if run.method == "winolab" and not run.amp}  # fmt: skip
    if own:
        NATIVE.begin()
    processes = max(1, min(len(own), cores()))
    with pool(processes) as workers:
        share = max(1, cores() // processes)
        counts = workers.map(compiled, own, repeat(driver.device(0)), repeat(share))
        for run in {(run.size, run.classes): run for run in runs}.values():
            data = Textures(run.size, run.classes, noise=run.noise)
            data.batch(torch.arange(1), of=run.images)
        return sum(counts)


def compiled(run: Run, device: Device, workers: int) -> int:
    """Compile a run's kernels for a GPU into the cache, on so many threads; how many."""
    images = torch.empty(run.batch // run.parts, 3, run.size, run.size)
    model = built(run).train()
    return len(winolab.torch.warmup(model, images, device=device, workers=workers).units)


def missing(path: Path, runs: list[Run], device: str) -> list[Run]:
    """The runs that the file has no row of, from that device; then those whose row lacks what one
    has today."""
    lines = path.read_text().splitlines() if path.exists() else []
    mine = [row for row in map(json.loads, lines) if row["device"] == device]
    there = {key(row): lacks(row) for row in mine}  # of several, the last
    left = [run for run in runs if there.get(key(asdict(run)), "no row")]
    return sorted(left, key=lambda run: key(asdict(run)) in there)


def outstanding(words: Sequence[str]) -> tuple[int, float]:
    """Runs of a command that are yet to be trained on the GPU of the last row, and the median of
    the seconds that others of the plan took."""
    plan = dict(zip(words[::2], words[1::2], strict=True)).get("--plan", "seeds")
    rows = [row for row in stored("training") if row["device"] != "CPU"]
    took = [row["took_s"] for row in rows if row["plan"] == plan and "took_s" in row]
    device = rows[-1]["device"] if rows else ""
    runs = [*PLANS[plan]([*METHODS])]
    return len(missing(RESULTS, runs, device)), statistics.median(took) if took else GUESS


if __name__ == "__main__":
    typer.run(main)
