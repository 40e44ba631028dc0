"""Polynomials over the rationals, their coefficients lowest first: text, division, factors."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from inspect import signature

Polynomial = tuple[Fraction, ...]


def shown(polynomial: Polynomial) -> str:
    """The text of a polynomial, its highest power first; "inf" of none."""
    text = ""
    for k, c in reversed(list(enumerate(polynomial))):
        if c:
            size = "" if abs(c) == 1 and k else str(abs(c))
            power = "" if not k else "x" if k == 1 else f"x^{k}"
            text += ("-" if c < 0 else "+") + size + ("*" if size and power else "") + power
    return text.removeprefix("+") or "inf"


@lru_cache(maxsize=256)
def cyclotomic(d: int) -> Polynomial:
    """The polynomial of the primitive d-th roots of unity, lowest coefficient first."""
    made = (Fraction(-1), *[Fraction(0)] * (d - 1), Fraction(1))
    for k in range(1, d):
        if d % k == 0:
            made = quotient(made, cyclotomic(k))
    return made


@lru_cache(maxsize=1024)
def reducible(base: Polynomial) -> list[str]:
    """The texts of a monic polynomial's factors, points as x − p; none where it is irreducible."""
    if len(base) < 3:
        return []
    found = _divisor(base)
    if found is None:
        return []
    parts = (found, quotient(base, found))
    return [text for part in parts for text in (reducible(part) or [shown(part)])]


def _divisor(base: Polynomial) -> Polynomial | None:
    """A proper monic divisor, of numerical roots' products that divide exactly."""
    shared = _common(base, tuple(k * c for k, c in enumerate(base))[1:])
    if len(shared) > 1:
        return shared
    from mpmath import mp, polyroots  # what points do without

    leading = math.lcm(*(c.denominator for c in base))
    degree, size = len(base) - 1, max(abs(c) for c in base) * leading
    with mp.workdps(30 + 4 * len(str(int(size))) * degree):
        wanted = [mp.mpf(c.numerator) / c.denominator for c in reversed(base)]
        # mpmath 1.4 asks for the order of coefficients, earlier ones know this one alone
        descending = {"asc": False} if "asc" in signature(polyroots).parameters else {}
        roots = polyroots(wanted, maxsteps=500, extraprec=4 * mp.prec, **descending)
        # conjugates together
        upper = [r for r in roots if r.imag > mp.eps**0.5]
        parts = [[r, mp.conj(r)] for r in upper]
        parts += [[r] for r in roots if abs(r.imag) <= mp.eps**0.5]
        for chosen in range(1, 2 ** (len(parts) - 1)):
            some = [r for i, of in enumerate(parts) if chosen >> i & 1 for r in of]
            made = [mp.mpc(1)]
            for root in some:
                shifted = [mp.mpc(0), *made]
                for k, c in enumerate(made):
                    shifted[k] -= root * c
                made = shifted
            tried = tuple(Fraction(int(mp.nint(c.real * leading)), leading) for c in made)
            if not any(remainder(base, tried)):
                return tried
    return None


def quotient(a: Polynomial, b: Polynomial) -> Polynomial:
    """a over b, both lowest first, b monic."""
    return _divided(a, b)[0]


def remainder(a: Polynomial, b: Polynomial) -> Polynomial:
    """a modulo the monic b, as many coefficients as b has degree."""
    return _divided(a, b)[1]


def _divided(a, b) -> tuple[Polynomial, Polynomial]:
    rest, d = list(a), len(b) - 1
    over = [Fraction(0)] * max(0, len(rest) - d)
    for k in reversed(range(len(over))):
        over[k] = c = rest[k + d]
        if c:
            for j in range(d):
                rest[k + j] -= c * b[j]
    rest = rest[:d] + [Fraction(0)] * (d - len(rest))
    return tuple(over), tuple(rest)


def _common(a: Polynomial, b: Polynomial) -> Polynomial:
    """The monic greatest common divisor."""
    while b and any(b):
        last = max(k for k, c in enumerate(b) if c)
        monic = tuple(c / b[last] for c in b[: last + 1])
        a, b = monic, remainder(a, monic)
    return a
