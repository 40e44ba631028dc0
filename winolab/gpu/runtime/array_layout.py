"""How arrays lie in memory, and what the kernels ask of that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import prod
from types import SimpleNamespace
from typing import Any

import numpy as np

from winolab.arguments.arrays import apart, contiguous
from winolab.gpu.params import MAX_STRIDE, MOST, VECTOR, View, in_order, pitch
from winolab.gpu.planner.correlation import three
from winolab.gpu.runtime.arrays import Described

BASE, PATIENCE = 1 << 60, 10**5  # an address that nobody reads; steps of numpy.may_share_memory
UNIT = {"nhwc": -1, "nchw": -2, "chwn": 0}  # the axis whose elements are neighbours in memory


@dataclass(frozen=True)
class ArrayLayout:
    """A channels-last array: shape, strides in elements, whether its address is VECTOR-aligned, and
    the memory order in which its kernels work on it (a config's ``memory_order``, or ``planes``),
    which says nothing of where it lies."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    address_aligned: bool = True
    order: str = field(default="nhwc", compare=False)

    @classmethod
    def of(cls, array: Described, layout: str, order: str = "nhwc") -> ArrayLayout:
        """Where the array lies whose axes are those of ``layout``."""
        shape, strides = tuple(array.shape), tuple(array.strides)
        if layout == "channels_first":
            shape, strides = ((*v[:1], *v[2:], *v[1:2]) for v in (shape, strides))
        return cls(shape, strides, array.aligned, order)

    @classmethod
    def fresh(cls, shape: tuple[int, ...], order: str = "nhwc") -> ArrayLayout:
        """A new array of that shape, in that memory order."""
        made = cls(shape, contiguous(shape), True, order)
        if order == "nchw":
            return made.channels_first()
        if order == "chwn":
            n, *spatial, channels = shape
            first, *others, last = contiguous((channels, *spatial, n))
            return replace(made, strides=(last, *others, first))
        return made

    def channels_first(self) -> ArrayLayout:
        """A new array of that shape whose memory has channels before all spatial dimensions."""
        n, *spatial, channels = self.shape
        first, apart, *strides = contiguous((n, channels, *spatial))
        return replace(self, strides=(first, *strides, apart))

    def first(self, layout: str) -> bool:
        """Whether channels lie before all spatial dimensions in memory, as PyTorch decides it:
        where both orders are the same, by the axes of ``layout``."""
        axes = zip(self.shape[1:-1], self.strides[1:-1], strict=True)
        spatial = [abs(s) for n, s in axes if n > 1]
        if self.shape[-1] <= 1 or not spatial:
            return layout == "channels_first"
        return abs(self.strides[-1]) > max(spatial)

    @property
    def direct(self) -> bool:
        """Whether kernels can work on it: what is to be contiguous is (channels, of other orders
        columns or images), no stride negative or beyond int."""
        unit = UNIT[self.order]
        ends = self.shape[unit] <= 1 or self.strides[unit] == 1
        return ends and self.forward and max(self.strides[-2:]) <= MAX_STRIDE

    @property
    def regular(self) -> bool:
        """Whether every pixel, of filters every output channel, lies as far from the next."""
        return pitch(self.shape[:-1], self.strides[:-1], self.shape[-1]) is not None

    @property
    def side_by_side(self) -> bool:
        """Whether the channels of a row's pixels follow those of the one before."""
        step = self.strides[-1] if self.shape[-1] > 1 else 1  # one channel's stride says nothing
        return self.strides[-2] == self.shape[-1] * step

    def aligned_rows(self, itemsize: int) -> bool:
        """Whether every row begins at a VECTOR, where pixels lie ``side_by_side``, or in a copy in
        which they do."""
        whole = self.shape[-1] * self.shape[-2] * itemsize % VECTOR == 0
        if not self.side_by_side or not whole:  # as of an image alone, wherever in a batch it lies
            return whole
        rows = zip(self.shape[:-2], self.strides[:-2], strict=True)
        return self.address_aligned and all(n <= 1 or s * itemsize % VECTOR == 0 for n, s in rows)

    def planes(self, step: int, itemsize: int) -> ArrayLayout | None:
        """The array as it lies, as a matrix an image of channels that are planes without gaps;
        None where it is none, where its address is not aligned or ``step`` bytes do not divide the
        distances of planes and of images."""
        n, *spatial, _ = self.shape
        image, *steps, apart = self.strides
        dense = self.address_aligned and in_order(spatial, steps, 1)
        distances = (apart, image) if n > 1 else (apart,)
        fits = apart >= prod(spatial) and not any(d * itemsize % step for d in distances)
        return replace(self, order="nchw") if dense and fits and min(distances) >= 0 else None

    @property
    def forward(self) -> bool:
        """Whether no stride is negative."""
        return min(self.strides) >= 0

    @property
    def steps_fit(self) -> bool:
        """Whether from any pixel of an image to any of the next are at most MOST elements.

        Without gaps it is a row at the most, from the last pixels to the first.
        """
        image = replace(self, shape=self.shape[1:], strides=self.strides[1:])
        return self.strides == contiguous(self.shape) or self.strides[0] + image.span <= MOST

    @property
    def span(self) -> int:
        """Elements from the first one to the end of the last, where no stride is negative."""
        return 1 + sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))

    @property
    def reach(self) -> tuple[int, int]:
        """Elements from the first one to the least and behind the most of any."""
        steps = [(n - 1) * s for n, s in zip(self.shape, self.strides, strict=True)]
        return sum(s for s in steps if s < 0), 1 + sum(s for s in steps if s > 0)

    @property
    def dense(self) -> bool:
        """Whether there are no gaps, and channels lie before or behind spatial dimensions."""
        orders = contiguous(self.shape), self.channels_first().strides
        return self.strides in orders

    def lies_as(self, other: ArrayLayout, itemsize: int) -> bool:
        """Whether the elements of an array of the same shape lie to each other as another's, and
        as aligned."""
        aligned = self.aligned(itemsize) or not other.aligned(itemsize)
        return self.strides == other.strides and aligned

    @property
    def distinct(self) -> bool:
        """Whether every axis steps over all that the shorter steps reach: no element is another."""
        axes = ((s, n) for n, s in zip(self.shape, self.strides, strict=True) if n > 1)
        return apart(sorted(axes))

    def aligned(self, itemsize: int) -> bool:
        """Whether every pixel lies VECTOR-aligned, or every row of what is contiguous."""
        steps = list(zip(self.shape, self.strides, strict=True))
        del steps[UNIT[self.order]]
        return self.address_aligned and all(n <= 1 or s * itemsize % VECTOR == 0 for n, s in steps)

    def view(self, address: int, *, filter: bool) -> View:
        """The array as kernels take it; of filters, and of orders but NHWC, with a stride of the
        last axis."""
        first, *spatial, last = self.strides
        strides = (first, *three(tuple(spatial), 0))
        strides = (*strides, last) if filter or self.order != "nhwc" else strides
        return View(address, strides, aligned=self.address_aligned)


