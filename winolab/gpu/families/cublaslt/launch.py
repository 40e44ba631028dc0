"""The product's parameters, by where arrays lie."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from winolab.gpu.families.cublaslt.tiling import Tiling
from winolab.gpu.params import MATMUL, PRODUCT, Kernels, Params, View, in_order, pitch

KINDS = {"float32": 0, "float16": 2, "bfloat16": 14}  # cudaDataType


class Matrix(NamedTuple):
    """An array as it lies: a matrix whose columns are ``pitch`` elements apart, and have the last
    channels of an array, or of ``planes`` an image's pixels, for rows."""

    address: int
    pitch: int
    planes: bool = False

    @classmethod
    def of(cls, view: View, sizes: tuple[int, ...], channels: int) -> Matrix:
        """A map or a filter, whose ``sizes`` but channels are these; a map whose view has a stride
        of channels may be planes. Raises ValueError where it is no matrix."""
        strides, apart = view.strides[: len(sizes)], view.strides[len(sizes) :]
        is_filter = len(sizes) == 1
        if is_filter or channels == 1 or apart in ((), (1,)):
            if found := pitch(sizes, strides, channels):
                return cls(view.address, found)
        elif sizes[0] == 1 and in_order(sizes, strides, 1) and apart[0] >= prod(sizes):
            return cls(view.address, apart[0], True)
        raise ValueError(f"rows of {sizes} lie at no one distance, by strides {view.strides}")


def launch(call: Tiling, kernels: Kernels, a: View, b: View, out: View, workspace: int) -> None:
    """Multiply on the current stream."""
    kernels[MATMUL]((1, 1, 1), 1, parameters(call, a, b, out, workspace))


def parameters(call: Tiling, a: View, b: View, out: View, workspace: int) -> Params:
    """The product's struct: rows of arrays are columns of its matrices.

    Of y and dx the transposed product stands there: yᵀ = w xᵀ and dxᵀ = wᵀ dyᵀ, where a filter's
    columns are its output channels; of dw, too: dwᵀ = xᵀ dy. Planes are transposed already: an
    operand of them is turned where rows would not be, and of a result of them the product is
    transposed once more, which exchanges the operands.
    """
    p = call.problem
    maps, filters = (p.batch, *_three(p.input)), (p.out_channels,)
    rows, columns, depth = call.sizes
    if call.gradient:
        x, dy = Matrix.of(a, maps, p.in_channels), Matrix.of(b, maps, p.out_channels)
        result = Matrix.of(out, filters, p.in_channels)
        sides = (x, x.planes), (dy, not dy.planes)
    else:
        read, written = p.in_channels, p.out_channels
        if call.direction == "backward_data":
            read, written = written, read
        x, result = Matrix.of(a, maps, read), Matrix.of(out, maps, written)
        sides = (Matrix.of(b, filters, p.in_channels), call.direction == "forward"), (x, x.planes)
        if result.planes:
            (w, turned), _ = sides
            sides = (x, not x.planes), (w, not turned)
            rows, columns = columns, rows
    (first, turned_first), (second, turned_second) = sides
    return PRODUCT.pack(
        *(first.address, second.address, result.address),
        workspace if call.workspace else 0,
        *(rows, columns, depth),
        *(first.pitch, second.pitch, result.pitch),
        call.workspace,
        KINDS[call.dtype],
        KINDS[call.out_dtype],
        int(turned_first),
        int(turned_second),
        call.alignment,
    )


def _three(sizes: tuple[int, ...]) -> tuple[int, ...]:
    return (1,) * (3 - len(sizes)) + sizes
