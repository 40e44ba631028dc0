"""Block shapes of Γ by mma.sync, and which of them can run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

from winolab.algorithm import Tile
from winolab.gpu.families.gamma import tiles
from winolab.gpu.families.gamma.config import KC, PARTS, Files, GammaConfig, loads
from winolab.gpu.families.gamma.tiles import BM
from winolab.gpu.planner.correlation import Correlation
from winolab.gpu.planner.request import ITEMSIZE, Request
from winolab.ref.arithmetic.split import products

THREADS, STAGES = 256, 2
WIDTHS = {a: r for a, r in tiles.WIDTHS.items() if 8 % a == 0}  # of eight warps
TILE_STATES = (512, 384, 256)  # of a block, tiles × states; the smaller ones serve small problems
ROWS, SHARES = (1, 2, 3, 4, 6, 8), (1, 2, 3)


@dataclass(frozen=True)
class Config(GammaConfig):
    """The compile-time shape of one kernel: policies of gamma_mma/kernel.cuh, by its names."""

    tile_states: int = 512
    rows: int = 4  # output rows of a block
    share: int = 1  # filter rows that a transformed stage of input serves
    passes: int = 1  # of the epilogue, as many as its memory asks for
    xvec: int = 4  # elements of a load of x; 1 where channels or addresses are not aligned
    yvec: int = 4  # elements of a store of y
    skew: int = 0  # filter rows by which products with a low part precede the others in a stage
    rest: int = 0  # rows of a filter's last stage; 0: all, padded with zeros

    split_k = 1  # blocks of a cluster that share a sum: there are none
    threads = THREADS
    clusters = False  # whether the device has them
    entry = "winolab_gamma_mma"
    params = "GammaMmaParams"
    kernels = ("gamma_mma/kernel",)

    def constants(self, tile: Tile, size: int) -> dict[str, int]:
        """The constants of the source, by name; the same for every tile and element."""
        return {name.upper(): value for name, value in asdict(self).items()} | {"NARROW": 0}

    def files(self, parts: int) -> Files:
        """What kernel.cuh includes by macro besides the filter's transform."""
        return {}

    def choices(self, parts: int) -> dict[str, int]:
        """Which of the files are included, as constants: none."""
        return {"PAIRED": 0, "V_AS_A": 0}

    def columns(self, tile: Tile) -> int:
        """Tile columns of a block."""
        return self.tile_states // tile.alpha // self.rows

    def stage_tiles(self, tile: Tile) -> int:
        """Transformed tiles of a stage."""
        return (self.rows + self.share - 1) * self.columns(tile)

    def intervals(self, parts: int) -> tuple[int, ...]:
        """Products that the Tensor Core sums before FP32 adds their sum."""
        return (products(parts) * KC * self.share,)

    def staged(self) -> int:
        """Bytes of the accumulators of a pass of the epilogue."""
        return self.tile_states // self.passes * (BM + 4) * 4

    def stages(self, tile: Tile, parts: int) -> int:
        """Bytes of the stages of transformed input."""
        return STAGES * tile.alpha * parts * self.stage_tiles(tile) * KC * 2

    def shared_memory(self, tile: Tile, parts: int, size: int) -> int:
        """Bytes of the kernel's shared memory, for elements of ``size`` bytes."""
        tiles = self.stage_tiles(tile)
        stages = max(self.stages(tile, parts), self.staged())
        return stages + tiles * (tile.alpha * KC * size + 16)

    def __str__(self) -> str:
        texts = [f"{name}={getattr(self, name)}" for name in ("xvec", "yvec")]
        kept = [text for text in texts if text[-1] != "4"]
        shape = f"{self.tile_states} rows={self.rows} share={self.share}"
        return " ".join(["mma.sync", shape, *kept])


def configs(tile: Tile, correlation: Correlation, request: Request) -> Iterator[Config]:
    """Every block shape that can run, or the request's as these arrays allow it."""
    parts, size = PARTS[request.precision], ITEMSIZE[request.dtype]
    shares = [s for s in SHARES if s <= correlation.filter[1]]
    shapes = [
        Config(states, rows, share)
        for states in TILE_STATES
        for rows in ROWS
        for share in shares
        if (rows > 1 or share == 1)
        and (share > 1 or states != 384)  # registers for the latter lack
    ]
    config = request.config_of(Config)
    for shape in (config,) if config else shapes:
        columns, most = shape.columns(tile), shape.tile_states // 64
        if columns % 8 or columns * shape.rows * tile.alpha != shape.tile_states:
            continue
        room = shape.stages(tile, parts)
        tried = (p for p in range(1, most) if most % p == 0)
        passes = next((p for p in tried if replace(shape, passes=p).staged() <= room), most)
        skew = int(parts == 2 and shape.share > 1)
        shape = replace(shape, passes=passes, skew=skew, **loads(correlation, request.aligned))
        if shape.shared_memory(tile, parts, size) <= request.device.shared_memory:
            yield shape
