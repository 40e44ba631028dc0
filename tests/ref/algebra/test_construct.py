"""Constructions by name: their states, their constants, and what runs them."""

from __future__ import annotations

from fractions import Fraction
from math import prod

import numpy as np
import pytest

from winolab.algorithm import Algorithm, Problem, gamma, parse_algorithm, winograd
from winolab.arguments.factors import as_factor
from winolab.conv import conv_forward
from winolab.points import tile_of
from winolab.ref.algebra.bilinear import fractions, iterated, karatsuba, modulus
from winolab.ref.algebra.program import is_power_of_two
from winolab.ref.algebra.transforms import Transforms, transforms
from winolab.ref.algorithms import convolution
from winolab.ref.algorithms import winograd as tiled
from winolab.ref.arithmetic.simulated import arithmetic
from winolab.ref.error.bounds import bound


@pytest.mark.parametrize(
    ("length", "n", "r", "states"),
    [
        *((4, 2, 3, 5), (4, 4, 3, 7), (6, 4, 3, 8), (6, 6, 3, 10), (6, 7, 3, 12), (6, 6, 5, 14)),
        *((6, 6, 7, 20), (12, 8, 5, 20)),
    ],
)
def test_symbolic_fourier_transforms_only_add(length: int, n: int, r: int, states: int) -> None:
    """He et al. 2407.02913: products, and the corrections of what wraps around."""
    t = transforms(n, r, f"sfc:{length}")
    assert t.alpha == tile_of(n, r, f"sfc:{length}").alpha == states
    for one in (t.programs.AT, t.programs.BT):
        assert one.counts.multiplications == one.counts.fmas == 0
    constants = {v.denominator for row in t.G for v in row}
    assert all(length % d == 0 for d in constants)


def test_complex_points_take_three_or_four_products() -> None:
    """Issue 48: i and its conjugate, by Karatsuba's products or by those of the parts."""
    three, four = (transforms(4, 3, f"0,1,-1,inf,{i}") for i in ("i", "i[direct]"))
    assert (three.alpha, four.alpha) == (7, 8)
    assert three.points[-1] == transforms(4, 3, "0,1,-1,inf,x^2+1").points[-1]
    assert {abs(v) for row in (*four.AT, *four.BT) for v in row} <= {0, 1}


def test_karatsuba_iterated() -> None:
    t = transforms(4, 4, "karatsuba")
    assert t.alpha == 9
    twice = iterated(karatsuba(2, 2), karatsuba(2, 2))
    H, G, C = map(fractions, twice)
    own = Transforms(tuple(zip(*H, strict=True)), G, C)  # type: ignore[arg-type]
    assert own.equivalent(t)
    counts = [getattr(t.programs, name).counts for name in ("AT", "G", "BT")]
    assert not any(c.multiplications or c.fmas for c in counts)


def test_products_of_blocks_are_iterated() -> None:
    """Agarwal & Cooley 1977: Toom's F(3, 2) of blocks of two terms, multiplied by Karatsuba."""
    t = transforms(6, 4, "iterated:0,1,-1,inf*0,1,inf")
    assert t.alpha == 12
    factors = [tuple(map(as_factor, some.split(","))) for some in ("0,1,-1,inf", "0,1,inf")]
    made = iterated(modulus(3, 2, factors[0]), modulus(2, 2, factors[1]))
    H, G, C = map(fractions, made)
    assert tuple(tuple(map(tuple, rows)) for rows in (zip(*H, strict=True), G, C)) == (
        t.AT,
        t.G,
        t.BT,
    )
    assert transforms(8, 8, "iterated:karatsuba*0,1,-1,2,-2,1/2,inf").alpha == 21
    with pytest.raises(ValueError, match=r"multiplies blocks of 2 terms; expected n .* F\(5,4\)"):
        transforms(5, 4, "iterated:0,1,-1,inf*0,1,inf")
    with pytest.raises(ValueError, match="0,1 multiplies no blocks; expected factors of degree 2b"):
        transforms(6, 4, "iterated:0,1,-1,inf*0,1")


