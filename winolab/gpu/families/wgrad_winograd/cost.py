"""How long Ω on Tensor Cores takes: transforms of chunks, products, sums of segments."""

from __future__ import annotations

import math
from dataclasses import dataclass

from winolab.gpu.families.wgrad_winograd.tiling import Tiling
from winolab.gpu.planner.device_model import MODEL, DeviceModel
from winolab.gpu.planner.rates import copying, from_l2
from winolab.gpu.planner.request import DTYPES, ITEMSIZE
from winolab.ref.arithmetic.split import products

SMALL = 4096  # channels × channels of the smallest blocks


@dataclass(frozen=True)
class ChunkSize:
    """Some images and rows of dy: its positions, and bytes of what they are transformed to."""

    count: int  # such chunks
    positions: int
    sides: tuple[int, int]  # of dy, of x

    @property
    def stored(self) -> int:
        return sum(self.sides)


def chunk(base: Tiling, images: int, rows: int, batch: int) -> ChunkSize:
    """A chunk of so many images and rows of dy; ``batch`` images make a row of positions."""
    (depth, height, _), (out_depth, out_height, _), (_, filter_height, _), _ = base.sizes
    (m, n), parts, alpha = base.padded, base.parts, base.tile.alpha
    granule = base.config.ks if parts == 2 else 16
    row = -(-images // batch) * -(-base.units * batch // granule) * granule
    positions = out_depth * rows * row
    shared = depth * min(height, rows + filter_height - 1) * row * base.pieces
    y, x = (2 * parts * alpha * c for c in (m * positions, n * shared))
    count = -(-base.problem.batch // images) * -(-out_height // rows)
    return ChunkSize(count, positions, (y, x))


def chunk_of(plan: Tiling) -> ChunkSize:
    """The chunks of a plan."""
    return chunk(plan, plan.images, plan.rows, plan.batch)


def seconds(
    base: Tiling, chunk: ChunkSize, segments: int, taps: int, model: DeviceModel = MODEL
) -> float:
    """Seconds of a call's groups, in such chunks and ``segments``, for ``taps`` at once."""
    v, d, p, parts, device = base.config, base.device, base.problem, base.parts, model.device
    m = model.wgrad_winograd
    (tiles_m, tiles_n), (of_m, of_n), alpha = base.blocks, base.padded, base.tile.alpha
    size = ITEMSIZE[DTYPES[base.precision]]
    raw = size * (math.prod(p.x_shape) * base.pieces + math.prod(p.y_shape)) / p.groups
    cached = chunk.stored <= m.cached * d.l2
    moved = from_l2 if cached else copying
    transform = copying(d, raw / chunk.count, model) + moved(d, chunk.stored, model)
    share = m.split_products if parts == 2 else m.products
    step = share * v.ks * v.bm * v.bn * products(parts) / d.matrix / d.clock
    if parts == 2 and v.bm * v.bn == SMALL:
        step *= m.small
    steps = -(-chunk.positions // v.ks)
    work_tiles = tiles_m * tiles_n * alpha * taps
    full, rest = divmod(work_tiles * segments, d.multiprocessors * v.resident)
    rounds = full * v.resident + -(-rest // d.multiprocessors)
    read = 2 * parts * chunk.positions * (v.bm + v.bn) * work_tiles
    memory = max(from_l2(d, read, model), 0 if cached else copying(d, chunk.stored, model))
    main = max(rounds * -(-steps // segments) * step, memory) + m.block / d.clock + device.launch
    sums = segments * 4 * alpha * of_m * of_n * taps
    main += copying(d, sums * (3 if chunk.count > 1 else 1), model)
    launches = -(-base.taps // taps)
    if base.checks_accuracy:
        main += device.launch  # what low parts may have lost
    found = chunk.count * (transform + device.launch + launches * main)
    return p.groups * (found + launches * (copying(d, sums, model) + device.launch))


def predicted(plan: Tiling, model: DeviceModel = MODEL) -> float:
    """Seconds of a plan's call."""
    return seconds(plan, chunk_of(plan), plan.segments, plan.slice, model)
