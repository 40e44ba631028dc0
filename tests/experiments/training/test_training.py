"""Training runs: data, methods beside each other, tiles, and processes that train together."""

from __future__ import annotations

import functools
import json
import operator
import os
import socket
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from subprocess import PIPE
from types import SimpleNamespace

import pytest
import torch
import typer
from typer.testing import CliRunner

import winolab.torch
from experiments.training import breaks, trainer
from experiments.training import run as sitting
from experiments.training.images import Textures
from experiments.training.run import FUSED, PLANS, missing
from experiments.training.runs import METHODS, latest
from experiments.training.tiles import OWN, fitting
from experiments.training.trainer import built, orders, train
from tests.experiments.training.network import RUN, TINY, trained
from winolab.device import H100
from winolab.torch import operators

ROOT = Path(__file__).resolve().parents[3]


def test_images_are_the_same_whoever_asks() -> None:
    data = Textures(16)
    x, labels = data.batch(torch.tensor([7, 3, 107]))
    again, same = data.batch(torch.tensor([3]))
    assert torch.equal(again[0], x[1])
    assert labels.tolist() == [7, 3, 7]
    assert same.tolist() == [3]
    assert (x.shape, x.dtype) == ((3, 3, 16, 16), torch.float32)
    assert float(x.abs().max()) <= 1
    assert not torch.equal(Textures(16, split="test").batch(torch.tensor([3]))[0], again)
    assert float((x[0] - x[2]).abs().mean()) > 0.1  # of one class


def test_every_epoch_has_every_image_once() -> None:
    steps = [numbers.tolist() for numbers, _ in zip(orders(TINY), range(8), strict=False)]
    for epoch in (steps[:4], steps[4:]):
        assert sorted(functools.reduce(operator.iadd, epoch, [])) == list(range(64))
    assert steps[:4] != steps[4:]


def test_methods_learn_the_same_from_the_same_images() -> None:
    rows = [train(replace(TINY, method=method, steps=6)) for method in ("torch", "winolab")]
    for row in rows:
        assert row["losses"] == pytest.approx(rows[0]["losses"], rel=1e-3)
        assert len(row["losses"]) == 2  # the first step and the last
        assert row["diverged"] is None
        assert 0 <= row["test_accuracy"] <= 1
    assert rows[0]["losses"][-1] < 0.9 * rows[0]["losses"][0]


@pytest.mark.parametrize("method", METHODS)
def test_memory_is_that_of_steps_behind_the_first(method: str, monkeypatch) -> None:
    """The first holds what cuDNN's benchmark mode takes to search, in the first run of a shape."""
    held = []  # MB at the peak of what came since the last reset

    class Gpu(str):
        """A device that is taken for a GPU; tensors lie on the CPU."""

        def __contains__(self, text: str) -> bool:
            return text == "cuda"

    def watch(at: int, *_: object):
        held.append(300 if at else 900)
        return nullcontext()

    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", held.clear)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: max(held, default=0) * 10**6)
    monkeypatch.setattr(winolab.torch, "warmup", lambda *_, **__: held.append(800))
    run = replace(TINY, method=method, steps=3, tested=0)
    assert train(run, Gpu("cpu"), watch)["memory_mb"] == 300.0
    assert train(replace(run, steps=1), Gpu("cpu"), watch)["memory_mb"] is None
    assert train(run)["memory_mb"] is None


def test_a_loss_that_is_no_number_ends_a_run() -> None:
    row = train(replace(TINY, method="torch", optimizer="sgdm", rate=1e30))
    assert row["diverged"] == 10
    assert "test_accuracy" not in row
    json.dumps(row, allow_nan=False)


def test_training_breaks_where_it_is_predicted() -> None:
    """Ω16 and Γ16 in FP16 err more than the gradient itself; α = 8 does not, nor does direct."""
    runs = {(run.algorithm, run.precision): run for run in breaks.runs()}
    assert len(runs) == 12
    for tile, broken in (("direct", False), ("gamma:8:6:3", False), ("gamma:16:14:3", True)):
        run = replace(runs[tile, "fp16"], batch=8)
        assert (max(breaks.predicted(run).values()) > 1) == broken
        assert (breaks.measured(run) > 0.5) == broken
    tiles = replace(runs["gamma:8:6:3", "fp32"], precision="fp64", batch=8)
    assert {type(m).__name__ for m in built(tiles).modules()} >= {"Tiled"}
    assert breaks.measured(tiles) < 1e-5  # what the network's other layers err in FP32
    assert fitting("omega:16:3:14,omega:8:3:6", 16) == "omega:16:3:14"


def test_what_was_trained_is_not_trained_again(tmp_path) -> None:
    path = tmp_path / "rows.jsonl"
    runs = list(PLANS["seeds"](["winolab", "torch"]))
    assert len(runs) == len(set(runs)) == 20
    assert missing(path, runs, "CPU") == runs
    path.write_text(json.dumps({**train(replace(TINY, steps=1)), "device": "CPU"}) + "\n")
    assert missing(path, [TINY, replace(TINY, steps=1)], "CPU") == [TINY]
    assert len(missing(path, [replace(TINY, steps=1)], "NVIDIA H200")) == 1


