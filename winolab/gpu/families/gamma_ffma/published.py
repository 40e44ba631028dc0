"""Im2col-Winograd's kernels as published, by name: blocks, loads and edges of its section 5.

Nothing picks them: they are there to be timed, each policy on and off.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import methodcaller

from winolab.algorithm import Algorithm, Tile
from winolab.arguments.variants import FUSED, SEGMENTED
from winolab.gpu.families.gamma_ffma.config import CONFIGS, EARLIER, Config, with_loads
from winolab.gpu.families.stages import as_fit
from winolab.gpu.planner.correlation import Correlation
from winolab.gpu.planner.request import Request
from winolab.ref.algorithms.im2col import Segment, masked, segments

# Algorithms 1 and 2: 64 × 64 tiles of 4 states, 64 × 32 of 8, 32 × 32 of 16; c64 has 64 × 32 of 16.
# Tiles that Γ does not cover are GEMM's. Blocks before Hopper's have less shared memory.
LARGE = {1: CONFIGS[1][1], 4: CONFIGS[4][2], 8: CONFIGS[8][2], 16: CONFIGS[16][2]}
SMALL = {a: shapes[0] for a, shapes in EARLIER.items()}
SMALL |= {16: replace(EARLIER[16][1], bm=32, bt=32)}
C64 = CONFIGS[16][0]
PAIRED = {"consumer_registers": 184, "producer_registers": 136}  # who makes two tiles at once


@dataclass(frozen=True)
class Published:
    """Which of the paper's policies are on: its block, and what else."""

    block: str  # "base", "ruse" or "c64"
    fused: bool  # the filter is transformed inside the block
    segmented: bool  # smaller tiles at the edge of a width that n does not divide, none masked

    @classmethod
    def of(cls, algorithm: Algorithm | None) -> Published | None:
        """What the algorithm names, or None."""
        names = algorithm.published if algorithm else ()
        return cls(names[0], FUSED in names, SEGMENTED in names) if names else None

    def config(self, tile: Tile, correlation: Correlation, request: Request) -> Config:
        """The block shape of a tile. Raises ValueError where the device has no room for it."""
        device, algorithm = request.device, request.algorithm
        if request.config:
            raise ValueError(f"{algorithm} names a block shape; give it or a config, not both")
        if tile.alpha not in (1, 4, 8, 16):
            raise ValueError(f"{algorithm}: the paper's blocks have 4, 8 or 16 states")
        if self.block == "c64" and not device.large_blocks:
            raise ValueError(f"{algorithm}: {device.name} has no registers for c64")
        shape = self.shape(tile.alpha, device.large_blocks)
        shape = with_loads(shape, tile, correlation, request)
        size = methodcaller("shared_memory", tile.alpha)
        if found := as_fit(shape, size, device.shared_memory, "u_stages"):
            return found
        raise ValueError(f"{algorithm} does not fit the shared memory of {device.name}")

    def shape(self, alpha: int, large: bool = True) -> Config:
        """The block shape of so many states, on devices that have ``large`` blocks or have not."""
        shape = (LARGE if large else SMALL)[alpha]
        if self.block == "c64" and alpha == 16:
            shape = C64
        if self.block == "ruse" and alpha > 1:
            shape = replace(shape, overlap=True, **(PAIRED if large else {}))
        return replace(shape, fused=True, bulk=0) if self.fused else shape

    def cut(self, width: int, tile: Tile) -> tuple[Segment, ...]:
        """A width's segments: the tile's alone where it is masked."""
        cover = segments if self.segmented else masked
        return cover(width, tile) or (Segment(0, 0, tile),)


def part(correlation: Correlation, segment: Segment, segmented: bool) -> Correlation:
    """The sums of a segment's outputs alone."""
    if not segmented:
        return correlation
    *outer, _ = correlation.output
    *pads, pad = correlation.padding
    return replace(
        correlation,
        output=(*outer, segment.outputs),
        padding=(*pads, pad - segment.start),
    )


def intensity(config: Config, tile: Tile) -> float:
    """FP32 operations of a stage's products a byte of x and of the filter that its block loads.

    Section 5.6 counts so: of a transformed filter α numbers a tile are loaded, of one that the
    block transforms r; of x all α, or where tiles side by side share them half of their overlap
    less.
    """
    filters = config.bm * (tile.r if config.fused else tile.alpha)
    inputs = (
        config.v_tiles
        / config.share
        * (tile.alpha - (tile.r - 1) / 2 if config.overlap else tile.alpha)
    )
    return 2 * tile.alpha * config.bm * config.bt / (4 * (filters + inputs))
