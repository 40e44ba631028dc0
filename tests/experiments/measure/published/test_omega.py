"""Rows of fused Ω: what is measured, and that the device model tells it."""

from __future__ import annotations

from collections import Counter

import pytest

from experiments.harness.machines import stored
from experiments.measure.published.omega import RESULTS, cases, main, planned
from experiments.measure.published.rows import summary
from winolab.device import datasheet
from winolab.gpu.families.wgrad_mma.plan import WgradMmaPlan
from winolab.gpu.planner.accuracy import predicted_rms
from winolab.ref.tolerance.cheapest import U11


@pytest.mark.parametrize("gpu", ["NVIDIA H100 80GB HBM3", "NVIDIA H200"])
def test_plans_are_those_of_the_rows_and_take_as_long_as_predicted(gpu: str) -> None:
    """Times of a layer are within 25 %, and 10 % on average; errors within 12 %, those of half2,
    whose output transform is in FP32, too. Rows are of kernels whose warps arrived by one lane
    (docs/notes/042)."""
    problem = list(cases())[1]
    rows = [r for r in stored(RESULTS) if r["device"] == gpu]
    rows = [r for r in rows if r["input"] == "32x56x56x128" and r["filter"] == "128x3x3x128"]
    found = planned(problem, datasheet(gpu))
    assert Counter(found.values())["fused"] >= 12
    ratios = []
    for p in (p for p, kind in found.items() if kind == "fused"):
        assert isinstance(p, WgradMmaPlan)
        same = [r for r in rows if (r["kernel"], r.get("plan")) == (p.kernel, str(p.config))]
        if not same:
            continue
        row = same[-1]  # of the last run
        assert 0.88 <= row["relative_rms_u11"] / predicted_rms(p, U11) <= 1.12
        if row["workspace"] == p.workspace:
            ratios.append(p.predicted * 1e6 / row["cold_us"][1])
    assert len(ratios) >= 8
    assert all(0.75 <= ratio <= 1.25 for ratio in ratios)
    assert 0.9 <= sum(ratios) / len(ratios) <= 1.1
    assert len(summary(rows).splitlines()) == len(rows) + 1


def test_layers_of_one_number_of_channels_can_be_asked_for() -> None:
    every = list(cases())
    assert len(every) == 16
    found = list(cases(32))
    assert [(p.in_channels, p.filter[-1]) for p in found] == [(32, taps) for taps in (3, 5, 7, 9)]
    assert {p for c in (32, 64, 128, 256) for p in cases(c)} == set(every)
    with pytest.raises(SystemExit, match="no layer has 48 channels; expected one of 32, 64, 128"):
        main(channels=48)
