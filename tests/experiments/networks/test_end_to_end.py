"""The benchmark of whole networks, with a network of nothing on the CPU."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import partial

import pytest
from typer.testing import CliRunner

from experiments.networks import end_to_end
from experiments.networks.backbones import small
from experiments.networks.end_to_end import Case, Network, main


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
