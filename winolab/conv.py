"""The three convolutions: NumPy arrays run the reference, CUDA arrays the kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from winolab.nouns import Algorithm, Problem, direct, parse_algorithm
from winolab.problem import check_layout
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
    workspace_limit: int | None = None,
    deterministic: bool = True,
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
    no ``out``, by default x's, or object for "exact" and "mp". ``workspace_limit`` (bytes) and
    ``deterministic`` bind the kernels: the reference takes no workspace and repeats every bit, and
    so do the present kernels, which take no limit.

    Raises ValueError for shapes that do not fit, unknown or unfit algorithms and precisions;
    TypeError for arrays of a type that has no precision of its own.
    """
    problem = Problem.of(
        np.shape(x),
        np.shape(w),
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        layout=layout,
    )
    options = _Options(layout, algorithm, precision, out, out_dtype, workspace_limit, deterministic)
    return _run("forward", {"x": x, "w": w}, problem, options)


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
    workspace_limit: int | None = None,
    deterministic: bool = True,
) -> Any:
    """dx, the gradient of ``conv_forward`` with respect to its input of shape ``input_shape``.

    dy has the shape of y; arguments and errors are those of :func:`conv_forward`.
    """
    problem = Problem.of(
        tuple(input_shape),
        np.shape(w),
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        layout=layout,
    )
    options = _Options(layout, algorithm, precision, out, out_dtype, workspace_limit, deterministic)
    return _run("backward_data", {"dy": dy, "w": w}, problem, options)


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
    workspace_limit: int | None = None,
    deterministic: bool = True,
) -> Any:
    """dw, the gradient of ``conv_forward`` with respect to its filter of shape ``filter_shape``.

    ``filter_shape`` is w's logical shape in ``layout``. A "winograd:3x3:2x2" computes 3×3 taps from
    2×2 pieces of dy. Arguments and errors are those of :func:`conv_forward`.
    """
    problem = Problem.of(
        np.shape(x),
        tuple(filter_shape),
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        layout=layout,
    )
    options = _Options(layout, algorithm, precision, out, out_dtype, workspace_limit, deterministic)
    return _run("backward_filter", {"x": x, "dy": dy}, problem, options)


@dataclass(frozen=True)
class _Options:
    """The arguments that all three calls share beside the problem's."""

    layout: str
    algorithm: str | Algorithm | None
    precision: str | Arithmetic | None
    out: Any
    out_dtype: Any
    workspace_limit: int | None
    deterministic: bool


def _run(direction: str, named: dict[str, Any], problem: Problem, options: _Options) -> Any:
    if any(_on_gpu(value) for value in named.values()):
        return _run_kernels(direction, named, problem, options)
    a, b = (_array(name, value, options.precision) for name, value in named.items())
    run = _arithmetic(options.precision, a, b)
    first, second = (_last(array, options.layout) for array in (a, b))
    if "dy" in named:
        dy = first if direction == "backward_data" else second
        if dy.shape != problem.y_shape:
            raise ValueError(
                f"dy is {dy.shape} with channels last; the problem's output is {problem.y_shape}"
            )
    result = _reference(direction, options.algorithm, run)(first, second, problem)
    return _result(result, a.dtype, options)


def _on_gpu(value: Any) -> bool:
    """Whether the array lives on a CUDA device (2 in DLPack's numbering)."""
    if hasattr(value, "__dlpack_device__") and not isinstance(value, np.ndarray):
        return value.__dlpack_device__()[0] == 2
    return hasattr(value, "__cuda_array_interface__")


def _run_kernels(direction: str, named: dict[str, Any], problem: Problem, options: _Options) -> Any:
    from winolab.gpu import conv as gpu

    compute = getattr(gpu, f"conv_{direction}", None)
    if compute is None:
        raise ValueError(
            f"{direction} has no CUDA kernel yet; copy the arrays to NumPy to run the reference"
        )
    for name in ("out_dtype", "workspace_limit"):
        if getattr(options, name) is not None:
            raise ValueError(
                f"{name} is not served by the CUDA kernels, which return float32 and take the "
                "transformed filter as workspace; leave it out"
            )
    algorithm = options.algorithm
    return compute(
        *named.values(),
        problem=problem,
        layout=options.layout,
        algorithm=None if algorithm is None else parse_algorithm(algorithm),
        precision=options.precision,
        out=options.out,
    )


def _array(name: str, value: Any, precision: str | Arithmetic | None) -> np.ndarray:
    if hasattr(value, "__dlpack_device__") and not isinstance(value, np.ndarray):
        raise TypeError(
            f"{name} is a {type(value).__module__} array on the CPU; pass it as a NumPy array to "
            "run the reference, or move it to a CUDA device to run the kernels"
        )
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
    return array


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


def _last(array: np.ndarray, layout: str) -> np.ndarray:
    check_layout(layout)
    return np.moveaxis(array, 1, -1) if layout == "channels_first" else array


def _result(y: np.ndarray, dtype: np.dtype, options: _Options) -> np.ndarray:
    if options.layout == "channels_first":
        y = np.ascontiguousarray(np.moveaxis(y, -1, 1))
    out = options.out
    if out is None:
        default = y.dtype if y.dtype == object else dtype
        out = np.empty(y.shape, dtype=default if options.out_dtype is None else options.out_dtype)
    elif not isinstance(out, np.ndarray) or out.shape != y.shape:
        raise ValueError(f"out has shape {np.shape(out)}; expected an array of shape {y.shape}")
    with np.errstate(over="ignore"):  # a narrower dtype overflows to infinity, as IEEE has it
        out[...] = y
    return out