def test_what_was_trained_is_trained_again_where_that_is_asked(tmp_path, monkeypatch) -> None:
    """Later rows win, in their places; runs that differ, and other plans', stay."""
    path, losses = tmp_path / "rows.jsonl", iter(range(9))
    runs = [TINY, replace(TINY, seed=1)]
    monkeypatch.setitem(PLANS, "seeds", lambda methods: iter(runs))
    monkeypatch.setattr(sitting, "train", lambda run, _: {**asdict(run), "losses": [next(losses)]})
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    app = typer.Typer()
    app.command()(sitting.main)
    for more in ([], [], ["--again"]):
        asked = CliRunner().invoke(app, ["--plan", "seeds", "--output", str(path), *more])
        assert asked.exit_code == 0, asked.output
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(row["seed"], *row["losses"]) for row in rows] == [(0, 0), (1, 1), (0, 2), (1, 3)]
    early = {name: value for name, value in rows[0].items() if name not in ("amp", "parts")}
    other = [{**rows[0], "plan": "two"}, {**rows[0], "device": "NVIDIA H200"}]
    assert latest([early, *other, *rows[1:]]) == [*other, *rows[2:]]


@pytest.mark.parametrize("plan", ["cifar", "ilsvrc"])
def test_the_papers_networks_are_there(plan: str) -> None:
    runs = list(PLANS[plan](["winolab"]))
    names = {run.network for run in runs}
    assert {"resnet18", "resnet34", "vgg16", "vgg19", "vgg16x5"} <= names
    sizes = {(run.size, run.batch) for run in runs}
    assert sizes == ({(32, 512)} if plan == "cifar" else {(128, 256)})


def test_what_tables_compare_is_trained_first() -> None:
    """A sitting has time for four networks of Table 4, by winolab and PyTorch, before TF32."""
    runs = list(PLANS["ilsvrc"](list(METHODS)))
    first = [(run.network, run.method) for run in runs[:8]]
    names = ("resnet18", "resnet34", "vgg16", "vgg16x5")
    assert first == [(name, method) for name in names for method in ("winolab", "torch")]
    assert {run.method for run in runs[8:12]} == {"tf32"}
    assert len(runs) == len(set(runs)) == 21
    late = [run.method == "tf32" for run in PLANS["cifar"](list(METHODS))]
    assert late == sorted(late)
    assert len(late) == 30


def test_kernels_are_compiled_once_a_network_before_the_first_run(monkeypatch) -> None:
    begun, seen = [], []

    class Here:
        """A pool of processes that is this one."""

        def __init__(self, workers: int) -> None:
            self.map = map

        def __enter__(self) -> Here:
            return self

        def __exit__(self, *_: object) -> None:
            pass

    def warmup(model, images, *, device, workers):
        seen.append((model.training, tuple(images.shape), device))
        return SimpleNamespace(units=("a", "b"))

    monkeypatch.setattr(sitting, "pool", Here)
    monkeypatch.setattr(sitting.NATIVE, "begin", lambda: begun.append(True))
    monkeypatch.setattr(sitting.driver, "device", lambda index: H100)
    monkeypatch.setattr(winolab.torch, "warmup", warmup)
    runs = [replace(TINY, method=m, optimizer=o) for o in ("adam", "sgdm") for m in METHODS]
    other = replace(TINY, method="winolab", size=16)
    assert sitting.prepared([*runs, other]) == 4
    assert begun == [True]
    assert seen == [(True, (run.batch, 3, run.size, run.size), H100) for run in (TINY, other)]
    assert sitting.prepared([run for run in runs if run.method == "torch"]) == 0
    assert begun == [True]


SCRIPT = """
import json
from experiments.training import trainer
from tests.experiments.training.network import RUN, trained

trainer.trained = trained
with trainer.together("cpu") as device:
    assert trainer.agreed(trainer.rank() == 0, device)
    row = trainer.train(RUN, device)
    if trainer.rank() == 0:
        print(json.dumps(row["losses"]))
"""


def test_two_processes_have_the_losses_of_one(monkeypatch) -> None:
    """By DDP over gloo, started as torchrun starts them, and by one process that takes the batch in
    the same halves, whose normalization is then the same; that of the whole batch is not."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    environment = {**os.environ, **where, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT],
            env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=PIPE,
        )
        for rank in range(2)
    ]
    said = [process.communicate(timeout=300)[0] for process in ranks]
    assert [process.returncode for process in ranks] == [0, 0]
    assert not said[1]
    together = json.loads(said[0].splitlines()[-1])
    monkeypatch.setattr(trainer, "trained", trained)
    alone = train(replace(RUN, parts=2))["losses"]
    assert together == pytest.approx(alone, rel=1e-4)
    assert alone[-1] < alone[0]
    assert train(RUN)["losses"] != pytest.approx(alone, rel=1e-4)


def test_sixteen_bits_have_autocast_a_loss_scale_and_the_papers_gradients() -> None:
    runs = list(PLANS["fp16"](["winolab", "torch"]))
    assert len(runs) == len(set(runs)) == 8
    assert {run.amp for run in runs} == {"", "fp16"}
    run = replace(TINY, steps=3, batch=8, amp="fp16", algorithm=OWN, gradients=FUSED, tested=0)
    seen = []

    def kept(*given):
        seen.append((given[-2], given[0].dtype, given[1].dtype))
        return BACKWARD_FILTER(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(operators, "backward_filter", kept)
        row = train(run)
    assert row["diverged"] is None
    assert row["loss_scale"] > 1
    assert {dtype for *_, x, dy in seen for dtype in (x, dy)} == {torch.float16}
    names = {named for named, *_ in seen}
    assert {None, "omega:8:3:6;variant=fused"} <= names
    plain = train(replace(run, amp="", method="torch", algorithm=None, gradients=None))
    # Losses of order 2 and relative errors of halves, 2^-11, summed up over three steps.
    assert row["losses"] == pytest.approx(plain["losses"], rel=0.02)


BACKWARD_FILTER = operators.backward_filter
