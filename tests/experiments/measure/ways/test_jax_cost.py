"""Times of jitted calls, on the CPU: every way has each, and computes the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.measure.ways import jax_cost


def test_rows_have_both_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax_cost, "CHAIN", 2)
    monkeypatch.setattr(jax_cost, "CALLS", 1)
    monkeypatch.setattr(jax_cost, "ROUNDS", 2)
    output = tmp_path / "rows.jsonl"
    jax_cost.main("1x5x6x4:4x3x3", "float32", 60, output)
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert [row["way"] for row in rows] == ["lax", "winolab.jax"]
    for row in rows:
        assert (row["layer"], row["dtype"]) == ("1x5x6x4x4x3x3", "float32")
        times = [row[key] for key in ("host_us", "call_us", "device_us", "gradient_us")]
        assert all(value > 0 for value in times)
        assert row["device"]


def test_no_row_is_begun_too_late(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    jax_cost.main("1x5x6x4:4x3x3", "float32", -1, tmp_path / "rows.jsonl")
    assert capsys.readouterr().out.count("left out: no time") == 2


def test_series_are_waited_for_or_not() -> None:
    heard: list[int] = []

    class Result:
        def block_until_ready(self) -> None:
            heard.append(1)

    jax_cost.least(Result, wait=False)
    alone = len(heard)
    jax_cost.least(Result, wait=True)
    assert (alone, len(heard) - alone) == (jax_cost.ROUNDS, jax_cost.ROUNDS * (jax_cost.CALLS + 1))
