"""The launch of a product of few positions: its parameters, by where arrays lie."""

from __future__ import annotations

from winolab.gpu.codegen.structs import layout
from winolab.gpu.families.epilogue import finished
from winolab.gpu.families.skinny.tiling import Tiling
from winolab.gpu.params import Kernels, Params, View, irregular, pitch
from winolab.gpu.planner.correlation import three
from winolab.gpu.planner.request import ITEMSIZE

PARAMS = layout("SkinnyParams", "skinny/kernel")


def launch(call: Tiling, kernels: Kernels, a: View, b: View, out: View) -> None:
    """Compute it on the current stream."""
    params = finished(parameters(call, a, b, out), out, 0, call.out_dtype)
    kernels["winolab_skinny"]((call.grid, 1, 1), call.config.threads, params)


def parameters(call: Tiling, a: View, b: View, out: View) -> Params:
    """Parameters of the kernel: of a filter gradient dy is its first operand, else the second is
    the filter."""
    p, v = call.problem, call.config
    x, y = ((p.batch, *three(n, 1)) for n in (p.input, p.output))
    sides = (x, p.in_channels), (y, p.out_channels), ((p.out_channels,), p.in_channels)
    if call.turned:
        (a, b), order = (b, a), (1, 0, 2)
    else:
        order = (0, 2, 1) if call.direction == "forward" else (1, 2, 0)
    views = a, b, out
    pitches = [_pitch(view, *sides[n]) for view, n in zip(views, order, strict=True)]
    size, out_size = ITEMSIZE[call.dtype], ITEMSIZE[call.out_dtype]
    # Single numbers are read of the first operand, unless it is read as the second is.
    both = call.direction == "forward" or v.whole(call.direction)
    read = [*zip(views, pitches, strict=True)][0 if both else 1 : 2]
    vectors = all(view.in_vectors(v.vector * size, [step], size) for view, step in read)
    return PARAMS.pack(
        *(view.address for view in views),
        *pitches,
        *call.sizes,
        call.across,
        call.count,
        int(v.vector > 1 and vectors),
        int(out.in_vectors(v.vector * out_size, pitches[2:], out_size)),
    )


def _pitch(view: View, sizes: tuple[int, ...], channels: int) -> int:
    """Elements from a row of an array to the next. Raises ValueError where these differ."""
    found = pitch(sizes, view.strides[: len(sizes)], channels)
    if found is None:
        raise irregular(sizes, view.strides)
    return found
