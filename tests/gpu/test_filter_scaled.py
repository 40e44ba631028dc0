"""The transformed filter of split products: the same bits from shared memory and from w itself."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from tests.gpu import hosted
from winolab.device import H100
from winolab.gpu import gamma_tensor_filter
from winolab.gpu.plan import Request, plan
from winolab.nouns import Problem, parse_algorithm

# Output channels, filter height and width, channels: blocks of four rows that have room; of two,
# as four would leave multiprocessors idle; of two, for which alone there is room; without room.
FOUR, IDLE, LONG, NONE = (70, 3, 3, 36), (140, 2, 3, 20), (4, 7, 7, 320), (4, 9, 9, 448)


def _plan(problem: Problem, direction: str, algorithm: str | None) -> Any:
    asked = parse_algorithm(algorithm) if algorithm else None
    guarded: Any = plan(Request(problem, direction, H100, asked, "fp32_split"))
    return guarded.split


@pytest.mark.parametrize("direction", ["forward", "backward_data"])
@pytest.mark.parametrize(
    ("shape", "algorithm", "rows", "imaged"),
    [
        (FOUR, "gamma:8:6:3", 4, (True, True)),
        (FOUR, "gamma:4:2:3", 4, (True, True)),
        (IDLE, "gamma:6:4:3", 2, (True, True)),
        (LONG, "gamma:8:2:7", 2, (True, False)),
        (NONE, None, 4, (False, False)),
    ],
)
def test_the_same_bits_wherever_rows_are_read(direction, shape, algorithm, rows, imaged) -> None:
    outputs, height, width, channels = shape
    if direction == "backward_data":
        outputs, channels = channels, outputs
    problem = Problem.of((1, 20, 20, channels), (outputs, height, width, channels), padding=1)
    its = _plan(problem, direction, algorithm)
    scattered = direction == "backward_data"
    form = gamma_tensor_filter.shape(its)
    assert (form.image > 0) == imaged[scattered]
    assert form.rows == (rows if form.image else 4)
    rng = np.random.default_rng(0)
    w = rng.standard_normal(problem.w_shape).astype("float32")
    first = hosted.prepared(its, w)
    assert np.isfinite(first[: its.rows // 4].view("float32")).all()
    spread = np.concatenate([w, w], axis=3)[..., :channels]  # from which no image is made
    assert gamma_tensor_filter.shape(its, dense=False).image == 0
    other = hosted.prepared(its, spread)
    np.testing.assert_array_equal(other[its.rows // 4 :], first[its.rows // 4 :])
    # Rows' sums of squares are added in other orders, by no fewer threads than four rows have.
    found, expected = (r[: its.rows // 4].view("float32").reshape(-1, 4) for r in (other, first))
    np.testing.assert_array_equal(found[:, [0, 1, 3]], expected[:, [0, 1, 3]])
    most = channels * height * width / (gamma_tensor_filter.FEW // 4) + 8
    np.testing.assert_allclose(found[:, 2], expected[:, 2], rtol=2 * most * 2**-24)


@pytest.mark.parametrize("order", ["NHWC", "NCHW"])
@pytest.mark.parametrize("direction", ["forward", "backward_data"])
def test_images_are_read_with_few_bank_conflicts(order, direction) -> None:
    """At most twofold over all of a kernel's requests, where channels lie 16 floats apart too."""
    problem = Problem.of((1, 9, 20, 64), (64, 4, 4, 64), padding=1)
    its = _plan(problem, direction, "gamma:6:3:4")
    assert gamma_tensor_filter.shape(its).image
    w = np.ones(problem.w_shape, "float32")
    if order == "NCHW":
        w = np.ascontiguousarray(w.transpose(0, 3, 1, 2)).transpose(0, 2, 3, 1)
    lost: Counter[bool] = Counter()
    kernels, asked = hosted.counting(its)
    hosted.prepared(its, w, kernels)
    for q in asked["winolab_filter"]:
        lost[q.write] += q.wavefronts - 2 * q.phases
    assert lost.keys() == {False, True}
    assert max(lost.values()) <= 0
