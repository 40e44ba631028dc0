"""Rational numbers and products of integers: FLINT's where it is installed, else Python's.

``python-flint`` comes with the extra ``exact``. Both give the same numbers; what leaves the rooms
that compute with them are Fractions.
"""

from __future__ import annotations

import importlib
from fractions import Fraction
from typing import Any

import numpy as np


def _flint() -> Any:
    try:
        return importlib.import_module("flint")
    except ImportError:
        return None


flint: Any = _flint()
# Products of Python's integers that take as long as converting one to FLINT's, and as one back.
TO, BACK = 2, 9


def number(q: Fraction | int) -> Any:
    """A number to compute with."""
    return Fraction(q) if flint is None else flint.fmpq(q.numerator, q.denominator)


def integer(v: int) -> Any:
    """An integer to compute with, which equals Python's: FLINT multiplies long ones faster."""
    return v if flint is None else flint.fmpz(v)


def fraction(q: Any) -> Fraction:
    """The Fraction of such a number."""
    return q if isinstance(q, Fraction) else Fraction(int(q.p), int(q.q))


def matmul(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a (..., M, K) @ b (..., K, N) of Python's integers in object arrays."""
    rows, depth, columns = *a.shape[-2:], b.shape[-1]
    conversions = TO * depth * (rows + columns) + BACK * rows * columns
    if flint is None or rows * depth * columns <= conversions:
        return np.matmul(a, b)
    shape = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, b = np.broadcast_to(a, (*shape, rows, depth)), np.broadcast_to(b, (*shape, depth, columns))
    out = np.empty((*shape, rows, columns), object)
    for at in np.ndindex(*shape):
        made = flint.fmpz_mat(a[at].tolist()) * flint.fmpz_mat(b[at].tolist())
        out[at] = np.array(list(map(int, made.entries())), object).reshape(rows, columns)
    return out
