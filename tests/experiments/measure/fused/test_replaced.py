"""Rows that take the place of a file's: with the machine's facts, and only where there are any."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from experiments.measure.fused import replaced as module
from experiments.measure.fused.replaced import replaced
from winolab.cli import bench


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with rows of before, and a machine without a GPU's facts."""
    monkeypatch.setattr(bench, "context", lambda: {"device": "a GPU", "sgemm_tflops": 50})
    monkeypatch.setattr(module, "free", lambda: None)
    path = tmp_path / "rows.jsonl"
    path.write_text('{"layer": "before"}\n')
    return path


def measure(file: Path, end: float) -> list[dict[str, Any]]:
    def run(case: int, machine: dict[str, Any]) -> list[dict[str, Any]]:
        if case == 2:
            raise ArithmeticError(json.dumps(rows(file)))
        return [{"layer": case, "share": 10 / machine["sgemm_tflops"], "taps": n} for n in (2, 3)]

    return replaced(file, end, range(3), run, "layer {}".format, lambda rows: f"{len(rows)} rows")


def rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_rows_stay_where_there_was_no_time(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert measure(file, -math.inf) == []
    assert rows(file) == [{"layer": "before"}]
    assert capsys.readouterr().out == "".join(f"no time for layer {n}\n" for n in range(3))


def test_new_rows_replace_them_and_are_kept_where_a_later_case_fails(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ArithmeticError) as failed:
        measure(file, math.inf)
    found = rows(file)
    assert found == json.loads(str(failed.value))  # on disk before the case that fails
    assert [(row["layer"], row["taps"]) for row in found] == [(0, 2), (0, 3), (1, 2), (1, 3)]
    assert all((row["share"], row["device"]) == (0.2, "a GPU") for row in found)
    assert len({row["run"] for row in found}) == 1
    assert capsys.readouterr().out == "layer 0: 2 rows\nlayer 1: 2 rows\n"
