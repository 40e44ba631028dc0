"""What a call of nested Winograd is cut into: pieces, tiles, blocks, parts of its workspace."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from winolab.algorithm import Algorithm, Problem, Tile, Winograd
from winolab.device import Device
from winolab.gpu.families import scale
from winolab.gpu.families.boxes import Box, box
from winolab.gpu.families.nested.config import BN, KC, ROW_BYTES, STEP, Config
from winolab.gpu.families.nested.source import infinite, losses, made_of, name
from winolab.gpu.families.nested.tiles import Pair, grid, pieces, short
from winolab.gpu.planner.correlation import Correlation
from winolab.gpu.planner.request import DTYPES, ITEMSIZE
from winolab.ref.arithmetic.split import Scale

ALIGNED = 1024  # bytes: where the parts of a workspace begin
# Neighbouring rows that a block looks at; elements of a slice of them, and the most slices.
ASIDE, SLICE, MOST_SLICES = 32, 256, 32


def deep(c: Correlation) -> bool:
    """Whether a frame of outputs meets others than its own: taps of the depth, or its padding."""
    return c.filter[0] > 1 or c.padding[0] != 0 or c.output[0] != c.input[0]


@dataclass(frozen=True)
class Tiling:
    """What is computed, in which blocks, pieces and batches."""

    direction: str
    problem: Problem
    correlation: Correlation
    pair: Pair  # along the height, along the width
    points: str
    precision: str
    out_dtype: str
    config: Config
    device: Device
    images: int  # of a batch
    given: Scale | None = None  # by the caller

    @property
    def tiles(self) -> tuple[Tile, ...]:
        """The algorithm's, of all dimensions: along the depth taps are summed directly."""
        return (Tile(1, 1),) * (self.problem.ndim - 2) + self.pair

    @property
    def split(self) -> bool:
        """Whether it is of split FP32."""
        return self.precision == "fp32_split"

    @property
    def itemsize(self) -> int:
        """Bytes of an element of x and w."""
        return ITEMSIZE[DTYPES[self.precision]]

    @property
    def kernel(self) -> str:
        """Lavin & Gray's name of the algorithm."""
        return name(self.tiles)

    @property
    def algorithm(self) -> Algorithm:
        """What the reference calls it."""
        return Winograd(self.tiles, self.points)

    @property
    def states(self) -> int:
        """States of both dimensions."""
        return math.prod(t.alpha for t in self.pair)

    @property
    def pieces(self) -> tuple[int, int]:
        """Pieces of the filter, along both dimensions."""
        _, height, width = self.correlation.filter
        return pieces(self.pair[0], height), pieces(self.pair[1], width)

    @property
    def short(self) -> tuple[bool, bool]:
        """Whether the last piece lacks its last tap, of which states at infinity are alone."""
        _, height, width = self.correlation.filter
        first, second = made_of(self.pair, self.points)
        return (
            infinite(first) >= 0 and short(self.pair[0], height),
            infinite(second) >= 0 and short(self.pair[1], width),
        )

    @property
    def grids(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Along both dimensions, tiles of the outputs and of the input."""
        (_, height, width), (_, high, wide) = self.correlation.filter, self.correlation.output
        return grid(self.pair[0], height, high), grid(self.pair[1], width, wide)

    @property
    def chunks(self) -> int:
        """Stages of KC channels."""
        return -(-self.correlation.channels // KC[self.precision])

    @property
    def rest(self) -> int:
        """Products of a chunk of 16 bits' last stage, of STEP channels each; 0 of split FP32."""
        channels = self.correlation.channels - (self.chunks - 1) * KC[self.precision]
        return 0 if self.split else -(-channels // STEP)

    @property
    def pitch(self) -> int:
        """Words of 32 bits from a tile of V to the next: 16-bit channels fill up 16 bytes."""
        if self.split:
            return self.chunks * ROW_BYTES // 4
        return -(-self.correlation.channels // 8) * 4

    @property
    def steps(self) -> int:
        """Stages of a sum, at most."""
        return self.correlation.filter[0] * math.prod(self.pieces) * self.chunks

    @property
    def mean_steps(self) -> float:
        """Stages of a sum on average; at infinity pieces without their last tap have none."""
        sides = zip(self.pair, self.pieces, self.short, strict=True)
        taps = self.correlation.filter[0]
        return taps * self.chunks * math.prod(n - is_short / t.alpha for t, n, is_short in sides)

    @property
    def blocks_m(self) -> int:
        """Blocks of output channels."""
        return -(-self.correlation.out_channels // self.config.bm)

    @property
    def outputs(self) -> int:
        """Output channels of U and M, in whole blocks."""
        return self.blocks_m * self.config.bm

    @property
    def frame(self) -> int:
        """Tiles of a frame of outputs."""
        (high, _), (wide, _) = self.grids
        return high * wide

    @property
    def flat(self) -> bool:
        """Whether blocks take tiles in their order, whatever their row and frame: of filters in one
        piece V has as many."""
        return self.pieces == (1, 1)

    def lines(self, images: int, frames: int) -> tuple[int, int]:
        """How many lines of tiles that follow one another so many images have, and how long these
        are, where blocks are flat: taps of the depth, and its padding, meet no frame of another
        image."""
        if not deep(self.correlation):
            return 1, images * frames * self.frame
        return images, frames * self.frame

    def box(self, images: int) -> Box:
        """The box of the blocks of so many images."""
        (high, _), (wide, _) = self.grids
        frames = self.correlation.output[0]
        if not self.flat:
            return box(images * frames, high, wide, BN)
        lines, long = self.lines(images, frames)
        return box(lines, 1, long, BN)

    def work_tiles(self, images: int) -> int:
        """Blocks' worth of products of so many images."""
        return self.states * self.box(images).blocks * self.blocks_m

    @property
    def rows_stage(self) -> int:
        """Rows of U and V that a stage brings."""
        return BN + self.config.bm

    def moved(self, images: int) -> tuple[int, int]:
        """Bytes of V and M of so many images."""
        (high, more_high), (wide, more_wide) = self.grids
        tiles, c = self.states * images, self.correlation
        v = tiles * c.input[0] * more_high * more_wide * self.pitch * 4
        return v, tiles * c.output[0] * high * wide * self.outputs * self.sum_size

    @property
    def sum_size(self) -> int:
        """Bytes of a state's sum in M: the operands' type."""
        return self.itemsize

    @property
    def batches(self) -> tuple[range, ...]:
        """Images that launches take together."""
        batch = range(self.correlation.batch)
        return tuple(batch[i : i + self.images] for i in batch[:: self.images])

    @property
    def alike(self) -> tuple[tuple[int, int], ...]:
        """The batches by their images: how many follow one another, and the images of each. The
        first is apart, before whose products the filter is transformed, and a last one of fewer."""
        full, rest = divmod(self.correlation.batch, self.images)
        runs = (1, self.images), (full - 1, self.images), (1, rest)
        return tuple(run for run in runs if all(run))

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Bytes of the parts of the workspace, in their order."""
        c = self.correlation
        most = max((self.box(images).blocks for _, images in self.alike), default=0)
        sizes = {
            "header": scale.header_size(c, self.pair) if self.split else 0,
            "v": self.moved(self.images)[0],
            "m": self.states * most * BN * self.outputs * self.sum_size,
            "rows": scale.size(c, self.config.bm) if self.split else 0,
            "found": c.groups * sum(self.found),
            "u": c.groups * self.transformed,
        }
        return {name: -(-size // ALIGNED) * ALIGNED for name, size in sizes.items()}

    @property
    def header(self) -> int:
        """Bytes of a call's own, first in the workspace: flags, suspects, the input's sample."""
        return self.sizes["header"]

    @property
    def slices(self) -> int:
        """Slices of the filter's rows, where these are nearer in memory than their elements."""
        c = self.correlation
        slices = -(-c.channels * math.prod(c.filter) // SLICE)
        return min(MOST_SLICES, slices) if c.rotated and self.split else 0

    @property
    def describers(self) -> int:
        """Blocks that describe the filter's rows, or look at neighbouring ones, of split FP32."""
        if not self.split:
            return 0
        return -(-self.outputs // ASIDE) * self.slices or self.outputs

    @property
    def found(self) -> tuple[int, int]:
        """Bytes of what is found about a group's neighbouring rows: largest elements, losses."""
        slices = self.slices
        lost = scale.LOSS * self.steps * losses(self.pair) if slices else 0
        return 4 * slices * self.outputs, lost * self.outputs

    @property
    def transformed(self) -> int:
        """Bytes of the transformed filter of a group."""
        return self.states * self.steps * self.outputs * ROW_BYTES

    @property
    def prepared_size(self) -> int:
        """Bytes of what depends on the filter alone, of all groups."""
        return sum(self.sizes[name] for name in ("rows", "found", "u"))

    @property
    def workspace(self) -> int:
        """Bytes."""
        return sum(self.sizes.values())
