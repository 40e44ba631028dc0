"""What follows a convolution, in NumPy: the definition that kernels meet bit for bit.

y is rounded to its dtype; then y + bias, and y + residual, each rounded to it; then the activation,
rounded to it. Half precisions are computed in float32, which makes of a sum what one rounding does.

- relu: y where y > 0, NaN where it is NaN, else 0.
- leaky_relu: y where y > 0, else y × slope; the slope is rounded to float32 first (of float64 y, to
  float64).
- silu: y / (1 + e⁻ʸ). In float32 (and for half precisions) each operation is rounded: t = −y,
  within −30 and 89; n = t × log₂e, rounded to an integer; r = (t − n·HIGH) − n·LOW, HIGH + LOW
  being ln 2; p = Σ rᵏ/k! for k ≤ 7 by Horner's rule; e = (p × 2^⌊n/2⌋) × 2^(n − ⌊n/2⌋);
  y / (1 + e). It is within 4 units in the last place; in float64 NumPy's exp serves.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np

from winolab.algorithm import Problem
from winolab.arguments.epilogue import Activation, check_dtype, check_shapes
from winolab.options import ConvOptions
from winolab.problem import in_layout
from winolab.ref import dispatch
from winolab.ref.operands import operand

Float = np.float32
LEAST, MOST = Float(-30), Float(89)  # of t: below 1 + e is 1, above e is infinite
DEGREE = 7  # whose rest is below 2⁻²⁷
HIGH_BITS = 15  # of ln 2: n·HIGH is exact


def _constants() -> tuple[np.float32, np.float32, np.float32]:
    with mpmath.workprec(100):
        log = mpmath.log(2)
        high = Fraction(int(mpmath.floor(log * 2**HIGH_BITS)), 2**HIGH_BITS)
        low = log - mpmath.mpf(high.numerator) / high.denominator
        return Float(float(1 / log)), Float(float(high)), Float(float(low))


LOG2E, HIGH, LOW = _constants()
COEFFICIENTS = tuple(Float(1) / Float(math.factorial(k)) for k in range(DEGREE, -1, -1))
SHIFT = Float(1.5 * 2**23)  # added and subtracted, it leaves an integer


def convolve(
    problem: Problem, x: Any, w: Any, options: ConvOptions, out: Any, bias: Any, residual: Any
) -> np.ndarray:
    """y of NumPy arrays with all that follows it. Raises as winolab.conv_forward."""
    given = {"bias": bias, "residual": residual}
    arrays = {n: None if v is None else operand(n, v, "exact") for n, v in given.items()}
    for name, array in arrays.items():
        if array is not None and out is not None:
            check_dtype(name, str(array.dtype), str(np.asarray(out).dtype))
            if np.may_share_memory(array, out):
                arrays[name] = array.copy()
    first, second = (None if array is None else array.shape for array in arrays.values())
    shape = in_layout(problem.y_shape, options.layout)
    check_shapes(first, second, shape, problem.out_channels)
    y = dispatch.convolve("forward", problem, x, w, options, out)
    bias, residual = arrays.values()
    apply(y, bias, residual, options.activation, options.layout)
    return y


@np.errstate(all="ignore")
def apply(
    y: np.ndarray,
    bias: np.ndarray | None,
    residual: np.ndarray | None,
    activation: Activation | None,
    layout: str,
) -> None:
    """Change y in place. Raises ValueError or TypeError for what does not fit it."""
    axis = 1 if layout == "channels_first" else -1
    given = {"bias": bias, "residual": residual}
    for name, array in given.items():
        if array is not None:
            check_dtype(name, str(array.dtype), str(y.dtype))
    if activation:
        check_activation(activation, y.dtype)
    if bias is not None:
        ends = (1,) * (y.ndim - 2) if axis == 1 else ()
        y[...] = y + bias.reshape(-1, *ends)
    if residual is not None:
        y[...] = y + residual
    if activation:
        y[...] = activated(y, activation)


def check_activation(activation: Activation, dtype: np.dtype) -> None:
    """Raise ValueError for numbers that it is not defined of."""
    if dtype.kind == "c" or (activation.kind != "relu" and not _floating(dtype)):
        raise ValueError(
            f"activation {activation} of {dtype} is not defined: ask for a floating-point result"
        )


def activated(y: np.ndarray, activation: Activation) -> np.ndarray:
    """The activation of y's numbers, in y's dtype."""
    zero = y.dtype.type(0) if y.dtype != object else 0
    if activation.kind == "relu":
        return np.where((y > 0) | (y != y), y, zero)
    wide = y.astype(np.result_type(Float, y.dtype) if y.dtype.kind == "f" else Float)
    if activation.kind == "leaky_relu":
        return np.where(y > 0, y, (wide * wide.dtype.type(activation.slope)).astype(y.dtype))
    if wide.dtype != Float:
        return wide / (1 + np.exp(-wide))
    return silu(wide).astype(y.dtype)


def silu(y: Any) -> np.ndarray:
    """The silu of float32 numbers, operation by operation."""
    t = np.where(y > -LEAST, LEAST, np.where(y < -MOST, MOST, -y))
    shifted = t * LOG2E + SHIFT
    n = shifted - SHIFT
    r = (t - n * HIGH) - n * LOW
    p = np.full_like(r, COEFFICIENTS[0])
    for coefficient in COEFFICIENTS[1:]:
        p = p * r + coefficient
    whole = np.where(np.isfinite(n), n, 0).astype(np.int32)
    first = whole >> 1
    e = p * np.ldexp(Float(1), first) * np.ldexp(Float(1), whole - first)
    return y / (Float(1) + e)


def _floating(dtype: np.dtype) -> bool:
    return dtype.kind == "f" or dtype.name == "bfloat16"
