"""What a call of Γ on Tensor Cores is cut into: taps, stages, blocks and work tiles."""

from __future__ import annotations

import math
from dataclasses import dataclass

from winolab.algorithm import Algorithm, Gamma, Problem, Tile
from winolab.device import Device
from winolab.gpu.families.gamma_wgmma.config import KC, PARTS, Config
from winolab.gpu.families.gamma_wgmma.rows import Stack, stack
from winolab.gpu.families.gamma_wgmma.tiles import block_outputs
from winolab.gpu.planner.correlation import Correlation
from winolab.gpu.planner.request import DTYPES, ITEMSIZE

CLUSTER_SHARE = 0.88  # of multiprocessors that clusters of four and more can use


@dataclass(frozen=True)
class Geometry:
    """What is computed, by blocks of which shape, on what grid."""

    direction: str
    problem: Problem
    correlation: Correlation
    tile: Tile
    points: str
    precision: str
    out_dtype: str
    config: Config
    device: Device

    whole = 0  # work tiles that one block computes alone where clusters share the others

    @property
    def kernel(self) -> str:
        """The paper's name of the kernel."""
        return f"Γ{self.tile.alpha}({self.tile.n},{self.tile.r})"

    @property
    def algorithm(self) -> Algorithm:
        """What the reference calls it."""
        return Gamma((self.tile,), self.points)

    @property
    def tiles(self) -> tuple[Tile]:
        """The algorithm's."""
        return (self.tile,)

    @property
    def parts(self) -> int:
        """16-bit parts of a value."""
        return PARTS[self.precision]

    @property
    def size(self) -> int:
        """Bytes of an operand's element."""
        return ITEMSIZE[DTYPES[self.precision]]

    @property
    def outer(self) -> tuple[int, int, int]:
        """Taps that are summed directly, per dimension; rows fill up stages that share them."""
        depth, height, width = self.correlation.filter
        share = self.config.share
        return depth, -(-height // share) * share, -(-width // self.tile.r)

    @property
    def kept(self) -> tuple[int, int, int]:
        """Taps of the transformed filter, per dimension: rows of zeros are left out of ``rest``."""
        depth, height, width = self.outer
        return depth, self.correlation.filter[1] if self.config.rest else height, width

    @property
    def chunks(self) -> int:
        """Stages of 16 channels."""
        return -(-self.correlation.channels // KC)

    @property
    def steps(self) -> int:
        """Stages of a summation."""
        return math.prod(self.outer) // self.config.share * self.chunks

    @property
    def block(self) -> int:
        """Output channels of a block."""
        return block_outputs(self.tile.alpha)

    @property
    def blocks_m(self) -> int:
        """Blocks of output channels."""
        return -(-self.correlation.out_channels // self.block)

    @property
    def blocks_row(self) -> int:
        """Blocks of output rows."""
        rows = self.stack.rows if self.stack else self.correlation.output[1]
        return -(-rows // self.config.rows)

    @property
    def tiles_width(self) -> int:
        """Tiles of a row of outputs, with what fills up its last box."""
        run = max(1, self.config.run)
        return -(-self.correlation.output[2] // (self.tile.n * run)) * run

    @property
    def columns(self) -> int:
        """Tile columns: of all depths and images, or of those abreast, one for every n outputs of
        the width.
        """
        c = self.correlation
        images = self.stack.abreast if self.stack else c.batch
        return images * c.output[0] * self.tiles_width

    @property
    def stack(self) -> Stack | None:
        """How images lie under one another, where blocks' rows run on from one to the next."""
        c, v = self.correlation, self.config
        if not v.packed:
            return None
        columns = v.columns(self.tile) * v.multicast
        return stack(c, self.kept[1], self.tiles_width, columns, v.images, v.packed)

    @property
    def work_tiles(self) -> int:
        """Work of a block, or of a cluster that shares sums: the grid walks over them."""
        multicast = self.config.multicast
        columns = self.config.columns(self.tile) * multicast
        return self.blocks_m * self.blocks_row * -(-self.columns // columns) * multicast

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.config.threads

    @property
    def slots(self) -> int:
        """Work tiles that run at once, on a cluster each or, by multicast pairs, on a block."""
        v = self.config
        return cluster_slots(self.device, v.split_k * v.multicast) * v.multicast

    @property
    def grid(self) -> int:
        """Blocks."""
        return self.config.split_k * min(max(self.work_tiles, self.config.multicast), self.slots)

    @property
    def outputs(self) -> int:
        """Output channels of the transformed filter."""
        return (self.blocks_m - 1) * self.block + (self.config.narrow or self.block)

    @property
    def rotation(self) -> int:
        """Work tiles after which blocks move on to other output channels: those that run at once,
        where a block would meet the same channels again and again. Else more than there are.
        """
        at_once = self.grid // self.config.multicast
        return at_once if at_once % max(1, self.blocks_m) == 0 else (1 << 31) - 1

    @property
    def places(self) -> tuple[int, ...]:
        """What the main kernel is told besides of where its work tiles lie."""
        s = self.stack
        return self.rotation, self.correlation.batch, s.abreast if s else 0, s.pitch if s else 0

    @property
    def transformed(self) -> int:
        """Bytes of the transformed filter of a group."""
        states = math.prod(self.kept) * self.chunks * self.tile.alpha
        return states * self.parts * self.outputs * KC * 2


def cluster_slots(device: Device, blocks: int) -> int:
    """Clusters of so many blocks that run at once."""
    share = CLUSTER_SHARE if blocks > 2 else 1
    return max(1, int(device.multiprocessors * share / blocks))
