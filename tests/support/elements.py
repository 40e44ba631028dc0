"""Arrays of random elements: every dtype that a convolution takes, and numbers that try it."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from random import Random
from typing import Any

import ml_dtypes
import numpy as np

FLOATING = ("float64", "float32", "float16", "bfloat16")
INTEGERS = ("int8", "uint8", "int16", "int32", "int64", "uint64")
# Elements of object arrays: Python's integers, those and Fractions, NumPy's integers, Decimals.
OBJECTS = ("object", "fractions", "numpy objects", "decimals")
DTYPES = {**{name: np.dtype(name) for name in (*FLOATING[:3], *INTEGERS, "longdouble")}}
DTYPES |= {"bfloat16": np.dtype(ml_dtypes.bfloat16), **dict.fromkeys(OBJECTS, np.dtype(object))}
DTYPES |= {"float8_e5m2": np.dtype(ml_dtypes.float8_e5m2), "int4": np.dtype(ml_dtypes.int4)}
LARGEST = {
    "float8_e5m2": 57344.0,
    "float16": 65504.0,
    "float64": 2.0**1000,
    "longdouble": 2.0**1000,
}
FILLS = ("few", "signed", "positive", "wide", "tiny", "zeros", "large", "ends")


def array_of(rng: Random, shape: tuple[int, ...], dtype: str, fill: str) -> np.ndarray:
    """An array of the dtype, filled as ``fill`` says."""
    count = math.prod(shape)
    array = np.empty(count, DTYPES[dtype])
    if dtype in OBJECTS:
        array[:] = [_element(rng, fill, dtype) for _ in range(count)]
    elif dtype == "int4":
        array[:] = [rng.randint(-8, 7) for _ in range(count)]
    elif dtype in INTEGERS:
        array[:] = [_integer(rng, fill, dtype) for _ in range(count)]
    else:
        most = LARGEST.get(dtype, 2.0**120)
        values = [min(max(_float(rng, fill, dtype), -most), most) for _ in range(count)]
        array[:] = np.array(values, np.float64).astype(array.dtype)
        if dtype == "longdouble":
            array *= 1 + np.longdouble(2) ** -60
    return array.reshape(shape)


def _float(rng: Random, fill: str, dtype: str) -> float:
    if fill == "few":
        return float(rng.randint(-3, 3))
    if fill == "positive":
        return rng.uniform(1, 2)
    if fill == "zeros" and rng.random() < 0.7:
        return rng.choice([0.0, -0.0])
    v = rng.uniform(-1, 1)
    if fill == "wide":
        return v * 2.0 ** rng.randint(-12, 6)
    if fill == "tiny":
        return v * 2.0**-16
    if fill == "large":
        return v * 2.0**9
    if fill == "ends":  # of the dtype's range: subnormal numbers, or nearly
        return v * 2.0 ** {"float16": -20, "float64": -1040}.get(dtype, -130)
    return v


def _integer(rng: Random, fill: str, dtype: str) -> int:
    info = np.iinfo(dtype)
    low, high = max(info.min, -(1 << 20)), min(info.max, 1 << 20)
    if fill in ("few", "zeros", "tiny"):
        low, high = max(low, -3), 3
    elif fill == "ends":
        return rng.choice([low, high])
    return rng.randint(low, high)


def _element(rng: Random, fill: str, dtype: str) -> Any:
    """A number in an object array."""
    whole = rng.randint(-3, 3) if fill == "few" else rng.randint(-(10**6), 10**6)
    if dtype == "fractions":
        return rng.choice([whole, Fraction(whole, rng.randint(1, 30)), Fraction(1, 10**24)])
    if dtype == "numpy objects":
        kind = rng.choice([np.int8, np.uint8, np.int16, np.int64, np.uint64])
        info = np.iinfo(kind)
        return kind(min(max(whole, int(info.min)), int(info.max)))
    if dtype == "decimals":
        return Decimal(whole).scaleb(-rng.randint(0, 12))
    return whole * rng.choice([1, 1, 10**30]) if fill == "wide" else whole
