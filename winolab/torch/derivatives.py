"""Derivatives of the operators: a convolution is linear in both operands, each one's is another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad
from torch.autograd.function import _SingleLevelFunction
from torch.compiler import is_dynamo_compiling

from winolab.torch import plain
from winolab.torch.asked import Options, tile_for

# What each operand's gradient is, and which arrays that takes: 0 and 1 are the operands, 2 is the
# gradient of the result.
GRADIENTS = {
    "forward": (("backward_data", 2, 1), ("backward_filter", 0, 2)),
    "backward_data": (("forward", 2, 1), ("backward_filter", 2, 0)),
    "backward_filter": (("backward_data", 1, 2), ("forward", 0, 2)),
}
Calls = dict[str, Any]  # of an operator, by direction
NOT_CAST: frozenset[str] = frozenset()  # what plain.casting says where autocast is off


def gradient(
    calls: Calls,
    operand: int,
    arrays: tuple[Tensor, Tensor, Tensor],
    direction: str,
    arguments: tuple[Any, ...],
) -> Tensor:
    """The gradient of operand 0 or 1 of ``direction``; ``arrays`` are both, and the result's.

    It is computed in the same precision, within the same workspace, by the tile that was named
    where that serves it (``tile_for``).
    """
    on_cpu = arrays[0].device.type == "cpu"
    wanted, first, second, rest = asked_for(
        direction, operand, arrays[operand].shape, on_cpu, arguments
    )
    return calls[wanted](arrays[first], arrays[second], *rest)


def quick_gradient(
    direct: Any,
    operand: int,
    arrays: tuple[Tensor, Tensor, Tensor],
    direction: str,
    arguments: tuple[Any, ...],
) -> Tensor:
    """``gradient`` of plain tensors, which nothing differentiates: by ``direct`` of operators."""
    _, first, second = GRADIENTS[direction][operand]
    a, b, shape = arrays[first], arrays[second], arrays[operand].shape
    question = direction, operand, shape, arguments
    if quick := plain.known(question, a, b):
        return quick(a, b)
    wanted, _, _, rest = asked_for(direction, operand, shape, not a.is_cuda, arguments)
    result = direct(wanted, rest, a, b)
    plain.keep_again((wanted, rest), a, b, question)
    return result


def way(direct: Any, calls: Calls, arrays: tuple[Tensor, Tensor, Tensor]) -> Any:
    """What computes the gradients of these operands and of this gradient of their result."""
    quick = not is_dynamo_compiling() and not torch.is_grad_enabled()
    if quick and plain.casting(*arrays) == NOT_CAST:
        return partial(quick_gradient, direct)
    return partial(gradient, calls)


def asked_for(
    direction: str, operand: int, shape: Any, on_cpu: bool, arguments: tuple[Any, ...]
) -> tuple[str, int, int, tuple[Any, ...]]:
    """The operator whose result is an operand's gradient, the two arrays that it takes, and what
    follows them; ``shape`` is the operand's."""
    wanted, first, second = GRADIENTS[direction][operand]
    start = direction != "forward"
    geometry, options = arguments[start : start + 4], arguments[start + 4 :]
    if options:
        found = _of_gradient.__wrapped__ if is_dynamo_compiling() else _of_gradient
        options = found(direction, wanted, options, on_cpu)
    shapes = () if wanted == "forward" else (shape,)
    return wanted, first, second, (*shapes, *geometry, *options)


@lru_cache(maxsize=1024)
def _of_gradient(direction: str, wanted: str, given: tuple[Any, ...], cpu: bool) -> tuple[Any, ...]:
    """The options of a gradient by ``wanted`` of a result by ``direction`` that had those given."""
    options = Options(*given)
    algorithm = tile_for(direction, wanted, algorithm=options.algorithm, cpu=cpu)
    return replace(options, algorithm=algorithm, out_dtype=None, scale=None).given()


def split(direction: str, arguments: tuple[Any, ...]) -> tuple[tuple[Any, ...], Options]:
    """Stride, padding, dilation and groups, and the options, of what follows the operands."""
    start = direction != "forward"
    return arguments[start : start + 4], Options(*arguments[start + 4 :])


