"""Plan ``seeds`` and WinRS's claim, from planted rows; tables of what rows there are."""

from __future__ import annotations

import pytest
from matplotlib.figure import Figure

from experiments.harness.verdicts import Verdict
from experiments.training import on_gpu, seeds
from experiments.training.run import PLANS
from tests.experiments import gpu_rows


@pytest.mark.parametrize(
    ("apart", "verdict"),
    [
        ([0.001, -0.001, 0.002, 0.0, -0.002], Verdict.AGREES),
        ([0.011, 0.010, 0.012, 0.009, 0.010], Verdict.DISAGREES),
        ([0.03, -0.03, 0.02, -0.02, 0.0], Verdict.NOT_COMPARABLE),
    ],
)
def test_the_claim_is_judged_by_the_interval(apart: list[float], verdict: Verdict) -> None:
    rows = gpu_rows.seeds(apart)
    cells = seeds.of_plan(rows)
    claims = [c for c in cells if c.claim]
    assert [c.verdict for c in claims] == [verdict] * 2  # Adam's and SGD's
    for c in claims:
        assert c.ours == pytest.approx(100 * sum(apart) / 5)
        assert c.low < c.ours < c.high
    less = [c for c in cells if "less PyTorch's" in c.where]
    # What seeds have in common is not in the difference.
    assert len(less) == 2
    own = [c for c in cells if c.column == "test accuracy" and c not in less]
    assert max(c.high - c.low for c in own) > 0.02
    assert len(seeds.said(cells)) == 3
    assert isinstance(seeds.curves(rows), Figure)


def test_one_seed_or_none_leaves_the_claim_alone() -> None:
    (claim,) = seeds.claims(gpu_rows.seeds()[:2])
    assert claim.verdict == Verdict.NOT_REPRODUCED
    assert seeds.of_plan([]) == []


def test_a_run_without_pytorch_s_beside_it_is_shown() -> None:
    runs = list(PLANS["fp16"](["winolab"]))
    rows = [gpu_rows.trained(run, "fp16") for run in runs]
    cells = on_gpu.cells_figure13(rows)
    assert len({c.where for c in cells}) == len(rows)
    assert not any(c.column.startswith("times") for c in cells)
    assert isinstance(on_gpu.curves("fp16", rows), Figure)


def test_what_is_missing_and_what_has_not_converged_is_told() -> None:
    runs = list(PLANS["fp16"](["torch", "winolab"]))
    rows = [gpu_rows.trained(run, "fp16") | {"test_accuracy": 0.95} for run in runs]
    told = on_gpu.TEXTS[on_gpu.FIGURE13.key].found
    assert len(told(on_gpu.cells_figure13(rows))) == len(rows)  # a line a run
    for row in rows:
        row["test_accuracy"] = 0.95 if row["network"] == "resnet34" else 0.5
    lines = told(on_gpu.cells_figure13(rows[:-1]))
    assert len(lines) == len(rows) + 1
    assert lines[-2].startswith("resnet50 with gradients by fused Ω is missing")
    assert "resnet50 has converged by nobody: accuracies are 0.50 to 0.50" in lines[-1]
