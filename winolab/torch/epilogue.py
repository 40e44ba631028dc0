"""Bias, residual and activation behind a convolution, by operators that torch differentiates.

They have the bits that kernels and the reference give them (winolab.ref.epilogue).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from winolab.arguments.arrays import on_gpu
from winolab.arguments.dlpack import numpy_view
from winolab.arguments.epilogue import Activation, check_dtype, check_shapes
from winolab.arguments.words import type_of
from winolab.options import ConvOptions
from winolab.ref import epilogue as reference


def followed(y: Tensor, bias: Any, residual: Any, options: ConvOptions) -> Tensor:
    """What becomes of y. Raises as winolab.conv_forward for what does not fit it."""
    channels = 1 if options.layout == "channels_first" else y.ndim - 1
    first, second = (None if v is None else tuple(v.shape) for v in (bias, residual))
    check_shapes(first, second, tuple(y.shape), y.shape[channels])
    for name, added in {"bias": bias, "residual": residual}.items():
        if added is None:
            continue
        if not isinstance(added, Tensor):
            raise TypeError(f"{name} is {type_of(added)}; expected a torch tensor like the others")
        check_dtype(name, _name(added), _name(y))
    if bias is not None:
        y = y + bias.reshape(-1, *(1,) * (y.ndim - 1 - channels))
    if residual is not None:
        y = y + residual
    activation = options.activation
    if activation is None:
        return y
    if activation.kind == "relu":
        return torch.relu(y)
    if activation.kind == "leaky_relu":
        return torch.nn.functional.leaky_relu(y, activation.slope)
    return Silu.apply(y)  # pyright: ignore[reportReturnType]


def _name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


class Silu(torch.autograd.Function):
    """The reference's silu, whose bits torch's own does not have."""

    @staticmethod
    def forward(ctx: Any, y: Tensor) -> Tensor:
        ctx.save_for_backward(y)
        ctx.save_for_forward(y)
        activation = Activation("silu")
        if on_gpu(y):
            from winolab.gpu.runtime.conv import activate

            return activate(y, activation)
        result = y.detach().clone()
        view = numpy_view("y", result)
        view[...] = reference.activated(view, activation)
        return result

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return upstream * _slope(*ctx.saved_tensors)

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return tangent * _slope(*ctx.saved_tensors)


def _slope(y: Tensor) -> Tensor:
    """The derivative of silu, which torch differentiates again."""
    sigmoid = torch.sigmoid(y)
    return sigmoid * (1 + y * (1 - sigmoid))
