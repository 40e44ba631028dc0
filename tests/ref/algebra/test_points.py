from fractions import Fraction

import numpy as np
import pytest

from winolab.algorithm import MAX_ALPHA, Tile
from winolab.ref.algebra.points import INFINITY, as_points, best_table, named_points, show


def _texts(points):
    return ",".join(map(show, points))


def test_the_papers_order():
    """Im2col-Winograd, section 5.3; WinRS, section 5: 0, ±1, ±2, ±1/2, ±3, ±1/3, ±4, ±1/4."""
    assert _texts(named_points("paper", 16)) == (
        "0,1,-1,2,-2,1/2,-1/2,3,-3,1/3,-1/3,4,-4,1/4,-1/4,inf"
    )


def test_wincnns_examples():
    assert _texts(named_points("wincnn", 8)) == "0,1,-1,2,-2,1/2,-1/2,inf"
    assert _texts(named_points("wincnn", 12)) == "0,1,-1,2,-2,1/2,-1/2,4,-4,1/4,-1/4,inf"


@pytest.mark.parametrize("alpha", range(1, MAX_ALPHA + 1))
def test_the_default_is_recorded_for_every_alpha(alpha):
    entry = best_table()[str(alpha)]
    assert len(set(entry["points"])) == len(entry["points"]) == alpha - 1
    assert as_points(None, Tile(alpha, 1)) == (*map(Fraction, entry["points"]), INFINITY)


def test_texts_and_sequences_mean_the_same():
    expected = (Fraction(0), Fraction(-1, 2), Fraction(3), INFINITY)
    for given in ("0, -1/2,3 ,inf", ["0", "-1/2", 3, "oo"], (0, Fraction(-1, 2), 3, np.inf)):
        assert as_points(given, Tile(2, 3)) == expected
    assert as_points(_texts(expected), Tile(2, 3)) == expected


def test_a_single_point_is_a_list_of_one():
    assert as_points("-3", Tile(1, 1)) == (Fraction(-3),)
