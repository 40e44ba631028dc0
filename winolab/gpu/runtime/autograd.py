"""Gradients for torch's autograd: each is another convolution of the same problem."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

from winolab.gpu.runtime.resolve import Transformed
from winolab.options import ConvOptions
from winolab.problem import NAMES, Problem

# A convolution is linear in both of its operands: what each one's gradient is, and which arrays
# that takes, 0 and 1 being the operands, 2 the gradient of the result.
GRADIENTS = {
    "forward": (("backward_data", 2, 1), ("backward_filter", 0, 2)),
    "backward_data": (("forward", 2, 1), ("backward_filter", 2, 0)),
    "backward_filter": (("backward_data", 1, 2), ("forward", 0, 2)),
}
INSTEAD = "detach it, or call under torch.no_grad()"
Convolve = Callable[[str, Problem, Any, Any, ConvOptions], Any]


def gradient(
    operand: int,
    arrays: tuple[Any, Any, Any],
    direction: str,
    problem: Problem,
    options: ConvOptions,
    convolve: Convolve,
) -> Any:
    """The gradient of operand 0 or 1 of ``direction``; ``arrays`` are both, and the result's.

    It is computed in the same precision, within the same workspace. A tile that was named serves
    forward and backward data alike; filter gradients have tiles of their own.
    """
    wanted, first, second = GRADIENTS[direction][operand]
    options = replace(options, out_dtype=None, scale=None, config=None)
    if "backward_filter" in (direction, wanted):
        options = replace(options, algorithm=None)
    return convolve(wanted, problem, arrays[first], arrays[second], options)


def differentiable(
    convolve: Convolve,
    direction: str,
    problem: Problem,
    a: Any,
    b: Any,
    options: ConvOptions,
    out: Any,
) -> Any:
    """What ``convolve`` returns for torch tensors that require grad, with its place in the graph.

    Raises ValueError where there is none for it: the result goes into ``out``, or b is a
    Transformed.
    """
    names = NAMES[direction]
    if out is not None:
        given = {names[1]: b, "out": out}
        tracked = (n for n, array in given.items() if getattr(array, "requires_grad", False))
        name = next(tracked, names[0])
        raise ValueError(f"{name} requires grad, which a result in out has no place for: {INSTEAD}")
    if isinstance(b, Transformed):
        raise ValueError(
            f"{names[0]} requires grad, for which the prepared filter is of no use: give the "
            f"filter itself; or {INSTEAD}"
        )
    return _function().apply(a, b, direction, problem, options, convolve)


@cache
def _function() -> Any:
    torch = importlib.import_module("torch")

    class Convolution(torch.autograd.Function):
        """One of the three, differentiable as often as wanted: the gradients are the others."""

        @staticmethod
        def forward(ctx, a, b, direction, problem, options, convolve):
            ctx.save_for_backward(a, b)
            ctx.save_for_forward(a, b)
            ctx.how = direction, problem, options, convolve
            # no view, even where axes were moved: those may not be changed in place
            return convolve(direction, problem, a, b, options).detach()

        @staticmethod
        def backward(ctx, upstream):
            a, b = ctx.saved_tensors
            arrays = a, b, upstream.to(a.dtype)
            needed = ctx.needs_input_grad
            found = [gradient(i, arrays, *ctx.how) if needed[i] else None for i in range(2)]
            return *found, None, None, None, None

        @staticmethod
        def jvp(ctx, *tangents):
            direction, problem, options, convolve = ctx.how
            options = replace(options, scale=None)  # of the operands, not of their tangents
            (a, b), (da, db, *_) = ctx.saved_tensors, tangents
            pairs = ((p, q) for p, q in ((da, b), (a, db)) if p is not None and q is not None)
            return sum(convolve(direction, problem, p, q, options) for p, q in pairs)

    return Convolution
