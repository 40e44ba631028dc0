"""The three convolutions: NumPy arrays run the reference, CUDA arrays the kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from winolab.nouns import Algorithm, Problem, check_layout, direct, parse_algorithm
from winolab.ref import convolution, decompose, fft, winograd, winrs
from winolab.ref.arithmetic import Arithmetic, arithmetic

Sizes = int | Sequence[int]
Padding = int | str | Sequence[int | Sequence[int]]

# The precision of a dtype where the caller names none: FP32 accumulation for 16-bit data.
PRECISION_OF = {
    np.dtype(np.float64): "fp64",
    np.dtype(np.float32): "fp32",
    np.dtype(np.float16): "fp16",
    np.dtype(ml_dtypes.bfloat16): "bf16",
}


def conv_forward(
    x: Any,
    w: Any,
    *,
    stride: Sizes = 1,
    padding: Padding = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    layout: str = "channels_last",
    algorithm: str | Algorithm | None = None,
    precision: str | Arithmetic | None = None,
    out: Any = None,
    out_dtype: Any = None,
) -> Any:
    """y = x ⋆ w, cross-correlation as in every deep-learning library.

    x is (N, *spatial, IC) and w (OC, *filter, IC/groups) channels-last, (N, IC, *spatial) and
    (OC, IC/groups, *filter) channels-first; y has x's layout and type. ``stride``, ``padding`` and
    ``dilation`` are an int or one per spatial dimension; ``padding`` also a (low, high) pair per
    dimension, "same" (needs stride 1) or "valid".

    ``algorithm`` is a value or its text ("direct", "winograd:4x4:3x3", "gamma:8:6:3"); None is
    direct.
    ``precision`` is a name ("fp64", "fp32", "tf32", "bf16", "fp16", "exact", "mp:200") or an
    Arithmetic; None follows the dtype. NumPy arrays run the reference, in the order of operations
    of the kernels. ``out`` receives the result; ``out_dtype`` is the result's type where there is
    no ``out``, by default x's, or object for "exact" and "mp".

    Raises ValueError for shapes that do not fit, unknown or unfit algorithms and precisions;
    TypeError for arrays of a type that has no precision of its own.
    """
    x, w = _arrays(precision, x=x, w=w)
    problem = Problem.of(
        x.shape,
        w.shape,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        layout=layout,
    )
    run = _arithmetic(precision, x, w)
    compute = _reference("forward", algorithm, run)
    y = compute(_last(x, layout), _last(w, layout), problem)
    return _result(y, layout, x.dtype, out, out_dtype)


def conv_backward_data(
    dy: Any,
    w: Any,
    input_shape: Sequence[int],
    *,
    stride: Sizes = 1,
    padding: Padding = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    layout: str = "channels_last",
    algorithm: str | Algorithm | None = None,
    precision: str | Arithmetic | None = None,
    out: Any = None,
    out_dtype: Any = None,
) -> Any:
    """dx, the gradient of ``conv_forward`` with respect to its input of shape ``input_shape``.

    dy has the shape of y; arguments and errors are those of :func:`conv_forward`.
    """
    dy, w = _arrays(precision, dy=dy, w=w)
    problem = Problem.of(
        tuple(input_shape),
        w.shape,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        layout=layout,
    )
    dy_last = _last(dy, layout)
    _expect("dy", dy_last.shape, problem.y_shape)
    run = _arithmetic(precision, dy, w)
    dx = _reference("backward_data", algorithm, run)(dy_last, _last(w, layout), problem)
    return _result(dx, layout, dy.dtype, out, out_dtype)


def conv_backward_filter(
    x: Any,
    dy: Any,
    filter_shape: Sequence[int],
    *,
    stride: Sizes = 1,
    padding: Padding = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    layout: str = "channels_last",
    algorithm: str | Algorithm | None = None,
    precision: str | Arithmetic | None = None,
    out: Any = None,
    out_dtype: Any = None,
) -> Any:
    """dw, the gradient of ``conv_forward`` with respect to its filter of shape ``filter_shape``.

    ``filter_shape`` is w's logical shape in ``layout``. A "winograd:3x3:2x2" computes 3×3 taps from
    2×2 pieces of dy. Arguments and errors are those of :func:`conv_forward`.
    """
    x, dy = _arrays(precision, x=x, dy=dy)
    problem = Problem.of(
        x.shape,
        tuple(filter_shape),
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        layout=layout,
    )
    dy_last = _last(dy, layout)
    _expect("dy", dy_last.shape, problem.y_shape)
    run = _arithmetic(precision, x, dy)
    dw = _reference("backward_filter", algorithm, run)(_last(x, layout), dy_last, problem)
    return _result(dw, layout, x.dtype, out, out_dtype)


def _arrays(precision, **named) -> tuple[np.ndarray, ...]:
    arrays = []
    for name, value in named.items():
        array = np.asarray(value)
        if array.dtype.kind == "c":
            raise TypeError(f"{name} is complex; convolve the real and imaginary parts apart")
        if array.dtype.kind in "biuO" and precision is None:
            raise TypeError(
                f"{name} has dtype {array.dtype}, which has no precision of its own; "
                'pass precision="exact", or convert it to a floating-point dtype'
            )
        if array.dtype.kind in "SUMm":
            raise TypeError(f"{name} has dtype {array.dtype}; expected numbers")
        arrays.append(array)
    return tuple(arrays)


def _arithmetic(precision: str | Arithmetic | None, *arrays: np.ndarray) -> Arithmetic:
    if precision is not None:
        return arithmetic(precision)
    dtypes = {a.dtype for a in arrays}
    if len(dtypes) > 1:
        raise TypeError(
            f"arrays of dtypes {' and '.join(sorted(map(str, dtypes)))}; "
            "convert one of them or pass precision"
        )
    dtype = dtypes.pop()
    if dtype not in PRECISION_OF:
        names = ", ".join(map(str, PRECISION_OF))
        raise TypeError(f"dtype {dtype} is not one of {names}; convert it or pass precision")
    return arithmetic(PRECISION_OF[dtype])


# kind of algorithm -> the module whose forward, backward_data, backward_filter run it.
ENGINES = {
    "direct": winograd,
    "winograd": winograd,
    "gamma": winograd,
    "dwm": decompose,
    "fft": fft,
    "omega": winrs,
    "winrs": winrs,
}


def _reference(
    direction: str, algorithm: str | Algorithm | None, run: Arithmetic
) -> Callable[[np.ndarray, np.ndarray, Problem], np.ndarray]:
    """The reference's function of the two arrays and the problem."""
    chosen = direct() if algorithm is None else parse_algorithm(algorithm)
    if chosen.kind == "direct" and run.name == "fp64":
        return getattr(convolution, direction)
    compute = getattr(ENGINES[chosen.kind], direction)
    return lambda a, b, problem: compute(a, b, problem, chosen, run)


def _expect(name: str, shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    for d, (size, right) in enumerate(zip(shape, expected, strict=False)):
        if size != right:
            raise ValueError(
                f"{name} has {size} elements in dimension {d} (channels last); expected {right}, "
                f"that is {expected}"
            )
    if len(shape) != len(expected):
        raise ValueError(f"{name} has {len(shape)} dimensions; expected {len(expected)}")


def _last(array: np.ndarray, layout: str) -> np.ndarray:
    check_layout(layout)
    return np.moveaxis(array, 1, -1) if layout == "channels_first" else array


def _result(y: np.ndarray, layout: str, dtype, out, out_dtype) -> np.ndarray:
    if layout == "channels_first":
        y = np.ascontiguousarray(np.moveaxis(y, -1, 1))
    if out is None:
        if out_dtype is None:
            out_dtype = y.dtype if y.dtype == object else dtype
        out = np.empty(y.shape, dtype=out_dtype)
    elif not isinstance(out, np.ndarray) or out.shape != y.shape:
        raise ValueError(f"out has shape {np.shape(out)}; expected an array of shape {y.shape}")
    with np.errstate(over="ignore"):  # a narrower dtype overflows to infinity, as IEEE has it
        out[...] = y
    return out
