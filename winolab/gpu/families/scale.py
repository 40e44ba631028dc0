"""Scales of split products, and the flags by which their results are held against FP32's accuracy.

See scale.cuh, which a family's kernels of split products are compiled with, and accuracy_check.cuh
of forward and backward data. A call has a header (flags, a sample of x), its filter a row for every
output channel (gamma_filter_scaled.cuh).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

from winolab.algorithm import Tile
from winolab.device import Device
from winolab.gpu.codegen.emit import FALLBACK, unit
from winolab.gpu.codegen.structs import layout, size
from winolab.gpu.params import Kernels, Params, View
from winolab.gpu.planner.correlation import Correlation
from winolab.ref.algebra.transforms import Matrix, Transforms
from winolab.ref.arithmetic.split import CEILING, HEADROOM, Scale, ceil_log2

# Suspects for which there is room behind the header; of more, all is computed again. Of single
# outputs 1 in 3,000 is a suspect on normal data, 1 in 100 where x has magnitudes 2^(2 · normal)
# apart; of tiles of two none in 28,000 (tests/gpu/planner/test_accuracy_check.py).
LEAST_ROOM, MOST_ROOM = 1 << 10, 1 << 15
SINGLE, PAIR = 80, 5000
# Beyond MOST_ROOM there is room for twice the suspects that normal data have: on an H200 products
# of 773 million outputs overran it, and all was computed again, 8.1 ms for 2.2 (docs/notes/126).
LIKELY, MOST_LIKELY = 1500, 1 << 19
ROWS = 64  # output channels of a block, usually: a group's rows are filled up to a multiple
SAMPLERS, THREADS = 128, 256  # blocks that sample x; of each, and of those that scan it
PEAKS = SAMPLERS * THREADS // 32  # images, the first ones, that may have scales of their own
# Bytes of scale.cuh's structs, the header filled up, and of accuracy_check.cuh's.
HEADER = -(-size("Header", "scale", SAMPLERS=SAMPLERS) // 256) * 256
ROW, LOSS = size("Row", "scale"), size("Loss", "scale")
SUSPECT = size("Suspect", "accuracy_check", "scale")
BLOCKS = {  # as scale.cuh has them
    "SAMPLERS": SAMPLERS,
    "SCALE_THREADS": THREADS,
    "HEADER_BYTES": HEADER,
    "PEAKS": PEAKS,
    "SUSPECT_BYTES": SUSPECT,
}
# FP32 in order errs by 0.30 · 2^-24 · √K of an output, and 1.3 times that may come from low parts
# of 2^-25/√3 that are lost (scale.cuh): with K = r · products of a state. RMS to mean: √(2/π).
SHARE = 2**-25 / math.sqrt(3) / (1.3 * 0.30 * 2**-24) * math.sqrt(2 / math.pi)

PARAMS = layout("ScaleParams", "scale")
KNOWN, IMAGES = ([name for name, _ in PARAMS.fields].index(name) for name in ("known", "images"))


def constants(*sides: tuple[Tile, Transforms]) -> dict[str, int]:
    """What scale.cuh and fixed_scale.cuh need to know of the transforms along each dimension."""
    inputs = filters = taps = 1.0
    for tile, made in sides:
        at, g = _squares(made.AT), [sum(row) for row in _squares(made.G)]
        inputs *= sum(sum(a * b for a, b in zip(row, g, strict=True)) for row in at) / tile.n
        filters *= sum(map(sum, at)) / tile.n
        taps *= tile.r
    unit = 1024 * SHARE / math.sqrt(taps)
    return {
        "HEADROOM": HEADROOM,
        "SCALE_INPUT": _growth(*(made.BT for _, made in sides)),
        "SCALE_FILTER": _growth(*(made.G for _, made in sides)),
        "LEAST_INPUT": math.ceil(unit * math.sqrt(inputs)),
        "LEAST_FILTER": math.ceil(unit * math.sqrt(filters)),
    }


def found_source(*sides: Transforms) -> str:
    """The unit of what a fallback's launch asks first: what the kernels found that scaled x for
    these transforms. Others that scale it as much have the same."""
    constants = {"HEADROOM": HEADROOM, "SCALE_INPUT": _growth(*(made.BT for made in sides))}
    return unit("what checks found", constants | BLOCKS | {FALLBACK: 1}, {}, ("accuracy_check",))


def _squares(matrix: Matrix) -> list[list[float]]:
    return [[float(e) ** 2 for e in row] for row in matrix]


def known(scale: Scale | None, *sides: Transforms) -> tuple[int, float]:
    """What the kernel finds by itself where it is 0: a sample's largest element, as its bits, and
    the scale of the filter, whose rows have their own where only its largest element is known.
    """
    if scale is None:
        return 0, 0.0
    bits, value = 0, scale.a.value
    if scale.a.rule != "absmax":
        growth = _growth(*(made.BT for made in sides))
        largest = value if scale.a.rule == "peaks" else CEILING - 1 - growth - value
        bits = min(254, max(1, largest - HEADROOM + 127)) << 23
    return bits, 2.0**scale.b.value if scale.b.rule == "given" else 0.0


def _growth(*sides: Matrix) -> int:
    """Exponent of the power of two that no element of matrix · v exceeds where |v| ≤ 1, of
    matrices nested."""
    gains = (max(sum(map(abs, row), Fraction()) for row in matrix) for matrix in sides)
    return ceil_log2(math.prod(gains, start=Fraction(1)))


def room(c: Correlation, tiles: Sequence[Tile]) -> int:
    """For how many suspects there is room: of tiles of one and two outputs, at the ends of rows."""
    counts = Counter({1: c.batch * c.out_channels * c.groups * math.prod(c.output[: -len(tiles)])})
    for tile, outputs in zip(tiles, c.output[-len(tiles) :], strict=True):
        whole, last = divmod(outputs, tile.n)
        longer: Counter[int] = Counter()
        for few, count in counts.items():
            longer[few * tile.n] += count * whole
            longer[few * last] += count
        counts = longer
    expected = min(counts[1] // SINGLE + counts[2] // PAIR, MOST_ROOM)
    likely = min(counts[1] // LIKELY, MOST_LIKELY)
    return max(LEAST_ROOM, -(-max(expected, likely) // 32) * 32)  # a multiple of 256 bytes


def header_size(c: Correlation, tiles: Sequence[Tile]) -> int:
    """Bytes that a workspace begins with where kernels check their accuracy."""
    return HEADER + 4 * PEAKS + SUSPECT * room(c, tiles)


def noted(header: int) -> int:
    """For how many suspects a header of so many bytes has room."""
    return (header - HEADER - 4 * PEAKS) // SUSPECT


def padded(c: Correlation, block: int = ROWS) -> int:
    """Rows of a group, of blocks of so many output channels."""
    return -(-c.out_channels // block) * block


def size(c: Correlation, block: int = ROWS) -> int:
    """Bytes of all rows, a multiple of 256."""
    return row(c, 0, c.groups, block)


def row(c: Correlation, rows: int, group: int, block: int = ROWS) -> int:
    """The address of a group's first row."""
    return rows + ROW * group * padded(c, block)


