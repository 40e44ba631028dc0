"""ncu's table as rows."""

from __future__ import annotations

import pytest

from experiments.gpu import samples
from experiments.measure.counters import (
    CASES,
    METRICS,
    STALL,
    STALLS,
    VARIANTS,
    Case,
    of_networks,
    read,
)
from winolab.device import H100
from winolab.gpu import driver


def test_a_table_of_ncu_becomes_rows() -> None:
    names = ["ID", "Kernel Name", *METRICS.values(), *(STALL + reason for reason in STALLS)]
    values = ["0", "winolab_reduce(Params)", *("1,234.5" for _ in METRICS), *("7" for _ in STALLS)]
    lines = [",".join(f'"{v}"' for v in line) for line in (names, ["" for _ in names], values)]
    (row,) = read("\n".join(["==PROF== Connected", *lines]))
    assert row["kernel_name"].startswith("winolab_reduce")
    assert row["issue"] == 1234.5
    assert row["seconds"] == pytest.approx(1.2345e-6)
    assert row["stalls"] == dict.fromkeys(STALLS, 7)


def test_no_table_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="no table"):
        list(read("==ERROR== no permission"))


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


def test_slow_layers_of_networks_take_turns_by_kind(monkeypatch) -> None:
    def slow(layer: str, group: str, kernel: str = "direct") -> dict:
        return {"layer": layer, "direction": "forward", "precision": "fp16", "group": group,
                "products": "fp16", "kernel": kernel, "plan": "x"}  # fmt: skip

    dense = [slow(f"dense {i}", "dense") for i in range(samples.TURNS + 2)]
    rows = [slow("1x1", "1x1", "cuBLASLt"), *dense, slow("stem", "stem")]
    monkeypatch.setattr(samples, "below", lambda: rows)
    names = [case.layer for case in of_networks()]
    first = [f"dense {i}" for i in range(samples.TURNS)]
    assert names == [
        *first,
        "stem",
        *(f"dense {i}" for i in range(samples.TURNS, samples.TURNS + 2)),
    ]
