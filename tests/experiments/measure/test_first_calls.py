"""First calls: whose process finds what, what it says of itself, and the table of rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.measure.first_calls import __main__ as first_calls
from experiments.measure.first_calls import inside
from experiments.networks import waiting


def test_the_second_process_finds_what_the_first_left() -> None:
    asked = []

    def say(name: str, method: str, cache: str, folder: str) -> dict:
        found = sorted(path.name for path in Path(folder).iterdir())
        asked.append((method, cache, found))
        (Path(folder) / f"{method}{len(found)}").touch()
        return {"seconds": 1.0}

    (call, warm) = first_calls.measured("call", say)
    assert asked == [("winolab", "empty", []), ("winolab", "filled", ["winolab0"])]
    assert (call["cache"], warm["cache"], warm["seconds"]) == ("empty", "filled", 1.0)
    asked.clear()
    assert [row["method"] for row in first_calls.measured("fp32", say)] == ["winolab"] * 2 + [
        "torch"
    ]
    assert asked[0] == ("winolab", "empty", [])  # not what a call has left


def test_a_fresh_process_imports(tmp_path) -> None:
    row = first_calls.fresh("import", "winolab", "", str(tmp_path))
    # Its module imports nothing of winolab before: numpy is what the lookup of a function takes.
    assert row["seconds"] > 0
    assert row["next_seconds"] > 0
    with pytest.raises(RuntimeError, match="KeyError"):
        first_calls.fresh("else", "winolab", "", str(tmp_path))


def test_a_network_tells_its_first_pass_and_step(monkeypatch) -> None:
    row = inside.network("fp16", "torch", "", tiny=True)
    assert row.keys() == {"forward_seconds", "step_seconds"}
    assert all(seconds > 0 for seconds in row.values())


def test_what_is_there_is_not_measured_again(tmp_path, monkeypatch) -> None:
    calls = []

    def measured(name: str):
        calls.append(name)
        yield {"first": name, "method": "winolab", "cache": "", "seconds": 0.1, "next_seconds": 1.0}

    monkeypatch.setattr(first_calls, "measured", measured)
    path = tmp_path / "rows.jsonl"
    for again in (False, False, True):
        first_calls.main("import", 60.0, again, path)
    assert calls == ["import", "import"]
    with pytest.raises(SystemExit, match="imports"):
        first_calls.main("imports", output=path)


def test_aims_are_said(monkeypatch) -> None:
    common = {"first": "fp32", "device": "NVIDIA H", "cores": 16, "processor": "P"}
    part = {"forward_compiled": 50, "forward_compiling_seconds": 80.0,
            "forward_slowest_seconds": 2.5, "step_compiled": 60, "step_compiling_seconds": 90.0,
            "step_slowest_seconds": 3.0}  # fmt: skip
    rows = [
        {**common, "method": "winolab", "cache": "empty", "forward_seconds": 99.0,
         "step_seconds": 9.0, **part},
        {**common, "method": "winolab", "cache": "empty", "forward_seconds": 9.0,
         "step_seconds": 9.0, **part},  # added last, it counts
        {**common, "method": "winolab", "cache": "filled", "forward_seconds": 1.5,
         "step_seconds": 2.0},
        {**common, "method": "torch", "cache": "", "forward_seconds": 0.5, "step_seconds": 0.75},
    ]  # fmt: skip
    monkeypatch.setattr(waiting, "stored", lambda name: rows)
    told = waiting.first_calls()
    assert told[-2:] == [
        "| Inception-v3 of 32, FP32: forward | 9 (≤ 10 reached) | 1.5 (≤ 1 missed) |  | 0.5 |",
        "| … and a training step | 9 | 2 |  | 0.75 |",
    ]
    assert "on an NVIDIA H, 16 cores" in told[0]
    assert "FP32 50 for the forward pass, which take 80 s one by one, the longest 2.5 s" in told[0]
    monkeypatch.setattr(waiting, "stored", lambda name: [])
    assert waiting.first_calls() == waiting.kernels() == []


def test_kernels_without_seconds_are_counted(monkeypatch) -> None:
    row = {"network": "n", "precision": "bf16", "calls": 6, "kernels": 3}
    timed = {"each_seconds": {"median": 1.0, "longest": 2.5}, "over_2_seconds": 1}
    monkeypatch.setattr(waiting, "stored", lambda name: [row, row | timed])
    assert waiting.kernels()[-2:] == [
        "| n, BF16 | 6 | 3 |  |  |  |",
        "| n, BF16 | 6 | 3 | 1.00 | 2.50 | 1 |",
    ]
