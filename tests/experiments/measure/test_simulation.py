"""The measurement of the simulation's speed: what its rows hold, and what was measured."""

from __future__ import annotations

import json

import pytest

from experiments.measure import simulation
from winolab.ref.arithmetic import loops


def test_a_row_measures_both(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    monkeypatch.setattr(loops, "ENOUGH", loops.ENOUGH)
    for name, value in {"GROUPS": 1, "M": 2, "K": 64, "N": 300}.items():
        monkeypatch.setattr(simulation, name, value)
    row = simulation.row("fp32,fused=no", 1)
    assert row["shape"] == "1x2x64x300"
    assert row["ratio"] == row["numba_per_second"] / row["numpy_per_second"] > 0


def test_numba_gains_what_was_aimed_at_in_every_order() -> None:
    rows = [json.loads(line) for line in simulation.RESULTS.read_text().splitlines()]
    assert [row["precision"] for row in rows] == list(simulation.PRECISIONS)
    assert all(row["ratio"] >= row["aim"] == 4 for row in rows)
