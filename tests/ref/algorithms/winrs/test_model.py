"""The timing model: what must lengthen and shorten a prediction."""

from __future__ import annotations

from dataclasses import replace

import pytest

from winolab.algorithm import Problem
from winolab.device import DATASHEETS
from winolab.ref.algorithms.winrs.model import LAUNCH, seconds
from winolab.ref.algorithms.winrs.plan import plan

ADA = DATASHEETS["rtx4090"]


def layer(batch: int) -> Problem:
    return Problem.of((batch, 56, 56, 128), (128, 3, 3, 128), padding=1)


def test_time_is_nearly_proportional_to_the_batch() -> None:
    segments = plan(layer(64), ADA).segments
    once, twice = (seconds(layer(n), segments, ADA) for n in (64, 128))
    assert twice == pytest.approx(2 * once, rel=0.1)


def test_bandwidth_and_clock_shorten_it() -> None:
    segments = plan(layer(64), ADA).segments
    base = seconds(layer(64), segments, ADA)
    assert seconds(layer(64), segments, replace(ADA, bandwidth=2 * ADA.bandwidth)) < base
    assert seconds(layer(64), segments, replace(ADA, clock=2 * ADA.clock)) < base
    assert seconds(layer(64), segments, replace(ADA, bandwidth=0.0)) < base


def test_it_never_beats_the_multiplications() -> None:
    """At least α·K·tiles products at the peak rate of the lanes."""
    problem = layer(64)
    made = plan(problem, ADA)
    least = 2 * problem.macs * 8 / 18 / ADA.fp32_peak
    assert least + LAUNCH < made.predicted < 3 * least


def test_few_segments_leave_multiprocessors_idle() -> None:
    problem = Problem.of((32, 224, 224, 64), (64, 3, 3, 64), padding=1)
    one, many = (plan(problem, ADA, segments=count).predicted for count in (1, 64))
    assert 8 * many < one
