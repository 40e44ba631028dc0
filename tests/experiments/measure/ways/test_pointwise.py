"""cuBLASLt beside our plans and PyTorch: cases, plans, what rows say and what is fitted to them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from experiments.calibrate import device_model, rows
from experiments.measure.layer_rows import latest
from experiments.measure.ways import pointwise
from experiments.measure.ways.pointwise import DIRECTIONS, MOST, cases, plans, summarized
from winolab.bench.contenders import unnamed
from winolab.device import datasheet
from winolab.gpu.families.cublaslt import cost
from winolab.gpu.families.cublaslt.plan import NAMED, CublasltPlan
from winolab.gpu.planner.device_model import MODEL
from winolab.gpu.planner.device_sections import Cublaslt
from winolab.gpu.planner.planner import candidates

H200 = datasheet("h200")


def test_cases_are_networks_layers_of_one_tap_once() -> None:
    found = cases()
    assert len(set(found)) == len(found) > 2000
    assert {direction for _, direction, _ in found} == set(DIRECTIONS)
    assert all(layer.problem.filter == (1,) * layer.problem.ndim for layer, *_ in found)
    assert found == cases()


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_the_pick_comes_first_and_both_workspaces_are_there(direction: str) -> None:
    layer = next(layer for layer, *_ in cases() if layer.channels == 256 and layer.batch > 1)
    found = plans(layer, direction, "bf16", H200)
    picked, *others = found
    assert [found[p] for p in (picked, *others)] == [True, *[False] * len(others)]
    library = [p for p in found if isinstance(p, CublasltPlan)]
    assert sorted(bool(p.workspace) for p in library) == [False, True]
    assert 1 <= len(others) - len(library) <= MOST
    names = {(p.kernel, str(p.config), p.workspace) for p in found}
    assert len(names) == len(found)
    assert {p.out_dtype for p in found} == {"bfloat16"}


def case(direction: str, **us: float) -> list[dict[str, Any]]:
    common = {"layer": "8x4x4x16>16x1x1", "direction": direction, "precision": "fp16"}
    ours = {**common, "method": "winolab"}
    return [
        {**ours, "kernel": "implicit GEMM", "us": us["pick"], "chosen": True, "workspace": 0},
        {**ours, "kernel": "other", "us": us["pick"] + 1, "chosen": False, "workspace": 0},
        {**ours, "kernel": "cuBLASLt", "us": us["library"], "chosen": False, "workspace": 512},
        {**ours, "kernel": "cuBLASLt", "us": us["without"], "chosen": False, "workspace": 0},
        {**common, "method": "torch", "us": us["torch"], "layout": "NHWC"},
        {**common, "method": "torch", "us": 2 * us["torch"], "layout": "NCHW"},
        {**common, "method": "copy", "us": 1.0},
    ]


def test_a_summary_has_ratios_of_the_fastest() -> None:
    found = [*case("forward", pick=20, library=16, without=10, torch=20)]
    found += case("backward_filter", pick=10, library=20, without=40, torch=5)
    found += case("backward_data", pick=10, library=20, without=40, torch=5)[:4]  # no PyTorch
    assert list(summarized(latest(found))) == [
        "backward_filter fp16: 1 layers, over PyTorch cuBLASLt 0.25, the pick 0.50; cuBLASLt over "
        "the pick 0.50, faster in 0; its workspace 2.00",
        "forward fp16: 1 layers, over PyTorch cuBLASLt 2.00, the pick 1.00; cuBLASLt over "
        "the pick 2.00, faster in 1; its workspace 0.62",
    ]


def test_rows_of_cublaslt_have_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    made = case("forward", pick=2, library=1, without=1, torch=1)
    monkeypatch.setattr(pointwise, "measured", lambda *asked: iter(made))
    monkeypatch.setattr(pointwise.cublaslt, "version", lambda: "13.1.0")
    found = list(pointwise.rows_of(cases()[0], {}))
    assert [row.get("cublaslt") for row in found] == [None, None, "13.1.0", "13.1.0", *[None] * 3]


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cublaslt]:
    """Rows that a GPU would leave which a model with these factors describes exactly."""
    factors = replace(
        MODEL.cublaslt, start=2e-6, products=1.4, operand=30.0, arrays=1.2, adding=2e-6
    )
    model = replace(MODEL, cublaslt=factors)
    lines = []
    for i, (layer, direction, group) in enumerate(cases()[:60]):
        facts = {"run": "1", **({"device": H200.name} if i == 0 else {})}
        request = unnamed(direction, layer.problem, group, H200)
        what = {"layer": str(layer), "direction": direction, "precision": group}
        lines.append({**facts, **what, "method": "winolab", "kernel": "direct"})
        lines += [
            {
                "run": "1", **what, "kernel": p.kernel, "products": p.precision,
                "plan": str(p.config), "workspace": p.workspace, "method": "winolab",
                "us": 1e6 * cost.seconds(p, model),
            }
            for p in candidates(replace(request, algorithm=NAMED)).plans
            if isinstance(p, CublasltPlan)
        ]  # fmt: skip
    file = tmp_path / "pointwise.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    monkeypatch.setattr(rows, "RESULTS", tmp_path)
    rows.rows.cache_clear()
    yield factors
    rows.rows.cache_clear()


def test_the_section_is_fitted_to_such_rows(
    kept: Cublaslt,
) -> None:
    found = device_model.samples(("cublaslt",))["cublaslt"]
    # FP32 gradients with a workspace are left out, and whatever has none for its short sums
    assert len(found.plans) == 83
    start = replace(
        MODEL,
        cublaslt=replace(kept, start=1e-6, products=1.0, operand=20.0, arrays=1.0, adding=1e-6),
    )
    fitted = device_model.fit("cublaslt", found, start).cublaslt
    assert asdict(fitted) == pytest.approx(asdict(kept), rel=0.1)
