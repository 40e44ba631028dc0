"""Block shapes of the Γ kernels on Tensor Cores, and which of them can run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import NamedTuple

from winolab.algorithm import Tile
from winolab.device import Device
from winolab.gpu.families.gamma.config import KC, PARTS, Files, GammaConfig, loads
from winolab.gpu.families.gamma.tiles import (
    TEN,
    WGMMA_TILES,
    block_outputs,
    block_tiles,
)
from winolab.gpu.families.gamma_wgmma.boxes import LINE, PIXEL, SLOT, Boxes, boxes, slot_aligned
from winolab.gpu.families.gamma_wgmma.packed_batch import packed_rows
from winolab.gpu.params import VECTOR
from winolab.gpu.planner.correlation import Correlation
from winolab.gpu.planner.device_model import MODEL
from winolab.gpu.planner.request import ITEMSIZE, Request
from winolab.ref.arithmetic.split import products

STAGES = 2  # of transformed input
UNIT = 16  # output channels that the last block's filters are padded to
# Threads of a block. Loaders, only where boxes come: one warp works, but registers change hands by
# whole warpgroups.
CONSUMERS, PRODUCERS, LOADERS = 256, 128, 128
REGISTERS = 65536  # of a multiprocessor
V_AS_A = (2, 3, 4)  # filter rows of stages with V as wgmma's A: for more, registers do not suffice
SIX = 6  # states, whose products take the least time beside copies of filters
U_RINGS = (3, 2)  # states of filters that wait then, as many as fit
U_AHEAD = (9, 6, 4, 3)  # filters that wait for registers, where outputs are stored one by one
FOLDED = 3  # filter rows of longer stages behind which sums leave the Tensor Core
DEEPEST = 9  # of 16 bits in registers
# Files of the main kernel: who finishes outputs, producers or consumers; how input is fetched.
PRODUCED, EXCHANGED = "finish_tensor.cuh", "finish_exchange.cuh"
ELEMENTS, BOXED = "fetch_elements.cuh", "fetch_boxes.cuh"
# What wgmma's left operand has as rows: where filters wait, what a thread finishes.
CHANNELS_LEFT = ("filters_registers.cuh", "outputs_pairs.cuh")
TILES_LEFT = ("filters_shared.cuh", "outputs_fours.cuh")
RUNS = (16, 8, 4, 2, 1)  # neighbouring tiles of a box
BOX_TILES = 4  # of a box's row, where neighbours are fewer, from several images


class Waiting(NamedTuple):
    """Where a block's filters wait: a config's fields of these names."""

    u_ahead: int = 0
    u_ring: int = 0
    multicast: int = 1


@dataclass(frozen=True)
class Config(GammaConfig):
    """The compile-time shape of one kernel: policies of gamma_wgmma/kernel.cuh, by its names."""

    rows: int = 4  # output rows of a block
    share: int = 1  # filter rows that a transformed stage of input serves
    rest: int = 0  # such rows of a filter's last stage; 0: all, padded with zeros
    split_k: int = 1  # blocks of a cluster that share a summation
    ring: int = 4  # filters of a consumer in registers
    u_ahead: int = 0  # and on their way through shared memory
    u_ring: int = 0  # or states of filters there, as wgmma's B, V being A; 0: filters are A
    multicast: int = 1  # blocks of a cluster with the same filters then, brought for one another
    narrow: int = 0  # output channels of the last block's filters then, where they are fewer
    skew: int = 0  # filter rows by which products with a low part precede the others in a stage
    fold: int = 0  # of such a stage, behind which sums leave the Tensor Core too, with no skew
    exchanges: int = 2  # buffers of sums that consumers exchange
    passes: int = 4  # of the epilogue, over two buffers of staged tiles
    run: int = 0  # neighbouring tiles of a bulk tensor copy of x; 0: x is copied by elements
    images: int = 1  # of such a copy; they vary first along a block's columns
    packed: int = 0  # rows of such a copy at most, where blocks' rows run on from image to image
    padded: int = 0  # whether it is of a copy of x, its channels padded to whole vectors
    yvec: int = 4  # elements of a store of y
    consumer_registers: int = 208
    producer_registers: int = 72
    loader_registers: int = 24

    clusters = True  # whether the device has them
    entry = "winolab_gamma_wgmma"
    params = "GammaWgmmaParams"

    def __post_init__(self) -> None:
        asked = CONSUMERS * self.consumer_registers + PRODUCERS * self.producer_registers
        asked += (self.threads - CONSUMERS - PRODUCERS) * self.loader_registers
        launched = REGISTERS // self.threads // 8 * 8  # of a thread
        if asked > self.threads * launched:
            raise ValueError(f"{asked} registers asked for; the launch has {launched} a thread")

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return CONSUMERS + PRODUCERS + (LOADERS if self.run else 0)

    @property
    def waiting(self) -> Waiting:
        """Where filters wait."""
        return Waiting(self.u_ahead, self.u_ring, self.multicast)

    @property
    def xvec(self) -> int:
        """Elements of a load of x."""
        return 4 if self.run and not self.padded else 1

    def constants(self, tile: Tile, size: int) -> dict[str, int]:
        """The constants of the source, by name, for elements of ``size`` bytes."""
        mine = {name.upper(): value for name, value in asdict(self).items()}
        mine |= {"BT": block_tiles(tile.alpha)}
        return mine | (self.boxes(tile, size).constants() if self.run else {})

    @property
    def kernels(self) -> tuple[str, ...]:
        """Files of the kernels: where channels are padded, what does so, and the main one."""
        copies = ("gamma_wgmma/pad_channels",) if self.padded else ()
        return (*copies, "gamma_wgmma/kernel")

    def choices(self, parts: int) -> dict[str, int]:
        """Which of the files are included, as constants."""
        return {"PAIRED": int(self.finish(parts) == EXCHANGED), "V_AS_A": int(self.u_ring > 0)}

    def columns(self, tile: Tile) -> int:
        """Tile columns of a block."""
        return block_tiles(tile.alpha) // self.rows

    def stage_tiles(self, tile: Tile) -> int:
        """Transformed tiles of a stage."""
        return (self.rows + self.share - 1) * self.columns(tile)

    def intervals(self, parts: int) -> tuple[int, ...]:
        """Products that the Tensor Core sums before FP32 adds them, in turn; of 16 bits all."""
        rows = (self.fold, self.share - self.fold) if self.fold else (self.share,)
        return tuple(products(parts) * KC * n for n in rows) if parts == 2 else ()

    def files(self, parts: int) -> Files:
        """What kernel.cuh includes, by macro."""
        filters, outputs = TILES_LEFT if self.u_ring else CHANNELS_LEFT
        fetch, finish = BOXED if self.run else ELEMENTS, self.finish(parts)
        names = ("FETCH_FILE", "FILTERS_FILE", "OUTPUTS_FILE", "FINISH_FILE")
        return dict(zip(names, (fetch, filters, outputs, finish), strict=True))

    def finish(self, parts: int) -> str:
        """The file of the epilogue."""
        return EXCHANGED if self.split_k == 1 and (parts == 1 or self.run) else PRODUCED

    def boxes(self, tile: Tile, size: int, spread: bool = True) -> Boxes:
        """Bulk tensor copies of x, their tiles spread over the banks of shared memory."""
        first, columns = self.stage_tiles(tile) % SLOT, self.columns(tile)
        most = self.packed or SLOT
        if not spread:
            return Boxes(tile, min(SLOT, columns), self.run, self.images, first, most=most)
        return boxes(tile, columns, self.run, self.images, first, size, most)

    def box(self, tile: Tile, size: int) -> tuple[int, int, int, int, int]:
        """What such a copy brings: channels, pixels along the width, rows, depths, images."""
        boxes = self.boxes(tile, size)
        return PIXEL // size, boxes.pixels, boxes.box_rows, 1, self.images

    def slots(self, tile: Tile) -> int:
        """Parts of a stage that are fetched one by one."""
        return -(-self.stage_tiles(tile) // SLOT)

    def raw(self, tile: Tile, size: int) -> int:
        """Bytes of the fetched input, and of what its fetching needs."""
        if not self.run:
            return self.slots(tile) * PRODUCERS * (tile.alpha * 4 * size + 16)
        return self.slots(tile) * (self.boxes(tile, size).slot + 16)

    def shared_memory(self, tile: Tile, parts: int, size: int) -> int:
        """Bytes of the kernel's shared memory, for elements of ``size`` bytes."""
        tiles, alpha, block = self.stage_tiles(tile), tile.alpha, block_tiles(tile.alpha)
        outputs = block_outputs(alpha)
        v = -self.raw(tile, size) % LINE + STAGES * alpha * parts * tiles * KC * 2
        out = 2 * alpha * block // self.passes * (outputs + 4) * 4 + 32
        if self.finish(parts) == EXCHANGED:
            # what is exchanged; tiles' places and words; channels' factors, in 16 bits a struct
            # of nothing; the first channel and two barriers
            out = self.exchanges * CONSUMERS * alpha * 8 + block * 12
            out += outputs * (8 if parts == 2 else 1) + 24
        u = self.u_ahead * parts * CONSUMERS * 16 or parts * 16
        if self.u_ring:  # states of both groups, with two barriers each; aligned to 128
            u = self.u_ring * (2 * self.share * parts * outputs * KC * 2 + 32) + 128
        return slot_aligned(v + self.raw(tile, size) + u + out + 16 * STAGES)

    def __str__(self) -> str:
        names = ("rest", "split_k", "u_ahead", "u_ring", "multicast", "narrow", "fold", "exchanges")
        names += ("run", "images", "packed", "padded", "yvec")
        usual = Config(run=4)
        kept = [f"{n}={getattr(self, n)}" for n in names if getattr(self, n) != getattr(usual, n)]
        return " ".join([f"rows={self.rows} share={self.share}", *kept])


