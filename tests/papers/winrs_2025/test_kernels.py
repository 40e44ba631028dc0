"""WinRS's tables of a GPU's rows, from made-up ones."""

from __future__ import annotations

import pytest

from papers.winrs_2025.kernels import cells_ablations, policies


def row(plan: str, took: float, run: str = "1", **more) -> dict:
    """A row of fused Ω."""
    layer = {"input": "32x56x56x128", "filter": "128x3x3x128", "kernel": "Ω8(3,6)"}
    took_us = [took, took, took]
    return {**layer, "kind": "fused", "plan": plan, "cold_us": took_us, "run": run,
            "device": "a GPU", **more}  # fmt: skip


def test_policies_are_compared_in_one_run_whatever_follows_from_the_layer() -> None:
    """Units that run on, and as many stages as fit, are no policy; a pair's last run counts."""
    rows = [
        row("64x64x16 stages=4 wrap=1", 100),
        row("64x64x16 stages=4 pad=0 wrap=1", 150),
        row("64x32x16 stages=5 wrap=1", 130),
        row("64x64x16 stages=3 ahead=2 wrap=1", 80),
        row("64x128x16 stages=3 sums=16 wrap=1", 50),
        row("64x128x16 stages=2 sums=16 ahead=2 wrap=1", 1),  # two policies
        row("64x64x16 stages=4 wrap=1", 60, run="2"),
        row("64x64x16 stages=3 ahead=2 wrap=1", 40, run="2"),
        row("64x64x8 stages=4 wrap=1", 200, kind="fused in FP32"),
        row("64x64x8 stages=4 turned=0 wrap=1", 210, kind="fused in FP32"),
        row("64x64x8 stages=4 paired=0 wrap=1", 220, kind="fused in FP32"),
    ]
    found = {(c.where, c.column): c.ours for c in cells_ablations(rows)}
    assert found == pytest.approx(
        {
            ("Ω8(3,6)", "rows padded by 128 bits"): 1.5,
            ("Ω8(3,6)", "columns in shared memory two steps ahead"): 1.5,
            ("Ω8(3,6)", "sums in FP16, and blocks as large"): 2,
            ("Ω8(3,6) FP32", "lanes stage their floats in turn, in the padding's place"): 1.05,
            ("Ω8(3,6) FP32", "rows of points p and -p share products"): 1.1,
            ("all", "FP16 over FP32"): 200 / 60,
        }
    )


def test_a_plan_s_text_tells_its_policies() -> None:
    assert policies("64x64x16 stages=4") == ("64x64x16", frozenset())
    assert policies("64x64x16 stages=4 half2=1 wrap=1 vector=0") == ("64x64x16", {"half2=1"})
