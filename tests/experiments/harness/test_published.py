"""Published orders of operations compute the same matrices, exactly."""

from __future__ import annotations

from fractions import Fraction

import pytest

from experiments.harness.published import by_columns, by_rows, published
from winolab.algorithm import Tile
from winolab.measure import significant
from winolab.ref.algebra.transforms import transforms


@pytest.mark.parametrize("alpha", [4, 8, 16])
@pytest.mark.parametrize("points", ["paper", "best"])
def test_the_programs_compute_their_matrices(alpha: int, points: str) -> None:
    for r in range(2, alpha):
        exact = transforms(alpha + 1 - r, r, points)
        programs = published(points)(exact.tile)
        assert programs.AT.exact() == exact.AT
        assert programs.G.exact() == exact.G
        assert programs.BT.exact() == exact.BT


def test_pairs_halve_the_multiplications_of_the_input_transform() -> None:
    """F(8,9) has 14 paired rows: 7 chains of 7 even and 7 odd entries, each computed once."""
    exact = transforms(8, 9, "paper")
    counts = published()(exact.tile).BT.counts
    plain = sum(abs(v) not in (0, 1) for row in exact.BT for v in row)
    assert (counts.multiplications + counts.shifts + counts.fmas) <= 0.6 * plain


def test_typed_digits() -> None:
    assert significant(Fraction(1, 3), 7) == Fraction(3333333, 10**7)
    assert significant(Fraction(-164597, 576), 7) == Fraction(-2857587, 10**4)
    assert significant(Fraction(1, 4096), 7) == Fraction(2441406, 10**10)
    typed = published(digits=7)(Tile(8, 9)).BT.exact()
    assert Fraction(2857587, 10**4) in [abs(v) for v in typed[0]]


def test_an_unpaired_matrix_runs_row_by_row() -> None:
    matrix = [[Fraction(1), Fraction(2)], [Fraction(3), Fraction(-1)]]
    assert by_rows(matrix).exact() == by_columns(matrix).exact() == tuple(map(tuple, matrix))
