"""What docs/results.md says of training, from made-up rows."""

from __future__ import annotations

from dataclasses import asdict, replace

from experiments.training import told
from experiments.training.run import CIFAR, ILSVRC, missing
from tests.experiments import gpu_rows

GPU = {"device": "NVIDIA H200", "commit": "069a7495", "diverged": None}


def row(who: str, ms: float, accuracy: float, plan: str = "cifar", **more: object) -> dict:
    """A run of ResNet-34 by Adam."""
    run = replace(CIFAR if plan == "cifar" else ILSVRC, network="resnet34", method=who)
    return {**asdict(run), "plan": plan, **GPU, "step_ms": ms, "memory_mb": 100.0,
            "losses": [2.0, 1.0], "every": 10, "test_accuracy": accuracy, **more}  # fmt: skip


def said(monkeypatch, rows: list[dict]) -> str:
    monkeypatch.setattr(told, "stored", lambda name: rows)
    return "\n".join(told.lines())


def test_repeats_stand_beside_each_other_and_times_are_the_last(monkeypatch) -> None:
    text = said(monkeypatch, [
        row("winolab", 57.6, 0.9285, memory_mb=None), row("torch", 101.0, 0.993),
        row("tf32", 41.5, 0.609), row("winolab", 40.6, 0.2205), row("torch", 102.0, 0.981),
    ])  # fmt: skip
    line = ("| cifar, resnet34, Adam | 40.6 | 102.0 | 41.5 | 100, 100, 100 | 0.9285, 0.2205 | "
            "0.993, 0.981 | 0.609 |")  # fmt: skip
    assert line in text
    assert "ours by Adam 0.708 (resnet34: 0.9285, 0.2205)" in text
    assert "PyTorch by Adam 0.012 (resnet34: 0.993, 0.981)" in text
    assert "TF32 by Adam" not in text
    assert "Of 1 steps of `cifar` 1 are faster than TF32's." in text
    (lacking,) = [line for line in text.splitlines() if line.startswith("Missing of `cifar`")]
    assert "resnet34 (Adam)," not in lacking
    assert "vgg16x5 (SGD), rows by ours, PyTorch, TF32" in lacking
    assert said(monkeypatch, []) == ""


def test_memory_that_is_missing_and_older_gradients_are_named_and_trained_again(
    monkeypatch, tmp_path
) -> None:
    old = {"commit": "6308936b"}
    rows = [
        row("winolab", 27.0, 0.5, "ilsvrc", **old, memory_mb=None, peak_mb=9.0),
        row("torch", 59.0, 0.5, "ilsvrc", **old),
        row("tf32", 28.0, 0.5, "ilsvrc", memory_mb=None),
    ]
    text = said(monkeypatch, rows)
    assert "| ilsvrc, resnet34, Adam | 27.0 | 59.0 | 28.0 | –, 100, – |" in text
    assert "resnet34 (Adam), memory and gradients of today by ours" in text
    assert "resnet34 (Adam), memory by TF32" in text
    path = tmp_path / "rows.jsonl"
    gpu_rows.written(path, rows)
    ours, torch, tf32 = (
        replace(ILSVRC, network="resnet34", method=who) for who in ("winolab", "torch", "tf32")
    )
    new = replace(ours, network="vgg16x7")
    runs = [ours, torch, tf32, new]
    # What has no row at all comes first.
    assert missing(path, runs, "NVIDIA H200") == [new, ours, tf32]
    gpu_rows.written(path, [*rows, row("winolab", 25.0, 0.5, "ilsvrc")])
    assert missing(path, runs, "NVIDIA H200") == [new, tf32]


def test_the_claim_and_two_processes_say_what_is_open(monkeypatch) -> None:
    seeds = [each for each in gpu_rows.seeds()
             if each["optimizer"] == "adam" or each["seed"] < 3]  # fmt: skip
    two = {"alone_ms": 35.0, "sums_ms": 2.5, "hidden_ms": 2.0, "kernels_ms": 36.0,
           "longest": {"winolab_wgrad_ffma_fallback": 5.1}}  # fmt: skip
    of = asdict(replace(ILSVRC, network="vgg16", optimizer="sgdm", size=224, steps=30))
    rows = [
        row("winolab", 40.0, 0.9),
        *(each | {"device": "NVIDIA H200"} for each in seeds),
        {**of, "plan": "two", **GPU, "processes": 2, "batch": 64, "losses": [2.0, 1.0],
         "every": 10, "step_ms": 37.4, **two, "commit": "f421becfc181+"},
        {**of, "plan": "one", **GPU, "batch": 32, "losses": [2.0, 1.0], "every": 10,
         "step_ms": 33.8},
    ]  # fmt: skip
    text = said(monkeypatch, rows)
    assert "adam, 5 seeds: +0.00 % of accuracy from PyTorch's" in text
    assert "is the claim), held." in text
    assert "is the claim), open: 3 of 5 seeds, `" in text
    assert "| vgg16, ours | 33.80 | 37.40 | 35.00 | 2.50 | 2.00 | 36.00 |" in text
    assert "It takes 37.4 and 33.8, 1.11 times: not kept. 1.2 ms more" in text
    assert "winolab 2.4 ms by a sum of 2.5, of which 80% are" in text
    assert "5.1 of 37.4 ms of vgg16 (f421becf)" in text
    rows[-2]["step_ms"] = 34.5
    assert "1.02 times: kept." in said(monkeypatch, rows)
