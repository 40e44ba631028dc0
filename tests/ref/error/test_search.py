from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest

from tests.support.points import points_of
from winolab.algorithm import Tile
from winolab.ref.algebra.points import named_points
from winolab.ref.algebra.transforms import transforms
from winolab.ref.error.search import best_points, noise_gains, score, simulate

TILES = Tile(6, 3), Tile(8, 9), Tile(2, 3), Tile(4, 1), Tile(1, 4)


@pytest.mark.parametrize(
    ("tile", "points"),
    [(Tile(6, 3), "0,1,-1,2,1/2,3,-2/3,5"), *product(TILES, ["best", "paper"])],
)
def test_noise_gain_from_points_is_that_of_the_matrices(tile, points):
    """DESIGN's formula on the exact matrices, with and without infinity among the points."""
    t = transforms(tile.n, tile.r, points)
    gain = sum(
        sum(v * v for v in a) * sum(v * v for v in g) * sum(v * v for v in b)
        for a, g, b in zip(zip(*t.AT, strict=True), t.G, t.BT, strict=True)
    ) / Fraction(tile.n * tile.r)
    assert abs(noise_gains([points_of(t)], [tile])[0] / float(gain) - 1) <= 1e-9


def test_default_points_lose_less_than_the_papers_at_alpha_16():
    """F(8,9) on rows over 64 channels, FP32, mean of 10 seeds: the issue asks 4.5 and 10 times.

    On U[1, 2] the papers' points evaluated row by row lose 16 times more than the default; pairing
    their rows, as our programs do, already wins back a factor of five.
    """
    tile = Tile(8, 9)
    best, paper = (score(named_points(name, 16), tile) for name in ("best", "paper"))
    by_rows = simulate(transforms(8, 9, "paper").rowwise, tile)
    assert paper.zero_mean >= 4.5 * best.zero_mean
    assert by_rows[1] >= 10 * best.positive
    assert paper.positive >= 2 * best.positive


def test_a_search_is_never_worse_than_the_named_sets():
    leaders = best_points(8, 3, budget=0.3)
    scores = [scored.score for scored in leaders]
    assert scores == sorted(scores)
    tile = Tile(6, 3)
    named = min(score(named_points(name, 8), tile).score for name in ("best", "paper", "wincnn"))
    assert scores[0] <= named
    assert all(len(set(scored.points)) == 8 for scored in leaders)


@pytest.mark.parametrize("alpha", [1, 2, 3, 5])
def test_small_and_odd_alphas(alpha):
    leaders = best_points(alpha, budget=0.05)
    assert len(leaders[0].points) == alpha
    assert np.isfinite(leaders[0].score)


def test_bad_arguments():
    with pytest.raises(ValueError, match="r = 9 has no tile of alpha = 8; expected 1 to 8"):
        best_points(8, 9)
    with pytest.raises(ValueError, match="at most 32"):
        best_points(33)
    with pytest.raises(TypeError, match=r"alpha is 8\.5; expected an integer"):
        best_points(8.5, 3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match=r"r is 3\.0; expected an integer"):
        best_points(8, 3.0)  # pyright: ignore[reportArgumentType]


def test_a_budget_is_a_number_of_seconds():
    text: Any = "x"
    with pytest.raises(TypeError, match="budget is 'x'; expected seconds"):
        best_points(4, 3, budget=text)
    with pytest.raises(TypeError, match="seed is 'x'; expected an integer"):
        best_points(4, 3, seed=text)


@pytest.mark.parametrize("budget", [-1, float("nan")])
def test_a_budget_is_no_less_than_nothing(budget) -> None:
    with pytest.raises(ValueError, match=r"budget is (-1|nan) seconds; expected 0 or more"):
        best_points(4, 3, budget=budget)
