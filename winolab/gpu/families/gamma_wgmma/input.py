"""What bulk tensor copies of x read: x itself, or a copy of it whose channels are padded."""

from __future__ import annotations

import math
import operator
from itertools import accumulate

from winolab.device import Device
from winolab.gpu.codegen.structs import layout
from winolab.gpu.params import VECTOR, Kernels, TensorMap, View, aligned
from winolab.gpu.planner.correlation import Correlation

# The parameter struct of pad_channels.cuh, field for field.
PAD_PARAMS = layout("PadParams", "gamma_wgmma/pad_channels")
PAD_THREADS, FILL_WAVES = 256, 8  # of a block; blocks of a multiprocessor


def padded_channels(c: Correlation, size: int) -> int:
    """Channels of a group, up to whole vectors, for elements of ``size`` bytes."""
    vector = VECTOR // size
    return -(-c.channels // vector) * vector


def padded_size(c: Correlation, size: int) -> int:
    """Bytes of a copy of x with so many."""
    pixels = c.batch * math.prod(c.input)
    return aligned(pixels * c.groups * padded_channels(c, size) * size)


def fill(kernels: Kernels, c: Correlation, device: Device, x: View, to: int, size: int) -> None:
    """Copy x to address ``to``, every group's channels padded with zeros."""
    vectors, pixels = padded_channels(c, size) * size // VECTOR, c.batch * math.prod(c.input)
    params = PAD_PARAMS.pack(
        x.address, to, *x.strides[:4], pixels, *c.input, c.groups, c.channels, vectors
    )
    blocks = -(-pixels * c.groups * vectors // PAD_THREADS)
    grid = min(blocks, FILL_WAVES * device.multiprocessors)
    kernels["winolab_gamma_wgmma_pad_channels"]((grid, 1, 1), PAD_THREADS, params)


def padded_view(c: Correlation, address: int, size: int) -> View:
    """Such a copy, dense."""
    pixel, row, depth, batch = accumulate(
        (padded_channels(c, size) * c.groups, *c.input[::-1]), operator.mul
    )
    return View(address, (batch, depth, row, pixel))


def tensor_map(
    c: Correlation, x: View, channels: int, group: int, size: int, box: tuple[int, ...]
) -> TensorMap:
    """The tensor map of a group's channels of x, ``channels`` of each group lying there."""
    sizes = (channels, *c.input[::-1], c.batch)
    return TensorMap.of(x.address + size * group * channels, size, sizes, x.strides[::-1], box)
