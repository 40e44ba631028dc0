"""Arrays between guard zones on a GPU, which lie anywhere and anyhow."""

from __future__ import annotations

import math
from random import Random
from typing import Any

from winolab.gpu import driver
from winolab.gpu.params import View
from winolab.gpu.planner.request import ITEMSIZE
from winolab.gpu.runtime.array_layout import UNIT, ArrayLayout
from winolab.gpu.runtime.arrays import Described

GUARD = 4096  # elements on each side of an array
PATTERN = {4: 0x7FC5_1DEA, 2: 0x7FDA}  # NaN in every format of that size


class Zone:
    """An array somewhere in a larger one of a known pattern: gaps, other orders, odd addresses."""

    def __init__(
        self, shape: tuple[int, ...], dtype: str, rng: Random, *, aligned: bool,
        free: bool = False, rows: bool = False, order: str = "nhwc",
    ) -> None:  # fmt: skip
        """``free``: every stride may be anything; otherwise channels are contiguous, of the order
        "nchw" columns, and with ``rows`` gaps lie between channels alone."""
        cp = driver.cupy()
        self.dtype, self.order, size = dtype, order, ITEMSIZE[dtype]
        vector, unit = 16 // size, UNIT[order]
        axes = list(range(len(shape)))
        if order == "nchw":
            axes = [*rng.sample([*axes[:-2], axes[-1]], len(axes) - 1), axes[-2]]
        elif not rows and rng.random() < 0.3:
            axes = rng.sample(axes[: len(axes) - (not free)], len(axes) - (not free))
            axes += [] if free else [len(shape) - 1]
        gaps = [rng.choice([0, 0, 1, 2]) for _ in shape]
        gaps[:-1] = [0] * (len(gaps) - 1) if rows else gaps[:-1]
        before = [rng.randint(0, gap) for gap in gaps]
        if aligned and not free:
            gaps[unit], before[unit] = -shape[unit] % vector, 0
            if rng.random() < 0.3:
                gaps[unit], before[unit] = gaps[unit] + vector, vector
        within = [shape[axis] + gaps[axis] for axis in axes]
        first = GUARD + (0 if aligned else rng.randint(0, vector - 1))
        count = math.prod(within)
        self.pattern = PATTERN[size]
        self.memory = cp.full(first + count + GUARD, self.pattern, f"uint{8 * size}")
        inside = self.memory[first : first + count].reshape(within)
        inside = inside[tuple(slice(before[a], before[a] + shape[a]) for a in axes)]
        self.bits = inside.transpose([axes.index(axis) for axis in range(len(shape))])

    def fill(self, values: Any) -> None:
        """Give the array these FP32 values, rounded towards zero."""
        if self.dtype == "bfloat16":
            self.bits[...] = (values.view("uint32") >> 16).astype("uint16")
        else:
            self.bits[...] = values.astype(self.dtype).view(self.bits.dtype)

    @property
    def values(self) -> Any:
        """The array in FP64."""
        if self.dtype == "bfloat16":
            return (self.bits.astype("uint32") << 16).view("float32").astype("float64")
        return driver.cupy().ascontiguousarray(self.bits).view(self.dtype).astype("float64")

    def poison(self) -> None:
        """Fill the array with the pattern."""
        self.bits[...] = self.pattern

    @property
    def place(self) -> ArrayLayout:
        """Where it lies."""
        strides = tuple(s // self.bits.itemsize for s in self.bits.strides)
        address = self.bits.data.ptr
        described = Described(self.bits.shape, strides, self.dtype, 0, address % 16 == 0)
        return ArrayLayout.of(described, "channels_last", self.order)

    def view(self, *, filter: bool) -> View:
        """The array as kernels take it."""
        return self.place.view(self.bits.data.ptr, filter=filter)
