"""How arrays lie in memory."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from winolab.gpu.runtime.array_layout import ArrayLayout, Overlap


def test_places_know_what_kernels_can_read() -> None:
    shape = (2, 3, 4, 8)
    fresh = ArrayLayout.fresh(shape)
    assert fresh.strides == (96, 32, 8, 1)
    assert fresh.direct
    assert fresh.aligned(4)
    assert fresh.aligned(2)
    assert not ArrayLayout.fresh((2, 3, 4, 6)).aligned(4)
    assert ArrayLayout.fresh((1, 1, 1, 6)).aligned(4)  # one pixel: strides do not count
    assert not ArrayLayout(shape, (96, 32, -8, 1)).direct
    assert not ArrayLayout(shape, (96, 32, 8, 2)).direct
    assert ArrayLayout((2, 3, 4, 1), (96, 32, 8, 5)).direct  # one channel
    assert not ArrayLayout(shape, (1 << 40, 1 << 38, 1 << 33, 1)).direct
    widest = (2**31 - 1) // 15  # α = 16: the last pixel of a tile is 15 from its first
    assert not ArrayLayout(shape, (1 << 40, 1 << 38, widest + 1, 1)).direct
    assert fresh.view(64, filter=False).strides == (96, 0, 32, 8)
    assert fresh.view(64, filter=True).strides == (96, 0, 32, 8, 1)
    line = ArrayLayout.fresh((2, 9, 8))
    assert line.view(64, filter=False).strides == (72, 0, 0, 8)


def test_steps_between_pixels_of_neighbouring_images_fit_32_bits() -> None:
    shape = (4, 3, 5, 8)
    assert ArrayLayout.fresh(shape).steps_fit
    assert ArrayLayout.fresh((4, 1 << 20, 1 << 9, 8)).steps_fit  # an image of 2³² elements, no gaps
    assert ArrayLayout(shape, (2**31 - 121, 40, 8, 1)).steps_fit
    assert not ArrayLayout(shape, (2**31 - 120, 40, 8, 1)).steps_fit
    assert not ArrayLayout(shape, (120, 1 << 30, 8, 1)).steps_fit


def addresses(place: ArrayLayout, first: int, size: int) -> list[int]:
    """Addresses of all bytes of all elements."""
    steps = (
        range(0, n * s, s) if s else [0] * n
        for n, s in zip(place.shape, place.strides, strict=True)
    )
    return [first + size * sum(where) + byte for where in product(*steps) for byte in range(size)]


PLACES = st.builds(
    ArrayLayout,
    st.tuples(*[st.integers(1, 3)] * 3),
    st.tuples(*[st.sampled_from([0, 1, 2, 3, 4, 6, 9, 12])] * 3),
)


@given(PLACES, PLACES, st.integers(-60, 60), st.sampled_from([2, 4]), st.sampled_from([2, 4]))
@settings(max_examples=300, deadline=None)
def test_places_that_overlap_are_those_with_a_byte_in_common(one, other, offset, size, out_size):
    own, theirs = addresses(one, 200, size), addresses(other, 200 + offset, out_size)
    assert max(own) == 200 + size * one.span - 1
    assert not one.distinct or len(set(own)) == len(own)
    meets = Overlap({1: (one, size)}, other, out_size)
    assert meets((0, 200), 200 + offset) == bool({*own} & {*theirs})


@pytest.mark.parametrize(
    ("order", "strides", "unit"),
    [("nhwc", (60, 12, 4, 1), 3), ("nchw", (60, 3, 1, 15), 2), ("chwn", (1, 6, 2, 30), 0)],
)
def test_memory_orders(order, strides, unit) -> None:
    """Two images of 5 × 3 pixels and four channels: what is contiguous, channels' stride."""
    made = ArrayLayout.fresh((2, 5, 3, 4), order)
    assert (made.strides, made.order) == (strides, order)
    assert strides[unit] == 1
    assert made.direct
    for other in ("nhwc", "nchw", "chwn"):
        assert replace(made, order=other).direct == (other == order)
    n, h, w, c = strides
    expected = (n, 0, h, w) if order == "nhwc" else (n, 0, h, w, c)
    assert made.view(256, filter=False).strides == expected
    # 16 bytes are four elements: of the other strides none is odd in their multiples
    rest = [s for axis, s in enumerate(strides) if axis != unit]
    assert made.aligned(4) == all(s % 4 == 0 for s in rest)
    assert ArrayLayout.fresh((8, 4, 4, 4), order).aligned(4)
