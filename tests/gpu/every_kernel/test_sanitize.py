"""What compute-sanitizer is given, and how its rows are kept; the tools themselves need a GPU."""

from __future__ import annotations

import json
from itertools import product

import pytest

from tests.gpu import sanitize
from tests.gpu.guarded import Mold
from tests.gpu.support.policies import FAMILY
from winolab.device import H100
from winolab.gpu import driver
from winolab.gpu.families.fused2d.config import ORDERS
from winolab.gpu.families.fused2d.layouts import layouts


@pytest.mark.parametrize(
    ("mold", "kernel"),
    [
        (Mold("gamma_wgmma", "gamma:8:6:3", "fp32_split", 0), "winolab_gamma_ffma_fallback"),
        (Mold("wgrad_direct.split", "direct", "fp32_split", 0), "winolab_wgrad_ffma_fallback"),
        (Mold("gamma_ffma", "gamma:8:6:3", "fp32", 0), None),
        (Mold("gamma_wgmma", "gamma:8:6:3", "fp16", 0), None),
    ],
    ids=str,
)
def test_split_products_are_run_with_what_computes_them_again(monkeypatch, mold, kernel) -> None:
    monkeypatch.setattr(driver, "device", lambda index: H100)
    plan = sanitize.planned(mold)
    whole = sanitize.with_fallback(plan)
    assert (whole is None) == (kernel is None)
    if whole:
        assert kernel in whole.shared()
        assert whole.primary == plan
    assert len(sanitize.sources(mold)) == 1 + (whole is not None)


def test_a_run_replaces_the_rows_of_its_kernels_alone(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(driver, "device", lambda index: H100)
    path = tmp_path / "rows.jsonl"
    first = [{"kernel": name, "tool": "memcheck", "found": 0} for name in ("a", "b")]
    sanitize.keep(first, path)
    sanitize.keep([{"kernel": "a", "tool": "memcheck", "found": 2}], path)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(row["kernel"], row["found"], row["device"]) for row in rows] == [
        ("b", 0, H100.name),
        ("a", 2, H100.name),
    ]


def test_clean_rows_of_these_sources_are_known(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(driver, "device", lambda index: H100)
    path, common = tmp_path / "rows.jsonl", {"tool": "memcheck", "exit": 0}
    assert not sanitize.clean(path)
    sanitize.keep(
        [
            {"kernel": "a", "sources": ["1", "2"], "found": 0, **common},
            {"kernel": "b", "sources": ["1"], "found": 3, **common},
            {"kernel": "c", "sources": ["1"], "found": 0, **common, "exit": 1},
            {"kernel": "d", "found": 0, **common},
        ],
        path,
    )
    assert sanitize.clean(path) == {("a", "memcheck", ("1", "2"))}


def test_policies_of_the_fused_kernel_are_each_run_once(monkeypatch) -> None:
    """All layouts in all memory orders, boxes, two buffers, parts, gradients, 16 bits."""
    monkeypatch.setattr(driver, "device", lambda index: H100)
    chosen = sanitize.molds([FAMILY])
    assert [sanitize.case_of(str(one)) for one in chosen] == chosen
    plans = [sanitize.planned(one) for one in chosen]
    pairs = {(p.config.order, p.config.layout) for p in plans}
    assert pairs >= set(product(ORDERS, (made.name for made in layouts(64))))
    boxed = {(p.config.order, p.config.images > 0) for p in plans}
    assert boxed >= {(order, True) for order in ORDERS}
    assert {p.config.order for p in plans if p.config.buffers == 2} == {*ORDERS}
    assert {p.direction for p in plans} == {"forward", "backward_data", "backward_filter"}
    assert {p.precision for p in plans} == {"fp32", "fp16_ffma"}
    assert len({p.source() for p in plans}) >= len(chosen) - 1  # groups are no constant