def parameters(
    c: Correlation,
    header: int,
    rows: int,
    x: View,
    wide: bool,
    known: int = 0,
    block: int = ROWS,
    late: bool = False,
    room: int = 0,
    by_image: bool = False,
) -> Params:
    """Parameters of ``scale``, which finds x's scale, and of ``scan``, or fallback_kernel.cuh's.

    ``header`` and ``rows`` are where they are kept; ``wide``: x allows loads of four elements;
    ``known``: the first of the function of that name; ``block`` as for ``padded``; ``late``:
    whether the launch behind ``scale`` may begin only when the sample is there; ``room``: for how
    many suspects there is, behind the header; ``by_image``: whether the kernels ask for the scales
    of images.
    """
    vector = 4 if wide else 1
    *sizes, run = _merged((c.batch, *c.input, c.channels * c.groups), (*x.strides, 1))
    vectors = math.prod(sizes) * run // vector
    of_image = max(1, vectors // max(1, c.batch))
    images = min(c.batch, PEAKS) if by_image else 0
    last = run // vector, wide, c.groups * padded(c, block), known, late, room, images
    return PARAMS.pack(x.address, header, rows, *x.strides, 1, vectors, of_image, *sizes[1:], *last)


def dense(c: Correlation, strides: Sequence[int]) -> tuple[int, int]:
    """Where a row of the filter, of all taps and channels, begins in memory, from its first tap on,
    and elements between neighbours there, or 0 where these differ. ``strides``: of (c, *taps).
    """
    axes = list(zip(strides, (c.channels, *c.filter), strict=True))
    lowest = sum(min(0, stride) * (size - 1) for stride, size in axes)
    axes = sorted((abs(stride), size) for stride, size in axes if size > 1)
    step = reach = axes[0][0] if axes else 1
    for stride, size in axes:
        if stride != reach:
            return lowest, 0
        reach *= size
    return lowest, step


def scale(kernels: Kernels, params: Params, early: bool) -> None:
    """Before the main kernel: the scales of x and of images, no flag set. ``early``: it follows
    others."""
    known, images = params.values[KNOWN], params.values[IMAGES]
    of_images = -(-images // (THREADS // 32)) if images > 1 else 0
    blocks = 1 if known else SAMPLERS + of_images  # known: one block clears the flags
    kernels["winolab_scale"]((blocks, 1, 1), THREADS, params, early)


def scan(kernels: Kernels, device: Device, params: Params) -> None:
    """After everything else: whether results of 0 hide numbers that vanished; kernels without the
    scan's have one that does it before a fallback (planner/fallback.py).
    """
    if "winolab_scan" not in kernels:
        return
    grid = (2 * device.multiprocessors, 1, 1)
    kernels["winolab_scan"](grid, THREADS, params, device.early_launches)


def _merged(sizes: tuple[int, ...], strides: tuple[int, ...]) -> list[int]:
    """Sizes of five axes, the last one grown by those that it follows without gaps."""
    merged, step = list(sizes), strides[-1]
    for axis in range(3, -1, -1):
        gap = merged[axis] != 1 and strides[axis] != step * merged[-1]
        if gap or merged[-1] * merged[axis] >= 1 << 31:
            break
        merged[-1] *= merged[axis]
        merged[axis] = 1
    return merged
