"""Block shapes of the implicit GEMM, and how many groups a block has."""

from __future__ import annotations

import math
from dataclasses import dataclass
from operator import methodcaller

from winolab.device import Device
from winolab.gpu.codegen.emit import WGMMA_WIDTHS
from winolab.gpu.codegen.structs import size
from winolab.gpu.families.stages import as_fit
from winolab.gpu.planner.correlation import Correlation
from winolab.options import KernelConfig

ROLES = {"forward": 0, "backward_data": 1, "backward_filter": 2}  # as operands.cuh has them
PITCHES = {2: (8, 8), 4: (4, 8)}  # elements more than a row: stored along the sum, across it
PLACE, FILTER_ROW = (size(name, "implicit_gemm/operands") for name in ("WindowPlace", "FilterRow"))
AGAIN = 16  # bytes of a flag
BARRIERS, ATOM = 16, 1024  # bytes of a stage's barriers; that stages of wgmma are aligned to
FILLED = 4  # channels of a vector, as fill.cuh has it
MOST_THREADS = 1024  # of a block, as CUDA launches them
MERGED = 64  # channels of a block's groups, at most
SLICE = 16  # channels of a product of 16 bits


@dataclass(frozen=True)
class Config(KernelConfig):
    """The compile-time shape of the kernel: policies of implicit_gemm/kernel.cuh, by its names."""

    block_rows: int  # positions, or output channels of gradients
    block_columns: int  # output channels, or taps × channels of gradients
    depth: int  # of a step
    warp_rows: int
    warp_columns: int
    stages: int
    blocks: int = 1  # of a multiprocessor
    fill: int = 0  # whether copies of x and the filter have channels filled up to FILLED
    producers: int = 0  # threads that copy, of wgmma.cuh; of kernel.cuh all do

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.warp_rows * self.warp_columns + self.producers

    def shared_memory(self, role: int, itemsize: int) -> int:
        """Bytes of shared memory; ``role``: ROLES'; ``itemsize``: bytes of an element."""
        tables = PLACE * (2 * self.depth if role == 2 else self.block_rows)
        tables += FILTER_ROW * (2 * self.depth if role == 1 else 1)
        if self.producers:
            stage = itemsize * self.depth * (self.block_rows + self.block_columns) + BARRIERS
            return -(-(self.stages * stage + tables) // ATOM) * ATOM
        along, across = PITCHES[itemsize]
        x = self.block_rows, self.depth, along
        w = self.block_columns, self.depth, along
        if role == 1:
            w = self.depth, self.block_columns, across
        elif role == 2:
            x, w = (self.depth, self.block_columns, across), (self.depth, self.block_rows, across)
        stage = itemsize * sum(rows * (n + more) - more for rows, n, more in (x, w))
        return self.stages * stage + tables + AGAIN

    def runs(self, role: int, vectors: tuple[int, int]) -> bool:
        """Whether a kernel has this shape, whose copies bring so many elements: warps have whole
        tiles, and threads whole rows. ``role``: as of ``shared_memory``."""
        if min(*self.tile, self.blocks, self.stages - 1) <= 0 or self.fill > 1:
            return False
        if self.producers:
            return any((v.tile, v.producers) == (self.tile, self.producers) for v in WGMMA_CONFIGS)
        rows, columns, depth, *warps = self.tile
        tiles = zip((rows, columns, depth), (*warps, 1), strict=True)
        copied = columns if role == 2 else depth, (depth, columns, rows)[role]
        lanes = (
            n % length == 0 and self.threads % (n // length) == 0
            for n, length in zip(copied, vectors, strict=True)
        )
        whole = all(n % (16 * across) == 0 for n, across in tiles)
        return whole and self.threads <= MOST_THREADS and all(lanes)

    @property
    def tile(self) -> tuple[int, ...]:
        """What a block computes a step, and by how many warps."""
        return self.block_rows, self.block_columns, self.depth, self.warp_rows, self.warp_columns

    def __str__(self) -> str:
        warps = f"warps={self.warp_rows}x{self.warp_columns}"
        rest = f"stages={self.stages} blocks={self.blocks}"
        rest += " fill=1" if self.fill else ""
        rest += f" producers={self.producers}" if self.producers else ""
        return f"{self.block_rows}x{self.block_columns}x{self.depth} {warps} {rest}"


# By bytes of an element. A warp has 64 × 64, 64 × 32 or 32 × 32 results; of FP32, whose stages'
# sums are held apart, half as many at most.
CONFIGS = {
    2: (
        Config(256, 128, 64, 4, 2, 3),
        Config(128, 64, 64, 4, 2, 3, 2),
        Config(64, 128, 64, 2, 4, 3, 2),
        Config(64, 64, 64, 2, 2, 3, 3),
        Config(128, 32, 64, 4, 1, 3, 3),
    ),
    4: (
        Config(128, 128, 32, 2, 4, 3),
        Config(128, 64, 32, 2, 2, 3, 2),
        Config(64, 128, 32, 1, 4, 3, 2),
        Config(64, 64, 32, 2, 2, 3, 3),
        Config(128, 32, 32, 4, 1, 3, 2),
    ),
}
# Gradients have these beside them, as their sums may be short: more blocks at once, or more warps.
GRADIENTS = {
    2: (),
    4: (
        Config(64, 64, 32, 4, 2, 3, 3),
        Config(64, 64, 32, 2, 2, 3, 4),
        Config(128, 32, 32, 4, 1, 3, 3),
    ),
}
# The same of 16 bits on wgmma: a warpgroup has 64 rows and all columns.
WGMMA_CONFIGS = tuple(
    Config(rows, columns, 64, warps, 1, stages, blocks, producers=128)
    for rows, columns, warps, stages, blocks in (
        (128, 256, 8, 4, 1),
        (128, 128, 8, 6, 1),
        (64, 128, 4, 4, 2),
        (128, 64, 8, 4, 2),
        (64, 64, 4, 4, 3),
    )
)


def on_wgmma(device: Device, itemsize: int, vectors: tuple[int, int]) -> bool:
    """Whether wgmma.cuh serves it: an asynchronous copy has two elements of 16 bits at least."""
    return device.wgmma and itemsize == 2 and min(vectors) > 1


def sliced(
    config: Config, role: int, groups: int, channels: int, out_channels: int
) -> tuple[int, int]:
    """What a product of wgmma.cuh has of a block's groups: the columns that so many channels meet;
    all columns where there is one group, and where slices have widths that wgmma has not."""
    depth = max(channels, SLICE)
    columns = depth * out_channels // max(channels, 1)
    if groups == 1 or role == ROLES["backward_filter"] or columns not in WGMMA_WIDTHS:
        return config.block_columns, SLICE
    return (columns, depth) if columns < config.block_columns else (config.block_columns, SLICE)


def configs(
    device: Device, role: int, itemsize: int, rows: int, columns: int, *, wgmma: bool = False
) -> list[Config]:
    """Block shapes of which less than half is empty, where there are some; stages as fit."""
    size = methodcaller("shared_memory", role, itemsize)
    shapes = WGMMA_CONFIGS if wgmma else CONFIGS[itemsize]
    if ROLES["backward_filter"] == role and not wgmma:
        shapes = GRADIENTS[itemsize] + shapes
    fitting = (as_fit(shape, size, device.shared_memory) for shape in shapes)
    found = [shape for shape in fitting if shape]

    def empty(v: Config) -> bool:
        half = rows <= v.block_rows // 2, columns <= v.block_columns // 2
        return (v.block_rows > 64 and half[0]) or (v.block_columns > 32 and half[1])

    return [v for v in found if not empty(v)] or found[-2:]


def fillable(c: Correlation) -> bool:
    """Whether there can be copies whose channels are filled up: of x, read as patches, and the
    filter, or of backward data of the filter alone, those of dx."""
    return c.groups == 1 and (c.out_channels if c.rotated else c.channels) % FILLED > 0


def merged(c: Correlation, channels: int = MERGED) -> int:
    """Groups of a block: powers of two of channels, so that all of them have so many ``channels``
    at most."""
    most = max(c.channels, c.out_channels)
    if c.groups == 1 or most > channels // 2 or c.channels & (c.channels - 1):
        return 1
    if c.out_channels & (c.out_channels - 1):
        return 1
    found = math.gcd(c.groups, channels // most)
    return found if found * c.channels % SLICE == 0 else 1
