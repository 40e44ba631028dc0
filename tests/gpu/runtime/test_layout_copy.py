"""Copies into another memory order, alone and in calls, by their kernel on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import winolab
from tests.gpu import hosted
from tests.gpu.support.pretended import Array
from winolab.gpu.params import MOST
from winolab.gpu.runtime.array_layout import ArrayLayout
from winolab.gpu.runtime.layout_copy import KERNEL, Access, LayoutCopy, merged

WORDS = {2: np.uint16, 4: np.uint32}


SHAPE, FILTER = (2, 5, 8, 12), (16, 3, 3, 12)
HOW: dict[str, Any] = {"padding": 1, "algorithm": "gamma:4:2:3", "precision": "fp32_ffma"}


def layout(array: np.ndarray) -> ArrayLayout:
    strides = tuple(s // array.itemsize for s in array.strides)
    return ArrayLayout(array.shape, strides, array.ctypes.data % 16 == 0)


def copied(source: np.ndarray, target: np.ndarray) -> LayoutCopy:
    """Copy by the kernel; arrays are views of what lies between guard zones."""
    made = LayoutCopy.of(layout(source), layout(target), source.itemsize)
    kernels = hosted.load(made.source(), {KERNEL: 0})
    made.launch(kernels, source.ctypes.data, target.ctypes.data)
    assert (target == source).all()
    return made


def channels(shape: tuple[int, ...], size: int) -> tuple[np.ndarray, np.ndarray]:
    """An array of any bits, those of NaN too, channels-last; and the same, channels-first."""
    bits = np.random.default_rng(sum(shape)).integers(0, 1 << 8 * size, shape)
    last = bits.astype(WORDS[size])
    return last, np.moveaxis(np.ascontiguousarray(np.moveaxis(last, -1, 1)), 1, -1)


@pytest.mark.parametrize("size", WORDS)
@pytest.mark.parametrize(
    "shape",
    [
        (2, 960, 96),  # one dimension
        (1, 17, 19, 3),  # no row is aligned
        (3, 9, 14, 70),
        (2, 7, 7, 130),  # whole maps are rows that follow each other
        (1, 13, 17, 131),  # longer than a tile
        (1, 5, 12, 10, 96),  # three, of one image
        (2, 4, 4, 1),
        (1, 1, 1, 5),
    ],
    ids=str,
)
def test_between_channels_first_and_last(shape, size: int) -> None:
    last, first = channels(shape, size)
    for source in (last, first):
        for like in (last, first):
            target = hosted.Guarded(shape, last.dtype.name)
            view = target.array
            if like is first:
                n, *spatial, ic = shape
                view = np.moveaxis(view.reshape(n, ic, *spatial), 1, -1)
            copied(source, view)
            target.check("the copy")


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_of_any_views(data: st.DataObject) -> None:
    """Gaps, steps backwards, broadcast and permuted axes, unaligned beginnings."""
    size = data.draw(st.sampled_from(sorted(WORDS)))
    shape = tuple(data.draw(st.lists(st.integers(1, 12), min_size=3, max_size=5)))
    ends = []
    for kind in ("source", "target"):
        order = data.draw(st.permutations(range(len(shape))), label=kind)
        steps = [data.draw(st.sampled_from((1, 1, -1, 2, 3))) for _ in shape]
        sizes = [shape[axis] * abs(steps[axis]) + data.draw(st.integers(0, 1)) for axis in order]
        offset = data.draw(st.sampled_from((0, 0, 1)))
        memory = hosted.Guarded((offset + int(np.prod(sizes)),), WORDS[size].__name__)
        if kind == "source":
            memory.array[...] = np.random.default_rng(0).integers(0, 1 << 16, memory.array.size)
        view = memory.array[offset:].reshape(sizes).transpose(np.argsort(order))
        view = view[tuple(slice(None, None, step) for step in steps)]
        view = view[tuple(slice(0, n) for n in shape)]
        ends.append((memory, view))
    (_, source), (memory, target) = ends
    if data.draw(st.booleans()):
        source = np.broadcast_to(source[:, :1], shape)
    reached = np.zeros_like(memory.array, bool)
    before = memory.array.copy()
    copied(source, target)
    memory.check("the copy")
    at = (target.ctypes.data - memory.array.ctypes.data) // size
    strides = [s // size for s in target.strides]
    for index in np.ndindex(*shape):
        reached[at + sum(i * s for i, s in zip(index, strides, strict=True))] = True
    assert (memory.array[~reached] == before[~reached]).all()  # gaps stay as they were


def test_accesses_are_as_wide_as_both_orders_allow() -> None:
    def of(shape: tuple[int, ...], size: int, *, back: bool = False, aligned: bool = True):
        last, first = ArrayLayout.fresh(shape), ArrayLayout.fresh(shape).channels_first()
        first = ArrayLayout(shape, first.strides, aligned)
        return LayoutCopy.of(*((last, first) if back else (first, last)), size)

    video = of((1, 17, 240, 416, 96), 4)
    assert (video.loads, video.stores, video.f.size) == (Access(4), Access(4), 1697280)
    for back in (False, True):
        assert of((1, 8, 8, 96), 2, back=back).loads == Access(8)
    anywhere = Access(8, late=True)
    assert (of((1, 61, 61, 96), 2).loads, of((1, 61, 61, 96), 2).stores) == (anywhere, Access(8))
    assert of((1, 61, 61, 96), 2, back=True).stores == anywhere
    assert of((1, 8, 64, 96), 2, aligned=False).loads == anywhere
    rgb = of((4, 224, 224, 3), 4), of((4, 224, 224, 3), 4, back=True)
    assert [copy.tile for copy in rgb] == [(1024, 4), (4, 1024)]
    assert rgb[0].stores == rgb[1].loads == Access(4, late=True, merged=True)


def test_what_is_too_large_is_refused() -> None:
    shape = (1 << 22, 1 << 20, 1, 2)
    made = LayoutCopy.of(ArrayLayout.fresh(shape), ArrayLayout.fresh(shape).channels_first(), 4)
    assert made.blocks > MOST
    with pytest.raises(ValueError, match=r"the number of blocks of a copy is .*: split the arrays"):
        made.launch({}, 0, 0)


def test_tiles_end_where_the_kernel_counts() -> None:
    """Places are 32-bit numbers, up to the end of the last tile."""
    gaps = ArrayLayout((1, MOST - 64, 1), (2 * MOST, 2, 1), True)
    made = LayoutCopy.of(gaps, ArrayLayout.fresh(gaps.shape), 4)
    with pytest.raises(ValueError, match=r"a copy's end along [fg] is .*: split the arrays"):
        made.launch({}, 0, 0)


def test_axes_stay_countable() -> None:
    shape = (1 << 12, 1 << 12, 1 << 12, 4)
    both = ArrayLayout.fresh(shape)
    assert [axis.size for axis in merged(both, both)] == [1 << 24, 1 << 14]


def operands() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x, w = (rng.uniform(-1, 1, shape).astype(np.float32) for shape in (SHAPE, FILTER))
    return x, w, winolab.conv_forward(x, w, padding=1, precision="fp64", out_dtype=float)


def close(got: Array, expected: np.ndarray) -> bool:
    return bool(np.abs(got.values - expected).max() <= 1e-5)


def test_channels_first_memory_comes_back_as_it_came(library) -> None:
    x, w, y = operands()
    first = [np.ascontiguousarray(np.moveaxis(v, -1, 1)) for v in (x, w)]
    got = winolab.conv_forward(*map(Array, first), layout="channels_first", **HOW)
    assert got.values.flags.c_contiguous
    assert close(got, np.moveaxis(y, -1, 1))
    assert library.reordered() == ["a", "out"]  # the filter is read where it lies
    last = [np.moveaxis(v, -1, 1) for v in (x, w)]
    got = winolab.conv_forward(*map(Array, last), layout="channels_first", **HOW)
    assert np.moveaxis(got.values, 1, -1).flags.c_contiguous
    assert close(got, np.moveaxis(y, -1, 1))
    assert not library.reordered()
    got = winolab.conv_forward(Array(np.moveaxis(first[0], 1, -1)), Array(w), **HOW)
    assert np.moveaxis(got.values, -1, 1).flags.c_contiguous  # axes last, memory first
    assert close(got, y)
    assert not library.copied


def test_what_lies_otherwise_is_copied(library) -> None:
    x, w, y = operands()
    backwards = np.ascontiguousarray(x[:, ::-1])[:, ::-1]
    spread = np.zeros((*SHAPE[:-1], 2 * SHAPE[-1]), np.float32)
    spread[..., ::2] = x
    for value, copies in (
        (backwards, ["a"]),
        (spread[..., ::2], ["a"]),
        (np.array(x)[:, :, :, :], []),
    ):
        assert close(winolab.conv_forward(Array(value), Array(w), **HOW), y)
        assert library.reordered() == copies
    filters = np.ascontiguousarray(w[:, ::-1])[:, ::-1]
    assert close(winolab.conv_forward(Array(x), Array(filters), **HOW), y)
