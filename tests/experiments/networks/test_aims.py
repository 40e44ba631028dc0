"""What stands beside whole networks' means, from made-up rows, and what it says of the networks."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from experiments.gpu.targets import calls
from experiments.networks import aims, end_to_end, waiting
from experiments.networks.end_to_end import FORMATS, NETWORKS, ORDERS, STEPS
from experiments.training.runs import COMMITS, EARLIER
from winolab.bench.networks import layers_of

ROOT = Path(__file__).resolve().parents[3]
CASE = {"batch": 32, "format": "fp32", "order": "first", "mode": "eager", "step": "training",
        "device": "NVIDIA H", "commit": "069a7495"}  # fmt: skip


def case(network: str, ours: float, tf32: float | None = None, **of: object) -> list[dict]:
    """A case's rows; PyTorch's takes 10 ms."""
    times = {"winolab": ours, "torch": 10.0} | ({} if tf32 is None else {"tf32": tf32})
    return [{**CASE, "network": network, **of, "method": who, "ms": ms,
             "quartiles_ms": [ms - 0.5, ms + 0.5]} for who, ms in times.items()]  # fmt: skip


def told(monkeypatch, rows: list[dict]) -> str:
    monkeypatch.setattr(aims, "stored", lambda name: rows)
    return "\n".join(aims.lines())


def test_every_case_that_is_slower_is_named_with_what_is_known(monkeypatch) -> None:
    text = told(monkeypatch, [
        *case("resnet50", 10.5, batch=1), *case("resnet50", 9.0), *case("densenet121", 20.0),
        *case("resnet18", 10.2, mode="compiled", step="forward", format="fp16"),
    ])  # fmt: skip
    assert "3 of 4 cases are slower than PyTorch's." in text
    *_, first, second, third = text.splitlines()
    assert first == ("| densenet121 of 32, FP32 training, channels first | 0.500 | "
                     "19.50–20.50, 9.50–10.50 | not looked into |")  # fmt: skip
    assert "| resnet50 of 1, FP32 training, channels first | 0.952 |" in second
    assert second.endswith("(they overlap) | copies between memory orders: note 078 |")
    assert "channels first, compiled | 0.980 |" in third
    assert third.endswith("note 125 |")
    assert "| training, FP32 | " in text
    assert "(≥ 1.5 missed; 3 cases)" in text
    assert told(monkeypatch, []) == ""


def test_what_has_no_rows_is_counted_and_named(monkeypatch) -> None:
    rows = [row for name, batch, kind, order, mode, step in aims.every_eager()
            for row in case(name, 1.0, batch=batch, format=kind, order=order, step=step)
            if name != "vgg16" and (name, kind, order) != ("unet3d", "bf16", "last")]  # fmt: skip
    lone = [{**CASE, "network": "vgg16", "method": "winolab", "ms": 1.0}]  # nothing beside it
    text = told(monkeypatch, rows + lone)
    assert "Of 228 eager cases 200 have rows." in text
    assert "everything of vgg16 (1), vgg16 (32)" in text
    assert "BF16 (last forward, last training) of unet3d (1), unet3d (2)." in text
    assert "0 of 200 cases are slower" in text
    whole = [row for key in aims.every_eager()
             for row in case(key[0], 1.0, **dict(zip(
                 ("batch", "format", "order", "mode", "step"), key[1:], strict=True)))]  # fmt: skip
    assert "Of 228 eager cases 228 have rows.\n" in told(monkeypatch, whole)


def test_rows_of_gradients_that_have_changed_are_named_and_measured_again(
    monkeypatch,
) -> None:
    old = case("vgg16", 10.0, tf32=7.5, commit="c0200c8f574e+")
    same = case("resnet18", 5.0, commit="c0200c8f574e+") + case("vgg16", 5.0, order="last")
    text = told(monkeypatch, old + same)
    assert f"1 cases are of commits before {EARLIER}" in text
    assert "vgg16 of 32, FP32 training, channels first (0.75 of TF32's speed, c0200c8f)" in text
    assert "are of commits" not in told(monkeypatch, same)
    rows = [row | {"tiny": False} for row in old + same]
    assert end_to_end._done(rows) == {end_to_end._key(row) for row in rows[3:]}
    assert end_to_end._done([*rows, rows[0] | {"commit": "069a7495"}]) >= {end_to_end._key(rows[0])}


def test_the_cases_are_those_of_the_benchmark() -> None:
    cases = end_to_end.cases([*NETWORKS], [*FORMATS], [*ORDERS], ["eager"], False)
    every = [(c.network, c.batch, c.format, c.order, c.mode, c.step) for c in cases]
    assert sorted(aims.every_eager()) == sorted(every)
    assert aims.STEPS == STEPS


def test_networks_of_3x3_are_those_whose_products_are() -> None:
    """The issue holds networks of 3×3 and larger against TF32; of videos height and width tell."""
    wide = set()
    for name in NETWORKS:
        macs = {True: 0, False: 0}
        for layer, count in layers_of(name):
            if layer.batch == 1:
                macs[min(layer.taps[-2:]) >= 3] += count * layer.problem.macs
        assert sum(macs.values())
        if macs[True] > 0.9 * sum(macs.values()):
            wide.add(name)
    assert wide == {*calls.WIDE}


def commits() -> set[str]:
    """Commits that rows of networks and of training name."""
    found = set()
    for name in ("end_to_end", "training"):
        lines = (ROOT / "experiments" / "results" / f"{name}.jsonl").read_text().splitlines()
        found |= {row["commit"][:8] for row in map(json.loads, lines) if row["device"] != "CPU"}
    return found


def test_earlier_commits_are_those_before_the_gradients_changed() -> None:
    def git(*words: str) -> int:
        return subprocess.run(["git", "-C", ROOT, *words], capture_output=True).returncode

    if git("cat-file", "-e", f"{EARLIER}^{{commit}}"):
        pytest.skip("the history is not here")
    before = {commit for commit in commits() - {EARLIER}
              if not git("merge-base", "--is-ancestor", commit, EARLIER)}  # fmt: skip
    assert before == {*COMMITS}


def counted(kernels: int, precision: str = "fp32", **more: object) -> dict:
    return {"network": "all", "precision": precision, "calls": 9, "kernels": kernels,
            "device": "a processor", "commit": "25c50b9ccd4f", **more}  # fmt: skip


def test_units_are_held_against_the_first_count_and_two_seconds(monkeypatch) -> None:
    rows = [counted(493), counted(340, "fp16")]
    monkeypatch.setattr(waiting, "stored", lambda name: rows)
    text = "\n".join(waiting.kernels())
    assert "FP32 466 then, 493 at 25c50b9c, missed; FP16 379 then, 340 at 25c50b9c, rea" in text
    assert "Note 102" in text
    assert "no row says it yet" in text
    assert text.endswith("| all, FP16 | 9 | 340 |")
    each = {"units": 3, "median": 0.5, "longest": 2.25}
    families = {"F": {**each, "units": 1}, "Γ": {**each, "longest": 3.0}}
    known = {"each_seconds": each, "over_2_seconds": 1, "nvrtc": "12.9", "by_family": families}
    rows.insert(0, counted(3, **known) | {"network": "vgg16"})
    text = "\n".join(waiting.kernels())
    assert "vgg16, FP32, 1 of 3 take longer, missed. The most by family: Γ 3.00 s; F" in text
    assert "Others have no rows yet" in text
    rows[1] |= {**known, "over_2_seconds": 0}
    text = "\n".join(waiting.kernels())
    assert ": all, FP32, 0 of 3 take longer, reached. " in text
    assert "Others have no rows yet" not in text
    assert "| vgg16, FP32 | 9 | 3 | 0.50 | 2.25 | 1 |" in text
    assert text.endswith("| all, FP16 | 9 | 340 |  |  |  |")
    rows[:] = [counted(400)]
    assert "Note 102" not in "\n".join(waiting.kernels())
