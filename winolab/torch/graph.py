"""winolab.conv_forward and its gradients of torch tensors that have a place in torch's graph.

Bias, residual and activation follow by operators that torch differentiates, with the bits that
kernels and the reference give them (winolab.ref.epilogue).
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.compiler import is_dynamo_compiling

from winolab.arguments.arrays import dtype_of, on_gpu
from winolab.arguments.dlpack import numpy_view
from winolab.arguments.epilogue import Activation, check_dtype, check_shapes
from winolab.arguments.words import type_of, with_article
from winolab.gpu.runtime.arrays import TORCH
from winolab.options import Convolution, ConvOptions, check_one
from winolab.problem import NAMES, in_layout, shapes
from winolab.ref import epilogue as reference
from winolab.torch.asked import Options, check_dense, check_tensors, text_of
from winolab.torch.operators import CALLS, LIBRARY

TORCH.compiling = is_dynamo_compiling
INSTEAD = "detach it, or call under torch.no_grad()"


def tracked(*values: Any) -> bool:
    """Whether torch keeps track of what becomes of any tensor of these, for derivatives or as it
    compiles.

    Raises TypeError for tensors that hold no numbers to read, as tracers.
    """
    if is_dynamo_compiling():
        return True
    tensors = [v for v in values if isinstance(v, torch.Tensor)]
    for tensor in tensors:
        _check_numbers(tensor)
    return TORCH.requires_grad(*tensors)


def _check_numbers(tensor: torch.Tensor) -> None:
    kind: Any = type(tensor)
    plain = kind.__torch_dispatch__ is torch._C._disabled_torch_dispatch_impl
    if plain and not tensor.is_meta and not is_functorch_wrapped_tensor(tensor):
        check_dense("a tensor", tensor)
        return
    what = "meta tensor" if plain and tensor.is_meta else kind.__name__
    raise TypeError(
        f"{with_article(what)} has no numbers that this could read: winolab.torch.conv2d and its "
        "siblings serve torch.func, torch.compile, fake and meta tensors"
    )


def convolve(
    asked: Convolution, a: Any, b: Any, out: Any, bias: Any = None, residual: Any = None
) -> torch.Tensor:
    """The operator's result, in the layout that is asked for; on the CPU the reference's. Bias,
    residual and activation follow as operators of torch, which have gradients.

    Raises ValueError where there is no place for it: the result goes into ``out``, or b is a
    prepared filter.
    """
    names = NAMES[asked.direction]
    if out is not None or hasattr(b, "held"):
        given = (v for v in (a, b, out, bias, residual) if isinstance(v, torch.Tensor))
        if not TORCH.requires_grad(*given):
            raise ValueError("torch.compile knows no out and no prepared filter: leave them out")
    if out is not None:
        given = {names[1]: b, "out": out}
        named = (n for n, array in given.items() if getattr(array, "requires_grad", False))
        name = next(named, names[0])
        raise ValueError(f"{name} requires grad, which a result in out has no place for: {INSTEAD}")
    if hasattr(b, "held"):
        raise ValueError(
            f"{names[0]} requires grad, for which the prepared filter is of no use: give the "
            f"filter itself; or {INSTEAD}"
        )
    for name, value in zip(names, (a, b), strict=False):
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"{name} is {type_of(value)}; expected a torch tensor like the other")
    kept = asked.unique and not is_dynamo_compiling()
    found = _arguments if kept else _arguments.__wrapped__
    last, arguments = found(asked, tuple(a.shape), tuple(b.shape), a.device.type == "cpu")
    if arguments is None:
        return followed(_nothing(asked, a, b), bias, residual, _checked(asked.options))
    if last:
        a, b = a.movedim(-1, 1), b.movedim(-1, 1)
    if torch.is_autocast_enabled(a.device.type):  # dtypes are those that were given
        with torch.autocast(a.device.type, enabled=False):
            y = CALLS[asked.direction](a, b, *arguments)
    else:
        y = CALLS[asked.direction](a, b, *arguments)
    y = y.movedim(1, -1) if last else y
    if bias is not None or residual is not None or asked.options.activation is not None:
        return followed(y, bias, residual, _checked(asked.options))
    return y


def _checked(options: ConvOptions) -> ConvOptions:
    """The same, checked; while torch.compile traces, without the algorithm, which text_of reads."""
    return (replace(options, algorithm=None) if is_dynamo_compiling() else options).checked()


def _nothing(asked: Convolution, a: Tensor, b: Tensor) -> Tensor:
    """What is left of an x that has size 0: no elements, or a filter's gradient of zeros."""
    check_tensors(asked.direction, a, b)
    options = _checked(asked.options)
    problem = asked.problem(tuple(a.shape), tuple(b.shape))
    shape = in_layout(shapes(asked.direction, problem)[2], options.layout)
    dtype = a.dtype if options.out_dtype is None else _dtype(options.out_dtype)
    return (a.sum() + b.sum()).to(dtype).expand(shape).clone()


