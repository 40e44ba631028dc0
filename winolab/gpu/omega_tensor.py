"""Ωα(n,r), filter gradients on Tensor Cores: what tiles, blocks and chunks can run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from winolab.device import Device
from winolab.gpu.omega_tensor_blocks import MMA_VARIANTS, VARIANTS, Variant
from winolab.gpu.omega_tensor_launch import DTYPES, SIZES, OmegaTensorPlan
from winolab.gpu.plan import check, three
from winolab.nouns import Algorithm, Problem, Tile
from winolab.ref.errors import ADMISSIBLE, error_ratio

WGMMA = (9, 0)  # has it, and no other compute capability
OLDEST = (8, 0)  # with m16n8k16 of BF16 and asynchronous copies
# Tiles by precision; any other tile with alpha up to 16 runs where an algorithm names it.
ADMITTED = tuple(Tile(a + 1 - r, r) for a in (4, 6, 7, 8, 9, 10) for r in range(2, a))
# Of an H100, measured (see experiments/results): bytes a second from memory and from L2, tensor
# cycles that run at their full rate, seconds of a launch, of a block's start and end.
BANDWIDTH, L2_BANDWIDTH, TENSOR_SHARE = 2.6e12, 4.5e12, 0.75
LAUNCH_SECONDS, BLOCK_CYCLES = 3e-6, 5000
LONGEST_ROW = 256  # positions
CACHED = 0.6  # share of L2 that a chunk may take to stay there
IMAGES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def plans(
    problem: Problem,
    direction: str,
    device: Device,
    algorithm: Algorithm | None,
    precision: str,
    *,
    aligned: bool,
    variant: Variant | None = None,
    workspace_limit: int | None = None,
    out_dtype: str = "float32",
) -> Iterator[OmegaTensorPlan]:
    """The fastest chunks and segments of every tile and block shape.

    Raises ValueError where none can run, and says why.
    """
    if variant is not None and not isinstance(variant, Variant):
        return
    parts = 2 if precision == "fp32_split" else 1
    shapes = (variant,) if variant else _shapes(device, parts)
    check(problem)
    points = algorithm.points if algorithm else "best"
    wide = 2 if parts == 2 else 4
    channels = problem.in_channels, problem.out_channels
    vectors = aligned and all(c // problem.groups % wide == 0 for c in channels)
    found = False
    for tile in _tiles(problem, algorithm, precision):
        for shape in shapes:
            base = OmegaTensorPlan(
                problem, tile, points, precision, out_dtype,
                replace(shape, xvec=wide if vectors else 1), device, problem.batch,
                three(problem.output, 1)[1], 1, 1, 1,
            )  # fmt: skip
            best = min(_cuts(base, workspace_limit), key=lambda p: p.predicted, default=None)
            if best:
                found = True
                yield best
    if not found:
        raise ValueError(
            f"no {precision} kernel on Tensor Cores stays within a workspace of "
            f"{workspace_limit} B; raise it, or use fp32"
        )


def _shapes(device: Device, parts: int) -> list[Variant]:
    """The block shapes that the device can run. Raises ValueError where it has no Tensor Cores."""
    if device.compute_capability < OLDEST:
        major, minor = device.compute_capability
        raise ValueError(
            f"{device.name} has compute capability {major}.{minor}; the Tensor Core kernels need "
            f"{OLDEST[0]}.{OLDEST[1]} or later"
        )
    shapes = VARIANTS if device.compute_capability == WGMMA else MMA_VARIANTS
    return [v for v in shapes[parts] if v.shared_memory(parts) <= device.shared_memory]


def _tiles(problem: Problem, algorithm: Algorithm | None, precision: str) -> Iterator[Tile]:
    width = problem.filter[-1]
    if algorithm is None:
        yield Tile(1, 1)
        yield from (
            t for t in ADMITTED
            if t.n <= max(2, width) and error_ratio(t) <= ADMISSIBLE
        )  # fmt: skip
    elif algorithm.kind == "direct":
        yield Tile(1, 1)
    elif algorithm.kind != "omega":
        raise ValueError(
            f"the filter gradients on Tensor Cores are omega or direct, not {algorithm}"
        )
    else:
        (tile,) = algorithm.tiles
        if tile.alpha > 16:
            raise ValueError(f"{algorithm}: the CUDA kernels have alpha up to 16")
        if width % tile.n:
            raise ValueError(f"{algorithm} computes {tile.n} taps; the filter is {width} wide")
        yield tile


def _cuts(base: OmegaTensorPlan, limit: int | None) -> Iterator[OmegaTensorPlan]:
    """The plan with every promising chunk, number of segments and slice of taps."""
    height = base.rows
    slots = base.device.multiprocessors * base.variant.resident
    images = sorted({min(i, base.problem.batch) for i in (*IMAGES, base.problem.batch)})
    rows = sorted({-(-height // parts) for parts in (1, 2, 3, 4, 6, 8, 12, 16)})
    for count, tall in product(images, rows):
        chunked = replace(base, images=count, rows=tall, batch=_batch(base, count))
        if chunked.chunk_count > 64:
            continue
        for slices in {1, chunked.taps} if chunked.chunk_count == 1 else {1}:
            taps = -(-chunked.taps // slices)
            items = math.prod(chunked.tiles) * taps * base.tile.alpha
            for waves in (1, 2, 3):
                segments = max(1, min(slots * waves // items, 64))
                plan = replace(chunked, segments=segments, slice=taps)
                if limit is None or plan.workspace <= limit:
                    yield replace(plan, predicted=_seconds(plan))


def _batch(base: OmegaTensorPlan, images: int) -> int:
    """Images of a row: few, so that neighbouring rows stay in L2, but enough to fill its pitch."""
    granule = base.variant.ks if base.parts == 2 else 16
    found, best = 1, 0.0
    for batch in range(1, images + 1):
        pitch = -(-base.units * batch // granule) * granule
        if found > 1 and pitch > LONGEST_ROW:
            break
        used = images * base.units / (-(-images // batch) * pitch)
        if used > 1.02 * best:
            found, best = batch, used
    return found


def _seconds(plan: OmegaTensorPlan) -> float:
    """Predicted seconds: transforms by traffic, products by waves of blocks, launches."""
    v, p, d = plan.variant, plan.problem, plan.device
    chunks = plan.chunk_count
    slices = -(-plan.taps // plan.slice)
    positions = plan.largest
    m, n = plan.padded
    stored = sum(s * c for s, c in zip(positions, (m, n * plan.pieces), strict=True))
    stored *= 2 * plan.parts * plan.tile.alpha
    size = SIZES[DTYPES[plan.precision]]
    raw = size * (math.prod(p.x_shape) + math.prod(p.y_shape)) / p.groups / chunks
    cached = stored <= CACHED * d.l2
    transform = (raw + (0 if cached else stored)) / BANDWIDTH + stored / L2_BANDWIDTH
    products = 3 if plan.parts == 2 else 1
    step = v.ks / 16 * v.bm * v.bn / 128 * products / TENSOR_SHARE
    traffic = v.ks * (v.bm + v.bn) * 2 * plan.parts / (L2_BANDWIDTH / d.multiprocessors / d.clock)
    steps = -(-positions[0] // v.ks)
    items = math.prod(plan.tiles) * plan.slice * plan.tile.alpha * plan.segments
    sums = v.bm * v.bn * 8 / (L2_BANDWIDTH / d.multiprocessors / d.clock)
    block = -(-steps // plan.segments) * max(step, traffic) + BLOCK_CYCLES + sums
    slots = d.multiprocessors * v.resident
    full, rest = divmod(items, slots)
    waves = full * v.resident + -(-rest // d.multiprocessors)
    gemm = slices * waves * block / d.clock
    if not cached:
        gemm += stored / BANDWIDTH
    finish = plan.segments * plan.tile.alpha * plan.taps * m * n * 4 / L2_BANDWIDTH
    launches = chunks * (1 + slices) + slices
    seconds = chunks * (transform + gemm) + finish + launches * LAUNCH_SECONDS
    return p.groups * seconds
