"""A convolution whose filter has one tap as a product of matrices."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from winolab.algorithm import Problem
from winolab.device import Device
from winolab.gpu.families.cublaslt.config import Config
from winolab.gpu.params import VECTOR, WHOLE, aligned
from winolab.gpu.planner.request import ITEMSIZE


@dataclass(frozen=True)
class Tiling:
    """One call: a product whose matrices have channels, or pixels, for rows and columns."""

    direction: str
    problem: Problem
    precision: str
    dtype: str  # of the operands
    out_dtype: str
    config: Config
    device: Device
    aligned: bool  # whether addresses are multiples of VECTOR
    planes: bool = False  # whether maps are those of several images, a product or a sum each

    @property
    def gradient(self) -> bool:
        """Whether the result is dw."""
        return self.direction == "backward_filter"

    @property
    def pixels(self) -> int:
        """Pixels of x, which are as many as y's."""
        return self.problem.batch * math.prod(self.problem.output)

    @cached_property
    def sizes(self) -> tuple[int, int, int]:
        """Rows, which are the result's last channels, and columns of the result; what is summed."""
        x, y = self.problem.in_channels, self.problem.out_channels
        return {
            "forward": (y, self.pixels, x),
            "backward_data": (x, self.pixels, y),
            "backward_filter": (x, y, self.pixels),
        }[self.direction]

    @property
    def images(self) -> int:
        """Products of a launch."""
        return self.problem.batch if self.planes else 1

    @cached_property
    def each(self) -> tuple[int, int, int]:
        """The ``sizes`` of one of them: an image has its share of columns, or of what is summed."""
        rows, columns, depth = self.sizes
        if self.gradient:
            return rows, columns, depth // self.images
        return rows, columns // self.images, depth

    @property
    def parts_size(self) -> int:
        """Bytes of sums of an image each in FP32, which another launch adds up to dw."""
        rows, columns, _ = self.sizes
        return 4 * self.images * rows * columns if self.gradient and self.images > 1 else 0

    @property
    def workspace(self) -> int:
        """Bytes of parts, and behind them what the library may use."""
        return self.beside_library + self.of_library

    @property
    def of_library(self) -> int:
        """Bytes that the library may use: none where it might leave out the last of a sum."""
        return 0 if self.each[2] % WHOLE else self.config.workspace

    @property
    def beside_library(self) -> int:
        """Bytes of the workspace before the library's."""
        return aligned(self.parts_size)

    @property
    def alignment(self) -> int:
        """What divides every address."""
        return VECTOR if self.aligned else ITEMSIZE[self.dtype]
