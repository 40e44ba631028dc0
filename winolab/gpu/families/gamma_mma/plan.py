"""Γ on Tensor Cores without wgmma (compute capability 8.x), by mma.sync: plans and block shapes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

from winolab.algorithm import Tile
from winolab.gpu.codegen.structs import layout
from winolab.gpu.families.gamma_wgmma import plan as gamma_wgmma
from winolab.gpu.families.gamma_wgmma import tiles as gamma_wgmma_tiles
from winolab.gpu.families.gamma_wgmma.config import KC, PARTS, Files, loads
from winolab.gpu.families.gamma_wgmma.launch import Launcher
from winolab.gpu.families.gamma_wgmma.offers import offered
from winolab.gpu.families.gamma_wgmma.plan import GammaWgmmaPlan
from winolab.gpu.families.gamma_wgmma.tiles import BM
from winolab.gpu.params import View
from winolab.gpu.planner.correlation import Correlation
from winolab.gpu.planner.device_model import MODEL, DeviceModel
from winolab.gpu.planner.request import ITEMSIZE, Request
from winolab.options import KernelConfig
from winolab.ref.arithmetic.split import products

OLDEST = (8, 0)  # with m16n8k16 of BF16 and asynchronous copies
PARAMS = layout("GammaParams", "gamma_mma/block")
THREADS, STAGES = 256, 2
WIDTHS = {a: r for a, r in gamma_wgmma_tiles.WIDTHS.items() if 8 % a == 0}  # of eight warps
TILE_STATES = (512, 384, 256)  # of a block, tiles × states; the smaller ones serve small problems
ROWS, SHARES = (1, 2, 3, 4, 6, 8), (1, 2, 3)


@dataclass(frozen=True)
class Config(KernelConfig):
    """The compile-time shape of one kernel: policies of gamma_mma/kernel.cuh, by its names."""

    tile_states: int = 512
    rows: int = 4  # output rows of a block
    share: int = 1  # filter rows that a transformed stage of input serves
    passes: int = 1  # of the epilogue, as many as its memory asks for
    xvec: int = 4  # elements of a load of x; 1 where channels or addresses are not aligned
    yvec: int = 4  # elements of a store of y
    skew: int = 0  # filter rows by which products with a low part precede the others in a stage
    rest: int = 0  # rows of a filter's last stage; 0: all, padded with zeros

    split_k = multicast = 1  # blocks of a cluster that share a summation, or filters
    narrow = 0  # output channels of the last block's filters, where they are fewer
    run = padded = 0  # of tiles that a bulk copy of x brings; whether its channels are padded
    packed = 0  # rows of such a copy, where rows run on from image to image
    clusters = False  # whether the device has them
    main, entry = "gamma_mma/kernel", "winolab_gamma_mma"  # its file, and its name there

    def constants(self, tile: Tile, size: int) -> dict[str, int]:
        """The constants of the source, by name; the same for every tile and element."""
        return {name.upper(): value for name, value in asdict(self).items()} | {"NARROW": 0}

    def files(self, parts: int) -> Files:
        """What kernel.cuh includes by macro besides the filter's transform."""
        return {}

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


class MmaLauncher(Launcher):
    """As gamma_wgmma's, with the main kernel's own parameters."""

    params = PARAMS

    def maps(self, x: View, group: int, padded: int) -> tuple[()]:
        return ()


@dataclass(frozen=True)
class GammaMmaPlan(GammaWgmmaPlan):
    """One call: as gamma_wgmma's, whose filter, scales and workspace it has, with other blocks."""

    config: Config

    @property
    def launcher(self) -> MmaLauncher:
        """What launches the kernels."""
        return MmaLauncher(self, self.layout, self.given)

    @property
    def places(self) -> tuple[()]:
        return ()

    @property
    def grid(self) -> int:
        """Blocks."""
        return max(1, min(self.work_tiles, self.device.multiprocessors))

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return THREADS


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


def plans(request: Request) -> Iterator[GammaMmaPlan]:
    """Every tile and block shape that can run; on 9.0, which has wgmma, only the request's.

    Raises ValueError where none can, and says why.
    """
    capability = request.device.compute_capability
    if capability < OLDEST:
        needs = "Γ by mma.sync needs {}.{} or later; precision 'fp32' has others"
        raise request.unfit(needs.format(*OLDEST))
    if capability == gamma_wgmma.ARCHITECTURE and not request.config:
        return
    yield from map(_predicted, offered(GammaMmaPlan, configs, request, WIDTHS))


def _predicted(plan: GammaMmaPlan) -> GammaMmaPlan:
    return plan.timed(seconds(plan))


def seconds(plan: GammaMmaPlan, model: DeviceModel = MODEL) -> float:
    """Seconds of a group's main kernel, in rounds of blocks: no products overlap transforms."""
    v, device, m = plan.config, plan.device, model.gamma_mma
    rate = device.matrix * (m.hopper if device.compute_capability[0] == 9 else 1)
    work = v.tile_states * BM * KC * v.share * products(plan.parts)
    transforms = v.stage_tiles(plan.tile) * plan.tile.alpha * m.state
    transforms *= m.scalar if v.xvec == 1 else 1
    stage = m.products * work / rate + transforms + m.stage
    rounds = -(-plan.work_tiles // plan.grid)
    return rounds * (plan.steps * stage + v.tile_states * m.item) / device.clock
