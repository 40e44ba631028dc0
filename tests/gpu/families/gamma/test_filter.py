"""The transformed filter of split products: the same bits from shared memory and from w itself."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.gpu import hosted
from tests.gpu.every_kernel.views import FAR
from tests.gpu.guarded import ROOMLESS
from tests.gpu.support.picked import of_gamma
from tests.gpu.support.turns import turns
from winolab.algorithm import Problem, parse_algorithm
from winolab.device import H100
from winolab.gpu import driver
from winolab.gpu.families import correlation_params, scale
from winolab.gpu.families.gamma import filter as gamma_filter
from winolab.gpu.planner.request import Request
from winolab.gpu.runtime import loader
from winolab.gpu.runtime.array_layout import ArrayLayout

# Output channels, filter height and width, channels: blocks of four rows that have room; of two,
# as four would leave multiprocessors idle; of two, for which alone there is room; without room.
FOUR, IDLE, LONG, NONE = (70, 3, 3, 36), (140, 2, 3, 20), (4, 7, 7, 320), (4, 9, 9, 448)


def _plan(problem: Problem, direction: str, algorithm: str | None) -> Any:
    asked = parse_algorithm(algorithm) if algorithm else None
    return of_gamma(Request(problem, direction, H100, asked, "fp32_split")).primary


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
    form = gamma_filter.shape(its)
    assert (form.image > 0) == imaged[scattered]
    assert form.rows == (rows if form.image else 4)
    rng = np.random.default_rng(0)
    w = rng.standard_normal(problem.w_shape).astype("float32")
    first = hosted.prepared(its, w)
    assert np.isfinite(first[: its.layout.rows // 4].view("float32")).all()
    spread = np.concatenate([w, w], axis=3)[..., :channels]  # from which no image is made
    assert gamma_filter.shape(its, dense=False).image == 0
    other = hosted.prepared(its, spread)
    _check_same(other, first, its)


@pytest.mark.parametrize("direction", ["forward", "backward_data"])
@pytest.mark.parametrize("axis", [1, 2])
def test_an_axis_of_one_element_has_any_stride(direction, axis) -> None:
    """As views of PyTorch have: no field of the kernel's parameters holds it, nor needs to."""
    shape = [24, 3, 3, 3, 24]
    shape[axis] = 1
    problem = Problem.of((1, 4, 20, 20, 24), tuple(shape), padding=(0, 1, 1))
    its = _plan(problem, direction, "gamma:6:4:3")
    assert gamma_filter.shape(its).image
    w = np.random.default_rng(0).standard_normal(shape).astype("float32")
    strides = [FAR * 4 if i == axis else step for i, step in enumerate(w.strides)]
    far = np.lib.stride_tricks.as_strided(w, strides=strides)
    np.testing.assert_array_equal(hosted.prepared(its, far), hosted.prepared(its, w))


