"""The points of transforms whose modulus has nothing else."""

from __future__ import annotations

from fractions import Fraction

from winolab.arguments.factors import Point
from winolab.ref.algebra.transforms import Transforms


def points_of(t: Transforms) -> tuple[Point, ...]:
    """The points, of a modulus of points."""
    found = tuple(p for p in t.points or () if isinstance(p, Fraction | float))
    assert found == t.points
    return found
