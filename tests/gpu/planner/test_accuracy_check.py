"""What one output channel loses in one place is found out, whatever its neighbours there have."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.gpu import hosted
from tests.gpu.support.picked import looked_at
from winolab.algorithm import Problem, parse_algorithm
from winolab.device import datasheet
from winolab.gpu.codegen.emit import kernel
from winolab.gpu.families.scale import LEAST_ROOM, PAIR, SINGLE
from winolab.gpu.planner.fallback import CHECKED_OUTPUTS, FLAGS, CorrelationWithFallback
from winolab.gpu.planner.planner import plan
from winolab.gpu.planner.request import Request

QUIET = {"an image": np.s_[1:], "the left half": np.s_[:, :, :7], "the top": np.s_[:, :8]}


@cache
def planned(
    problem: Problem, direction: str, text: str | None, gpu: str = "h100"
) -> CorrelationWithFallback:
    algorithm = parse_algorithm(text) if text else None
    found = looked_at(Request(problem, direction, datasheet(gpu), algorithm, "fp32_split"))
    assert isinstance(found, CorrelationWithFallback)
    return found


@cache
def loaded(found: Any) -> dict[str, Any]:
    """Kernels of a plan, which several tests run."""
    return hosted.loaded(found)


def executed(found: Any, a: np.ndarray, b: np.ndarray, left: np.ndarray | None = None):
    return hosted.execute(found, a, b, kernels=loaded(found), left=left)


# Where there are two problems of a kernel, each has a direction.
@pytest.mark.parametrize(
    ("x", "text", "where", "gpu", "direction"),
    [
        ((2, 8, 24, 64), None, "an image", "h100", "forward"),
        ((2, 7, 7, 64), None, "an image", "h100", "backward_data"),
        ((2, 16, 9, 64), "gamma:8:6:3", "the top", "h100", "backward_data"),
        ((2, 14, 14, 64), "gamma:8:6:3", "the left half", "h100", "forward"),
        ((2, 14, 14, 64), "gamma:6:4:3", "the left half", "h100", "backward_data"),
        ((2, 16, 9, 64), "winograd:4x4:3x3", "the top", "h100", "forward"),
        ((2, 8, 8, 64), "winograd:2x2:3x3", "an image", "h100", "backward_data"),
        ((2, 14, 14, 64), None, "the left half", "a100", "forward"),
        ((2, 14, 14, 64), None, "the left half", "a100", "backward_data"),
    ],
)
def test_a_channel_that_reads_what_is_small_in_one_place(x, text, where, gpu, direction) -> None:
    """Half of the input channels are 2^-20 as large there, and every fourth output channel reads
    nothing else: its errors would be 1e-4 of it, beside large neighbours, images and tiles."""
    problem = Problem.of(x, (64, 3, 3, 64), padding=1)
    found = planned(problem, direction, text, gpu)
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(s).astype("float32") for s in (x, problem.w_shape))
    a[QUIET[where]][..., 32:] *= 2.0**-20
    left = np.zeros(FLAGS, "uint8")
    executed(found, a, b, left)
    assert not left.view("int32")[:3].any()  # all channels read the large ones, too
    if direction == "forward":
        b[1::4, ..., :32] = 0
    else:
        b[:32, ..., 1::4] = 0
    got = executed(found, a, b, left)
    assert left.view("int32")[[0, CONFIRMED]].any()  # by rows of tiles, or by suspects
    assert np.array_equal(got, executed(found.fallback, a, b))


def test_the_kernels_and_the_planner_need_as_many_outputs() -> None:
    assert f"CHECKED_OUTPUTS = {CHECKED_OUTPUTS};" in kernel("accuracy_check")


@pytest.mark.parametrize(
    ("x", "w"), [((3, 1, 1, 64), (64, 3, 3, 64)), ((2, 1, 3, 64), (64, 3, 3, 64))]
)
@pytest.mark.parametrize("gpu", ["h100", "a100"])
def test_maps_too_small_to_check_have_no_scaled_products(x, w, gpu) -> None:
    """TF32's parts, which have no scale, need no check."""
    problem = Problem.of(x, w, padding=1)
    asked = Request(problem, "forward", datasheet(gpu), None, "fp32")
    found = plan(asked)
    assert not found.checks_accuracy
    assert found.precision == "fp32" or "scale=none" in found.simulated
    named = replace(asked, algorithm=parse_algorithm("gamma:8:6:3"), precision="fp32_split")
    with pytest.raises(ValueError, match=f"check {CHECKED_OUTPUTS} outputs of a channel or more"):
        plan(named)
    assert looked_at(replace(named, problem=replace(problem, input=(1, 4)))).checks_accuracy


CONFIRMED, SUSPECTS = 3, 8  # of a header's integers: a suspect lost accuracy; how many there are
ENDS = [  # x, filter's width, kernel: rows' last tiles have 1 to 3 outputs; columns quiet there
    ((2, 8, 7, 64), 3, "gamma:6:4:3", "h100", 4),
    ((2, 4, 13, 64), 3, "gamma:6:4:3", "h100", 4),
    ((2, 4, 14, 64), 3, "gamma:8:6:3", "h100", 4),
    ((1, 16, 14, 128), 3, "gamma:8:6:3", "h100", 4),
    ((2, 4, 9, 64), 3, "gamma:4:2:3", "h100", 4),  # all tiles have two
    ((2, 4, 10, 64), 2, "gamma:4:3:2", "h100", 4),
    ((2, 9, 9, 64), 3, "winograd:4x4:3x3", "h100", 4),  # of a corner
    ((2, 7, 7, 64), 3, "winograd:2x2:3x3", "h100", 2),  # two rows'
    ((2, 8, 13, 64), 3, "gamma:8:6:3", "a100", 4),
]
ends = pytest.mark.parametrize(("x", "taps", "text", "gpu", "columns"), ENDS)