class Overlap:
    """Whether a result would be written where operands are still read."""

    def __init__(
        self, operands: Mapping[int, tuple[ArrayLayout, int]], out: ArrayLayout, out_size: int
    ) -> None:
        """``operands``: those that are read where they lie, by their number; sizes in bytes."""
        self._operands = [(n, *each) for n, each in operands.items()]
        self._out, self._size = out, out_size
        low, high = out.reach
        self._low, self._high = low * out_size, high * out_size

    def __call__(self, operands: Sequence[int], out: int) -> bool:
        """For arrays at these addresses."""
        for number, place, size in self._operands:
            offset = out - operands[number]
            low, high = place.reach
            near = offset + self._low < high * size and low * size < offset + self._high
            if near and _share(place, self._out, offset, (size, self._size)):
                return True
        return False


@lru_cache(maxsize=1024)
def _share(one: ArrayLayout, other: ArrayLayout, offset: int, sizes: tuple[int, int]) -> bool:
    """Whether two arrays share a byte, ``offset`` from the first's address to the other's.

    NumPy solves it, of arrays that nobody reads; what takes it too long counts as sharing.
    """

    def array(place: ArrayLayout, address: int, size: int) -> Any:
        strides = tuple(stride * size for stride in place.strides)
        interface = {"shape": place.shape, "strides": strides, "typestr": f"|V{size}"}
        interface |= {"data": (address, False), "version": 3}
        return np.asarray(SimpleNamespace(__array_interface__=interface))

    first, second = array(one, BASE, sizes[0]), array(other, BASE + offset, sizes[1])
    return np.may_share_memory(first, second, max_work=PATIENCE)  # pyright: ignore[reportArgumentType]


def dense(shape: tuple[int, ...], dtype: str) -> Described:
    """How a new C-contiguous array lies, on the first device."""
    return Described(shape, contiguous(shape), dtype, 0, True)
