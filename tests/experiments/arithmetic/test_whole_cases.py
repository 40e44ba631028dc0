"""Whole cases, timed on a pretended GPU and on two cores."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from experiments.arithmetic import whole_cases
from experiments.harness import studies
from experiments.harness.jobs import Job
from experiments.harness.outputs import Variant
from tests.gpu.support.simulated import pretend
from winolab.lines import Lines
from winolab.measure import FULL, Case

CASE = Case("winograd:2x2:3x3", "2x8x8x4", "3x3x3", "1", "fp32", "u11", sample=FULL)


def rows(path: Path) -> list[dict]:
    with Lines(path) as file:
        return [json.loads(line) for _, line in file.read()]


def test_cases_and_tables_become_rows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pretend(monkeypatch)
    device = SimpleNamespace(name="pretended")
    monkeypatch.setattr(whole_cases.driver, "device", lambda index: device)
    monkeypatch.setattr(whole_cases, "CASES", (CASE,))
    whole_cases.main(tmp_path / "cases.jsonl", False, "", 60)
    (row,) = rows(tmp_path / "cases.jsonl")
    assert (row["device"], row["cores"]) == ("pretended", 2)
    assert row["multiply_adds"] == CASE.problem.macs
    assert min(row["gpu_seconds"], row["cpu_seconds"]) > 0
    assert 0.5 < row["gpu_rms"] / row["cpu_rms"] < 2  # 384 results of random data each

    job = Job((("paper", "p"), ("table", "t")), CASE, (Variant("direct", "direct"),))
    table = SimpleNamespace(paper="p", name="t", jobs=lambda full: [job] if full else [])
    other = SimpleNamespace(paper="p", name="u", jobs=table.jobs)
    monkeypatch.setattr(studies, "computed", lambda: [table, other])
    kept: list[str] = []
    monkeypatch.setattr(whole_cases, "store", lambda paper, rows: kept.append(paper))
    whole_cases.main(tmp_path / "tables.jsonl", True, "t", 60)
    (row,) = rows(tmp_path / "tables.jsonl")
    assert (row["table"], row["layers"], row["outputs"]) == ("t", 1, 2 * 8 * 8 * 3)
    assert kept == ["p"]


def test_the_cases_are_whole_layers() -> None:
    """Each has the same products, so that seconds compare."""
    assert len({case.problem.macs for case in whole_cases.CASES}) == 1
    assert all(case.sample == FULL for case in whole_cases.CASES)
