"""Launches of the implicit GEMM: its parameters, by where arrays lie."""

from __future__ import annotations

import math
from dataclasses import replace

from winolab.gpu.codegen.structs import layout, layouts
from winolab.gpu.families import correlation_params, wgrad
from winolab.gpu.families.epilogue import finished
from winolab.gpu.families.implicit_gemm.config import FILLED
from winolab.gpu.families.implicit_gemm.tiling import Tiling
from winolab.gpu.params import Kernels, Params, View, in_order, quotient
from winolab.gpu.planner.request import ITEMSIZE

# The axes lie between.
PARAMS, LAST = layouts("ImplicitParams", "implicit_gemm/operands", include="quotient")
FILL_PARAMS = layout("FillParams", "implicit_gemm/fill")
FILL_THREADS = 256  # of a block


def launch(
    call: Tiling, kernels: Kernels, a: View, b: View, out: View, workspace: int, wanted: int = 0
) -> None:
    """Compute all groups on the current stream; ``wanted``: the address of flags that have to ask
    for a gradient, or 0."""
    if call.config.fill:
        c, (x, w) = call.correlation, call.filled
        if not c.rotated:
            a = _fill(call, kernels, a, 1, (c.batch, *c.input), workspace)
        if not call.gradient:
            sizes = (c.channels if c.rotated else c.out_channels, *c.filter)
            b = _fill(call, kernels, b, b.strides[4], sizes, workspace + x)
        workspace += x + w
    params, threads = parameters(call, a, b, out, workspace, wanted), call.config.threads
    params = finished(params, out, 0, call.out_dtype)
    kernels[call.main_kernel]((call.grid, 1, 1), threads, params)
    if call.segments > 1:
        device = call.device
        whole = out if call.gradient else replace(out, strides=(*out.strides[:4], 1))
        wgrad.reduce(
            *(kernels["winolab_reduce"], call.result.sizes, whole, workspace, call.segments),
            *(device.early_launches, wanted, device.multiprocessors),
        )


def _fill(
    call: Tiling, kernels: Kernels, view: View, channel: int, sizes: tuple[int, ...], to: int
) -> View:
    """A copy of an array with channels filled up, at the address ``to``; ``channel``: from one of
    its channels to the next; ``sizes``: of its other dimensions."""
    c, filled = call.correlation, call.filled_channels
    vectors = math.prod(sizes) * filled // FILLED
    params = FILL_PARAMS.pack(
        view.address,
        to,
        *view.strides[:4],
        channel,
        vectors,
        *sizes[1:],
        c.out_channels if c.rotated else c.channels,
        filled // FILLED,
    )
    kernels["winolab_implicit_gemm_fill"]((-(-vectors // FILL_THREADS), 1, 1), FILL_THREADS, params)
    steps = [filled * math.prod(sizes[i:]) for i in range(1, 5)]
    return View(to, (*steps, 1) if len(view.strides) == 5 else tuple(steps))


def parameters(
    call: Tiling, a: View, b: View, out: View, workspace: int, wanted: int = 0
) -> Params:
    """Parameters of the main kernel."""
    c, size = call.correlation, ITEMSIZE[call.dtype]
    of_x, of_w = (n * size for n in call.vectors)
    a, y = a.alone(c.batch, c.input), out
    if call.gradient:
        y, address, group = b, b.address, 0
        m, *taps, channel = out.strides
        w_vectors = b.in_vectors(of_w, b.steps(c.batch, c.output), size)
    else:
        address, m, channel, *taps = correlation_params.filter_map(c, b, 0, size)
        group = (c.channels if c.rotated else c.out_channels) * b.strides[0]
        near, far = (m, channel) if c.rotated else (channel, m)
        steps = [far, *(s for s, n in zip(taps, c.filter, strict=True) if n > 1)]
        w_vectors = near == 1 and replace(b, address=address).in_vectors(
            of_w, [*steps, group], size
        )
    several = call.merged > 1
    params = PARAMS.pack(
        a.address,
        address,
        out.address,
        workspace if call.segments > 1 else 0,
        *a.strides[:3],
        *y.strides[:3],
        m,
        channel,
        *taps,
        group,
        a.strides[3],
        y.strides[3],
        c.batch,
        *c.input,
        *c.output,
        c.channels,
        c.out_channels,
        c.groups,
        call.merged,
        call.patch_channels,
        c.channels.bit_length() - 1 if several else 0,
        c.out_channels.bit_length() - 1 if several else 0,
        call.blocks_rows,
        call.blocks_columns,
        call.steps,
        call.segments,
        *c.padding,
        *c.filter,
        int(a.in_vectors(of_x, a.steps(c.batch, c.input), size)),
        int(w_vectors),
        _stored_gradient(call, out) if call.gradient else _stored(call, out),
        *(n for divisor in _divisors(call) for n in quotient(divisor)),
    )
    return Params.of(params, *(axis.params() for axis in call.axes), LAST.pack(wanted))


def _stored(call: Tiling, y: View) -> int:
    """Channels of a store."""
    c, size = call.correlation, ITEMSIZE[call.out_dtype]
    steps = y.steps(c.batch, c.output)
    for count in (8, 2) if size == 2 else (2,):
        whole = call.merged * c.out_channels % count == 0
        if whole and y.in_vectors(count * size, steps, size):
            return count
    return 1


def _stored_gradient(call: Tiling, dw: View) -> int:
    """The same of a row of dw, or of a segment's bucket: more than one where all taps and channels
    of the row lie side by side."""
    c, size = call.correlation, ITEMSIZE[call.out_dtype]
    if call.patch_channels > c.channels:
        return 1
    sizes = (*c.filter, c.channels)
    row, *steps = dw.strides
    row = row if c.groups * c.out_channels > 1 else math.prod(sizes)
    dense = in_order(sizes, steps, 1)
    for count in (8, 2) if size == 2 and call.segments == 1 else (2,):
        whole = math.prod(sizes) % count == 0
        aligned = dense and dw.in_vectors(count * size, [row], size)
        if whole and (aligned or call.segments > 1):
            return count
    return 1


def _divisors(call: Tiling) -> tuple[int, ...]:
    """What the kernels divide by."""
    c = call.correlation
    blocks = call.blocks_columns, call.blocks_rows, c.groups // call.merged
    outputs = (axis.outputs for axis in reversed(call.axes))
    return *blocks, call.patch_channels, *reversed(c.filter), *outputs
