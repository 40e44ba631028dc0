"""Rational numbers to construct algorithms with: FLINT's where it is installed, else Python's.

``python-flint`` comes with the extra ``exact``. Both give the same numbers; what leaves the rooms
that compute with them are Fractions.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np


def _flint() -> Any:
    try:
        return importlib.import_module("flint")
    except ImportError:
        return None


flint: Any = _flint()


def number(q: Fraction | int) -> Any:
    """A number to compute with."""
    return Fraction(q) if flint is None else flint.fmpq(q.numerator, q.denominator)


def fraction(q: Any) -> Fraction:
    """The Fraction of such a number."""
    return q if isinstance(q, Fraction) else Fraction(int(q.p), int(q.q))


def product(a: Sequence[Sequence[int]], b: Sequence[Sequence[int]]) -> list[list[int]]:
    """The product of two matrices of Python's integers."""
    if flint is None:
        return np.array(a, object).dot(np.array(b, object)).tolist()
    made = flint.fmpz_mat([list(row) for row in a]) * flint.fmpz_mat([list(row) for row in b])
    return [[int(v) for v in row] for row in made.tolist()]
