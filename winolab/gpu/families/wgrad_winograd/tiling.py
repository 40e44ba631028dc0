"""What a call of Ωα(n,r) on Tensor Cores is cut into: chunks, blocks, segments, its workspace."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, product

from winolab.algorithm import Problem, Tile
from winolab.device import Device
from winolab.gpu.families.wgrad_winograd.config import Config
from winolab.gpu.planner.correlation import three
from winolab.gpu.planner.fallback import FLAGS

SCALING = "power_of_two"  # of the rows of G and BT, so that states are about as large as data


@dataclass(frozen=True)
class Chunk:
    """Images and rows of dy that one transform and one launch of products serve."""

    image: int
    images: int
    row: int
    rows: int  # of dy
    x_row: int
    x_rows: int


@dataclass(frozen=True)
class Tiling:
    """One filter gradient: what is computed, by which config, in which chunks."""

    problem: Problem
    tile: Tile
    points: str
    precision: str
    out_dtype: str
    config: Config
    device: Device
    images: int  # of a chunk
    rows: int  # of dy, of a chunk
    batch: int  # images whose positions lie in one row
    segments: int  # of the sum over a chunk's positions
    slice: int  # taps whose sums the workspace holds at once

    @property
    def parts(self) -> int:
        """16-bit parts of an element."""
        return 2 if self.precision == "fp32_split" else 1

    @property
    def checks_accuracy(self) -> bool:
        """Whether channels are held against what their low parts may have lost (fallback.cuh).

        Not those of direct: a single weight may be near 0 by chance.
        """
        return self.parts == 2 and self.tile.alpha > 1

    @property
    def channels(self) -> int:
        """Input channels of a group."""
        return self.problem.in_channels // self.problem.groups

    @property
    def out_channels(self) -> int:
        """Output channels of a group."""
        return self.problem.out_channels // self.problem.groups

    @cached_property
    def sizes(self) -> tuple[tuple[int, int, int], ...]:
        """Input, output, filter, padding in front, in three dimensions."""
        p = self.problem
        pads = tuple(lo for lo, _ in p.padding)
        return three(p.input, 1), three(p.output, 1), three(p.filter, 1), three(pads, 0)

    @property
    def pieces(self) -> int:
        """Pieces of n taps of the filter's width."""
        return -(-self.problem.filter[-1] // self.tile.n)

    @property
    def taps(self) -> int:
        """Filter depths × rows × pieces."""
        depth, height, _ = self.sizes[2]
        return depth * height * self.pieces

    @property
    def units(self) -> int:
        """Units of r outputs in a row."""
        return -(-self.problem.output[-1] // self.tile.r)

    @property
    def blocks(self) -> tuple[int, int]:
        """Blocks along output and input channels."""
        v = self.config
        return -(-self.out_channels // v.bm), -(-self.channels // v.bn)

    @property
    def padded(self) -> tuple[int, int]:
        """Output and input channels, padded to whole blocks."""
        (m, n), v = self.blocks, self.config
        return m * v.bm, n * v.bn

    @property
    def pitch(self) -> int:
        """Positions of a row: a multiple of what one scale or one instruction covers."""
        granule = self.config.ks if self.parts == 2 else 16
        return -(-self.units * self.batch // granule) * granule

    @cached_property
    def chunks(self) -> tuple[Chunk, ...]:
        """All images × blocks of rows of dy."""
        (_, height, _), (_, out_height, _), (_, taps, _), (_, pad, _) = self.sizes
        chunks = []
        for image, row in product(
            range(0, self.problem.batch, self.images), range(0, out_height, self.rows)
        ):
            images = min(self.images, self.problem.batch - image)
            rows = min(self.rows, out_height - row)
            first = min(max(0, row - pad), height)
            last = max(first, min(height, row + rows + taps - 1 - pad))
            chunks.append(Chunk(image, images, row, rows, first, last - first))
        return tuple(chunks)

    def positions(self, chunk: Chunk) -> tuple[int, int]:
        """Positions of dy and of x in a chunk."""
        (depth, _, _), (out_depth, _, _), _, _ = self.sizes
        row = -(-chunk.images // self.batch) * self.pitch
        return out_depth * chunk.rows * row, depth * chunk.x_rows * row

    @property
    def largest(self) -> tuple[int, int]:
        """Positions of dy and of x that the workspace holds."""
        (depth, height, _), (out_depth, _, _), (_, taps, _), _ = self.sizes
        row = -(-self.images // self.batch) * self.pitch
        return out_depth * self.rows * row, depth * min(height, self.rows + taps - 1) * row

    @cached_property
    def regions(self) -> dict[str, int]:
        """Offsets in the workspace, the flags first, and its end, in bytes."""
        most, (m, n) = self.largest, self.padded
        states = 2 * self.parts * self.tile.alpha
        scale = 4 if self.parts == 2 else 0
        lossy = 4 if self.checks_accuracy else 0
        sizes = {
            "flags": FLAGS if self.checks_accuracy else 0,
            "u": states * m * most[0],
            "v": states * n * most[1] * self.pieces,
            "u_scale": scale * (m // 64) * (most[0] // self.config.ks),
            "v_scale": scale * (n // 64) * (most[1] // self.config.ks) * self.pieces,
            "m": 4 * self.segments * self.tile.alpha * self.slice * m * n,
            "dy_losses": lossy * m * (most[0] // self.config.ks),
            "x_losses": lossy * n * (most[1] // self.config.ks) * self.pieces,
            "totals": 2 * lossy * (m + n),
            "end": 0,
        }
        ends = accumulate(map(rounded, sizes.values()))
        return dict(zip(sizes, (0, *ends), strict=False))

    @property
    def workspace(self) -> int:
        """Bytes; groups follow one another in the same ones."""
        return self.regions["end"]


def rounded(size: int) -> int:
    """Bytes of a region of the workspace."""
    return -(-size // 1024) * 1024
