"""The benchmark of whole networks, with a network of nothing on the CPU."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from experiments.networks import deviations, end_to_end
from experiments.networks.backbones import small
from experiments.networks.deviations import Kept
from experiments.networks.end_to_end import Case, Network, main
from experiments.networks.told import by_case


@pytest.fixture
def app(monkeypatch):
    """The command, whose one network is small."""
    import typer

    network = Network(partial(small, 10), (3, 32, 32), (3, 8, 8))
    monkeypatch.setattr(end_to_end, "NETWORKS", {"resnet18": network})
    made = typer.Typer()
    made.command()(main)
    return made


def test_rows_are_added_once_and_deviate_little(app, tmp_path) -> None:
    path = tmp_path / "rows.jsonl"
    how = ["--tiny", "--networks", "resnet18", "--modes", "eager", "--output", str(path)]
    first = [*how, "--formats", "fp32", "--orders", "last"]
    assert CliRunner().invoke(app, first).exit_code == 0
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    found = [(row["step"], row["method"]) for row in rows]
    assert found == [(s, m) for s in ("forward", "training") for m in ("winolab", "torch")]
    for row in rows:
        assert row["tiny"]
        assert row["device"] == "CPU"
        assert row["ms"] > 0
        assert row["memory_mb"] is None
        assert row["took_s"] > 0
        assert row["converted"] == ("4 of 4" if row["method"] == "winolab" else "")
        assert 0 < row["logits"] < 1e-5  # FP32, and direct products on the CPU
        assert ("gradients" in row) == (row["step"] == "training")
        assert row.get("gradients", 0) < 1e-4
    assert (
        CliRunner().invoke(app, [*how, "--formats", "fp32,bf16", "--orders", "last"]).exit_code == 0
    )
    more = [json.loads(line) for line in path.read_text().splitlines()]
    assert more[:4] == rows
    assert [row["format"] for row in more[4:]] == ["bf16"] * 4
    assert all(row["logits"] < 0.1 for row in more)


def test_a_clock_s_plans_have_rows_of_their_own(app, tmp_path) -> None:
    """Beside the others' times of the same sitting, and without taking the place of any row."""
    path = tmp_path / "rows.jsonl"
    how = ["--tiny", "--networks", "resnet18", "--modes", "eager", "--formats", "fp32"]
    how += ["--orders", "last", "--output", str(path)]
    for more in ([], ["--clock"], ["--clock"], []):
        assert CliRunner().invoke(app, [*how, *more]).exit_code == 0
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["method"] for row in rows] == [*["winolab", "torch"] * 2, "clock", "clock"]
    for row in rows[4:]:
        assert row["torch_ms"] > 0
        assert row["converted"] == "4 of 4"
        assert 0 < row["logits"] < 1e-5
    assert all("torch_ms" not in row for row in rows[:4])


def test_what_is_there_is_measured_again_where_that_is_asked(app, tmp_path, monkeypatch) -> None:
    """Later rows win."""
    path = tmp_path / "rows.jsonl"
    how = ["--tiny", "--networks", "resnet18", "--modes", "eager", "--output", str(path)]
    how += ["--formats", "fp32", "--orders", "last"]
    common = {"device": "CPU", "logits": 0.0, "mode": "eager", "converted": ""}
    for times in ((10.0, 20.0), (10.0, 30.0), (10.0, 40.0)):
        monkeypatch.setattr(end_to_end, "rows", lambda case, device, clock, times=times: [
            {**common, **asdict(case), "method": method, "ms": ms}
            for method, ms in zip(("winolab", "torch"), times, strict=True)
        ])  # fmt: skip
        more = ["--again"] if times[1] == 40.0 else []
        assert CliRunner().invoke(app, [*how, *more]).exit_code == 0
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["ms"] for row in rows] == [10.0, 20.0] * 2 + [10.0, 40.0] * 2
    assert {of["torch"]["ms"] for of in by_case(rows).values()} == {40.0}
    assert all("over torch, CPU: 4.00 of 1" in line for line in end_to_end.summarized(rows))