def register(
    library: torch.library.Library,
    direction: str,
    operator: Any,
    direct: Any,
    calls: Calls,
    seen: Callable[[], object],
) -> Any:
    """The operator's kernel for derivatives; returns the function that it applies.

    On GPUs the native module's kernel comes in its place once it is there (native/dispatched.h),
    and leaves to the operator of the same name and ``_unknown`` what it does not know.

    It is a Function of a single level, as PyTorch's own operators are: torch.func's transforms
    call it once for each of theirs. Without a key set it is ``direct`` that computes. ``seen`` is
    called before modes see the call.
    """
    # Below views, too: a result whose axes were moved is none, and may be changed in place.
    below = torch._C._after_ADInplaceOrView_keyset

    def run(keyset: Any, arguments: tuple[Any, ...]) -> Tensor:
        with torch._C._AutoDispatchBelowADInplaceOrView():
            return operator.redispatch(keyset & below, *arguments)

    class Convolution(_SingleLevelFunction):
        @staticmethod
        def forward(ctx, how, a, b, arguments):  # pyright: ignore[reportIncompatibleMethodOverride]
            ctx.save_for_backward(a, b)
            ctx.arguments = arguments
            if how is None:
                return direct(direction, arguments, a, b)
            ctx.save_for_forward(a, b)
            keyset, ctx.modes = how
            with ctx.modes():
                return run(keyset, (a, b, *arguments))

        @staticmethod
        def backward(ctx, upstream):  # pyright: ignore[reportIncompatibleMethodOverride]
            a, b = ctx.saved_tensors
            arrays = a, b, upstream if upstream.dtype == a.dtype else upstream.to(a.dtype)
            _, first, second, _ = ctx.needs_input_grad
            by = way(direct, calls, arrays)
            of = arrays, direction, ctx.arguments
            return None, by(0, *of) if first else None, by(1, *of) if second else None, None

        @staticmethod
        def _compiled_autograd_key(ctx: Any) -> tuple[int, ...]:
            """As torch.autograd.Function's; what its graph reads of ``ctx`` it guards."""
            return (ctx._autograd_function_id,)

        @staticmethod
        def jvp(ctx, _, da, db, rest):  # pyright: ignore[reportIncompatibleMethodOverride]
            geometry, options = split(direction, ctx.arguments)
            options = replace(options, scale=None)  # of the operands, not of their tangents
            shape = ctx.arguments[: direction != "forward"]
            behind = (*shape, *geometry, *options.given())
            a, b = (torch._VF._unpack_dual(v, level=0).primal for v in ctx.saved_tensors)
            pairs = ((p, q) for p, q in ((da, b), (a, db)) if p is not None)
            with ctx.modes():
                return sum(operator(p, q, *behind) for p, q in pairs if q is not None)

    apply: Any = Convolution.apply  # pyright: ignore[reportAttributeAccessIssue]

    def unknown(keyset: Any, a: Tensor, b: Tensor, *arguments: Any) -> Tensor:
        seen()
        # Whether or not an operand requires grad: it may have a tangent, of which compiled code
        # tells torch.autograd.forward_ad nothing.
        if torch._C._are_functorch_transforms_active():
            modes = partial(_modes, torch.is_grad_enabled(), torch._C._is_fwd_grad_enabled())
            with enable_single_level_autograd_function():
                return apply((keyset, modes), a, b, arguments)
        return apply((keyset, nullcontext), a, b, arguments)

    def kernel(keyset: Any, a: Tensor, b: Tensor, *arguments: Any) -> Tensor:
        # Whatever else looks on has seen this call.
        if plain.NATIVE.dispatch() and plain.casting(a, b) is not None:
            return operator(a, b, *arguments)
        return unknown(keyset, a, b, *arguments)

    library.impl(f"conv_{direction}", kernel, "Autograd", with_keyset=True)
    library.impl(f"conv_{direction}_unknown", unknown, "Autograd", with_keyset=True)
    return apply


@contextmanager
def _modes(gradients: bool, tangents: bool) -> Iterator[None]:
    """Differentiation on as it was, which a Function turns off: outer transforms need it."""
    with torch.set_grad_enabled(gradients), forward_ad._set_fwd_grad_enabled(tangents):
        yield
