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
        problem=problem, direction="forward", algorithm=algorithm, tiles=algorithm.tiles,
        scaling=None, points="best", precision="fp32", simulated="fp32", predicted=predicted,
        workspace=0, margin=1.0,
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


def test_what_no_gpu_has_timed_is_taken_where_it_is_faster_by_its_margin() -> None:
    request: Any = SimpleNamespace(
        shows_transforms=False, named=True, data_size=MIB, tolerance=None, workspace_limit=None
    )
    known, slow, untimed = (correlation(4, 3, time) for time in (1.0, 3.0, 0.6))
    untimed.margin = 2.0
    plans, why = ordered([slow, untimed, known], request)
    assert plans == [known, slow, untimed]
    assert why == "no GPU has timed what is predicted to take 600000.0 µs"
    untimed.predicted = 0.49
    assert ordered([slow, untimed, known], request) == ([untimed, known, slow], "")
    for plan in (known, untimed):
        plan.beside = 0
    assert least_sure([known, untimed], request) == 0.98
    untimed.margin = math.inf
    assert ordered([untimed], request)[0] == [untimed]
    assert ordered([untimed, known], request)[0] == [known, untimed]


def test_what_exceeds_the_workspace_limit_is_compared_with_nothing() -> None:
    """It cannot be picked: no margin, no accuracy and no few states are measured by it."""
    request: Any = SimpleNamespace(
        shows_transforms=False, named=True, data_size=MIB, tolerance=None, workspace_limit=MIB
    )
    large, slow, untimed = (correlation(4, 3, time) for time in (1.0, 3.0, 0.6))
    large.workspace, untimed.margin = MIB + 1, 2.0
    assert ordered([large, slow, untimed], request) == ([untimed, slow, large], "")
    for plan in (large, slow):
        plan.beside = 0
    assert least_sure([large, slow], request) == 3.0
    assert ordered([large], request) == ([large], "")
    large.workspace = MIB
    assert ordered([large, slow, untimed], request)[0] == [large, slow, untimed]
    assert least_sure([large, slow], request) == 1.0


def test_zeros_that_fill_up_a_piece_add_to_the_noise_as_taps_do() -> None:
    """Variances add up: seven taps by two pieces of four err √(8/7) times as much as eight."""
    alone = error_ratio(gamma(8, 5, 4).tiles[0], "best", "fp32", 64 * 2)
    assert loss(correlation(8, 4, taps=8)) == alone
    assert math.isclose(loss(correlation(8, 4, taps=7)), alone * math.sqrt(8 / 7))
