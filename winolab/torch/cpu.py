"""The operators by PyTorch's direct convolution, or by the reference where one is named: on the
CPU, and on a GPU while kernels are compiled.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from winolab.arguments.arrays import dtype_of
from winolab.gpu.runtime.array_layout import ArrayLayout
from winolab.gpu.runtime.arrays import Described
from winolab.options import ConvOptions
from winolab.problem import Problem, in_layout, shapes
from winolab.ref import foreign
from winolab.ref.tolerance.cheapest import foreseen
from winolab.torch.asked import USUAL_TOLERANCE, Asked

LARGE = 4096
PLAIN = ConvOptions("channels_first", tolerance=USUAL_TOLERANCE)


def convolve(asked: Asked, a: Tensor, b: Tensor) -> Tensor:
    """The result of tensors in channels-first order of axes. Raises as winolab.conv_forward."""
    problem = asked.problem(tuple(a.shape), tuple(b.shape))
    if replace(asked.options, workspace_limit=None) == PLAIN and problem.ndim <= 3:
        wide = (v.float() if v.itemsize < 4 else v for v in (a, b))  # PyTorch's sums may be narrow
        result = _direct(asked.direction, problem, *wide).to(a.dtype)
    else:
        options = _chosen(asked.direction, problem, asked.options, a)
        result = foreign.convolve(asked.direction, problem, a, b, options, None)
    return laid_like(a, result)


def _chosen(direction: str, problem: Problem, options: ConvOptions, a: Tensor) -> ConvOptions:
    """The options with an algorithm in the tolerance's place: direct sums for the usual one, and
    for others what data uniform on [-1, 1] admit, as ``convert`` says and a GPU has it: infinite
    gradients, which loss scalers wait for, are convolved. Raises ValueError where nothing keeps to
    the tolerance."""
    if not options.tolerance:
        return options
    if options.tolerance == USUAL_TOLERANCE or problem.empty:
        return replace(options, tolerance=None)
    dtypes = dtype_of(a.dtype), dtype_of(options.out_dtype or a.dtype)
    found = foreseen(options.tolerance, problem, options.precision, direction, *dtypes)
    return replace(options, algorithm=found, tolerance=None)


def meanwhile(
    direction: str, problem: Problem, a: Tensor, b: Tensor, dtype: str | None = None
) -> Tensor:
    """By PyTorch on any device, without TF32, while the kernels that are meant are compiled; the
    result in that dtype, by default the operands'."""
    wanted = getattr(torch, dtype) if dtype else a.dtype
    a, b = (v.to(torch.promote_types(v.dtype, wanted)) for v in (a, b))
    cudnn: Any = torch.backends.cudnn
    how = {"benchmark": cudnn.benchmark, "deterministic": cudnn.deterministic}
    with cudnn.flags(enabled=True, allow_tf32=False, **how):
        return laid_like(a, _direct(direction, problem, a, b)).to(wanted)


def laid_like(a: Tensor, result: Tensor, first: bool | None = None) -> Tensor:
    """The result in the first operand's memory order, as kernels lay theirs. ``first``: whether
    channels lie before all spatial dimensions there, where that is known."""
    layout = "channels_first"
    if first is None:
        first = ArrayLayout.of(Described(a.shape, a.stride(), "", 0, True), layout).first(layout)
    if first:
        return result.contiguous()
    return last(result)


def last(v: Tensor) -> Tensor:
    """The tensor with channels last in memory."""
    return v.movedim(1, -1).contiguous().movedim(-1, 1)


def first_of_symbols(a: Tensor) -> bool | None:
    """``laid_like``'s ``first`` where only the data tell a size: as for large ones. Whether that
    holds is checked as the graph runs. None: every size is known, or has a guard."""
    from torch.fx.experimental import symbolic_shapes as symbols

    known: Any = getattr(symbols, "optimization_hint", None)  # of PyTorch 2.13
    if not known or not symbols.free_unbacked_symbols([*a.shape, *a.stride()]):
        return None
    (_, channels, *sizes), (_, apart, *steps) = a.shape, a.stride()
    large = partial(known, fallback=LARGE)
    axes = sorted(zip(sizes, steps, strict=True), key=lambda axis: type(axis[0]) is not int)
    for n, step in axes:
        if large(channels) > 1 and large(n) > 1 and large(step) >= large(apart):
            for holds in (channels > 1, n > 1, step >= apart):
                torch._check(holds)
            return False
    for n, step in axes:
        torch._check(symbols.sym_or(channels <= 1, n <= 1, apart > step))
    return True


def _direct(direction: str, problem: Problem, a: Tensor, b: Tensor) -> Tensor:
    """By PyTorch's own operators, whose sums are direct."""
    shape = in_layout(shapes(direction, problem)[2], "channels_first")
    if problem.empty:
        return a.new_zeros(shape)
    ends = [end for pair in reversed(problem.padding) for end in pair]
    even = all(low == high >= 0 for low, high in problem.padding)
    same = [low for low, _ in problem.padding] if even else [0] * problem.ndim
    stride, dilation, none = list(problem.stride), list(problem.dilation), [0] * problem.ndim
    if direction != "backward_data" and not even:
        a = pad(a, ends)
    if direction == "forward":
        if problem.in_channels == 1:
            a, b = map(_in_order, (a, b))
        return torch.convolution(a, b, None, stride, same, dilation, False, none, problem.groups)
    backward = torch.ops.aten.convolution_backward.default
    geometry = (None, stride, same, dilation, False, none, problem.groups)
    if direction == "backward_filter":
        w = a.new_empty(()).expand(shape)
        return backward(b, a, w, *geometry, [False, True, False])[1]
    sizes = zip(problem.input, problem.padding, strict=True)
    padded = shape if even else (*shape[:2], *(n + low + high for n, (low, high) in sizes))
    dx = backward(a, a.new_empty(()).expand(padded), b, *geometry, [True, False, False])[0]
    return dx if even else pad(dx, [-end for end in ends])


def _in_order(v: Tensor) -> Tensor:
    """The same with strides in order: where those of one channel say that channels lie last, oneDNN
    gets results of one column wrong (PyTorch 2.13)."""
    return v.contiguous().view(-1).view(v.shape)
