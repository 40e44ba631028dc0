"""Which of several plans is preferred."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from winolab.algorithm import Problem, gamma
from winolab.gpu.planner.ranking import WORTH, _worth, least_sure, loss, ordered
from winolab.ref.error.metrics import error_ratio

MIB = 1 << 20


def planned(predicted: float, beside: int) -> Any:
    return SimpleNamespace(predicted=predicted, beside=beside, workspace=beside)


@pytest.mark.parametrize(("share", "worth"), [(0.85, True), (0.95, False), (1.05, False)])
def test_a_workspace_larger_than_the_data_has_to_save_a_tenth(share: float, worth: bool) -> None:
    """A tenth of the time of the fastest plan without."""
    lean, slow, large = planned(1.0, MIB), planned(2.0, 0), planned(share, 2 * MIB)
    plans = sorted([lean, slow, large], key=lambda p: p.predicted)
    kept, costly = _worth(plans, MIB)
    assert (large in kept, large in costly) == (worth, not worth)
    assert {id(p) for p in (*kept, *costly)} == {id(p) for p in plans}
    assert share <= WORTH or not worth


def test_without_another_any_workspace_is_worth_it() -> None:
    large = planned(1.0, 2 * MIB)
    assert _worth([large], MIB) == ([large], [])


def correlation(alpha: int, r: int, predicted: float = 1.0, taps: int = 3) -> Any:
    """A plan of Γ on FFMA units."""
    problem = Problem.of((1, 4, 20, 64), (64, 1, taps, 64))
    algorithm = gamma(alpha, alpha - r + 1, r)
    return SimpleNamespace(
        problem=problem, solved=problem, direction="forward", algorithm=algorithm,
        tiles=algorithm.tiles, scaling=None, points="best", precision="fp32", simulated="fp32",
        predicted=predicted, workspace=0, margin=1.0,
    )  # fmt: skip


def test_of_plans_as_fast_the_fewest_states_are_taken() -> None:
    request: Any = SimpleNamespace(
        shows_transforms=False, named=True, data_size=MIB, tolerance=None, workspace_limit=None
    )
    eight, six, four = (
        correlation(alpha, 3, time) for alpha, time in ((8, 1.0), (6, 1.009), (4, 1.02))
    )
    plans, why = ordered([four, eight, six], request)
    assert plans == [six, eight, four]
    assert why == "the fewest states within 1% of the fastest"
    six.predicted = 1.011
    assert ordered([four, eight, six], request) == ([eight, six, four], "")


def test_what_exceeds_the_workspace_limit_is_compared_with_nothing() -> None:
    """It cannot be picked: no accuracy and no few states are measured by it."""
    request: Any = SimpleNamespace(
        shows_transforms=False, named=True, data_size=MIB, tolerance=None, workspace_limit=MIB
    )
    large, slow, fast = (correlation(4, 3, time) for time in (0.5, 3.0, 0.6))
    large.workspace = MIB + 1
    assert ordered([large, slow, fast], request) == ([fast, slow, large], "")
    for plan in (large, slow, fast):
        plan.beside = 0
    assert least_sure([large, slow], request) == 3.0
    assert ordered([large], request) == ([large], "")
    large.workspace = MIB
    assert ordered([large, slow, fast], request)[0] == [large, fast, slow]
    assert least_sure([large, slow], request) == 0.5


def test_zeros_that_fill_up_a_piece_add_to_the_noise_as_taps_do() -> None:
    """Variances add up: seven taps by two pieces of four err √(8/7) times as much as eight."""
    alone = error_ratio(gamma(8, 5, 4).tiles[0], "best", "fp32", 64 * 2)
    assert loss(correlation(8, 4, taps=8)) == alone
    assert math.isclose(loss(correlation(8, 4, taps=7)), alone * math.sqrt(8 / 7))
