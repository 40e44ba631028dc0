"""NumPy arrays of a call: what they are computed in, and how the result is handed over."""

from __future__ import annotations

import math
import sys
from fractions import Fraction
from typing import Any

import ml_dtypes
import mpmath
import numpy as np

from winolab.arguments.arrays import (
    FLOAT16_INFINITE,
    PRECISION_OF_DTYPE,
    check_float16,
    check_target,
    dtype_of,
)
from winolab.arguments.words import type_of
from winolab.options import ConvOptions
from winolab.problem import NAMES
from winolab.ref.arithmetic.elements import INTEGERS, native, number, reals
from winolab.ref.arithmetic.formats import FORMAT_OF, LONGDOUBLE, nearest_float
from winolab.ref.arithmetic.simulated import Arithmetic, arithmetic

# What results may have: floats that are rounded to, integers that hold the numbers, any objects.
RESULTS = frozenset({*FORMAT_OF, *INTEGERS, np.dtype(object)})
# The precision of a dtype where the caller names none: FP32 accumulation for 16-bit data.
PRECISION_OF = {
    np.dtype(getattr(ml_dtypes, name, name)): p for name, p in PRECISION_OF_DTYPE.items()
}
# Complex dtypes, and those of their real and imaginary parts.
COMPONENTS = {
    np.dtype(np.complex64): np.dtype(np.float32),
    np.dtype(np.complex128): np.dtype(np.float64),
}


def operand(name: str, value: Any, precision: str | Arithmetic | None) -> np.ndarray:
    """``value`` as an array of numbers, in an object array each int or Fraction.

    Raises TypeError for what holds none, naming the element, or has no precision of its own.
    """
    _check_unmasked(name, value)
    array = np.asarray(value)
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and shape != array.shape:  # as of jax.ShapeDtypeStruct
        raise TypeError(f"{name} is {type_of(value)}, which has a shape and no numbers")
    if native(array.dtype) in COMPONENTS:
        return array
    if precision is None and (array.dtype == object or native(array.dtype) in INTEGERS):
        raise TypeError(
            f"{name} has dtype {array.dtype}, which has no precision of its own; "
            'pass precision="exact", or convert it to a floating-point dtype'
        )
    return reals(array, name)


def _check_unmasked(name: str, value: Any) -> None:
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(
            f"{name} is a masked array, whose mask nothing here heeds; pass its filled(0), or data"
        )


def arithmetic_of(precision: str | Arithmetic | None, *arrays: np.ndarray) -> Arithmetic:
    """What arrays are computed in: as asked, or by their dtype. Raises TypeError without one."""
    if precision is not None:
        return arithmetic(precision)
    dtypes = {COMPONENTS.get(native(a.dtype), a.dtype) for a in arrays}
    if len(dtypes) > 1:
        raise TypeError(
            f"arrays of dtypes {' and '.join(sorted({str(a.dtype) for a in arrays}))}; "
            "convert one of them or pass precision"
        )
    dtype = dtypes.pop()
    if dtype not in PRECISION_OF:
        names = ", ".join(map(str, PRECISION_OF))
        raise TypeError(f"dtype {dtype} is not one of {names}; convert it or pass precision")
    return arithmetic(PRECISION_OF[dtype])


@np.errstate(all="ignore")
def hand_over(
    direction: str,
    y: np.ndarray,
    given: tuple[np.ndarray, np.ndarray],
    options: ConvOptions,
    out: Any,
) -> np.ndarray:
    """The reference's result of two arrays, channels last, in the caller's layout and array.

    Every number is rounded once to the dtype wanted, by default the first array's. Raises
    ValueError for a number that an integer dtype does not hold, ValueError or TypeError for an
    ``out`` that does not hold the result, ValueError for a dw that overflows float16 where
    on_range says so.
    """
    if options.layout == "channels_first":
        y = np.ascontiguousarray(np.moveaxis(y, -1, 1))
    _check_unmasked("out", out)
    if out is not None and not isinstance(out, np.ndarray):
        raise TypeError(f"out is {type_of(out)}; expected a NumPy array")
    if out is not None and out.shape != y.shape:
        raise ValueError(f"out has shape {out.shape}; expected an array of shape {y.shape}")
    if out is not None:
        check_target(out.shape, out.strides, out.itemsize)
        if not out.flags.writeable:
            raise ValueError("out is read-only; pass an array that may be written")
    dtype = given[0].dtype
    default = dtype if dtype in FORMAT_OF and y.dtype != object else y.dtype
    wanted = _wanted(options.out_dtype, default, out)
    if y.dtype != object and native(wanted) in INTEGERS:
        raise TypeError(
            f"{_asked(wanted, out)} and the result is {y.dtype}; ask for a floating-point dtype"
        )
    result = np.ascontiguousarray(_rounded(NAMES[direction][2], y, wanted))
    if (direction, options.on_range) == ("backward_filter", "raise") and wanted == np.float16:
        if not _finite(y) and all(map(_finite, given)):
            check_float16(math.inf)
        largest = _largest(y)
        if largest >= FLOAT16_INFINITE:
            check_float16(min(nearest_float(largest), sys.float_info.max))  # finite, if beyond FP64
    if out is None:
        return result
    out[...] = result
    return out


