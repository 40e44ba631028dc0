"""Plan ``seeds`` and WinRS's claim, from planted rows; tables of what rows there are."""

from __future__ import annotations

import pytest
from matplotlib.figure import Figure

from experiments.harness.verdicts import Verdict
from experiments.training import seeds
from tests.experiments import gpu_rows


@pytest.mark.parametrize(
    ("apart", "verdict"),
    [
        ([0.001, -0.001, 0.002, 0.0, -0.002], Verdict.AGREES),
        ([0.011, 0.010, 0.012, 0.009, 0.010], Verdict.DISAGREES),
        ([0.03, -0.03, 0.02, -0.02, 0.0], Verdict.OPEN),
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
    assert len(seeds.said(cells)) == 3 + 2 * (verdict is Verdict.OPEN)
    assert isinstance(seeds.curves(rows), Figure)


def test_a_claim_of_fewer_seeds_is_open_however_narrow_its_interval() -> None:
    """Three accuracies of 1/2000 may agree by chance."""
    rows = [row for row in gpu_rows.seeds((0.0, 0.0005, 0.0, 0.0, 0.0))
            if row["optimizer"] == "adam" or row["seed"] < 3]  # fmt: skip
    cells = seeds.of_plan(rows)
    whole, part = (c for c in cells if c.claim)
    assert whole.verdict == Verdict.AGREES
    assert part.verdict == Verdict.OPEN
    assert max(abs(part.low), abs(part.high)) < seeds.PRINTED
    assert part.note.startswith("3 of 5 seeds")
    assert any("the claim is open: 3 of 5 seeds" in line for line in seeds.said(cells))


def test_one_seed_or_none_leaves_the_claim_alone() -> None:
    (claim,) = seeds.claims(gpu_rows.seeds()[:2])
    assert claim.verdict == Verdict.NOT_REPRODUCED
    assert seeds.of_plan([]) == []
