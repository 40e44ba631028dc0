"""What is measured of the papers' policies: every one planned, on and off, without a GPU."""

from __future__ import annotations

from collections import Counter

from experiments.measure.published import im2col, remedies, winrs
from papers.winrs_2025.grid import grid
from winolab.device import H100
from winolab.gpu.families.gamma_ffma.config import Config
from winolab.gpu.families.gamma_ffma.plan import SegmentedPlan
from winolab.gpu.families.wgrad_ffma.plan import WinrsPlan
from winolab.gpu.families.wgrad_mma.plan import WinrsMmaPlan


def test_every_policy_of_im2col_winograd() -> None:
    """Segments only where n leaves some of the width; ours beside them."""
    every = list(im2col.cases())
    assert Counter((c.alpha, c.divides) for c in every) == {
        (8, True): 18, (8, False): 6, (16, True): 9, (16, False): 3,
    }  # fmt: skip
    for case in (every[0], every[2], every[-2]):
        found = {kind: p for p, kind in im2col.planned(case, H100).items()}
        blocks = 3 if case.alpha == 16 else 2
        assert len(found) == blocks * (2 if case.divides else 4) + 1
        cut = [kind for kind, p in found.items() if isinstance(p, SegmentedPlan)]
        assert all("segments" in kind for kind in cut)
        assert bool(cut) != case.divides
        for kind, p in found.items():
            if isinstance(p.config, Config) and kind != "picked":
                assert p.config.fused == ("fused" in kind)
                assert p.config.overlap == ("ruse" in kind)
        assert im2col.key(case)["kernel_of"].startswith(f"gamma:{case.alpha}:")


def test_100_layers_of_the_grid_by_both_plans() -> None:
    """Those above 600 GFLOP among them; what the paper plans first."""
    layers = winrs.drawn()
    assert len(set(layers)) == 100
    assert set(layers) <= set(grid())
    assert sum(2 * layer.problem.macs > 6e11 for layer in layers) == 41
    kinds = [dict(map(reversed, winrs.planned(case, H100).items()))
             for case in list(winrs.cases())[:2]]  # fmt: skip
    assert isinstance(kinds[0]["winrs"], WinrsPlan)
    assert isinstance(kinds[1]["winrs"], WinrsMmaPlan)
    assert all(any("picked" in kind for kind in found) for found in kinds)
    assert {"omega", "two launches"} <= kinds[1].keys()


def test_one_remedy_is_off_at_a_time() -> None:
    plans = {case.without: case.plan(H100) for case in list(remedies.cases())[:5]}
    usual = plans["all"]
    assert usual.segments > 1
    assert usual.workspace == 4 * usual.segments * usual.gradient.weights  # dw is no bucket
    assert plans["plain sum of buckets"] == usual
    assert plans["one segment"].segments == 1
    assert (usual.scaling, plans["no scaling"].scaling) == ("l1", None)
    assert (usual.config.sums, plans["FP32 sums"].config.sums) == (16, 32)
    assert {p.points for p in plans.values()} == {"paper"}
