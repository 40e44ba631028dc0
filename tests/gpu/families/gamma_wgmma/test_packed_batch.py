"""Γ on Tensor Cores where blocks' rows run on from image to image, of a packed batch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.gpu import hosted
from tests.gpu.families.gamma_wgmma.policies import BOUND, Pairs, by_turns, paired
from tests.gpu.support.picked import of_gamma
from winolab.algorithm import Problem, parse_algorithm
from winolab.bench.layers import parse_layer
from winolab.bench.oracle import relative_rms
from winolab.device import H100
from winolab.gpu import driver
from winolab.gpu.families.gamma.tiles import TEN
from winolab.gpu.families.gamma_wgmma.config import Config
from winolab.gpu.families.gamma_wgmma.packed_batch import packed_batch
from winolab.gpu.families.gamma_wgmma.plan import GammaWgmmaPlan, plans
from winolab.gpu.params import View
from winolab.gpu.planner.accuracy import predicted_rms
from winolab.gpu.planner.correlation import Correlation
from winolab.gpu.planner.fallback import CorrelationWithFallback
from winolab.gpu.planner.request import DTYPES, Request
from winolab.gpu.runtime import loader
from winolab.ref.algorithms import convolution

SPLIT = "fp32_split"
BOUNDS = {SPLIT: BOUND, "fp16": 5 * 2**-11, "bf16": 5 * 2**-8}  # as test_plan.py has them


def _found(
    problem: Problem, text: str, precision: str, direction: str = "forward", **more
) -> list[GammaWgmmaPlan]:
    request = Request(
        problem, direction, H100, parse_algorithm(text), precision, out_dtype="float32", **more
    )
    return list(plans(request))


@given(st.data())
def test_zeros_between_images_serve_both(data) -> None:
    """What an output reads, and a box brings, is of its own image, or zeros."""
    taps, height = (data.draw(st.integers(1, most)) for most in (9, 20))
    padding = data.draw(st.tuples(st.integers(0, taps), st.integers(0, taps)))
    assume(height + sum(padding) >= taps)
    batch, width, box_rows = (data.draw(st.integers(1, most)) for most in (40, 9, 4))
    problem = Problem.of((batch, height, 6 * width, 4), (4, taps, 3, 4), padding=(padding, (1, 1)))
    direction = data.draw(st.sampled_from(["forward", "backward_data"]))
    c = Correlation.of(problem, direction)
    images = data.draw(st.sampled_from([n for n in (1, 2, 4) if batch % n == 0]))
    columns, more = data.draw(st.sampled_from([8, 16])), data.draw(st.integers(0, 3))
    made = packed_batch(c, taps + more, width, columns, images, box_rows)
    assert made.abreast * width * c.output[0] % columns == made.abreast % images == 0
    under = -(-batch // made.abreast)
    assert made.rows == (under - 1) * made.pitch + c.output[1]
    real = {i * made.pitch + row: i for i in range(under) for row in range(c.input[1])}
    for image in range(under):
        for output in range(c.output[1]):
            first = image * made.pitch + output - c.padding[1]
            assert {real.get(first + tap, image) for tap in range(taps + more)} == {image}
    for first in range(-c.padding[1], made.rows + taps):
        assert len({real[at] for at in range(first, first + box_rows) if at in real}) <= 1


def _exact_and_operands(problem: Problem, direction: str, precision: str):
    shape = problem.x_shape if direction == "forward" else problem.y_shape
    dtype, rng = np.dtype(DTYPES[precision]), np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype(dtype) for s in (shape, problem.w_shape))
    return getattr(convolution, direction)(a.astype(float), b.astype(float), problem), a, b


CASES: list[Any] = [
    # direction, x, w, options, algorithm, precision
    ("forward", (5, 10, 12, 16), (68, 3, 3, 16), {"padding": 1}, "gamma:8:6:3", SPLIT),
    # four taps: a row of zeros more on one side; images that do not fill the last row of them
    ("backward_data", (7, 9, 9, 8), (8, 4, 4, 8), {"padding": 2}, "gamma:8:5:4", SPLIT),
    ("forward", (4, 10, 13, 8), (48, 7, 7, 8), {"padding": 3}, "gamma:10:4:7", SPLIT),
    # no padding: outputs end before the input does; padding of more than the filter needs
    ("forward", (6, 13, 25, 14), (10, 5, 2, 7), {"groups": 2}, "gamma:4:3:2", SPLIT),
    ("forward", (8, 7, 12, 8), (8, 2, 3, 8), {"padding": (3, 1)}, "gamma:8:6:3", SPLIT),
    # three dimensions, more filter rows than a stage has
    ("forward", (12, 2, 10, 8, 8), (8, 2, 6, 5, 8), {"padding": (0, 2, 2)}, "gamma:8:4:5", SPLIT),
    ("forward", (6, 10, 13, 16), (20, 4, 4, 16), {"padding": 2}, "gamma:8:5:4", "fp16"),
    ("backward_data", (9, 5, 9, 8), (8, 3, 3, 8), {"padding": 1}, "gamma:6:4:3", "bf16"),
]


def _pairs(number: int) -> Pairs:
    """A case's packed plans beside the same of one image's rows; by filter rows of a stage, and
    whether some are left."""
    direction, x_shape, w_shape, options, text, precision = CASES[number]
    problem = Problem.of(x_shape, w_shape, **options)
    found = _found(problem, text, precision, direction, aligned=w_shape[-1] % 4 == 0)
    pairs = paired(
        (p for p in found if p.config.packed),
        (p for p in found if not p.config.packed and p.config.run),
        # what packing decides, and the room that it leaves
        alike=lambda p: (p.tiles_width, replace(p.config, packed=0, exchanges=0)),
        rows=lambda p: (p.config.share, p.config.rest > 0),
    )
    return by_turns(pairs, number)


def test_every_way_has_its_turn() -> None:
    every = set().union(*(_pairs(number) for number in range(len(CASES))))
    whole, some = {(1, (share, False)) for share in (1, 3, 4, 5)}, {(1, (3, True)), (1, (4, True))}
    assert every >= whole | some | {(split_k, None) for split_k in (2, 4, 8)}


@pytest.mark.parametrize("number", range(len(CASES)))
def test_they_have_the_same_bits(number: int) -> None:
    """As the same blocks of one image's rows; also of clusters that share sums, whose outputs other
    warps store, and of a copy of the input whose channels are filled up."""
    direction, x_shape, w_shape, options, _, precision = CASES[number]
    problem = Problem.of(x_shape, w_shape, **options)
    exact, a, b = _exact_and_operands(problem, direction, precision)
    for p, same in _pairs(number).values():
        assert p.work_tiles <= same.work_tiles or p.config.multicast > 1
        result = hosted.execute(p, a, b)
        assert np.array_equal(result, hosted.execute(same, a, b)), str(p.config)
        most = 1.2 * predicted_rms(p) if p.tile.alpha == TEN else BOUNDS[precision]
        assert relative_rms(result, exact) <= most


def test_nan_stays_in_its_image() -> None:
    """Also where zeros fill up a stage's filter rows: of 16 bits, which nothing checks."""
    problem = Problem.of((6, 10, 12, 16), (20, 4, 3, 16), padding=(2, 1))
    exact, a, b = _exact_and_operands(problem, "forward", "fp16")
    a[1::2] = np.nan
    found = _found(problem, "gamma:8:6:3", "fp16")
    found = [p for p in found if p.config.packed and p.config.split_k == 1]
    assert found
    for p in found:
        result = hosted.execute(p, a, b)
        assert np.isnan(result[1::2]).all()
        assert relative_rms(result[::2], exact[::2]) <= BOUNDS["fp16"], str(p.config)


