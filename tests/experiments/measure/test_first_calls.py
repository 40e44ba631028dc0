"""First calls: whose process finds what, what it says of itself, and the table of rows."""

from __future__ import annotations

from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

import winolab
from experiments.measure.first_calls import __main__ as first_calls
from experiments.measure.first_calls import inside
from experiments.networks import waiting
from winolab.device import H100
from winolab.gpu import driver
from winolab.gpu.planner.request import Request
from winolab.gpu.runtime import planned
from winolab.problem import Problem


def test_the_second_process_finds_what_the_first_left() -> None:
    asked = []

    def say(name: str, method: str, cache: str, folder: str, *only: str) -> dict:
        found = sorted(path.name for path in Path(folder).iterdir())
        asked.append((method, cache, found, *only))
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


def test_a_quick_sitting_compiles_the_module_past_python_once(tmp_path: Path) -> None:
    asked = []

    def say(name: str, method: str, cache: str, folder: str, *only: str) -> dict:
        asked.append((name, cache, sorted(path.name for path in Path(folder).iterdir()), *only))
        (Path(folder) / f"{name}.cubin").touch()
        (Path(folder) / "calls.so").touch()
        return {}

    for name in ("fp32", "fp16"):
        list(first_calls.measured(name, say, quick=True, modules=tmp_path))
    assert asked == [
        ("fp32", "empty", [], "forward"),
        ("fp32", "filled", ["calls.so", "fp32.cubin"], "forward"),
        ("fp16", "empty", ["calls.so"], "forward"),
        ("fp16", "filled", ["calls.so", "fp16.cubin"], "forward"),
    ]


def test_a_process_reads_what_one_before_it_planned(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("WINOLAB_PLANS", "1")
    first, second = (first_calls.fresh("plans", "winolab", "", str(tmp_path)) for _ in range(2))
    for precision in ("fp32", "fp16"):
        assert first[f"{precision}_kernels"] == second[f"{precision}_kernels"] > 10
        assert second[f"{precision}_seconds"] < first[f"{precision}_seconds"] / 2


def test_a_fresh_process_imports(tmp_path) -> None:
    row = first_calls.fresh("import", "winolab", "", str(tmp_path))
    # Its module imports nothing of winolab before: numpy is what the lookup of a function takes.
    assert row["seconds"] > 0
    assert row["next_seconds"] > 0
    with pytest.raises(RuntimeError, match="KeyError"):
        first_calls.fresh("else", "winolab", "", str(tmp_path))


def test_a_network_tells_its_first_pass_and_step(monkeypatch) -> None:
    row = inside.network("fp16", "torch", "", tiny=True)
    before = {"torch_seconds", "import_seconds", "context_seconds"}
    assert row.keys() == before | {
        f"{part}_{what}" for part in ("forward", "step") for what in ("seconds", "parts")
    }
    assert all(row[name] > 0 for name in ("forward_seconds", "step_seconds"))
    quick = inside.network("fp32", "winolab", "filled", tiny=True, only=("forward",))
    assert quick.keys() == before | {"forward_seconds", "forward_parts"}


def test_what_a_call_s_seconds_go_to_is_told() -> None:
    request = Request(Problem.of((1, 6, 9, 8), (8, 3, 3, 8), padding=1), "forward", H100)
    whole = planned.planned
    with inside.timed() as spent:
        other = Thread(target=lambda: planned.planned(request))
        other.start()
        other.join()
        assert not spent  # threads' time is not the call's
        assert planned.planned(request) == whole(request)
        with pytest.raises(AttributeError):
            planned.planned(cast(Any, "nothing"))
        between = dict(spent)
        planned.planned(request)
    assert spent.keys() == {"plan"}
    assert 0 < between["plan"] < spent["plan"]
    assert planned.planned is whole


def test_a_first_call_s_imports_and_context_stand_apart(monkeypatch) -> None:
    shapes = []
    device = SimpleNamespace(synchronize=lambda: None)
    cupy = SimpleNamespace(
        ones=lambda shape, dtype: np.ones(shape, dtype),
        ascontiguousarray=np.ascontiguousarray,
        cuda=SimpleNamespace(Device=lambda: device),
    )
    monkeypatch.setattr(driver, "cupy", lambda: cupy)
    monkeypatch.setattr(
        winolab, "conv_forward", lambda x, w, padding: shapes.append(x.shape), raising=False
    )
    monkeypatch.setattr(inside, "LAYER", ((1, 56, 56, 4), (4, 3, 3, 4)))
    row = inside.called()
    assert shapes == [(1, 56, 56, 4), (1, 28, 28, 4)]
    apart = {"import_seconds", "cupy_seconds", "context_seconds"}
    assert row.keys() == apart | {"seconds", "parts", "next_seconds", "next_parts"}
    assert row["parts"].keys() == {"import"}


def test_what_is_there_is_not_measured_again(tmp_path, monkeypatch) -> None:
    calls = []

    def measured(name: str, **how):
        calls.append(name)
        yield {"first": name, "method": "winolab", "cache": "", "seconds": 0.1, "next_seconds": 1.0}

    monkeypatch.setattr(first_calls, "measured", measured)
    monkeypatch.setattr(first_calls.compileall, "compile_dir", lambda folder, **how: True)
    path = tmp_path / "rows.jsonl"
    for again in (False, False, True):
        first_calls.main("import", 60.0, again, output=path)
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
    rows.append({**common, "method": "winolab", "cache": "filled", "forward_seconds": 0.5})
    assert waiting.first_calls()[-2:] == [
        "| Inception-v3 of 32, FP32: forward | 9 (≤ 10 reached) | 0.5 (≤ 1 reached) |  | 0.5 |",
        "| … and a training step | 9 | 2 |  | 0.75 |",  # of the same device, measured before
    ]
    rows.append({**rows[-1], "device": "NVIDIA B"})
    assert waiting.first_calls()[-1] == "| … and a training step | 9 |  |  | 0.75 |"
    assert "FP32 50 for the forward pass, which take 80 s one by one, the longest 2.5 s" in told[0]
    assert "the longest 3.0 s (≤ 2 missed)." in told[0]
    monkeypatch.setattr(waiting, "stored", lambda name: [])
    assert waiting.first_calls() == waiting.kernels() == []


def test_kernels_are_counted(monkeypatch) -> None:
    row = {"network": "n", "precision": "bf16", "calls": 6, "kernels": 3}
    monkeypatch.setattr(waiting, "stored", lambda name: [row])
    assert waiting.kernels()[-1] == "| n, BF16 | 6 | 3 |"
