"""Figures draw what rows may hold."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pytest

from experiments.report.figures import intervals


@pytest.mark.parametrize("ours", [1.0, 0.25, 3.0])
def test_a_point_need_not_lie_in_its_interval(ours: float) -> None:
    """A layer's maximum beside the interval of another layer's: Lavin & Gray, Table 4."""
    figure, panel = plt.subplots()
    intervals(panel, [0], [(ours, 0.5, 2.0)], "C0", "o", "ours")
    drawn = [end for c in panel.collections for s in c.get_segments() for _, end in s.tolist()]  # type: ignore[attr-defined]
    plt.close(figure)
    assert {0.5, 2.0} <= set(drawn)