def test_they_are_offered_where_they_take_fewer_blocks() -> None:
    for height, fewer in ((16, False), (17, True), (23, False), (28, True)):
        problem = Problem.of((32, height, 24, 16), (64, 3, 3, 16), padding=1)
        found = _found(problem, "gamma:8:6:3", SPLIT)
        assert any(p.config.packed for p in found if p.config.rows == 8) == fewer
    alone = Problem.of((1, 17, 48, 16), (64, 3, 3, 16), padding=1)
    assert not any(p.config.packed for p in _found(alone, "gamma:8:6:3", SPLIT))


@pytest.mark.parametrize("layer", ["128x13x13x384:384x4x4", "64x18x18x448:448x5x5"])
def test_they_are_taken(layer: str) -> None:
    """They took 22 and 15 % less time than the fastest other plan."""
    found = of_gamma(Request(parse_layer(layer).problem, "forward", H100, precision="fp32"))
    assert isinstance(found, CorrelationWithFallback)
    assert isinstance(found.config, Config)
    assert found.config.packed
    assert " abreast" in str(found)


@pytest.mark.gpu
@pytest.mark.parametrize("precision", [SPLIT, "fp16"])
@pytest.mark.parametrize(
    ("x_shape", "w_shape", "padding", "text"),
    [
        ((9, 13, 13, 96), (96, 4, 4, 96), 2, "gamma:8:5:4"),
        ((7, 18, 18, 64), (112, 5, 5, 64), 2, "gamma:8:4:5"),
        ((33, 11, 11, 40), (20, 3, 3, 40), 1, "gamma:6:4:3"),
        ((16, 11, 15, 32), (64, 2, 2, 32), 0, "gamma:4:3:2"),
    ],
)
def test_on_the_device(x_shape, w_shape, padding, text, precision) -> None:
    cp = driver.cupy()
    problem = Problem.of(x_shape, w_shape, padding=padding)
    exact, a, b = _exact_and_operands(problem, "forward", precision)
    x, w = cp.asarray(a), cp.asarray(b)
    found = {}  # one of each way to share sums and to bring filters
    for p in (p for p in _found(problem, text, precision) if p.config.packed):
        v = p.config
        found.setdefault((min(v.split_k, 2), v.u_ring > 0, v.u_ahead > 0, v.multicast), p)
    assert found
    for p in found.values():
        out = cp.full(problem.y_shape, np.nan, "float32")
        space = cp.full(max(1, p.workspace), 255, "uint8")
        p.launch(
            loader.load(p.source(), p.kernel, p.shared(), 0),
            View(x.data.ptr, hosted._strides(x, 4)),
            View(w.data.ptr, hosted._strides(w, 5)),
            View(out.data.ptr, hosted._strides(out, 4)),
            space.data.ptr,
            0,
        )
        assert relative_rms(out.get(), exact) <= BOUNDS[precision], str(p.config)