def quiet(x, taps, text, gpu, columns) -> tuple[CorrelationWithFallback, Any, Any]:
    """A plan; a random x, half of whose channels are small where outputs in so many last columns
    read it, of 4 × 4 tiles in as many last rows; and a filter of which every fourth output reads
    that half only."""
    problem = Problem.of(x, (64, 3, taps, x[-1]), padding=(1, taps // 2))
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(s).astype("float32") for s in (x, problem.w_shape))
    last = columns + taps // 2
    first_row = x[1] - last if "4x4" in text else 0
    a[:, first_row:, -last:, x[-1] // 2 :] *= 2.0**-20
    b[1::4, ..., : x[-1] // 2] = 0
    return planned(problem, "forward", text, gpu), a, b


@ends
def test_a_rows_last_few_outputs_of_a_channel(x, taps, text, gpu, columns) -> None:
    """What a window of them lost is found out though no tile of the channel is quiet."""
    found, a, b = quiet(x, taps, text, gpu, columns)
    left = np.zeros(FLAGS, "uint8")
    got = executed(found, a, b, left)
    flags = left.view("int32")
    assert flags[: CorrelationWithFallback.flags].tolist() == [0, 0, 0, 1]
    assert flags[SUSPECTS] > 0
    assert np.array_equal(got, executed(found.fallback, a, b))


@ends
def test_few_small_outputs_beside_large_ones_may_be_by_chance(x, taps, text, gpu, columns) -> None:
    found, a, b = quiet(x, taps, text, gpu, 1)
    left = np.zeros(FLAGS, "uint8")
    got = executed(found, a, b, left)
    flags = left.view("int32")
    assert not flags[: CorrelationWithFallback.flags].any()
    one = found.problem.output[1] % parse_algorithm(text).tiles[-1].n < 3 - taps // 3
    assert (flags[SUSPECTS] > 0) == one
    assert np.array_equal(got, executed(found.primary, a, b))


@pytest.mark.parametrize("kind", ["normal", "after a ReLU", "wide exponents"])
@pytest.mark.parametrize(("width", "expected"), [(7, SINGLE), (8, PAIR)])
def test_room_is_for_more_suspects_than_data_have(width, expected, kind) -> None:
    """Tiles with one output, and with two; magnitudes 2^(2 · normal) apart are the widest."""
    problem = Problem.of((32, 7, width, 16), (128, 3, 3, 16), padding=1)
    rng = np.random.default_rng(4)
    a, b = (rng.standard_normal(s) for s in (problem.x_shape, problem.w_shape))
    if kind == "after a ReLU":
        a = np.maximum(a, 0)
    if kind == "wide exponents":
        a *= 2.0 ** (2 * rng.standard_normal(a.shape))
    found = planned(problem, "forward", "gamma:8:6:3")
    left = np.zeros(FLAGS, "uint8")
    executed(found, a.astype("f4"), b.astype("f4"), left)
    flags = left.view("int32")
    assert not flags[: CorrelationWithFallback.flags].any()
    assert flags[SUSPECTS] <= 32 * 7 * 128 / expected


@pytest.mark.parametrize("rows", [4, 20])
def test_more_suspects_than_have_room_count_as_lost(rows) -> None:
    found, a, b = quiet((2, rows, 13, 64), 3, "gamma:6:4:3", "h100", 1)
    left = np.zeros(FLAGS, "uint8")
    a[:, :, -2:, :32] *= 2.0**-20  # in the last column every output channel is small
    executed(found, a, b, left)
    flags = left.view("int32")
    assert flags[SUSPECTS] == 2 * rows * 64
    assert flags[0] == (flags[SUSPECTS] > LEAST_ROOM)


@pytest.mark.parametrize("channels", [5, 7, 90])
@pytest.mark.parametrize(
    ("text", "gpu"), [("gamma:6:4:3", "h100"), ("gamma:4:2:3", "h100"), ("gamma:8:6:3", "a100")]
)
def test_channels_that_are_not_there_are_no_suspects(text, gpu, channels) -> None:
    """Blocks are filled up with rows of zeros, which make NaN of infinities."""
    problem = Problem.of((1, 2, 13, 64), (channels, 3, 3, 64), padding=1)
    found = planned(problem, "forward", text, gpu)
    a, b = (np.full(s, np.inf, "float32") for s in (problem.x_shape, problem.w_shape))
    left = np.zeros(FLAGS, "uint8")
    executed(found, a, b, left)
    n = parse_algorithm(text).tiles[0].n
    tiles = sum(min(n, 13 - first) < CHECKED_OUTPUTS for first in range(0, 13, n))
    assert left.view("int32")[SUSPECTS] == 2 * tiles * channels
