"""What is profiled, and whose rows are whose."""

from __future__ import annotations

import json
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from experiments.gpu import samples
from experiments.measure import counters
from experiments.measure.counters import CASES, VARIANTS, Case, Profiled, matched, of_networks
from winolab.device import H100
from winolab.gpu import driver
from winolab.gpu.params import MATMUL


def test_cases_are_of_every_family() -> None:
    assert {(case.direction, case.products) for case in CASES} >= {
        ("forward", "fp32"), ("forward", "fp32_split"), ("forward", "fp16"),
        ("backward_filter", "fp32"), ("backward_filter", "fp32_split"), ("backward_filter", "fp16"),
    }  # fmt: skip


def test_each_variant_has_a_plan_of_its_own(monkeypatch) -> None:
    monkeypatch.setattr(driver, "device", lambda index: H100)
    found = [(case, case.plan()) for case in VARIANTS]
    assert [case for case, plan in found if plan is None] == []
    plans = {(case.layer, plan.kernel, str(plan.config)) for case, plan in found if plan}
    assert len(plans) == len(VARIANTS)


def test_a_library_s_product_is_not_profiled_by_its_name(monkeypatch) -> None:
    """Its kernels have names of their own, and may be two."""
    monkeypatch.setattr(driver, "device", lambda index: H100)
    plan = Case("1x14x14x512:256x1x1", "forward", "fp16").plan()
    assert plan
    assert plan.kernel == "Γ1(1,1)"
    named = Case("1x14x14x512:256x1x1", "forward", "fp16", kernel="cuBLASLt")
    plan = named.plan()
    assert plan
    assert (plan.kernel, plan.precision) == ("cuBLASLt", "fp16")


def test_a_library_s_kernels_end_with_a_mark(monkeypatch) -> None:
    said: list[str] = []
    profiler = SimpleNamespace(start=lambda: said.append("on"), stop=lambda: said.append("off"))
    stream = SimpleNamespace(synchronize=lambda: None)
    cuda = SimpleNamespace(profiler=profiler, get_current_stream=lambda: stream)
    cp = SimpleNamespace(cuda=cuda, RawKernel=lambda code, name: lambda *_: said.append(name))
    monkeypatch.setattr(driver, "cupy", lambda: cp)
    notes: list[dict] = []
    for name in (MATMUL, "winolab_reduce"):

        def kernel(*_: Any, name: str = name) -> None:
            said.append(name)

        kernel.name = name  # pyright: ignore[reportFunctionMemberAccess]
        launch: Any = Profiled(kernel, notes, Counter())  # pyright: ignore[reportArgumentType]
        launch((1, 1, 1), 1, None)
        launch((1, 1, 1), 1, None)
    once = [MATMUL, counters.MARK, "off", MATMUL]
    assert said == ["on", *once, "on", "winolab_reduce", "off", "winolab_reduce"]
    assert [note["launch"] for note in notes] == [MATMUL, "winolab_reduce"]
    assert f"void {counters.MARK}()" in counters.MARKING


def rows_of(*names: str) -> list[dict]:
    return [{"kernel_name": name, "issue": i} for i, name in enumerate(names)]


def test_every_launch_gets_its_kernels() -> None:
    lines = [{"launch": name} for name in ("winolab_a", MATMUL, MATMUL, "winolab_reduce", MATMUL)]
    mark = f"{counters.MARK}()"
    table = rows_of("winolab_a(P)", "gemm", mark, "gemm", "splitk", mark, "winolab_reduce(P)",
                    "gemm, whose mark is cut off")  # fmt: skip
    found = [(row["launch"], row.get("of_library"), row["issue"])
             for row in matched(lines, iter(table))]  # fmt: skip
    assert found == [
        ("winolab_a", None, 0), (MATMUL, "gemm", 1), (MATMUL, "gemm", 3), (MATMUL, "splitk", 4),
        ("winolab_reduce", None, 6),
    ]  # fmt: skip
    with pytest.raises(RuntimeError, match="gemm where winolab_a was launched"):
        list(matched(lines, iter(rows_of("gemm"))))


def test_layers_of_networks_are_counted_once_over_sittings(monkeypatch, tmp_path) -> None:
    cases = [Case(f"layer {i}", "forward", "fp16", None, "direct", "8x8") for i in range(25)]
    asked: list[int] = []

    def profiled(some: list[Case]) -> list[dict]:
        asked.append(len(some))
        common = {"launch": "k", "seconds": 1e-6, "issue": 1.0, "direction": "forward",
                  "products": "fp16", "kernel": "direct", "plan": "8x8"}  # fmt: skip
        return [{**common, "layer": case.layer} for case in some]

    monkeypatch.setattr(counters, "of_networks", lambda: cases)
    monkeypatch.setattr(counters, "profiled", profiled)
    monkeypatch.setattr(counters, "_compiled", len)
    monkeypatch.setattr(counters.bench, "ready", lambda: None)
    monkeypatch.setattr(counters.bench, "context", lambda: {"device": "G", "commit": "c"})
    monkeypatch.setattr(counters.shutil, "which", lambda name: name)
    output = tmp_path / "rows.jsonl"

    def names() -> list[str]:
        return [json.loads(line)["layer"] for line in output.read_text().splitlines()]

    monkeypatch.setattr(counters, "of_networks", lambda: cases[:3])
    counters.main(networks=True, output=output)
    monkeypatch.setattr(counters, "of_networks", lambda: cases)
    counters.main(networks=True, output=output, seconds=0)
    assert asked == [3]  # no time
    counters.main(networks=True, output=output)
    assert asked == [3, 10, 10, 2]
    assert names() == [case.layer for case in cases]
    counters.main(networks=True, output=output)
    assert asked == [3, 10, 10, 2]


def test_slow_layers_of_networks_take_turns_by_kind(monkeypatch) -> None:
    def slow(layer: str, group: str, kernel: str = "direct") -> dict:
        return {"layer": layer, "direction": "forward", "precision": "fp16", "group": group,
                "products": "fp16", "kernel": kernel, "plan": "x"}  # fmt: skip

    dense = [slow(f"dense {i}", "dense") for i in range(samples.TURNS + 2)]
    rows = [slow("1x1", "1x1", "cuBLASLt"), *dense, slow("stem", "stem")]
    monkeypatch.setattr(samples, "below", lambda: rows)
    monkeypatch.setattr(samples, "unforeseen", lambda: [slow("late", "1x1"), dense[-1]])
    names = [case.layer for case in of_networks()]
    first = [f"dense {i}" for i in range(samples.TURNS)]
    assert names == ["late", f"dense {samples.TURNS + 1}", "1x1", *first, "stem",
                     f"dense {samples.TURNS}"]  # fmt: skip
    assert of_networks()[2].kernel == "cuBLASLt"