@lru_cache(maxsize=4096)
def _arguments(
    asked: Convolution, a_shape: tuple[int, ...], b_shape: tuple[int, ...], on_cpu: bool
) -> tuple[bool, tuple[Any, ...] | None]:
    """Whether channels are last, and the operator's arguments behind the operands; None where x has
    size 0 somewhere, for which operators have other shapes."""
    options, direction = _checked(asked.options), asked.direction
    problem, tolerance = asked.problem(a_shape, b_shape), options.tolerance
    if 0 in problem.input:
        return options.layout == "channels_last", None
    named = text_of("algorithm", asked.options.algorithm)
    check_one(named, tolerance)
    wanted = options.out_dtype
    how = Options(
        algorithm=named or ("direct" if on_cpu and not tolerance else None),
        precision=text_of("precision", options.precision),
        out_dtype=None if wanted is None else _dtype(wanted),
        workspace_limit=options.workspace_limit,
        on_range=options.on_range,
        scale=text_of("scale", options.scale),
        tolerance=tolerance and f"{tolerance.kind}:{tolerance.most!r}",
    )
    padding = [end for pair in problem.padding for end in pair]
    geometry = (problem.stride, padding, problem.dilation, problem.groups, *how.given())
    if direction == "forward":
        return options.layout == "channels_last", geometry
    shape = problem.x_shape if direction == "backward_data" else problem.w_shape
    return options.layout == "channels_last", (in_layout(shape, "channels_first"), *geometry)


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
    silu = torch.ops.winolab.silu if is_dynamo_compiling() else Silu.apply
    return silu(y)


def _dtype(wanted: Any) -> torch.dtype:
    return getattr(torch, dtype_of(wanted).name)


def _name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _silu(y: Tensor) -> Tensor:
    """The reference's silu, whose bits torch's own does not have."""
    activation = Activation("silu")
    if on_gpu(y):
        from winolab.gpu.runtime.conv import activate

        return activate(y, activation)
    result = y.detach().clone()
    view = numpy_view("y", result)
    view[...] = reference.activated(view, activation)
    return result


LIBRARY.define("silu(Tensor y) -> Tensor")
for key in ("CPU", "CUDA"):
    LIBRARY.impl("silu", _silu, key)
torch.library.register_fake("winolab::silu", torch.empty_like, lib=LIBRARY)


class Silu(torch.autograd.Function):
    """That operator with its derivatives; dynamo traces none that has tangents."""

    @staticmethod
    def forward(ctx: Any, y: Tensor) -> Tensor:
        ctx.save_for_backward(y)
        ctx.save_for_forward(y)
        return torch.ops.winolab.silu(y)

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


torch.library.register_autograd(
    "winolab::silu",
    Silu.backward,
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    lib=LIBRARY,
)
