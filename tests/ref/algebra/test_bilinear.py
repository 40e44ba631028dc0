"""The identity beside the constructor's proof: products of random polynomials, exactly."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from winolab.algorithm import SCALINGS
from winolab.arguments.factors import as_factor, degree_of, karatsuba_states, states_of
from winolab.points import tile_of
from winolab.ref.algebra.bilinear import (
    Bilinear,
    cut,
    fractions,
    iterated,
    karatsuba,
    modulus,
    schoolbook,
)
from winolab.ref.algebra.transforms import Transforms, transforms
from winolab.ref.arithmetic import rational

# Pairwise prime, of every kind.
FACTORS: tuple[str, ...] = (
    "0", "1", "-1", "1/2", "-2", "inf", "inf^2", "inf^3", "x^2", "x^3", "x^3[direct]", "(x-1/3)^2",
    "(x+3)^3", "x^2+1", "x^2+1[direct]", "x^2+1[1:-1:0]BT", "x^2+x+1", "x^2-x+1[0:1:inf]BT",
    "x^2+1/4", "x^2-2", "(x^2+3)^2", "x^3-x-1", "x^3-2[karatsuba]", "x^4-x^2+1",
    "x^4+1[karatsuba]", "x^4+x+1[0:1:inf:x^2+1:x^2+x+1[direct]]",
)  # fmt: skip


def moduli(most: int = 12) -> st.SearchStrategy[list[str]]:
    """Lists of factors, of degree 1 to ``most``."""

    def base(text: str) -> tuple:
        factor = as_factor(text)
        return getattr(factor, "base", (factor,)) or ("inf",)

    def key(text: str) -> str:
        return {"inf": "inf", "0": "x", "x": "x"}.get(text.split("^")[0], str(base(text)))

    lists = st.lists(st.sampled_from(FACTORS), min_size=1, max_size=8, unique_by=key)
    return lists.filter(lambda some: sum(degree_of(as_factor(f)) for f in some) <= most)


def check(made: Bilinear, n: int, r: int, seed: int = 0) -> None:
    """Random rational polynomials, multiplied by the algorithm and term by term."""
    random = Random(seed)
    h, g = (
        [Fraction(random.randint(-9, 9), random.randint(1, 5)) for _ in range(k)] for k in (n, r)
    )
    H, G, C = map(fractions, made)
    left, right = ([sum(a * b for a, b in zip(row, v, strict=True)) for row in m]
                   for m, v in ((H, h), (G, g)))  # fmt: skip
    found = [
        sum(row[k] * u * v for row, u, v in zip(C, left, right, strict=True))
        for k in range(n + r - 1)
    ]
    expected = [Fraction(0)] * (n + r - 1)
    for i, a in enumerate(h):
        for j, b in enumerate(g):
            expected[i + j] += a * b
    assert found == expected


@settings(max_examples=60, deadline=None)
@given(moduli(), st.data())
def test_any_modulus_multiplies_polynomials(factors: list[str], data: st.DataObject) -> None:
    parsed = tuple(map(as_factor, factors))
    inputs = sum(map(degree_of, parsed))
    r = data.draw(st.integers(1, inputs))
    n = inputs - r + 1
    made = modulus(n, r, parsed)
    assert made.states == sum(map(states_of, parsed))
    check(made, n, r, data.draw(st.integers(0, 99)))


@settings(max_examples=20, deadline=None)
@given(moduli(), st.data())
def test_any_modulus_gives_transforms(factors: list[str], data: st.DataObject) -> None:
    """Their correlation on random data, in every scaling, and their programs."""
    text = ",".join(factors)
    inputs = sum(degree_of(as_factor(f)) for f in factors)
    r = data.draw(st.integers(1, inputs))
    t = transforms(inputs - r + 1, r, text, data.draw(st.sampled_from((None, *SCALINGS))))
    assert t.alpha == tile_of(t.n, r, text).alpha == t.tile.alpha
    g = [Fraction(3 * k * k - 7) for k in range(r)]
    d = [Fraction(5 * k * k * k - k - 2, 3) for k in range(inputs)]
    u, v = ([sum(a * b for a, b in zip(row, x, strict=True)) for row in m]
            for m, x in ((t.programs.G.exact(), g), (t.programs.BT.exact(), d)))  # fmt: skip
    y = [sum(a * p * q for a, p, q in zip(row, u, v, strict=True)) for row in t.programs.AT.exact()]
    assert y == [sum(g[k] * d[i + k] for k in range(r)) for i in range(t.n)]


SIZES = [(1, 4), (2, 2), (3, 3), (4, 4), (3, 2), (5, 5), (7, 3), (8, 8)]


@pytest.mark.parametrize(("n", "r"), SIZES)
@pytest.mark.parametrize("sign", [1, -1])
def test_karatsuba(n: int, r: int, sign: int) -> None:
    made = karatsuba(n, r, sign)
    assert made.states == karatsuba_states(n, r)
    check(made, n, r)
    assert {abs(v) for rows in made for row in rows for v in row} <= {0, 1, 2}


def test_iterated_products() -> None:
    """F(4, 4) of Karatsuba by Karatsuba; F(6, 4) of Toom by Karatsuba, also cut to F(5, 3)."""
    toom = modulus(3, 2, tuple(map(as_factor, ("0", "1", "-1", "inf"))))
    for outer, n, r, states in ((karatsuba(2, 2), 4, 4, 9), (toom, 6, 4, 12)):
        made = iterated(outer, karatsuba(2, 2))
        assert made.states == states
        check(made, n, r)
        check(cut(made, n - 1, r - 1), n - 1, r - 1)
    with pytest.raises(ValueError, match="has 3 by 2 terms; expected as many of both"):
        iterated(toom, toom)


def test_schoolbook() -> None:
    check(schoolbook(4, 3), 4, 3)


def test_flint_and_fractions_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the extra "exact" and without; CI has it."""
    pytest.importorskip("flint")
    text = "0,1,-1/3,inf^2,x^2+1,(x-2)^2,x^4+x+1"
    made = []
    for module in (rational.flint, None):
        monkeypatch.setattr(rational, "flint", module)
        parsed = tuple(map(as_factor, text.split(",")))
        H, G, C = map(fractions, modulus(7, 7, parsed))
        made.append((H, G, C))
        Transforms(tuple(zip(*H, strict=True)), G, C)  # type: ignore[arg-type]
    assert made[0] == made[1]
