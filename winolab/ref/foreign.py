"""The reference for arrays of other libraries on the CPU: results come back as arrays came."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

from winolab.arguments.dlpack import foreign, numpy_view, returned
from winolab.options import ConvOptions
from winolab.problem import NAMES, Problem
from winolab.ref import dispatch, epilogue


def convolve(
    direction: str,
    problem: Problem,
    a: Any,
    b: Any,
    options: ConvOptions,
    out: Any,
    bias: Any = None,
    residual: Any = None,
) -> Any:
    """As ``dispatch.convolve``, of NumPy's arrays and others with ``__dlpack__``; with bias and
    residual, or an activation, as ``epilogue.convolve``.

    The result is of a's library and, unless asked otherwise, of its dtype, which integers that are
    computed exactly have to fit. Raises TypeError for arrays without numbers, as tracers have none.
    """
    names = (*NAMES[direction][:2], "out")
    given = zip(names, (a, b, out), strict=True)
    x, y, target = (numpy_view(name, v) if foreign(v) else v for name, v in given)
    real = all(getattr(v.dtype, "kind", "") != "c" for v in (x, y) if hasattr(v, "dtype"))
    if foreign(a) and options.out_dtype is None and out is None and real:
        options = replace(options, out_dtype=x.dtype)
    if bias is None and residual is None and not options.activation:
        result = dispatch.convolve(direction, problem, x, y, options, target)
    else:
        given = zip(("bias", "residual"), (bias, residual), strict=True)
        more = (numpy_view(name, v) if foreign(v) else v for name, v in given)
        result = epilogue.convolve(problem, x, y, options, target, *more)
    if out is not None:
        _written(out)
        return out
    return returned(result, a) if foreign(a) else result


def _written(out: Any) -> None:
    """Let torch's gradients notice that what they saved is no more."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(out, torch.Tensor) and not out.is_inference():
        torch.autograd.graph.increment_version(out)
