"""Tensor maps in im2col mode, whose copies walk positions: what they reach, and maps of arrays."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from winolab.gpu.families.axes import MOST_STEP
from winolab.gpu.params import PositionsMap, View
from winolab.gpu.planner.correlation import Correlation, Dimensions, without_depth

ROW_BYTES = 128  # of a pixel's channels in a copy
CHANNELS = ROW_BYTES // 2  # the same of 16 bits
# The window's corners, and the farthest tap, of maps of four dimensions and of five: CUDA driver
# API, cuTensorMapEncodeIm2col; PTX ISA section 5.5.4.
CORNERS, FARTHEST = {4: 128, 5: 16}, {4: 255, 5: 31}
Three = tuple[int, int, int]


class Strided(Dimensions, Protocol):
    """What a kernel sees of a problem whose outputs are positions, with strides and dilation."""

    @property
    def batch(self) -> int: ...
    @property
    def stride(self) -> Three: ...
    @property
    def dilation(self) -> Three: ...


def rank(of: Strided) -> int:
    """Dimensions of the maps: without a depth four, which reach farther."""
    return 4 if without_depth(of) else 5


def corners(of: Strided) -> tuple[Three, Three]:
    """Where the window of x begins and ends, behind x's last place, by width, height, depth."""
    lower = [-p for p in of.padding]
    along = zip(of.output, of.stride, of.padding, of.input, strict=True)
    upper = [(outputs - 1) * stride - pad - (size - 1) for outputs, stride, pad, size in along]
    return (lower[2], lower[1], lower[0]), (upper[2], upper[1], upper[0])


def unreached(of: Strided) -> str | None:
    """What tensor maps do not reach of it; None where they reach all."""
    most, farthest = CORNERS[rank(of)], FARTHEST[rank(of)]
    if max(of.stride) > MOST_STEP:
        return f"strides of up to {MOST_STEP}, not {max(of.stride)}"
    if not all(-most <= c < most for corner in corners(of) for c in corner):
        far = max((c for corner in corners(of) for c in corner), key=abs)
        return (
            f"first taps of the first and the last output that lie {-most} to {most - 1} places "
            f"behind x's first and last, not {far}"
        )
    if any((n - 1) * d > farthest for n, d in zip(of.filter, of.dilation, strict=True)):
        return f"taps that lie at most {farthest} apart"
    return None


def unserved(c: Correlation) -> str | None:
    """What the kernel of forward and backward data does not serve of it (families/im2col); None
    where it serves all. A copy of channels would bring those of the next group."""
    if c.rotated and max(c.stride) > 1:
        return f"backward data of unit stride, not {max(c.stride)}"
    if c.groups > 1 and c.channels % CHANNELS:
        return f"groups whose sums are over multiples of {CHANNELS} channels, not {c.channels}"
    return unreached(c)


def place(of: Strided, position: int) -> tuple[int, int, int, int]:
    """An output, or how far one is: columns, rows, depths, images."""
    row, column = divmod(position, of.output[2])
    depth, row = divmod(row, of.output[1])
    image, depth = divmod(depth, of.output[0])
    return column, row, depth, image


def inputs(of: Strided, view: View, channels: int, itemsize: int, positions: int) -> PositionsMap:
    """The map of all ``channels`` of x, whose copies bring ROW_BYTES of so many positions."""
    lower, upper = corners(of)
    found = outputs(of, view, channels, itemsize, positions, of.input)
    return replace(found, steps=(1, *of.stride[::-1], 1), lower=lower, upper=upper)


def outputs(
    of: Strided,
    view: View,
    channels: int,
    itemsize: int,
    positions: int,
    size: Three | None = None,
) -> PositionsMap:
    """The same of an array that has the outputs' places, or others."""
    sizes = (channels, *(size or of.output)[::-1], of.batch)
    box = (ROW_BYTES // itemsize, positions, 1, 1, 1)
    found = PositionsMap.of(view.address, itemsize, sizes, view.strides[::-1], box)
    return replace(found, steps=(1,) * 5, rank=rank(of))