ROWS = (1, 2, 4, 8)
SHARES = (1, 2, 3, 4, 5)  # more would sum more than 240 products in the Tensor Core
SPLITS = (1, 2, 4, 8)


@dataclass(frozen=True)
class Shape:
    """A block shape and how its input is fetched: all that a config has but what waits where, and
    how many blocks share a sum."""

    tile: Tile
    fixed: dict[str, int]  # a config's rows, share, exchanges, passes
    fetched: dict[str, int]  # its run, images, packed, padded
    splits: tuple[int, ...]  # its split_k may be one of


def shapes(tile: Tile, correlation: Correlation, request: Request) -> Iterator[Shape]:
    """Shapes of every config that can run, or the request's as these arrays allow it."""
    height, size = correlation.filter[1], ITEMSIZE[request.dtype]
    config = request.config_of(Config)
    shares = [s for s in SHARES if s <= height]
    every = [Config(rows, share) for rows in ROWS for share in shares if rows > 1 or share == 1]
    for shape in (config,) if config else every:
        columns = shape.columns(tile)
        if columns % 8 or columns * shape.rows != block_tiles(tile.alpha):
            continue
        ways = list(_boxes(correlation, tile, shape))
        fetched = [{**box, "padded": 0} for box in ways]
        if not request.aligned or correlation.channels * size % VECTOR:
            fetched = [{"run": 0, "images": 1, "packed": 0, "padded": 0}]
            if math.prod((correlation.batch, *correlation.input)) < 1 << 31:  # pad_channels.cuh
                fetched += [{**box, "padded": 1} for box in ways]
        names = ("rows", "share", "exchanges", "passes")
        fixed = {name: getattr(shape, name) for name in names}
        splits = (shape.split_k,) if config else SPLITS
        yield from (Shape(tile, fixed, how, splits) for how in fetched)


