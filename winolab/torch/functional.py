"""torch.nn.functional's convolutions, computed by winolab: the same arguments and shapes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling

from winolab.algorithm import Algorithm
from winolab.arguments.words import plural, type_of
from winolab.problem import Direction
from winolab.torch import operators
from winolab.torch.asked import (
    SPECIALIZES,
    Sizes,
    check_dense,
    group_count,
    kept_geometry,
    options,
    plain_sizes,
    read_geometry,
)
from winolab.torch.asked import sizes as sizes_of
from winolab.torch.plain import AUTOCAST

# torch.fx.symbolic_trace records these two and looks no further.
torch.fx.wrap("correlate")
torch.fx.wrap("transpose")
ABOUT = """

    The arguments and the result are those of torch.nn.functional.{name}, with ``stride``,
    ``padding``{strings} and ``dilation`` an int or one a spatial dimension. ``algorithm`` is an
    algorithm or its text ("winograd:4x4:3x3", "gamma:8:6:3"); None is direct convolution on the
    CPU and on a GPU the planner's choice of those that are predicted to err at most four times as
    much as direct products in the same precision ("direct:4"). ``precision`` is a name or a dtype;
    None follows the tensors' dtype: float32, float64 on the CPU alone, float16 and bfloat16 with
    FP32 sums; complex64 and complex128 are four real convolutions.
    ``tolerance`` is winolab.conv_forward's: 1e-5 admits algorithms by their predicted error, here
    of data uniform on [-1, 1], whatever the tensors hold. On the
    CPU, what is named beside the default runs the reference, slowly. ``batch_invariant`` gives an
    image the same bits, and its gradient, whatever the batch: by a kernel that looks at no other
    image, the one that is predicted the fastest over batches of 1, 8 and 32, or by a launch an
    image, as on the CPU. Where memory lacks for an image's workspace, all images are computed again
    in less.

    Gradients of any order, forward-mode derivatives, torch.func's transforms, autocast,
    torch.compile and torch.export serve; filters' gradients take no tile of ``algorithm``.
    The result lies in memory as the input does. Any two runs give the same bits, unless memory
    lacked for a workspace in between: winolab.conv_forward says what is done then.

    Raises ValueError for shapes and sizes that do not fit and for what is not served, TypeError
    for dtypes.

    >>> x, w = torch.ones({x}), torch.ones({w})
    >>> {name}(x, w).shape
    torch.Size({y})
    """


def _documented(first: str, ndim: int, transposed: bool) -> Any:
    def with_docstring(function: Any) -> Any:
        taps = (3,) * ndim
        function.__doc__ = first + ABOUT.format(
            name=function.__name__,
            strings="" if transposed else ' (also "same" or "valid")',
            x=(2, 4, *(8,) * ndim),
            w=(4, 6, *taps) if transposed else (6, 4, *taps),
            y=[2, 6, *(10 if transposed else 6,) * ndim],
        )
        return function

    return with_docstring


@_documented("One-dimensional cross-correlation of (N, IC, L) with (OC, IC/groups, R).", 1, False)
def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    *,
    algorithm: str | Algorithm | None = None,
    precision: Any = None,
    tolerance: float | str | None = None,
    batch_invariant: bool = False,
) -> Tensor:
    how = options(algorithm, precision, tolerance, batch_invariant)
    geometry = stride, padding, dilation, groups
    return correlate(1, input, weight, bias, *geometry, how)


@_documented("Cross-correlation of (N, IC, H, W) with (OC, IC/groups, R, S).", 2, False)
def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    *,
    algorithm: str | Algorithm | None = None,
    precision: Any = None,
    tolerance: float | str | None = None,
    batch_invariant: bool = False,
) -> Tensor:
    how = options(algorithm, precision, tolerance, batch_invariant)
    geometry = stride, padding, dilation, groups
    return correlate(2, input, weight, bias, *geometry, how)


@_documented("Cross-correlation of (N, IC, D, H, W) with (OC, IC/groups, Q, R, S).", 3, False)
def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    *,
    algorithm: str | Algorithm | None = None,
    precision: Any = None,
    tolerance: float | str | None = None,
    batch_invariant: bool = False,
) -> Tensor:
    how = options(algorithm, precision, tolerance, batch_invariant)
    geometry = stride, padding, dilation, groups
    return correlate(3, input, weight, bias, *geometry, how)


@_documented("Transposed convolution of (N, IC, L) with (IC, OC/groups, R).", 1, True)
def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups: int = 1,
    dilation: Sizes = 1,
    *,
    algorithm: str | Algorithm | None = None,
    precision: Any = None,
    tolerance: float | str | None = None,
    batch_invariant: bool = False,
) -> Tensor:
    sizes = stride, padding, output_padding, dilation
    how = options(algorithm, precision, tolerance, batch_invariant)
    return transpose(1, input, weight, bias, *sizes, groups, how)


@_documented("Transposed convolution of (N, IC, H, W) with (IC, OC/groups, R, S).", 2, True)
def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups: int = 1,
    dilation: Sizes = 1,
    *,
    algorithm: str | Algorithm | None = None,
    precision: Any = None,
    tolerance: float | str | None = None,
    batch_invariant: bool = False,
) -> Tensor:
    sizes = stride, padding, output_padding, dilation
    how = options(algorithm, precision, tolerance, batch_invariant)
    return transpose(2, input, weight, bias, *sizes, groups, how)


@_documented("Transposed convolution of (N, IC, D, H, W) with (IC, OC/groups, Q, R, S).", 3, True)
def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups: int = 1,
    dilation: Sizes = 1,
    *,
    algorithm: str | Algorithm | None = None,
    precision: Any = None,
    tolerance: float | str | None = None,
    batch_invariant: bool = False,
) -> Tensor:
    sizes = stride, padding, output_padding, dilation
    how = options(algorithm, precision, tolerance, batch_invariant)
    return transpose(3, input, weight, bias, *sizes, groups, how)


def _through(direction: Direction, asked: Any, a: Tensor, w: Tensor) -> Any:
    """What computes, of ``through`` of correlate and transpose; complex tensors by real ones."""
    convolve = operators.CALLS[direction] if asked is None else asked
    return _of_parts(convolve) if a.is_complex() and w.is_complex() else convolve


def _of_parts(convolve: Any) -> Any:
    """Complex products by four real convolutions, each part as exact as those are."""

    def of_complex(a: Tensor, w: Tensor, *arguments: Any) -> Tensor:
        a, w = a.resolve_conj(), w.resolve_conj()  # torch.vmap knows no views that negate
        kind = a.device.type
        known = kind in AUTOCAST  # which leaves complex tensors alone
        with torch.autocast(kind, enabled=False) if known else nullcontext():
            real = convolve(a.real, w.real, *arguments) - convolve(a.imag, w.imag, *arguments)
            imag = convolve(a.real, w.imag, *arguments) + convolve(a.imag, w.real, *arguments)
            return torch.complex(real, imag)

    return of_complex


def correlate(
    ndim: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sizes,
    padding: Sizes | str,
    dilation: Sizes,
    groups: int,
    how: tuple[Any, ...],
    through: Any = None,
) -> Tensor:
    """A cross-correlation in ``ndim`` dimensions: its arguments read, ``through`` called.

    ``through`` None is the operator.
    """
    x = _batch(input, weight, ndim)
    if type(groups) is not int:
        groups = group_count(groups)
    if not plain_sizes(ndim, stride, padding, dilation):
        strides, ends, dilations = read_geometry(ndim, stride, padding, dilation, weight.shape[2:])
    elif type(padding) is str:
        taps = weight.shape[2:]
        strides, ends, dilations = kept_geometry(ndim, stride, padding, dilation, taps)
    else:
        strides, ends, dilations = kept_geometry(ndim, stride, padding, dilation)
    if bias is not None:
        check_bias(bias, weight.shape[0])
    convolve = _through("forward", through, x, weight)
    y = convolve(x, weight, strides, ends, dilations, groups, *how)
    return _finished(y, bias, x is input)


def transpose(
    ndim: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sizes,
    padding: Sizes,
    output_padding: Sizes,
    dilation: Sizes,
    groups: int,
    how: tuple[Any, ...],
    through: Any = None,
) -> Tensor:
    """A transposed convolution in ``ndim`` dimensions."""
    dy = _batch(input, weight, ndim)
    if type(groups) is not int:
        groups = group_count(groups)
    strides = sizes_of(stride, ndim, "stride", 1)
    dilations = sizes_of(dilation, ndim, "dilation", 1)
    paddings = sizes_of(padding, ndim, "padding", 0)
    longer = sizes_of(output_padding, ndim, "output_padding", 0)
    shape, ends = [dy.shape[0], weight.shape[1] * groups], []
    surely: Any = bool
    if SPECIALIZES and is_dynamo_compiling():  # a size that only the data tell is not surely wrong
        from torch.fx.experimental.symbolic_shapes import guard_or_false as surely
    for d, (s, t, p, more) in enumerate(zip(strides, dilations, paddings, longer, strict=True)):
        if more >= s and more >= t:
            raise ValueError(
                f"output_padding in spatial dimension {d} is {more}; expected less than the "
                f"stride {s} or the dilation {t}"
            )
        size = (dy.shape[d + 2] - 1) * s - 2 * p + t * (weight.shape[d + 2] - 1) + more + 1
        if surely(size < 1):
            raise ValueError(
                f"padding {p} in spatial dimension {d} leaves nothing of the result; expected less"
            )
        shape.append(size)
        ends += [p, p - more // s * s]
    if bias is not None:
        check_bias(bias, shape[1])
    convolve = _through("backward_data", through, dy, weight)
    sizes = map(tuple, (shape, strides, ends, dilations))  # which have a hash
    y = convolve(dy, weight, *sizes, groups, *how)
    return _finished(y, bias, dy is input)


def _batch(input: Tensor, weight: Tensor, ndim: int) -> Tensor:
    """The input with its batch. Raises TypeError for no tensors, ValueError for dimensions."""
    for name, value in (("input", input), ("weight", weight)):
        if not isinstance(value, Tensor):
            raise TypeError(f"{name} is {type_of(value)}; expected a torch tensor")
    if weight.dim() != ndim + 2:
        raise ValueError(f"weight has {plural(weight.dim(), 'dimension')}; expected {ndim + 2}")
    if input.dim() == ndim + 1:
        check_dense("input", input)
        return input.unsqueeze(0)
    if input.dim() != ndim + 2:
        raise ValueError(
            f"input has {plural(input.dim(), 'dimension')}; expected {ndim + 2}, or {ndim + 1} "
            "without batch"
        )
    return input


def _finished(y: Tensor, bias: Tensor | None, batched: bool) -> Tensor:
    if bias is not None:
        y = with_bias(y, bias)
    return y if batched else y.squeeze(0)


def with_bias(y: Tensor, bias: Tensor, add: Callable[..., Tensor] = torch.add) -> Tensor:
    """A result with its bias added. Raises TypeError for another dtype than autocast would cast,
    ValueError for another device."""
    if bias.device != y.device:
        raise ValueError(f"bias is on {bias.device} and the result on {y.device}; move one of them")
    if bias.dtype != y.dtype:
        kind = y.device.type
        cast = kind in AUTOCAST and torch.is_autocast_enabled(kind) and operators.casts(bias, kind)
        if not cast or y.dtype != torch.get_autocast_dtype(kind):
            raise TypeError(
                f"bias has dtype {bias.dtype} and the result {y.dtype}; convert one of them"
            )
        bias = bias.to(y.dtype)
    return add(y, bias.reshape(-1, *[1] * (y.dim() - 2)))


def check_bias(bias: Any, channels: int) -> None:
    """Raise TypeError for what is no tensor that lies in memory, ValueError for a shape that does
    not fit."""
    if not isinstance(bias, Tensor):
        raise TypeError(f"bias is {type_of(bias)}; expected a torch tensor")
    check_dense("bias", bias)
    if bias.dim() != 1 or bias.shape[0] != channels:
        raise ValueError(
            f"bias has shape {tuple(bias.shape)}; expected ({channels},), one an output channel"
        )