def test_a_case_is_what_a_row_begins_with() -> None:
    listed = list(end_to_end.cases(["resnet18"], ["fp32"], ["first"], ["eager"], False))
    assert [(case.batch, case.step) for case in listed] == [
        (32, "forward"),
        (32, "training"),
        (1, "forward"),
        (1, "training"),
    ]
    more = list(end_to_end.cases(["vgg16", "unet2d"], ["fp32", "bf16"], ["last"], ["eager"], False))
    assert [(case.batch == 1, case.format) for case in more[::4]] == [
        *((False, "fp32"), (False, "bf16")),
        *((True, "fp32"), (True, "bf16")),
    ]
    assert Case("resnet18", 32, "fp32", "first", "eager", "forward") == listed[0]


def test_a_network_of_one_batch_does_not_wait_for_those_of_two() -> None:
    listed = list(
        end_to_end.cases(["vgg16", "video_decoder"], ["fp32"], ["last"], ["eager"], False)
    )
    assert [(case.network, case.batch) for case in listed[::2]] == [
        ("vgg16", 32),
        ("video_decoder", 1),
        ("vgg16", 1),
    ]


def test_fp64_is_of_a_corner_where_a_network_names_one(monkeypatch) -> None:
    network = Network(partial(small, 10), (3, 16, 16), (3, 8, 8), (3,), corner=(3, 8, 16))
    monkeypatch.setattr(end_to_end, "NETWORKS", {"small": network})
    taken, numbers = [], end_to_end.numbers
    monkeypatch.setattr(end_to_end, "numbers", lambda step: taken.append(step.x) or numbers(step))
    case = Case("small", 3, "fp32", "first", "eager", "training")
    rows = list(end_to_end.rows(case, "cpu"))
    _, x, _ = end_to_end.built(case, "cpu")
    assert [row["method"] for row in rows] == ["winolab", "torch"]
    assert [part.dtype for part in taken] == [torch.float64, torch.float32, torch.float32]
    assert all(torch.equal(part.float(), x[:2, :, :8]) for part in taken)
    assert all(0 < row["gradients"] < 1e-4 for row in rows)


def test_fp64_is_computed_once_for_all_formats(monkeypatch) -> None:
    network = Network(partial(small, 10), (3, 16, 16), (3, 8, 8), (3,))
    monkeypatch.setattr(end_to_end, "NETWORKS", {"small": network})
    monkeypatch.setattr(end_to_end, "EXACT", Kept())
    taken, numbers = [], end_to_end.numbers
    monkeypatch.setattr(end_to_end, "numbers", lambda step: taken.append(step.x) or numbers(step))

    def wide() -> int:
        found = [x for x in taken if x.dtype == torch.float64]
        taken.clear()
        return len(found)

    case = Case("small", 3, "fp32", "first", "eager", "training")
    first = list(end_to_end.rows(case, "cpu"))
    assert wide() == 1
    assert list(first[0]["spent_s"]) == [
        *("built", "kernels", "warm winolab", "warm torch", "timed", "fp64"),
        "deviations winolab",
    ]
    assert sum(first[1]["spent_s"].values()) >= first[1]["took_s"] - 0.1
    again = list(end_to_end.rows(case, "cpu"))
    assert [row["gradients"] for row in again] == [row["gradients"] for row in first]
    list(end_to_end.rows(replace(case, format="bf16"), "cpu"))
    assert wide() == 0
    list(end_to_end.rows(replace(case, batch=2), "cpu"))  # other images
    list(end_to_end.rows(replace(case, step="forward"), "cpu"))
    assert wide() == 2
    build = partial(small, 10, torch.nn.ReLU)
    monkeypatch.setattr(end_to_end, "NETWORKS", {"small": replace(network, build=build)})
    list(end_to_end.rows(case, "cpu"))  # the same numbers; its statistics are not
    assert wide() == 1


