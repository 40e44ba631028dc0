"""Scales and thresholds of split products, as the kernel finds them on the CPU."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from tests.gpu import hosted
from winolab.algorithm import Problem, Tile
from winolab.device import H100
from winolab.gpu.families import scale
from winolab.gpu.families.gamma import filter as gamma_filter
from winolab.gpu.families.gamma_wgmma import plan as gamma_wgmma
from winolab.gpu.params import View
from winolab.gpu.planner.correlation import Correlation
from winolab.gpu.planner.request import Request
from winolab.ref.algebra.transforms import transforms


def _found(problem: Problem, direction: str, x: np.ndarray, w: np.ndarray):
    """The sample's maximum, and the rows (scale, back, least) of every group's outputs."""
    plan = next(iter(gamma_wgmma.plans(Request(problem, direction, H100, None, "fp32_split"))))
    c = plan.correlation
    header = np.full(scale.HEADER // 4, np.nan, "float32")
    kernels = hosted.load(plan.source(), plan.shared())
    prepared = hosted.prepared(plan, w, kernels).view("float32")
    of_x = View(x.ctypes.data, hosted._strides(x, 4))
    where = header.ctypes.data, prepared.ctypes.data
    scale.scale(kernels, scale.parameters(c, *where, of_x, x.shape[-1] % 4 == 0), early=False)
    assert not header[:3].view("int32").any()
    rows = prepared[: scale.size(c) // 4].reshape(c.groups, -1, 4)
    return header[12 : 12 + scale.SAMPLERS].max(), rows, plan


@pytest.mark.parametrize("direction", ["forward", "backward_data"])
@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize(("groups", "channels"), [(1, 12), (2, 8), (1, 100)])
def test_scales_are_those_of_rows_and_of_the_sample(direction, dense, groups, channels) -> None:
    problem = Problem.of((2, 5, 9, channels * groups), (12 * groups, 3, 3, channels),
                         padding=1, groups=groups)  # fmt: skip
    rng = np.random.default_rng(1)
    shape = problem.x_shape if direction == "forward" else problem.y_shape
    x = rng.standard_normal(shape).astype("float32") * np.float32(1e-9)
    w = rng.standard_normal(problem.w_shape) * 2.0 ** rng.integers(-9, 9, (12 * groups, 1, 1, 1))
    w[1, :, :, 1] = 0
    w[5, 1, 1, 1] = w[2, 0, 2, 3] = 1e4  # holds half of its row, and maybe more
    w = w.astype("float32")
    if not dense:
        x = np.concatenate([x, x], axis=2)[:, :, : shape[2]]
        w = np.concatenate([w, w], axis=1)[:, :3]
    most, rows, plan = _found(problem, direction, x, w)
    shared = gamma_filter.shape(plan).sharers > 1
    assert shared == (direction == "forward" and channels == 100)
    assert most == np.abs(x).max()
    taps = w.reshape(groups, 12, 9, channels)
    if direction == "backward_data":
        taps = taps.transpose(0, 3, 2, 1)
    made = transforms(plan.tile.n, plan.tile.r, "best", "filter")
    growth = scale.constants((plan.tile, made))
    for group, values in zip(rows, taps, strict=True):
        count = len(values)
        peaks = np.abs(values).max(axis=(1, 2))
        expected = 2.0 ** (14 - growth["SCALE_FILTER"] - np.floor(np.log2(peaks)))
        np.testing.assert_array_equal(group[:count, 0], expected)
        np.testing.assert_array_equal(group[:count, 0] * group[:count, 1], 1)
        scaled = values * group[:count, :1, None]
        rms = np.sqrt(np.mean(scaled.astype(float) ** 2, axis=(1, 2)))
        lossy = np.mean((scaled != 0) & (np.abs(scaled) < 0.25), axis=(1, 2))
        least = growth["LEAST_INPUT"] / 1024 * rms
        least = least + growth["LEAST_FILTER"] * 32 * np.sqrt(lossy)
        squares = scaled.astype(float) ** 2
        least[squares.max(axis=(1, 2)) > squares.sum(axis=(1, 2)) / 2] = np.inf
        np.testing.assert_allclose(group[:count, 2], least, rtol=1e-5)
        np.testing.assert_array_equal(group[:, 3], 0)
        np.testing.assert_array_equal(group[count:], [[1, 1, 0, 0]] * (len(group) - count))


def test_rows_are_found_wherever_they_lie() -> None:
    """By vectors where they are aligned and dense, by elements else: sums of other order."""
    problem = Problem.of((1, 4, 7, 20), (12, 3, 3, 20), padding=1)
    x, w = np.ones(problem.x_shape, "float32"), np.empty((12, 3, 3, 21), "float32")
    w[...] = np.random.default_rng(2).standard_normal(w.shape) * 2.0 ** -np.arange(21)
    first = w[..., :20]
    memory = np.empty(first.size + 1, "float32")
    shifted = memory[1:].reshape(first.shape)
    shifted[...] = first
    found = [_found(problem, "forward", x, v)[1] for v in (first.copy(), shifted, first)]
    for rows in found[1:]:
        np.testing.assert_allclose(rows, found[0], rtol=1e-6)
    np.testing.assert_array_equal(found[1], found[2])


def test_a_large_input_is_sampled_in_all_its_channels() -> None:
    problem = Problem.of((3, 40, 50, 64), (4, 3, 3, 64), padding=1)
    x = np.ones(problem.x_shape, "float32")
    for channel in (0, 17, 63):
        x[:] = 1
        x[..., channel] = 4
        assert _found(problem, "forward", x, np.ones(problem.w_shape, "float32"))[0] == 4


def test_thresholds_follow_the_errors_of_both_kinds() -> None:
    """FP32 in order errs by 0.30 · 2^-24 √K, parts by 2^-25/√3 of an operand."""
    made = transforms(6, 3, "best", "filter")
    at, g = (np.array(m, float) for m in (made.AT, made.G))
    grown = math.sqrt((at**2 @ (g**2).sum(1)).mean())
    least = 2**-25 / math.sqrt(3) * grown / (1.3 * 0.30 * 2**-24 * math.sqrt(3))
    least *= math.sqrt(2 / math.pi)  # RMS to mean
    found = scale.constants((Tile(6, 3), made))["LEAST_INPUT"] / 1024
    assert found == pytest.approx(least, rel=2e-3)


@pytest.mark.parametrize("images", [5, 8, 13, 14, 15, 40])
def test_samples_are_of_all_of_the_input(images) -> None:
    """Where there are fewer vectors than samples, as many, up to twice as many, and more."""
    problem = Problem.of((images, 24, 24, 64), (4, 3, 3, 64), padding=1)
    rng = np.random.default_rng(2)
    x = rng.uniform(0.5, 1, problem.x_shape).astype("float32")
    x[-images // 4 :] *= 16
    w = np.ones(problem.w_shape, "float32")
    most, _, _ = _found(problem, "forward", x, w)
    assert most >= 8


@pytest.mark.parametrize(
    ("tiles", "output"),
    [
        ((Tile(6, 3),), (1, 7, 7)),
        ((Tile(2, 3),), (1, 5, 9)),
        ((Tile(3, 2),), (3, 5, 8)),
        ((Tile(4, 3), Tile(4, 3)), (1, 9, 9)),
        ((Tile(2, 3), Tile(2, 3)), (1, 7, 7)),
        ((Tile(4, 3), Tile(2, 3)), (2, 9, 8)),
    ],
)
def test_room_is_for_what_tiles_of_one_and_two_outputs_suspect(tiles, output) -> None:
    c = Correlation.of(Problem.of((40, *output, 8), (2000, 1, 1, 1, 8)), "forward")
    lengths = [
        [min(t.n, n - first) for first in range(0, n, t.n)]
        for t, n in zip(tiles, output[-len(tiles) :], strict=True)
    ]
    sizes = [math.prod(each) for each in itertools.product(*lengths)]
    each = 40 * 2000 * math.prod(output[: -len(tiles)])
    singles, pairs = (sizes.count(k) * each for k in (1, 2))
    least = singles // scale.SINGLE + pairs // scale.PAIR
    found = scale.room(c, tiles)
    assert found == min(max(scale.LEAST_ROOM, -(-least // 32) * 32), scale.MOST_ROOM)
    assert scale.header_size(c, tiles) % 256 == 0


def test_the_largest_results_have_room_for_twice_the_suspects_of_normal_data() -> None:
    """One of 3,000 outputs is one there. A video decoder's 1×1 of 767 million has 255,680, and all
    was computed again where there was room for 32,768; of fewer outputs nothing changes."""
    pixels = (1, 20, 480, 832, 192)
    c = Correlation.of(Problem.of(pixels, (96, 1, 1, 1, 192)), "forward")
    outputs = 20 * 480 * 832 * 96
    found = scale.room(c, (Tile(1, 1),))
    assert 2 * outputs // 3000 <= found < scale.MOST_LIKELY
    assert scale.noted(scale.header_size(c, (Tile(1, 1),))) == found
    few = Correlation.of(Problem.of((32, 56, 56, 64), (256, 1, 1, 64)), "forward")
    assert scale.room(few, (Tile(1, 1),)) == scale.MOST_ROOM


def test_axes_without_gaps_are_one_up_to_what_32_bits_count() -> None:
    sizes, contiguous = (4, 1 << 10, 1 << 10, 1 << 10, 2), (1 << 31, 1 << 21, 1 << 11, 2, 1)
    assert scale._merged(sizes, contiguous) == [4, 1 << 10, 1, 1, 1 << 21]
    assert scale._merged((3, 5, 7, 11, 2), (770, 154, 22, 2, 1)) == [1, 1, 1, 1, 2310]
    assert scale._merged((3, 5, 7, 11, 2), (770, 154, 24, 2, 1)) == [3, 5, 7, 1, 22]


@pytest.mark.parametrize(("images", "shape"), [(6, (3, 5, 8)), (3, (30, 31, 64)), (40, (2, 4, 5))])
def test_every_image_is_sampled_by_itself(images, shape) -> None:
    """All of a small one; of a large one enough to meet what is half as large as its largest."""
    problem = Problem.of((images, *shape), (4, 3, 3, shape[-1]), padding=1)
    plan = next(iter(gamma_wgmma.plans(Request(problem, "forward", H100, None, "fp32_split"))))
    rng = np.random.default_rng(3)
    x = rng.uniform(-1, 1, problem.x_shape).astype("float32")
    x *= (2.0 ** -rng.integers(0, 60, images)).astype("float32").reshape(-1, 1, 1, 1)
    x[1] = 0
    header = np.full((scale.HEADER + 4 * scale.PEAKS) // 4, np.nan, "float32")
    of_x, wide = View(x.ctypes.data, hosted._strides(x, 4)), shape[-1] % 4 == 0
    kernels = hosted.load(plan.source(), plan.shared())
    for known in (0, 1):
        asked = scale.parameters(
            plan.correlation, header.ctypes.data, 0, of_x, wide, known, by_image=True
        )
        scale.scale(kernels, asked, early=False)
        peaks, largest = header[scale.HEADER // 4 :], np.abs(x).max(axis=(1, 2, 3))
        least = header[12 + scale.SAMPLERS :][: -(-images // 8)].min()
        assert least == (np.inf if known else peaks[:images][peaks[:images] > 0].min())
        assert np.isnan(peaks[images:]).all()
        if known:
            assert not peaks[:images].any()
        elif math.prod(shape) <= 1024:
            np.testing.assert_array_equal(peaks[:images], largest)
        else:
            assert (peaks[:images] <= largest).all()
            assert (peaks[:images] >= largest / 2).all()
