"""What is measured of both plans of a filter gradient: layers drawn, plans made without a GPU."""

from __future__ import annotations

from papers.winrs_2025.grid import grid
from papers.winrs_2025.measure import plans
from winolab.device import H100
from winolab.gpu.families.wgrad_ffma.plan import WinrsPlan
from winolab.gpu.families.wgrad_mma.plan import WinrsMmaPlan


def test_100_layers_of_the_grid_by_both_plans() -> None:
    """Those above 600 GFLOP among them; what the paper plans first."""
    layers = plans.drawn()
    assert len(set(layers)) == 100
    assert set(layers) <= set(grid())
    assert sum(2 * layer.problem.macs > 6e11 for layer in layers) == 41
    kinds = [
        {kind: p for p, kind in plans.planned(case, H100).items()}
        for case in list(plans.cases())[:2]
    ]
    assert isinstance(kinds[0]["winrs"], WinrsPlan)
    assert isinstance(kinds[1]["winrs"], WinrsMmaPlan)
    assert all(any("picked" in kind for kind in found) for found in kinds)
    assert {"omega", "two launches"} <= kinds[1].keys()