@pytest.mark.parametrize("points", ["0,1,-1,inf", "legendre:0,1,-1,inf", "karatsuba"])
@pytest.mark.parametrize("scaling", ["l1", "power_of_two", "filter"])
def test_rows_are_scaled_whatever_their_stages(points, scaling) -> None:
    """Rows of Legendre's first stage were, whose products with the second have other norms."""
    t = transforms(2, 3, points, scaling)
    for name, rows in (("G", t.G), ("BT", t.BT)):
        for row in rows:
            norm = sum(map(abs, row))
            if scaling == "l1":
                assert norm == 1
            elif (scaling, name) != ("filter", "BT"):
                assert 1 <= 2 * norm**2 <= 4  # within a factor of √2
    plain = transforms(2, 3, points.removeprefix("legendre:"), scaling)
    assert (t.AT, t.G, t.BT) == (plain.AT, plain.G, plain.BT)


def test_legendre_is_the_same_in_two_stages() -> None:
    points = "0,1,-1,1/2,-1/2,inf"
    t, plain = transforms(4, 3, f"legendre:{points}"), transforms(4, 3, points)
    assert (t.AT, t.G, t.BT) == (plain.AT, plain.G, plain.BT)
    assert t != plain
    for name, stages in zip(("AT", "G", "BT"), t.stages, strict=True):
        assert len(stages) == 2
        assert getattr(t.programs, name).exact() == getattr(t, name)
        assert getattr(t.programs, name) != getattr(plain.programs, name)
    # P of the quadratic filter: 1, x, x² − 1/3.
    _, (_, basis), _ = t.stages  # pyright: ignore[reportAssignmentType]
    assert basis == ((1, 0, Fraction(1, 3)), (0, 1, 0), (0, 0, 1))
    scaled = transforms(4, 3, f"legendre:{points}", "power_of_two")
    assert scaled.equivalent(plain)
    rows = zip(scaled.G, t.G, strict=True)
    ratios = {b / a for x, y in rows for a, b in zip(x, y, strict=True) if a}
    assert all(map(is_power_of_two, ratios))


def _algorithms() -> list[Algorithm]:
    halves = [[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]]
    own = transforms(
        matrices={
            "AT": [[1, 1, 1, 0], [0, 1, -1, -1]],
            "G": [[2, 0, 0], [1, 1, 1], [1, -1, 1], [0, 0, 2]],
            "BT": [[Fraction(v, 2) for v in row] for row in halves],
        }
    )
    return [
        gamma(4, 2, 3, points=own),
        winograd((2, 2), (3, 3), points=own, scaling="l1"),
        winograd((4, 4), (3, 3), points=transforms(4, 3, "legendre")),
        *map(parse_algorithm, (
            "gamma:8:4:3@karatsuba", "winograd:6x6:3x3@sfc:6", "winograd:6x2:3x3@sfc:6",
            "winograd:4x4:3x3@legendre:paper",
            "gamma:15:9:3@iterated:0,1,inf*0,1,-1,2,inf", "gamma:7:4:3@0,1,-1,inf,i",
        )),
    ]  # fmt: skip


@pytest.mark.parametrize("algorithm", _algorithms(), ids=lambda a: str(a)[:40])
def test_the_reference_runs_them(algorithm: Algorithm) -> None:
    """Exactly, in their text's form too, and within their bound in FP32."""
    assert parse_algorithm(str(algorithm)) == algorithm
    rng = np.random.default_rng(0)
    problem = Problem.of((1, 13, 15, 8), (3, 3, 3, 8), padding=1)
    x, w = (rng.integers(-9, 10, s) for s in (problem.x_shape, problem.w_shape))
    exact = conv_forward(x, w, padding=1, precision="exact")
    found = conv_forward(x, w, padding=1, precision="exact", algorithm=str(algorithm))
    assert (found == exact).all()
    x, w = (rng.uniform(-1, 1, s).astype("float32") for s in (problem.x_shape, problem.w_shape))
    error = tiled.forward(x, w, problem, algorithm, arithmetic("fp32")) - convolution.forward(
        x, w, problem
    )
    limit = bound(x, w, problem, algorithm, "fp32")
    assert (np.abs(error) <= limit).all()
    assert prod(limit.shape) == np.isfinite(limit).sum()


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ("sfc:7", r"sfc:7 serves n \+ r - 1 = 7 and more; F\(4,3\) has 6"),
        ("legendre:0,1", "2 points given; expected alpha = n"),
        ("legendre:" + "legendre:best", "legendre has no basis of legendre:best; expected points"),
        (
            "karatsubas",
            "expected one of best, paper, wincnn, karatsuba, sfc:6, legendre, iter",
        ),
    ],
)
def test_what_there_is_not_is_refused(points: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        transforms(4, 3, points)