def complex_dtype(a: np.ndarray, b: np.ndarray, wish: Any, out: Any) -> np.dtype:
    """The dtype of a complex result: that of ``out``, or as wished, or wide enough for the arrays.

    Raises TypeError for one that is not complex64 or complex128.
    """
    if out is not None and not isinstance(out, np.ndarray):
        raise TypeError(f"out is {type_of(out)}; expected a NumPy array")
    narrow = all(np.can_cast(array.dtype, np.complex64) for array in (a, b))
    wanted = np.dtype(np.complex64 if narrow else np.complex128)
    if wish is not None:
        wanted = dtype_of(wish)
    elif out is not None:
        wanted = out.dtype
    if out is not None and wanted != out.dtype:
        raise TypeError(f"out has dtype {out.dtype} and out_dtype is {wanted}; leave one out")
    if native(wanted) not in COMPONENTS:
        raise TypeError(
            f"{_asked(wanted, out)} and the result is complex; ask for complex64 or complex128"
        )
    return wanted


def _asked(wanted: np.dtype, out: Any) -> str:
    """What asks for the result's dtype."""
    return f"out_dtype is {wanted}" if out is None else f"out has dtype {wanted}"


def _wanted(wish: Any, default: np.dtype, out: np.ndarray | None) -> np.dtype:
    """The result's dtype: that of ``out``, or as wished, or the default. Raises TypeError."""
    wanted = default if wish is None else dtype_of(wish)
    if out is not None:
        if wish is not None and wanted != out.dtype:
            raise TypeError(f"out has dtype {out.dtype} and out_dtype is {wanted}; leave one out")
        wanted = out.dtype
    if native(wanted) not in RESULTS:
        fitting = RESULTS if default.hasobject else RESULTS - {*INTEGERS}
        names = ", ".join(sorted(map(str, fitting)))
        raise TypeError(f"{_asked(wanted, out)}; expected numbers: {names}")
    return wanted


def _rounded(name: str, y: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The result ``name`` in another dtype, each number rounded once, overflow as IEEE has it.

    Raises ValueError for a number that an integer dtype does not hold.
    """
    kind = native(dtype)
    if kind in (object, y.dtype):
        return y.astype(dtype, copy=False)
    if kind in INTEGERS:
        return _whole(name, y, dtype)
    if kind == np.longdouble and y.dtype == object:
        return _longdouble(y).astype(dtype, copy=False)
    if kind == np.longdouble:
        return y.astype(dtype)
    return FORMAT_OF[kind].nearest(y).astype(dtype)


def _whole(name: str, y: np.ndarray, dtype: np.dtype) -> np.ndarray:
    limits = ml_dtypes.iinfo(native(dtype))
    wide = np.empty(y.shape, np.int64 if limits.min < 0 else np.uint64)
    for at, value in np.ndenumerate(y):
        q = number(value)
        if isinstance(q, float) or q.denominator != 1 or not limits.min <= q <= limits.max:
            raise ValueError(
                f"{name}[{', '.join(map(str, at))}] is {_text(q)}, which {dtype} does not hold; "
                "ask for out_dtype object, or a floating-point dtype"
            )
        wide[at] = int(q)
    return wide.astype(dtype)


def _text(q: int | Fraction | float) -> str:
    """q, or its first digits where it has many."""
    if isinstance(q, float) or max(map(int.bit_length, q.as_integer_ratio())) <= 64:
        return str(q)
    return str(mpmath.nstr(mpmath.mpf(q.numerator) / q.denominator, 17))


def _longdouble(y: np.ndarray) -> np.ndarray:
    def convert(value: Any) -> Any:
        q = number(value)
        return q if isinstance(q, float) else LONGDOUBLE.round_fraction(q, _scaled)

    return np.array([convert(v) for v in y.reshape(-1)], np.longdouble).reshape(y.shape)


def _scaled(significand: int, exponent: int) -> np.longdouble:
    return np.ldexp(np.longdouble(significand), exponent)


def _finite(y: np.ndarray) -> bool:
    if y.dtype == object:
        return not any(isinstance(number(v), float) for v in y.reshape(-1))
    return bool(np.isfinite(y).all())


def _largest(y: np.ndarray) -> Fraction:
    """The largest finite magnitude."""
    if y.dtype == object:
        exact = map(number, y.reshape(-1))
        return max(
            (Fraction(abs(q)) for q in exact if not isinstance(q, float)), default=Fraction()
        )
    return Fraction(float(np.abs(y).max(initial=0, where=np.isfinite(y))))
