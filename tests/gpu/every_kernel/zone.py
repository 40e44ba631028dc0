"""Arrays between guard zones on a GPU, which lie anywhere and anyhow."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.gpu.every_kernel.views import Place
from winolab.gpu import driver
from winolab.gpu.params import View
from winolab.gpu.planner.request import ITEMSIZE
from winolab.gpu.runtime.array_layout import ArrayLayout

GUARD = 4096  # elements on each side of an array
PATTERN = {4: 0x7FC5_1DEA, 2: 0x7FDA}  # NaN in every format of that size


class Zone:
    """An array somewhere in a larger one of a known pattern: gaps, other orders, odd addresses."""

    def __init__(self, place: Place, dtype: str) -> None:
        cp, size = driver.cupy(), ITEMSIZE[dtype]
        self.dtype, self.pattern = dtype, PATTERN[size]
        self._lies, first = place
        shape = self._lies.shape
        self.memory = cp.full(self._lies.span + first + 2 * GUARD, self.pattern, f"uint{8 * size}")
        # Strides of dimensions of one element are said to kernels, not to CuPy.
        axes = zip(shape, self._lies.strides, strict=True)
        strides = [size * (stride if n > 1 else 1) for n, stride in axes]
        as_strided = cp.lib.stride_tricks.as_strided
        self.bits = as_strided(self.memory[GUARD + first :], shape, strides)

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
        return replace(self._lies, address_aligned=self.bits.data.ptr % 16 == 0)

    def view(self, *, filter: bool) -> View:
        """The array as kernels take it."""
        return self.place.view(self.bits.data.ptr, filter=filter)
