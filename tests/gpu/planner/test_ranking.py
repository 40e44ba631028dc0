"""Which of several plans is preferred."""

from __future__ import annotations

import math
from dataclasses import replace
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

import pytest

from winolab.algorithm import Problem, gamma
from winolab.arguments.epilogue import Epilogue
from winolab.device import datasheet
from winolab.gpu.families.cublaslt.plan import NAMED
from winolab.gpu.planner import planner
from winolab.gpu.planner.device_model import MODEL
from winolab.gpu.planner.ranking import WORTH, _worth, least_sure, loss, ordered, taken
from winolab.gpu.planner.request import Request
from winolab.ref.error.metrics import error_ratio

MIB = 1 << 20


def planned(predicted: float, beside: int) -> Any:
    return SimpleNamespace(predicted=predicted, beside=beside, workspace=beside)


@pytest.mark.parametrize(("share", "worth"), [(0.85, True), (0.95, False), (1.05, False)])
def test_a_workspace_larger_than_the_data_has_to_save_a_tenth(share: float, worth: bool) -> None:
    """A tenth of the time of the fastest plan without."""
    lean, slow, large = planned(1.0, MIB), planned(2.0, 0), planned(share, 2 * MIB)
    plans = sorted([lean, slow, large], key=lambda p: p.predicted)
    kept, costly = _worth(plans, MIB, attrgetter("predicted"))
    assert (large in kept, large in costly) == (worth, not worth)
    assert {id(p) for p in (*kept, *costly)} == {id(p) for p in plans}
    assert share <= WORTH or not worth


def test_without_another_any_workspace_is_worth_it() -> None:
    large = planned(1.0, 2 * MIB)
    assert _worth([large], MIB, attrgetter("predicted")) == ([large], [])


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
        shows_transforms=False, named=True, data_size=MIB, tolerance=None, workspace_limit=None,
        finished=False,
    )  # fmt: skip
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
        shows_transforms=False, named=True, data_size=MIB, tolerance=None, workspace_limit=MIB,
        finished=False,
    )  # fmt: skip
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


@pytest.mark.parametrize(
    ("problem", "precision"),
    [
        (Problem.of((32, 7, 7, 2048), (512, 1, 1, 2048)), "fp16"),
        (Problem.of((32, 28, 28, 128), (128, 1, 1, 128)), "fp32"),
    ],
    ids=("a library", "results that are looked at again"),
)
def test_a_pass_behind_counts_where_bias_or_activation_follow(problem, precision: str) -> None:
    """Nothing is picked that takes longer with it than what applies them as it stores y."""
    alone = Request(problem, "forward", datasheet("h200"), None, precision)
    finished = replace(alone, finished=True)
    first, seconds = planner.plan(alone), taken(finished)
    assert first.with_epilogue(Epilogue(bias=True)) is None
    y = 2 * math.prod(problem.y_shape) * (2 if precision == "fp16" else 4)
    behind = seconds(first) - first.predicted
    assert behind > MODEL.device.launch + y / alone.device.bandwidth
    found = planner.plan(finished)
    assert found.with_epilogue(Epilogue(bias=True))
    assert first.predicted < found.predicted == seconds(found) < seconds(first)
    assert seconds(found) <= 1.15 * min(map(seconds, planner.candidates(finished).plans))
    by_name = planner.plan(replace(finished, algorithm=NAMED))  # whatever follows
    assert by_name.kernel == "cuBLASLt"