def _check_same(found: np.ndarray, expected: np.ndarray, its: Any) -> None:
    np.testing.assert_array_equal(found[its.layout.rows // 4 :], expected[its.layout.rows // 4 :])
    # Rows' sums of squares are added in other orders, by no fewer threads than four rows have.
    rows, others = (
        r[: its.layout.rows // 4].view("float32").reshape(-1, 4) for r in (found, expected)
    )
    np.testing.assert_array_equal(rows[:, [0, 1, 3]], others[:, [0, 1, 3]])
    c = its.correlation
    most = c.channels * math.prod(c.filter) / (gamma_filter.FEW // 4) + 8
    np.testing.assert_allclose(rows[:, 2], others[:, 2], rtol=2 * most * 2**-24)


PAIRED = [  # images, output channels, filter and channels, algorithm, whether filters are wgmma's B
    (1, (12, 4, 7, 65), "gamma:8:2:7", False),
    (128, (72, 4, 7, 68), "gamma:8:2:7", True),
    (128, (40, 3, 3, 37), "gamma:6:4:3", True),
    (128, (200, 7, 7, 48), "gamma:10:4:7", True),
]


def _paired(direction: str, shape: Any, algorithm: str, images: int) -> tuple[Any, Any, Any]:
    """A plan, the same of a device where blocks are paired, and a filter that loses elements."""
    outputs, height, width, channels = shape
    if direction == "backward_data":
        outputs, channels = channels, outputs
    problem = Problem.of((images, 40, 40, channels), (outputs, height, width, channels), padding=1)
    alone = _plan(problem, direction, algorithm)
    paired = replace(alone, device=ROOMLESS)
    forms = [gamma_filter.shape(its) for its in (alone, paired)]
    assert [form.kernel for form in forms] == [
        "winolab_gamma_filter_scaled",
        "winolab_gamma_filter_cluster",
    ]
    w = np.random.default_rng(0).standard_normal(problem.w_shape).astype("float32")
    w[..., 0] *= np.float32(2.0**-20)
    return alone, paired, w


@pytest.mark.parametrize(
    ("direction", "case", "dense"),
    turns(["forward", "backward_data"], PAIRED, [True, False]),
    ids=str,
)
def test_two_blocks_find_what_one_finds(direction, case, dense) -> None:
    images, shape, algorithm, turned = case
    alone, paired, w = _paired(direction, shape, algorithm, images)
    assert (alone.config.u_ring > 0) == turned
    if not dense:
        w = np.concatenate([w, w], axis=3)[..., : w.shape[3]]
    first, other = (hosted.prepared(its, w) for its in (alone, paired))
    _check_same(other, first, alone)
    other[alone.layout.rows // 4 + 7] ^= 1
    with pytest.raises(AssertionError):
        _check_same(other, first, alone)


@pytest.mark.gpu
@pytest.mark.parametrize("direction", ["forward", "backward_data"])
def test_two_blocks_find_it_on_the_device(direction) -> None:
    cp = driver.cupy()
    for images, shape, algorithm, _ in PAIRED:
        alone, paired, values = _paired(direction, shape, algorithm, images)
        w, found = cp.asarray(values), []
        kernels = loader.load(alone.source(), "a filter's", alone.shared(), 0)
        for its in (alone, paired):
            to = cp.full(alone.prepared_size, 255, "uint8")
            its.prepare(
                kernels, ArrayLayout.fresh(w.shape).view(w.data.ptr, filter=True), to.data.ptr, 0
            )
            found.append(to.get().view("uint32"))
        assert np.isfinite(found[0][: alone.layout.rows // 4].view("float32")).all()
        _check_same(found[1], found[0], alone)


@pytest.mark.parametrize(
    ("order", "direction"), turns(["NHWC", "NCHW"], ["forward", "backward_data"])
)
def test_images_are_read_with_few_bank_conflicts(order, direction) -> None:
    """At most twofold over all of a kernel's requests, where channels lie 16 floats apart too."""
    problem = Problem.of((1, 9, 20, 64), (64, 4, 4, 64), padding=1)
    its = _plan(problem, direction, "gamma:6:3:4")
    assert gamma_filter.shape(its).image
    w = np.ones(problem.w_shape, "float32")
    if order == "NCHW":  # taps side by side, and a row's in one piece
        axes = (0, 3, 1, 2) if direction == "forward" else (3, 0, 1, 2)
        w = np.ascontiguousarray(w.transpose(axes)).transpose(np.argsort(axes))
    _, *strides = correlation_params.filter_map(its.correlation, hosted.filter_view(w), 0, its.size)
    assert scale.dense(its.correlation, strides[1:])[1]  # so that there are images
    lost: Counter[bool] = Counter()
    kernels, asked = hosted.counting(its)
    hosted.prepared(its, w, kernels)
    for q in asked["winolab_gamma_filter_scaled"]:
        lost[q.write] += q.wavefronts - 2 * q.phases
    assert lost.keys() == {False, True}
    assert max(lost.values()) <= 0
