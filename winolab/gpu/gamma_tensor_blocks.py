"""Tiles and block shapes of the Γ kernels on Tensor Cores, and which of them can run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Any

from winolab.device import Device
from winolab.gpu.plan import DTYPES, ITEMSIZE, Correlation
from winolab.nouns import Algorithm, Problem, Tile
from winolab.ref.errors import ADMISSIBLE, error_ratio
from winolab.ref.split import products

KC, BN = 16, 64  # channels of a stage, output channels of a block
TILE_STATES = 512  # of a block, tiles × states: its accumulators fill the registers
CONSUMERS, PRODUCERS = 256, 128  # threads of a block
REGISTERS = 168  # of a thread, as the kernel is launched
U_AHEAD = {8: 4, 4: 3}  # filters on their way through shared memory, by alpha
WIDTHS = {8: range(2, 8), 4: range(2, 4)}  # r of the tiles, by alpha
# Files of the main kernel: producers finish outputs, or, of 16 bits summed by one block, consumers.
BLOCKS = ("block_tensor", "items", "finish_tensor", "gamma_tensor")
EXCHANGE = ("block_tensor", "items", "finish_exchange", "gamma_tensor")
Names = tuple[str, ...]
PARTS = {"fp32_split": 2, "fp16": 1, "bf16": 1}  # 16-bit parts of a value, by precision


@dataclass(frozen=True)
class Variant:
    """The compile-time shape of one kernel: policies of kernels/gamma_tensor.cuh, by its names."""

    rows: int = 4  # output rows of a block
    share: int = 1  # filter rows that a transformed stage of input serves
    split: int = 1  # blocks of a cluster that share a summation
    v_stages: int = 2
    u_ahead: int = 0  # filters of a consumer on their way through shared memory
    passes: int = 4  # of the epilogue, over two buffers of staged tiles
    xvec: int = 4  # elements of a load of x; 1 where channels or addresses are not aligned
    yvec: int = 4  # elements of a store of y
    consumer_registers: int = 208
    producer_registers: int = 88

    def __post_init__(self) -> None:
        asked = CONSUMERS * self.consumer_registers + PRODUCERS * self.producer_registers
        if asked > (CONSUMERS + PRODUCERS) * REGISTERS:
            raise ValueError(f"{asked} registers asked for; the launch has {REGISTERS} a thread")

    def constants(self) -> dict[str, int]:
        """The constants of the source, by name."""
        return {name.upper(): value for name, value in asdict(self).items()}

    def columns(self, tile: Tile) -> int:
        """Tile columns of a block."""
        return TILE_STATES // tile.alpha // self.rows

    def stage_tiles(self, tile: Tile) -> int:
        """Transformed tiles of a stage."""
        return (self.rows + self.share - 1) * self.columns(tile)

    def skew(self, parts: int) -> int:
        """Filter rows by which products with a low part precede the others in a stage."""
        return int(parts == 2 and 1 < self.share < 5)  # five rows have no registers left for it

    def interval(self, parts: int) -> int:
        """Products that the Tensor Core sums before FP32 adds their sum; 0: all of them."""
        return products(parts) * KC * self.share if parts == 2 else 0

    def blocks(self, parts: int) -> Names:
        """Files of the main kernel."""
        return EXCHANGE if parts == 1 and self.split == 1 else BLOCKS

    def shared_memory(self, tile: Tile, parts: int, size: int) -> int:
        """Bytes of the kernel's struct Shared, for elements of ``size`` bytes."""
        tiles, alpha = self.stage_tiles(tile), tile.alpha
        v = self.v_stages * alpha * parts * tiles * KC * 2
        raw = -(-tiles // 32) * PRODUCERS * (alpha * 4 * size + 16)
        out = 2 * TILE_STATES // self.passes * (BN + 4) * 4 + 32
        if self.blocks(parts) == EXCHANGE:
            out = TILE_STATES * BN * 2 + TILE_STATES // alpha * 12
        u = self.u_ahead * parts * CONSUMERS * 16 or parts * 16
        return v + raw + u + out + 16 * self.v_stages

    def __str__(self) -> str:
        changed = [f"{n}={getattr(self, n)}" for n in ("split", "xvec", "yvec")]
        default = ("split=1", "xvec=4", "yvec=4")
        kept = [text for text, usual in zip(changed, default, strict=True) if text != usual]
        return " ".join([f"rows={self.rows} share={self.share} stages={self.v_stages}", *kept])


ROWS = (1, 2, 4, 8)
SHARES = (1, 2, 3, 4, 5)  # more would sum more than 240 products in the Tensor Core
SPLITS = (1, 2, 4, 8)


def variants(
    tile: Tile,
    correlation: Correlation,
    device: Device,
    precision: str,
    aligned: bool,
    variant: Variant | None,
) -> Iterator[Variant]:
    """Every block shape that can run, or ``variant`` as these arrays allow it."""
    height, parts = correlation.filter[1], PARTS[precision]
    size = ITEMSIZE[DTYPES[precision]]
    shares = [s for s in SHARES if s <= height]
    shapes = [Variant(rows, share) for rows in ROWS for share in shares if rows > 1 or share == 1]
    for shape in (variant,) if variant else shapes:
        columns = shape.columns(tile)
        if columns % 8 or columns * shape.rows * tile.alpha != TILE_STATES:
            continue
        shape = replace(shape, **loads(correlation, aligned))
        if shape.share == 3 and parts == 2:  # other shares have no registers for it
            shape = replace(shape, u_ahead=U_AHEAD[tile.alpha])
        tried = [replace(shape, split=n) for n in ((shape.split,) if variant else SPLITS)]
        if parts == 1:  # without sums of a stage
            tried = [replace(v, consumer_registers=200, producer_registers=104) for v in tried]
        for made in tried:
            alone = made.blocks(parts) == EXCHANGE and not variant
            deep = (replace(made, v_stages=3),) if alone else ()
            known = (*deep, made, replace(made, passes=8))
            fits = (v for v in known if v.shared_memory(tile, parts, size) <= device.shared_memory)
            yield from islice(fits, 1)


def offered(
    plan: Callable[..., Any],
    variants: Callable[..., Iterator[Any]],
    problem: Problem,
    direction: str,
    device: Device,
    algorithm: Algorithm | None,
    precision: str,
    aligned: bool,
    variant: Any,
    out_dtype: str,
) -> list[Any]:
    """Plans without times, of every tile and block shape. Raises ValueError where none can run."""
    c = Correlation.of(problem, direction)
    points = algorithm.points if algorithm else "best"
    out = "float32" if out_dtype == "float32" else DTYPES[precision]
    every = (
        plan(direction, problem, c, tile, points, precision, out, shape, device)
        for tile in tiles(c, algorithm, precision)
        for shape in variants(tile, c, device, precision, aligned, variant)
    )
    found = [p for p in every if p.variant.split <= max(1, p.steps)]
    if not found:
        raise ValueError(
            f"{variant} does not fit a filter {c.filter[1]} high and {c.channels} channels on "
            f"{device.name}"
        )
    return found


def loads(correlation: Correlation, aligned: bool) -> dict[str, int]:
    """Elements of a load of x, a store of y; 1 where channels or addresses are not aligned."""
    return {
        "xvec": 4 if aligned and correlation.channels % 4 == 0 else 1,
        "yvec": 4 if aligned and correlation.out_channels % 4 == 0 else 1,
    }


def tiles(
    correlation: Correlation, algorithm: Algorithm | None, precision: str
) -> tuple[Tile, ...]:
    """The tiles that can run. Raises ValueError where none can, and says why."""
    width = correlation.filter[2]
    if algorithm is None:
        known = (Tile(a + 1 - r, r) for a, widths in WIDTHS.items() for r in widths)
        found = tuple(t for t in known if t.r <= width and error_ratio(t) <= ADMISSIBLE)
        if not found:
            raise ValueError(
                f"no Γ kernel in {precision} has a filter {width} wide; use precision 'fp32' or "
                "'fp32_ffma'"
            )
        return found
    if algorithm.kind != "gamma" or algorithm.scaling or algorithm.variant:
        raise ValueError(
            f"{precision} runs gamma algorithms without options, not {algorithm}; use precision "
            "'fp32' or 'fp32_ffma'"
        )
    (tile,) = algorithm.tiles
    if tile.r not in WIDTHS.get(tile.alpha, ()):
        alphas = " and ".join(map(str, sorted(WIDTHS)))
        raise ValueError(
            f"{algorithm}: {precision} has alpha {alphas}; use precision 'fp32' for others"
        )
    if width % tile.r:
        raise ValueError(f"{algorithm} has {tile.r} taps; the filter is {width} wide")
    return (tile,)
