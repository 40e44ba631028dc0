"""Which fallback split products have, in what workspace: no kernel runs here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from winolab.gpu.planner.fallback import FLAGS, with_fallback


def planned(workspace: int, predicted: float = 1.0) -> Any:
    return SimpleNamespace(
        workspace=workspace,
        predicted=predicted,
        direction="backward_filter",
        checks_accuracy=True,
        accurate=True,
    )


@pytest.mark.parametrize(
    ("room", "fallback"),
    [(1001, "fast"), (1000, "lean"), (999, "none"), (0, "none"), (-1, "none")],
)
def test_a_fallback_is_the_fastest_behind_the_flags_or_the_smallest(room, fallback) -> None:
    """The flags stay what they are while it runs."""
    plans = {"fast": planned(1001, 1.0), "lean": planned(1000, 2.0), "none": planned(0, 9.0)}
    split = planned(FLAGS + room)
    (found,) = with_fallback([split], [*plans.values()], named=False)
    assert found.fallback is plans[fallback]
    assert found.workspace == max(split.workspace, FLAGS + plans[fallback].workspace)


def test_a_workspace_holds_the_fallbacks_behind_the_flags() -> None:
    (found,) = with_fallback([planned(10)], [planned(2000)], named=False)
    assert found.workspace == FLAGS + 2000