def configs(tile: Tile, correlation: Correlation, request: Request) -> Iterator[Config]:
    """Every config that can run, or the request's as these arrays allow it."""
    for shape in shapes(tile, correlation, request):
        for split_k in shape.splits:
            yield from shaped(shape, split_k, correlation, request)


def shaped(
    shape: Shape, split_k: int, correlation: Correlation, request: Request
) -> Iterator[Config]:
    """The configs of a shape whose sums so many blocks share."""
    tile, parts = shape.tile, PARTS[request.precision]
    size, room = ITEMSIZE[request.dtype], request.device.shared_memory
    yvec = loads(correlation, request.aligned)["yvec"]
    registers = _registers(tile, shape.fetched["run"], split_k, parts)
    made = Config(**shape.fixed, **shape.fetched, split_k=split_k, yvec=yvec, **registers)
    far = is_far(tile, correlation, parts, request.device)
    for rings in _rings(tile, made, parts, far):
        tried = _tried(tile, made, rings, parts, correlation)
        fits = (v for v in tried if v.shared_memory(tile, parts, size) <= room)
        yield from islice(fits, 1)


def _tried(
    tile: Tile, made: Config, rings: list[dict[str, int]], parts: int, correlation: Correlation
) -> Iterator[Config]:
    """Configs of one way, in which the first that fits is taken: none is made in vain."""
    tries = []
    for ring in rings:
        last = {
            "rest": _rest(tile, made.share, ring, parts, correlation.filter[1]),
            "narrow": _narrow(tile, ring, correlation),
        }
        tries.append(v := replace(made, **ring, **last))
        yield v
        if v.finish(parts) != EXCHANGED:  # in more passes, where outputs are staged
            yield replace(v, passes=8)
    yield from (replace(v, exchanges=1) for v in tries if v.u_ring == 2)


