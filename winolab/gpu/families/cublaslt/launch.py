"""The product's parameters, by where arrays lie."""

from __future__ import annotations

from winolab.gpu.families.cublaslt.tiling import Tiling
from winolab.gpu.params import MATMUL, PRODUCT, Kernels, Params, View, pitch

KINDS = {"float32": 0, "float16": 2, "bfloat16": 14}  # cudaDataType


def launch(call: Tiling, kernels: Kernels, a: View, b: View, out: View, workspace: int) -> None:
    """Multiply on the current stream."""
    kernels[MATMUL]((1, 1, 1), 1, parameters(call, a, b, out, workspace))


def parameters(call: Tiling, a: View, b: View, out: View, workspace: int) -> Params:
    """The product's struct: rows of arrays are columns of its matrices.

    Of y and dx the transposed product stands there: yᵀ = w xᵀ and dxᵀ = wᵀ dyᵀ, where a filter's
    columns are its output channels; of dw, too: dwᵀ = xᵀ dy.
    """
    p = call.problem
    maps, filters = (p.batch, *_three(p.input)), (p.out_channels,)
    if call.gradient:
        first, second = (a, maps, p.in_channels), (b, maps, p.out_channels)
        result = out, filters, p.in_channels
    else:
        read, written = p.in_channels, p.out_channels
        if call.direction == "backward_data":
            read, written = written, read
        first, second = (b, filters, p.in_channels), (a, maps, read)
        result = out, maps, written
    sides = first, second, result
    return PRODUCT.pack(
        *(view.address for view, _, _ in sides),
        workspace if call.workspace else 0,
        *call.sizes,
        *(_pitch(*side) for side in sides),
        call.workspace,
        KINDS[call.dtype],
        KINDS[call.out_dtype],
        int(call.direction == "forward"),
        int(call.gradient),
        call.alignment,
    )


def _three(sizes: tuple[int, ...]) -> tuple[int, ...]:
    return (1,) * (3 - len(sizes)) + sizes


def _pitch(view: View, sizes: tuple[int, ...], channels: int) -> int:
    found = pitch(sizes, view.strides[: len(sizes)], channels)
    if found is None:
        raise ValueError(f"rows of {sizes} lie at no one distance, by strides {view.strides}")
    return found