def test_kept_results_are_of_one_model_and_few(monkeypatch) -> None:
    monkeypatch.setattr(deviations, "MOST", 2)
    kept, made = Kept(), []
    x = torch.ones(1)

    def result(model: torch.nn.Module, x: torch.Tensor) -> Any:
        return kept.get(("a",), model, x, lambda: made.append(1) or (x, []))

    one, two = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    for model in (one, two, one, two):
        result(model, x)
    assert len(made) == 2
    result(one, 2 * x)  # the first one goes
    result(two, x)
    assert len(made) == 3
    result(one, x)
    assert len(made) == 4


def test_evaluation_deviates_by_the_kernels_that_are_timed(monkeypatch) -> None:
    """Kernels of two images alone would have to be compiled, too; torch.compile's steps call the
    same as others."""
    network = Network(partial(small, 10), (3, 16, 16), (3, 8, 8), (4,))
    monkeypatch.setattr(end_to_end, "NETWORKS", {"small": network})
    monkeypatch.setattr(end_to_end, "EXACT", Kept())
    compiled, taken, numbers = [], [], end_to_end.numbers
    monkeypatch.setattr(end_to_end, "numbers", lambda step: taken.append(step.x) or numbers(step))
    monkeypatch.setattr(end_to_end.Step, "compile_kernels", lambda step: compiled.append(
        (step.who, step.case.mode, len(step.x))))  # fmt: skip
    case = Case("small", 4, "fp32", "first", "compiled", "forward")
    rows = list(end_to_end.rows(case, "cpu"))
    assert compiled == [("winolab", "compiled", 4), ("torch", "compiled", 4)]
    assert [len(x) for x in taken] == [2, 4, 4]
    assert all(0 < row["logits"] < 1e-5 for row in rows)
    compiled.clear()
    list(end_to_end.rows(replace(case, mode="eager", step="training"), "cpu"))
    assert compiled == [(who, "eager", images) for images in (4, 2) for who in ("winolab", "torch")]


@pytest.mark.parametrize(("takes", "calls"), [(199, end_to_end.WARM), (201, end_to_end.FEW)])
def test_long_steps_are_warm_early(monkeypatch, takes, calls) -> None:
    made = []

    class Timed:
        x = type("X", (), {"is_cuda": True})

        def __call__(self) -> None:
            made.append(takes)

    def milliseconds(call, on_gpu) -> float:
        call()
        return 10 * takes if len(made) == 1 else takes  # the first call chooses kernels

    monkeypatch.setattr(end_to_end, "milliseconds", milliseconds)
    step: Any = Timed()
    assert end_to_end.warm_up(step) == calls == len(made)


def test_ratios_are_of_one_case() -> None:
    rows = [
        {**asdict(case), "device": "H", "method": method, "ms": ms}
        for case, times in (
            (Case("resnet18", 32, "fp32", "last", "eager", "training"), (10.0, 20.0, 5.0)),
            (Case("vgg16", 32, "fp32", "last", "eager", "training"), (10.0, 80.0, 20.0)),
        )
        for method, ms in zip(("winolab", "torch", "tf32"), times, strict=True)
    ]
    where = "training, fp32, channels last, eager, over"
    assert list(end_to_end.summarized(rows)) == [
        f"{where} tf32, H: 1.00 of 2, least 0.50 (resnet18 of 32)",
        f"{where} torch, H: 4.00 of 2, least 2.00 (resnet18 of 32)",
    ]


def test_memory_is_what_the_others_do_not_hold(monkeypatch) -> None:
    calls = []
    for name in ("synchronize", "reset_peak_memory_stats"):
        monkeypatch.setattr(torch.cuda, name, lambda name=name: calls.append(name))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 500_000_000)

    class Taking:
        x = type("X", (), {"is_cuda": True, "nbytes": 3_000_000})

        def __call__(self) -> None:
            calls.append("step")

    step: Any = Taking()
    assert end_to_end._most(step, 200_000_000) == 303.0
    assert calls == ["synchronize", "reset_peak_memory_stats", "step", "synchronize"]
