"""Block shapes of the Γ kernels: the policies of mainloop.cuh, and which of them can run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from operator import methodcaller

from winolab.algorithm import Tile
from winolab.gpu.families.stages import as_fit
from winolab.gpu.planner.correlation import Correlation
from winolab.gpu.planner.request import Request
from winolab.options import KernelConfig


@dataclass(frozen=True)
class Config(KernelConfig):
    """The compile-time shape of one kernel: policies of mainloop.cuh, by its names."""

    bm: int  # output channels of a block
    bt: int  # tiles of a block: rows × columns
    u_stages: int
    v_stages: int
    passes: int  # over the staging memory of the epilogue
    cpt: int  # channels that a producer loads and transforms at once
    rows: int = 1  # output rows of a block
    share: int = 1  # filter rows that a transformed stage of input serves
    kc: int = 8  # channels of a stage
    split_k: int = 1  # blocks of a cluster that share a summation
    xvec: int = 4  # floats of a load of x: cpt, or 1 where channels or addresses are not aligned
    lanes_m: int = 8  # lanes of a consumer warp along output channels; the others along tiles
    bulk: int = 1  # whether U comes by bulk copies, which begin with compute capability 9.0
    consumer_registers: int = 200  # of a thread; 0 and 0: as many as the launch gives
    producer_registers: int = 104
    fold: int = 0  # stages of KC products that are summed apart, and their sums then; 0: one sum
    partial: int = 0  # stages of V whose sums are transformed and added to y; 0: all
    consumers: int = 256  # threads that multiply: warps of a state, or two states of a warp
    producers: int = 128  # threads that make V and copy U
    load_warp: bool = False  # whether a producers' warp copies U and makes no V
    overlap: bool = False  # whether a producer makes two tiles side by side of what both meet
    fused: bool = False  # whether producers transform the filter: no launch does, before

    def constants(self) -> dict[str, int]:
        """The constants of the source, by name."""
        return {name.upper(): value for name, value in asdict(self).items()}

    @property
    def v_tiles(self) -> int:
        """Tiles of a stage of V."""
        return (self.rows + self.share - 1) * (self.bt // self.rows)

    @property
    def producer_tiles(self) -> int:
        """Tiles of a stage of V that a producer makes."""
        abreast = 2 if self.overlap else 1
        held = abreast * (self.producers - 32 * self.load_warp)
        return -(-self.v_tiles * (self.kc // self.cpt) // held) * abreast

    @property
    def v_stride(self) -> int:
        """Floats between the channels of V: see mainloop.cuh."""
        lanes, step = self.kc // self.cpt, 4 * self.cpt
        apart = -(-(32 // lanes) // step) * step % 32
        stride = -(-self.v_tiles // 4) * 4
        while self.cpt * stride % 32 != apart:
            stride += 4
        return stride

    def lane(self, alpha: int) -> tuple[int, int]:
        """Output channels × tiles of a consumer lane, in each of its warp's states."""
        sharers = max(1, self.consumers // 32 // alpha)  # warps of a state
        return self.bm // self.lanes_m, self.bt // sharers * self.lanes_m // 32

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.consumers + self.producers

    def accumulators(self, alpha: int) -> int:
        """Accumulators of a consumer lane, all its states."""
        return self.bm * self.bt * alpha // self.consumers

    def served(self, alpha: int) -> bool:
        """Whether a planner should look at it: as measured on an H100, scalar loads do not keep up
        with 64 tiles of 8 states."""
        return self.xvec > 1 or alpha != 8 or self.bt <= 32

    def load_warps(self, alpha: int) -> bool:
        """Whether a load warp may pay: where a stage of V takes its producers long, of rows enough
        to be rarely made. Loads of scalars do not (5 % more time on an H100, at 61 channels).
        """
        return alpha == 16 and bool(self.bulk) and self.share >= 7 and self.xvec > 1

    def shared_memory(self, alpha: int) -> int:
        """Bytes of the kernel's shared memory."""
        floats = alpha * self.kc * (self.u_stages * self.bm + self.v_stages * self.v_stride)
        lanes_t = 32 // self.lanes_m
        row = 32 * -(-self.bm // (self.lanes_m * lanes_t))
        floats += alpha * self.bt // self.passes * row
        return 4 * floats + 12 * self.bt + 16 * (self.u_stages + self.v_stages)

    def __str__(self) -> str:
        names = (
            "rows",
            "share",
            "split_k",
            "passes",
            "producers",
            "fold",
            "partial",
            "xvec",
            "load_warp",
            "overlap",
            "fused",
        )
        changed = [
            f"{f.name}={int(getattr(self, f.name))}"
            for f in fields(self)
            if f.name in names and getattr(self, f.name) != f.default
        ]
        stages = f"{self.u_stages}+{self.v_stages}"
        return " ".join([f"{self.bm}x{self.bt}x{self.kc} stages={stages}", *changed])


ACCUMULATORS = 32768  # fill the registers of 256 consumer threads
# Block shapes by number of states; blocks of half the ACCUMULATORS serve small problems. Alpha 1 is
# the implicit GEMM. Six states take twelve warps: of eight, two would have nothing to multiply.
CONFIGS: dict[int, tuple[Config, ...]] = {
    1: (Config(128, 256, 4, 4, 2, 4), Config(64, 256, 4, 4, 1, 4)),
    4: (
        Config(128, 64, 4, 3, 2, 4),
        Config(64, 128, 4, 3, 2, 4),
        Config(64, 64, 4, 3, 1, 4),
    ),
    6: (Config(64, 64, 4, 2, 2, 4, consumer_registers=0, producer_registers=0, consumers=384),),
    8: (
        Config(128, 32, 4, 2, 2, 4),
        Config(64, 64, 4, 2, 2, 4),
        Config(64, 32, 4, 3, 1, 4),
    ),
    16: (
        Config(64, 32, 3, 2, 2, 2),
        Config(32, 64, 2, 2, 2, 2, lanes_m=4, consumer_registers=192, producer_registers=120),
        Config(32, 32, 3, 2, 1, 2),
    ),
}
# Moduli beyond points, whose tiles have more states than inputs, by name alone: a warp a state, and
# registers as the launch gives them.
MODULI: dict[int, tuple[Config, ...]] = {
    9: (Config(64, 32, 4, 2, 2, 4, consumer_registers=0, producer_registers=0, consumers=288),),
    12: (Config(64, 32, 4, 2, 2, 4, consumer_registers=0, producer_registers=0, consumers=384),),
    15: (Config(32, 32, 3, 2, 2, 2, consumer_registers=0, producer_registers=0, consumers=480),),
    19: (Config(32, 32, 3, 2, 2, 2, consumer_registers=0, producer_registers=0, consumers=608),),
}
SPLITS = (1, 2, 4, 8)
# Products of a sum at alpha 16. Its states grow with the sum while outputs cancel in them: positive
# data lose 2.8e-6 on average where 4,608 products are summed at once, 1.3e-6 where 2,304 are, and
# 1.06e-6 by Γ16(9,8) where 1,365 are, thrice.
PRODUCTS = 1344
# Where blocks are not Hopper's, all threads have the same 168 registers, 64 of them accumulators,
# and a block has 99 KB of shared memory (compute capability 8.6, 8.9, 12.0) or 163 KB (8.0).
EARLIER: dict[int, tuple[Config, ...]] = {
    alpha: tuple(replace(v, bulk=0, consumer_registers=0, producer_registers=0) for v in shapes)
    for alpha, shapes in {
        1: (Config(64, 256, 4, 4, 2, 4),),
        4: (Config(64, 64, 4, 4, 2, 4), Config(64, 64, 3, 3, 2, 4)),
        8: (Config(64, 32, 4, 3, 2, 4), Config(64, 32, 4, 2, 2, 4)),
        16: (Config(64, 16, 3, 2, 2, 2), Config(64, 16, 2, 2, 2, 2, kc=4)),
    }.items()
}
# For two-level sums stages of eight states have four channels: of eight, Γ8(6,3), (7,2) and (3,6)
# spill 20 bytes for 8.0. Predicted times are the same; neither was measured on such a GPU.
FOLDED = EARLIER | {8: tuple(replace(v, kc=4) for v in EARLIER[8])}
ROWS = (2, 4, 8, 16)


def stages(shape: Config, tile: Tile, correlation: Correlation) -> int:
    """Stages of V, for an output's whole summation."""
    taps = math.prod(correlation.filter) // tile.r
    return taps // shape.share * -(-correlation.channels // shape.kc)


def longest(shape: Config) -> int:
    """Stages of V of the longest sum at alpha 16."""
    return max(1, PRODUCTS // (shape.kc * shape.share))


def summed(shape: Config, tile: Tile, correlation: Correlation) -> Config:
    """The block shape, and, at alpha 16, its summation cut where it is long."""
    cut = tile.alpha == 16 and stages(shape, tile, correlation) > longest(shape)
    return replace(shape, partial=longest(shape)) if cut else shape


def with_load_warp(shape: Config) -> Config:
    """The block shape with a load warp, and but for blocks of 64 tiles its sums cut even where they
    never reach a part's length: with other registers an H100 takes 7 % less time."""
    return replace(
        shape, load_warp=True, partial=shape.partial if shape.bt == 64 else longest(shape)
    )


def fitted(shape: Config, alpha: int, outputs: int) -> Iterator[Config]:
    """The block shape, and where it has all accumulators, narrower ones: as many blocks as it takes
    for so many output channels, or one more, as narrow as they can be."""
    yield shape
    if shape.accumulators(alpha) == 128:
        blocks = -(-outputs // shape.bm)
        for count in (blocks, blocks + 1):
            width = shape.lanes_m * -(-outputs // (count * shape.lanes_m))
            if shape.bm // 2 < width < shape.bm:
                yield replace(shape, bm=width)


def with_loads(shape: Config, tile: Tile, correlation: Correlation, request: Request) -> Config:
    """The block shape as the arrays allow loads: one channel a lane where they are not aligned; at
    alpha 1 pointers to so many tiles take too many registers."""
    if request.aligned and correlation.channels % shape.cpt == 0:
        return replace(shape, xvec=shape.cpt)
    return replace(shape, xvec=1, cpt=shape.cpt if tile.alpha == 1 else 1)


def configs(tile: Tile, correlation: Correlation, request: Request) -> Iterator[Config]:
    """Every block shape that can run, or the request's as these arrays allow it.

    With two-level sums only blocks that leave registers for a second sum. Raises ValueError for a
    config that the device is too old for, and for sums that are no multiple of a stage's channels.
    """
    height, config, device = correlation.filter[1], request.config_of(Config), request.device
    fold = request.algorithm.fold if request.algorithm else 0
    large = device.large_blocks
    if config and not large and (config.bulk or config.split_k > 1):
        raise ValueError(f"{config} needs bulk copies or clusters; {device.name} has neither")
    if config and config.fused and config.bulk:
        raise ValueError(f"{config}: who transforms the filter copies none of it; give it bulk=0")
    splits = SPLITS if large else (1,)
    offers = (CONFIGS | MODULI if large else FOLDED if fold else EARLIER).get(tile.alpha, ())
    fits = (s for v in offers for s in fitted(v, tile.alpha, correlation.out_channels))
    for shape in (config,) if config else fits:
        if fold:
            if fold % shape.kc:
                raise ValueError(f"two_level:{fold}; expected a multiple of {shape.kc} products")
            if 2 * shape.accumulators(tile.alpha) * shape.consumers > ACCUMULATORS:
                continue
            shape = replace(shape, fold=fold // shape.kc)
        shape = with_loads(shape, tile, correlation, request)
        if config:
            shapes = [shape]
        else:
            shared = [r for r in ROWS if height > 1 and shape.bt // r >= 4]
            shapes = [shape, *(replace(shape, rows=r, share=height) for r in shared)]
        for s in shapes:
            size = methodcaller("shared_memory", tile.alpha)
            if s := as_fit(s, size, device.shared_memory, "u_stages"):
                if config:
                    yield s
                    continue
                if not fold:
                    s = summed(s, tile, correlation)
                offered = (s if n == s.split_k else replace(s, split_k=n) for n in splits)
                for v in (v for v in offered if v.served(tile.alpha)):
                    yield v
                    if not fold and v.load_warps(tile.alpha):
                        yield with_load_warp(v)
