"""Exact sums by residues: every algorithm gives direct convolution's integers (issue 48)."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from math import gcd, prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import winolab
from winolab.ref.quantized.residues import PRIMES, Modular, combined, moduli

ALGORITHMS = (
    "direct",
    "winograd:4x4:3x3",
    "winograd:8x8:3x3",
    "winograd:6x6:3x3@0,3/4,-3/4,4/3,-4/3,inf,x^2+1",
    "gamma:8:6:3",
    "dwm:4:3",
)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("shared", ["tensor", "channel"])
def test_the_result_is_that_of_direct_int8(algorithm: str, shared: str) -> None:
    """Bit for bit, whatever the points: F(8×8,3×3) loses everything in INT8 without residues."""
    rng = np.random.default_rng(1)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((2, 12, 10, 16), (3, 3, 3, 16)))
    y = winolab.conv_forward(x, w, padding=1, algorithm=algorithm, precision=f"rns:{shared}")
    direct = winolab.conv_forward(x, w, padding=1, precision=f"int8:{shared}")
    if not algorithm.startswith("dwm"):  # whose one piece is all of the filter here
        assert np.array_equal(y, direct)
    exact = winolab.conv_forward(x, w, padding=1, precision="fp64", out_dtype=np.float64)
    assert np.linalg.norm(y - exact) <= 1.1 * np.linalg.norm(direct - exact)


def test_whole_numbers_come_out_exactly() -> None:
    """At the ends of the range, against integers; 127 is the scale, so that nothing is rounded."""
    rng = np.random.default_rng(2)
    x, w = (rng.integers(-127, 128, s) for s in ((1, 9, 9, 300), (2, 3, 3, 300)))
    x[0, :3, :3], w[0] = 127, 127
    w[1] = -127
    exact = winolab.conv_forward(x, w, precision="exact", out_dtype=np.int64)
    assert exact[0, 0, 0, 0] == 2700 * 127**2 == -exact[0, 0, 0, 1]
    y = winolab.conv_forward(*(v.astype(np.float32) for v in (x, w)),
                             algorithm="winograd:4x4:3x3", precision="rns")  # fmt: skip
    assert np.array_equal(y, exact.astype(np.float32))


def test_moduli_are_primes_of_eight_bits_without_the_denominators() -> None:
    assert PRIMES[:4] == [251, 241, 239, 233]
    assert all(gcd(p, q) == 1 for p, q in combinations(PRIMES, 2))
    found = moduli(2 * 4608 * 127**2 + 1, [2, 9, 251 * 5])
    assert found == [241, 239, 233, 229]
    assert prod(found[:-1]) < 2 * 4608 * 127**2 + 1 <= prod(found)
    with pytest.raises(ValueError, match="sums of 500 bits, and primes below 256"):
        moduli(1 << 499, [1])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=5))
def test_remainders_come_together(values: list[int]) -> None:
    primes = moduli(2**42, [1])
    residues = [np.array(values) % p for p in primes]
    assert combined(residues, primes).tolist() == values


def test_fractions_are_integers_modulo_a_prime() -> None:
    run = Modular(251)
    assert int(run.constant(Fraction(3, 4))) * 4 % 251 == 3
    found = run.symmetric(np.arange(-300, 300))
    assert found.dtype == np.int8
    assert abs(found.astype(int)).max() == 125
    assert (found.astype(int) % 251 == np.arange(-300, 300) % 251).all()


def test_nan_has_no_residues() -> None:
    x = np.full((1, 5, 5, 2), np.nan, np.float32)
    with pytest.raises(ValueError, match="residues of NaN or infinity; expected finite numbers"):
        winolab.conv_forward(x, np.ones((1, 3, 3, 2), np.float32), precision="rns")
