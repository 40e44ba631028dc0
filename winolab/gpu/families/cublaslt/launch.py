"""The product's parameters, by where arrays lie."""

from __future__ import annotations

from math import gcd, prod
from typing import NamedTuple

from winolab.gpu.families import wgrad
from winolab.gpu.families.cublaslt.tiling import Tiling
from winolab.gpu.params import (
    MATMUL,
    PRODUCT,
    VECTOR,
    Kernels,
    Params,
    View,
    in_order,
    irregular,
    pitch,
)
from winolab.gpu.planner.correlation import three
from winolab.gpu.planner.request import ITEMSIZE

REDUCE = "winolab_reduce"
KINDS = {"float32": 0, "float16": 2, "bfloat16": 14}  # cudaDataType


class Matrix(NamedTuple):
    """An array as it lies: a matrix whose columns are ``pitch`` elements apart, and have the last
    channels of an array for rows; of ``planes`` a matrix an image, a ``batch_stride`` of elements
    from the next, whose columns have its pixels. So is every image of a map of rows; a filter is
    all's."""

    address: int
    pitch: int
    batch_stride: int = 0
    planes: bool = False

    @classmethod
    def of(cls, view: View, sizes: tuple[int, ...], channels: int) -> Matrix:
        """A map or a filter, whose ``sizes`` but channels are these; a map whose view has a stride
        of channels may be planes. Raises ValueError where it is no matrix."""
        strides, apart = view.strides[: len(sizes)], view.strides[len(sizes) :]
        is_filter = len(sizes) == 1
        rows = is_filter or channels == 1 or apart in ((), (1,))
        if rows and (found := pitch(sizes, strides, channels)):
            return cls(view.address, found, 0 if is_filter else strides[0])
        dense = not is_filter and apart and in_order(sizes[1:], strides[1:], 1)
        if dense and apart[0] >= prod(sizes[1:]):
            return cls(view.address, apart[0], strides[0], True)
        raise irregular(sizes, view.strides)


def launch(call: Tiling, kernels: Kernels, a: View, b: View, out: View, workspace: int) -> None:
    """Multiply on the current stream; images' parts of dw, which come first in the workspace, are
    then added up in their order."""
    params = parameters(call, a, b, out, workspace)
    kernels[MATMUL]((1, 1, 1), 1, params)
    *_, images = params.values
    if call.gradient and images > 1:
        gradient, device = wgrad.Gradient.of(call.problem, unit=False), call.device
        wgrad.reduce(
            *(kernels[REDUCE], gradient.sizes, out, workspace, images, False),
            multiprocessors=device.multiprocessors,
        )


def parameters(call: Tiling, a: View, b: View, out: View, workspace: int) -> Params:
    """The product's struct: rows of arrays are columns of its matrices.

    Of y and dx the transposed product stands there: yᵀ = w xᵀ and dxᵀ = wᵀ dyᵀ, where a filter's
    columns are its output channels; of dw, too: dwᵀ = xᵀ dy. Planes are transposed already: an
    operand of them is turned where rows would not be, and of a result of them the product is
    transposed once more, which exchanges the operands. Of several images' planes, which are no
    matrix together, there is a product an image, and of dw a part in the workspace.
    """
    p, images = call.problem, 1
    maps, filters = (p.batch, *three(p.input, 1)), (p.out_channels,)
    rows, columns, depth = call.sizes
    out_dtype = call.out_dtype
    if call.gradient:
        x, dy = Matrix.of(a, maps, p.in_channels), Matrix.of(b, maps, p.out_channels)
        result = Matrix.of(out, filters, p.in_channels)
        sides = (x, x.planes), (dy, not dy.planes)
        if call.images > 1 and (x.planes or dy.planes):
            images, depth, out_dtype = call.images, call.each[2], "float32"
            result = Matrix(workspace, rows, rows * columns)
    else:
        read, written = p.in_channels, p.out_channels
        if call.direction == "backward_data":
            read, written = written, read
        x, result = Matrix.of(a, maps, read), Matrix.of(out, maps, written)
        sides = (Matrix.of(b, filters, p.in_channels), call.direction == "forward"), (x, x.planes)
        if x.planes or result.planes:
            images = p.batch
            columns //= images
        if result.planes:
            (w, turned), _ = sides
            sides = (x, not x.planes), (w, not turned)
            rows, columns = columns, rows
    (first, turned_first), (second, turned_second) = sides
    size, out_size = ITEMSIZE[call.dtype], ITEMSIZE[out_dtype]
    alignment = call.alignment
    if images > 1:  # whose rows of channels need not be aligned
        alignment = VECTOR if all(view.aligned for view in (a, b, out)) else size
        steps = (
            first.batch_stride * size,
            second.batch_stride * size,
            result.batch_stride * out_size,
        )
        alignment = gcd(alignment, *steps)
    return PRODUCT.pack(
        *(first.address, second.address, result.address),
        workspace + call.beside_library if call.of_library else 0,
        *(rows, columns, depth),
        *(first.pitch, second.pitch, result.pitch),
        *(first.batch_stride, second.batch_stride, result.batch_stride),
        call.of_library,
        KINDS[call.dtype],
        KINDS[out_dtype],
        int(turned_first),
        int(turned_second),
        alignment,
        images,
    )