def transformed(tile: Tile, c: Correlation, parts: int) -> int:
    """Bytes of the transformed filter, at least."""
    depth, height, width = c.filter
    states = depth * height * -(-width // tile.r) * -(-c.channels // KC) * tile.alpha
    return states * parts * c.out_channels * KC * 2


def is_far(tile: Tile, c: Correlation, parts: int, device: Device) -> bool:
    """Whether filters fill so much of L2 that pairs of blocks may share their copies."""
    return MODEL.gamma.near * transformed(tile, c, parts) > device.l2


def _rings(tile: Tile, config: Config, parts: int, far: bool) -> Iterator[list[dict[str, int]]]:
    """How filters come to the products: ways to choose from, of each the first that fits.

    With two halves of tiles at least all of a state are in registers, with skewed products three.
    Filters that wait in shared memory need registers, which a ring of few leaves, or are wgmma's B.
    Where they are ``far``, blocks with few products a copy bring them for one another in pairs.
    """
    held, share = tile.alpha // 2, config.share
    filters, whole = held * share, block_tiles(tile.alpha) == WGMMA_TILES
    if parts == 1:
        ring = next(n for n in range(DEEPEST, 0, -1) if filters % n == 0)
        yield [{"ring": ring}]
        return
    boxed = config.run and config.split_k == 1
    few = tile.alpha == TEN and share == 2  # two rows of ten states are never the fastest
    if boxed and share in V_AS_A and config.yvec > 1 and not few:
        consumers, producers = (200, 88) if share < 4 else (208, 72)  # so that none spills
        if tile.alpha == TEN:
            consumers, producers = (200, 88) if share == 4 else (192, 104)
        v_as_a = {"ring": 0, "skew": share}  # all products with a low part come first
        v_as_a |= {"consumer_registers": consumers, "producer_registers": producers}
        rings = U_RINGS if tile.alpha < 8 else U_RINGS[1:]  # of eight states a third: -4 to 0.5 %
        multicast = 2 if tile.alpha == SIX and far else 1
        yield [{**v_as_a, "u_ring": n, "multicast": multicast} for n in rings]
    if tile.alpha == TEN:  # a state's 48 channels are no rows of wgmma
        return
    ring = (3 if share == 3 else held) if whole else max(2, share)
    skew = int(1 < share < 5)  # five rows have no registers left for it
    # Single outputs are stored by lanes far apart there: 25 to 40 % slower with odd channels.
    waiting = U_AHEAD if boxed and share == 3 and config.yvec == 1 else ()
    ahead = (n for n in (*waiting, 0) if filters % max(1, n) == 0)
    ways = [[{"ring": ring, "u_ahead": n, "skew": skew} for n in ahead]]
    if config.run and share > 3 and tile.alpha == 8:
        waits = [{"ring": 2, "u_ahead": 4, "skew": 0}]
        ways = [*ways[: share - 4], waits]  # four rows of bare filters are up to 20 % slower
    for way in ways:
        yield way
        if share > 4:  # a fifth less error, about 1 % of the time
            yield [{**ring, "fold": FOLDED} for ring in way]


def _rest(tile: Tile, share: int, ring: Mapping[str, int], parts: int, height: int) -> int:
    """Rows of a filter's last stage; 0 where zeros fill it up: in 16 bits they take less time (4 to
    6 %, seven layers), and a ring's places must be the same in every stage."""
    rest, held, ahead = height % share, ring["ring"], ring.get("u_ahead", 0)
    if "u_ring" in ring:
        return rest
    filters = tile.alpha // 2 * rest
    even = filters % held == 0 and filters % max(1, ahead) == 0
    return rest if parts == 2 and even and held + ahead <= filters else 0


def _narrow(tile: Tile, ring: Mapping[str, int], c: Correlation) -> int:
    """Output channels of the last block's filters where it has no use for more."""
    left = -(-c.out_channels // UNIT) * UNIT % block_outputs(tile.alpha)
    return left if "u_ring" in ring else 0


def _registers(tile: Tile, run: int, split_k: int, parts: int) -> dict[str, int]:
    """Registers of every role. Producers need fewer where loaders fetch and consumers finish;
    loaders more where they also meet with a cluster.
    """
    if not run:
        consumers, producers, loaders = (208, 88, 24) if parts == 2 else (200, 104, 24)
    elif split_k > 1:  # with six states producers would spill, and consumers hold less
        consumers, producers, loaders = (184, 104, 32) if tile.alpha == 6 else (200, 80, 32)
    else:
        consumers, producers, loaders = (208, 72, 24) if parts == 2 else (200, 88, 24)
    return {
        "consumer_registers": consumers,
        "producer_registers": producers,
        "loader_registers": loaders,
    }


def _boxes(correlation: Correlation, tile: Tile, shape: Config) -> Iterator[dict[str, int]]:
    """Neighbouring tiles and images of a bulk tensor copy, as many as divide a row's, a block's
    and the batch; of an odd row's also with one tile more, of which nothing is stored. Either also
    with images packed, where that takes fewer blocks.
    """
    columns, width = shape.columns(tile), -(-correlation.output[2] // tile.n)
    for row in (width, width + 1) if width % 2 and width > 1 else (width,):
        run = next(n for n in RUNS if row % n == 0 and n <= columns)
        counts = (n for n in RUNS if n * run <= BOX_TILES and correlation.batch % n == 0)
        images = next(counts, 1)
        yield {"run": run, "images": images, "packed": 0}
        # Two filter rows gain nothing by it: -5 to 3 %.
        if shape.share != 2 and (
            most := packed_rows(correlation, row, columns, shape.rows, images)
        ):
            yield {"run": run, "images": images, "packed": most}
