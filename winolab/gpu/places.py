"""How arrays lie in memory, and what the kernels ask of that."""

from __future__ import annotations

from dataclasses import dataclass

from winolab.gpu.arrays import Described, contiguous
from winolab.gpu.launch import View
from winolab.gpu.plan import three
from winolab.nouns import Problem

VECTOR = 16  # bytes of the widest access
MAX_STRIDE = 2**31 - 1  # of neighbouring pixels, as the kernels hold it


@dataclass(frozen=True)
class Place:
    """A channels-last array: shape, strides in elements, whether its address is VECTOR-aligned."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    address_aligned: bool = True

    @classmethod
    def of(cls, array: Described, layout: str) -> Place:
        """Where the array lies whose axes are those of ``layout``."""
        shape, strides = tuple(array.shape), tuple(array.strides)
        if layout == "channels_first":
            shape, strides = ((*v[:1], *v[2:], *v[1:2]) for v in (shape, strides))
        return cls(shape, strides, array.aligned)

    @classmethod
    def fresh(cls, shape: tuple[int, ...]) -> Place:
        """A new array of that shape."""
        return cls(shape, contiguous(shape))

    @property
    def direct(self) -> bool:
        """Whether kernels can work on it: channels contiguous, no stride negative or beyond int."""
        ends = self.shape[-1] <= 1 or self.strides[-1] == 1
        return ends and self.forward and max(self.strides[-2:]) <= MAX_STRIDE

    @property
    def forward(self) -> bool:
        """Whether no stride is negative."""
        return min(self.strides) >= 0

    def aligned(self, itemsize: int) -> bool:
        """Whether every pixel lies VECTOR-aligned."""
        steps = zip(self.shape[:-1], self.strides[:-1], strict=True)
        return self.address_aligned and all(n <= 1 or s * itemsize % VECTOR == 0 for n, s in steps)

    def view(self, address: int, *, filter: bool) -> View:
        """The array as kernels take it."""
        first, *spatial, last = self.strides
        strides = (first, *three(tuple(spatial), 0))
        return View(address, (*strides, last) if filter else strides)


def is_contiguous(array: Described) -> bool:
    """Whether the elements follow one another in the order of the axes."""
    pairs = zip(array.shape, array.strides, contiguous(tuple(array.shape)), strict=True)
    return all(n <= 1 or have == due for n, have, due in pairs)


def shapes(direction: str, problem: Problem) -> tuple[tuple[int, ...], ...]:
    """Channels-last shapes of both operands and the result."""
    x, w, y = problem.x_shape, problem.w_shape, problem.y_shape
    return {"forward": (x, w, y), "backward_data": (y, w, x), "backward_filter": (x, y, w)}[
        direction
    ]
