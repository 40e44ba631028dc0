"""The kernels of sums of every tap's products: fold.cuh."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from winolab.algorithm import Problem
from winolab.gpu.codegen.emit import unit
from winolab.gpu.codegen.structs import layout
from winolab.gpu.families.epilogue import FINISHED
from winolab.gpu.params import Kernels, Params, View, quotient
from winolab.gpu.planner.correlation import three

FILTER, FOLD = "winolab_fold_filter", "winolab_fold"
FILTER_PARAMS = layout("FoldFilterParams", "fold", include="quotient")
AXIS = layout("FoldAxis", "fold", include="quotient")
PARAMS = layout("FoldParams", "fold", include="quotient")
THREADS = 256  # of a block, each with a result's position
TILES = ((1, 256), (8, 32))  # rows and columns of these, of rows alone and of planes
QUAD = 4  # elements of a vector


@dataclass(frozen=True)
class FoldUnit:
    """The kernels of a direction: of so many result's channels at most, columns of a tap of the
    depth, rows and columns of a block's results, bytes of a filter's element, and the result's
    dtype."""

    few: int
    chunk: int
    tile: tuple[int, int]
    itemsize: int
    out_dtype: str
    shared_memory: int

    title = "sums of every tap's products"

    def source(self) -> str:
        """The translation unit."""
        rows, columns = self.tile
        constants = {"FOLD_FEW": self.few, "FOLD_CHUNK": self.chunk, "FOLD_SIZE": self.itemsize}
        constants |= {"FOLD_ROWS": rows, "FOLD_COLUMNS": columns}
        constants |= {"INPUT": FINISHED["float32"], "OUTPUT": FINISHED[self.out_dtype]}
        return unit(self.title, constants, {}, ("fold",))

    def shared(self) -> dict[str, int]:
        """Bytes of dynamic shared memory, by kernel."""
        return {FILTER: 0, FOLD: self.shared_memory}


@dataclass(frozen=True)
class Fold:
    """How results of a problem are sums of columns: of ``few`` channels, a chunk a tap of the
    depth."""

    problem: Problem
    direction: str

    @property
    def rotated(self) -> bool:
        """Whether of backward data."""
        return self.direction == "backward_data"

    @property
    def few(self) -> int:
        """The result's channels."""
        return self.problem.in_channels if self.rotated else self.problem.out_channels

    @property
    def taps(self) -> tuple[int, ...]:
        """Those of depth, height and width."""
        return three(self.problem.filter, 1)

    @property
    def chunk(self) -> int:
        """Columns of a tap of the depth, filled up to vectors."""
        return -(-self.taps[1] * self.taps[2] * self.few // QUAD) * QUAD

    def columns(self, vector: int) -> int:
        """Products of a position, filled up to vectors of so many."""
        return -(-self.taps[0] * self.chunk // vector) * vector

    @property
    def positions(self) -> tuple[int, ...]:
        """Where products are."""
        return self.problem.output if self.rotated else self.problem.input

    @property
    def results(self) -> tuple[int, ...]:
        """Where results are."""
        return self.problem.input if self.rotated else self.problem.output

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and columns of a block's results."""
        return TILES[three(self.results, 1)[1] > 1]

    @property
    def span(self) -> tuple[int, int]:
        """Rows and columns of products that a block's results meet, at most."""
        p = self.problem
        sides = zip(self.tile, self.taps[1:], three(p.stride, 1)[1:], three(p.dilation, 1)[1:],
                    strict=True)  # fmt: skip
        rows, columns = ((n - 1 + (r - 1) * d) // s + 1 + (s > 1) for n, r, s, d in sides)
        return rows, columns

    @property
    def shared_memory(self) -> int:
        """Bytes of a block."""
        return 4 * math.prod(self.span) * (self.chunk + 1)

    def unit(self, itemsize: int, out_dtype: str) -> FoldUnit:
        """The kernels."""
        few = 1 << (self.few - 1).bit_length()
        return FoldUnit(few, self.chunk, self.tile, itemsize, out_dtype, self.shared_memory)

    def filter_params(self, b: View, rows: int, columns: int) -> tuple[Params, int]:
        """Parameters of the launch that writes the columns' rows to that address, and how many
        elements there are."""
        p = self.problem
        other = p.out_channels if self.rotated else p.in_channels
        count = columns * other
        m, *taps, c = b.strides
        return FILTER_PARAMS.pack(
            b.address, rows, m, *taps, c, count, *self.taps, self.few,
            *quotient(columns if self.rotated else other), int(self.rotated),
        ), count  # fmt: skip

    def params(self, z: View, y: View) -> tuple[Params, int]:
        """Parameters of the launch that adds up, and its blocks."""
        p = self.problem
        _, height, width = results = three(self.results, 1)
        rows, columns = self.tile
        across, down = -(-width // columns), -(-height // rows)
        given = (three(self.positions, 1), results, self.taps, three(_low(p), 0),
                 three(p.stride, 1), three(p.dilation, 1))  # fmt: skip
        axes = [AXIS.pack(*each) for each in zip(*given, strict=True)]
        own = self.span
        head = (z.address, y.address, *z.strides[:3], *y.strides[:3], z.strides[3], y.strides[3])
        numbers = (*own, self.few, *(n for by in (across, down, results[0], own[1])
                                     for n in quotient(by)), int(self.rotated))  # fmt: skip
        return PARAMS.pack(*head, *_flat(axes), *numbers), p.batch * results[0] * down * across


def _low(p: Problem) -> tuple[int, ...]:
    return tuple(low for low, _ in p.padding)


def _flat(axes: Sequence[Params]) -> tuple[int, ...]:
    return tuple(value for axis in axes for value in axis.values)


def write_filter(kernels: Kernels, fold: Fold, b: View, rows: int, columns: int) -> None:
    """Launch what writes the columns' rows, which are as many with what is filled up."""
    params, count = fold.filter_params(b, rows, columns)
    kernels[FILTER]((-(-count // THREADS), 1, 1), THREADS, params)


def add_up(kernels: Kernels, fold: Fold, z: View, y: View) -> None:
    """Launch the sums."""
    params, blocks = fold.params(z, y)
    kernels[FOLD]((blocks, 1, 1), THREADS, params)
