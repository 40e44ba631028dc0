"""Bilinear algorithms that multiply polynomials, and what they are made of.

A product of polynomials h of n and g of r terms has n + r − 1 coefficients; an algorithm computes
them as Cᵀ[(G g) ⊙ (H h)], one product a state. Transposed it is F(n, r): AT = Hᵀ, BT = C.

**Modulus.** The Chinese remainder theorem for a modulus M = ∏ fᵢ of degree n + r − 1 (Winograd
1980; Blahut 2010, chapter 5; Barabasz & Gregg 1905.05233): g and h are reduced modulo each factor,
multiplied in its residue ring, and with Qᵢ = M/fᵢ the product is Σᵢ Qᵢ·(Qᵢ⁻¹ gᵢ hᵢ mod fᵢ). A point
is the factor x − p. Infinity of multiplicity m gives the m leading coefficients, found in the
reversed polynomials modulo xᵐ. A ring of degree d takes a product of two polynomials of d terms,
reduced; with a modulus of their own such products nest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import combinations
from math import comb
from typing import Any, NamedTuple

from winolab.arguments.factors import INFINITY, Factor, Point, base_of
from winolab.arguments.words import plural
from winolab.ref.arithmetic import rational
from winolab.ref.arithmetic.rational import number

Rows = list[list[Any]]
Modulus = tuple[Point | Factor, ...]


class Bilinear(NamedTuple):
    """H (states × n), G (states × r) and C (states × n + r − 1), rows of exact numbers."""

    H: Rows
    G: Rows
    C: Rows

    @property
    def states(self) -> int:
        return len(self.C)


def modulus(n: int, r: int, factors: Modulus) -> Bilinear:
    """The product of n by r terms modulo these factors, whose degrees add up to n + r − 1."""
    whole = [number(1)]
    for factor in factors:
        if base := base_of(factor):
            power = factor.power if isinstance(factor, Factor) else 1
            whole = multiplied(whole, _raised([number(c) for c in base], power))
    made = Bilinear([], [], [])
    for factor in factors:
        for rows, more in zip(made, _part(n, r, factor, whole), strict=True):
            rows += more
    for row in made.C:
        row += [number(0)] * (n + r - 1 - len(row))
    return made


def multiplied(a: Sequence[Any], b: Sequence[Any]) -> list[Any]:
    """The product of two polynomials, lowest coefficients first."""
    result = [number(0)] * (len(a) + len(b) - 1)
    for i, u in enumerate(a):
        if u:
            for j, v in enumerate(b):
                result[i + j] += u * v
    return result


def _raised(base: list[Any], power: int) -> list[Any]:
    made = [number(1)]
    for _ in range(power):
        made = multiplied(made, base)
    return made


def schoolbook(n: int, r: int, most: int | None = None) -> Bilinear:
    """Every product of two terms that the lowest ``most`` coefficients take, by default all."""
    most = n + r if most is None else most
    pairs = [(i, j) for i in range(n) for j in range(r) if i + j < most]
    return Bilinear(
        [_unit(n, i) for i, _ in pairs],
        [_unit(r, j) for _, j in pairs],
        [_unit(n + r - 1, i + j) for i, j in pairs],
    )


def karatsuba(n: int, r: int, sign: int = 1) -> Bilinear:
    """Karatsuba's products (1963), by halves again and again, three terms by pairs.

    ``sign``: of the middle product, (a + s b)(c + s d).
    """
    s = number(sign)
    if min(n, r) == 1:
        return schoolbook(n, r)
    if n == r == 3:
        H = [_unit(3, i) for i in range(3)]
        C = [_unit(5, 2 * i) for i in range(3)]
        for i, j in combinations(range(3), 2):
            H.append([a + s * b for a, b in zip(_unit(3, i), _unit(3, j), strict=True)])
            for k in (i, j):
                C[k][i + j] -= s
            C.append([s * v for v in _unit(5, i + j)])
        return Bilinear(H, [list(row) for row in H], C)
    half = -(-max(n, r) // 2)
    if min(n, r) <= half:
        return _halved(n, r, half, sign)
    low, high = karatsuba(half, half, sign), karatsuba(n - half, r - half, sign)
    made = Bilinear([], [], [])
    size = n + r - 1
    for inner, at, ends in ((low, 0, (0,)), (low, half, (0, 1)), (high, 2 * half, (1,))):
        for h, g, c in zip(*inner, strict=True):
            for rows, row, length in ((made.H, h, n), (made.G, g, r)):
                placed = [number(0)] * length
                for end in ends:
                    scale = s if end and len(ends) > 1 else number(1)
                    for k, v in enumerate(row[: length - end * half]):
                        placed[end * half + k] += scale * v
                rows.append(placed)
            row = [number(0)] * size
            spread = {half: s} if at == half else {at: number(1), half: -s}
            for place, scale in spread.items():
                for k, v in enumerate(c):
                    if v:
                        row[place + k] += scale * v
            made.C.append(row)
    return made


def _halved(n: int, r: int, half: int, sign: int) -> Bilinear:
    """The longer of the two cut, without Karatsuba's saving."""
    made = Bilinear([], [], [])
    for at in (0, half):
        length = min(half, max(n, r) - at)
        part = karatsuba(*((length, r) if n >= r else (n, length)), sign)
        for h, g, c in zip(*part, strict=True):
            before, behind = [number(0)] * at, [number(0)] * (max(n, r) - at - length)
            made.H.append([*before, *h, *behind] if n >= r else h)
            made.G.append(g if n >= r else [*before, *g, *behind])
            made.C.append([*before, *c, *behind])
    return made


def iterated(outer: Bilinear, inner: Bilinear) -> Bilinear:
    """The nested product: the terms of the outer one are polynomials that the inner multiplies.

    Of n₁·n₂ by r₁·r₂ terms, in as many states as both have multiplied (Agarwal & Cooley 1977); the
    inner polynomials have equally many terms. Raises ValueError where they have not.
    """
    terms = len(inner.H[0])
    if terms != len(inner.G[0]):
        raise ValueError(
            f"the inner product has {terms} by {plural(len(inner.G[0]), 'term')}; expected as many "
            "of both"
        )
    size = terms * (len(outer.C[0]) + 1) - 1
    H, G = (
        [[a * b for a in x for b in y] for x in of for y in under]
        for of, under in ((outer.H, inner.H), (outer.G, inner.G))
    )
    C = []
    for x in outer.C:
        for y in inner.C:
            row = [number(0)] * size
            for k, a in enumerate(x):
                for m, b in enumerate(y if a else ()):
                    row[terms * k + m] += a * b
            C.append(row)
    return Bilinear(H, G, C)


def cut(of: Bilinear, n: int, r: int) -> Bilinear:
    """The product of fewer terms: the others are zeros, and states that they leave empty go."""
    kept = [
        (h[:n], g[:r], c[: n + r - 1])
        for h, g, c in zip(*of, strict=True)
        if any(h[:n]) and any(g[:r]) and any(c[: n + r - 1])
    ]
    return Bilinear(*(list(rows) for rows in zip(*kept, strict=True)))


def _part(n: int, r: int, factor: Point | Factor, whole: list[Any]) -> Bilinear:
    """The states of one factor of the modulus, whose finite part is ``whole``."""
    if factor == INFINITY:
        return Bilinear([_unit(n, n - 1)], [_unit(r, r - 1)], [list(whole)])
    if not isinstance(factor, Factor):
        return _point(n, r, number(Fraction(factor)), whole)
    ring = _Ring.of(n, r, factor, whole)
    if factor.products:
        return ring.part(_product(factor))
    found = (ring.part(made) for made in _usual(factor))
    return min(found, key=_gain)


def _point(n: int, r: int, p: Any, whole: list[Any]) -> Bilinear:
    """A point: the others' polynomial by Horner's rule, and its value."""
    others, carry, weight = [], number(0), number(0)
    for c in reversed(whole):
        carry = c + p * carry
        others.append(carry)
    others = others[-2::-1]
    for c in reversed(others):
        weight = c + p * weight
    powers = [number(1)]
    for _ in range(max(n, r) - 1):
        powers.append(powers[-1] * p)
    return Bilinear([powers[:n]], [[v / weight for v in powers[:r]]], [others])


class _Ring(NamedTuple):
    """A residue ring: ``powers`` of x (at infinity, of its reciprocal) and the products' results.

    ``modulus`` reduces in the ring's basis, ``H`` and ``G`` (degree × n, r) reduce the operands,
    ``columns`` are the basis as polynomials of the whole product.
    """

    modulus: list[Any]
    H: Rows
    G: Rows
    columns: Rows
    inverse: list[Any] | None

    @classmethod
    def of(cls, n: int, r: int, factor: Factor, whole: list[Any]) -> _Ring:
        d = factor.degree
        base = [number(c) for c in factor.base]
        most = max(n, r, len(whole))
        if factor.local:
            reduced = [*[number(0)] * d, number(1)]
            p = -base[0] if base else number(0)
            powers = [[comb(k, i) * p ** (k - i) if i <= k else number(0) for i in range(d)]
                      for k in range(most)]  # fmt: skip
            basis = [[number(1)]]
            for _ in range(d - 1):
                basis.append(multiplied(basis[-1], base or [number(0), number(1)]))
        else:
            reduced = _raised(base, factor.power)
            powers = [_unit(d, 0)]
            for _ in range(most - 1):
                powers.append(_shifted(powers[-1], reduced))
            basis = [_unit(k + 1, k) for k in range(d)]
        if base:
            others = _quotient(whole, _raised(base, factor.power))
            of_h, of_g, columns = powers[:n], powers[:r], [multiplied(others, b) for b in basis]
        else:
            others = whole[::-1]
            of_h, of_g = powers[n - 1 :: -1], powers[r - 1 :: -1]
            columns = [[*[number(0)] * (d - 1 - i), *whole] for i in range(d)]
        for column in columns:
            column += [number(0)] * (n + r - 1 - len(column))
        value = [number(0)] * d
        for k, c in enumerate(others):
            if c:
                value = [v + c * w for v, w in zip(value, powers[k], strict=True)]
        inverse = _inverse(value, reduced)
        ring = cls(reduced, transposed(of_h), transposed(of_g), columns, None)
        if factor.inverse == "BT":
            return ring._replace(inverse=inverse)
        times = ring.times(inverse)
        return ring._replace(G=matrix_product(times, ring.G))

    def times(self, a: list[Any]) -> Rows:
        """The matrix that multiplies by a."""
        columns = [a]
        for _ in range(len(a) - 1):
            columns.append(_shifted(columns[-1], self.modulus))
        return transposed(columns)

    def part(self, product: Bilinear) -> Bilinear:
        """The states of this ring's product by an algorithm for as many terms as its degree."""
        d = len(self.modulus) - 1
        powers = [_unit(d, 0)]
        for _ in range(2 * d - 2):
            powers.append(_shifted(powers[-1], self.modulus))
        if self.inverse is not None:
            powers = transposed(matrix_product(self.times(self.inverse), transposed(powers)))
        return Bilinear(
            matrix_product(product.H, self.H),
            matrix_product(product.G, self.G),
            matrix_product(matrix_product(product.C, powers), self.columns),
        )


def _product(factor: Factor) -> Bilinear:
    """The algorithm that a factor names, for two polynomials of as many terms as its degree."""
    d = factor.degree
    if factor.products == "direct":
        return schoolbook(d, d, d if factor.local else None)
    if factor.products == "karatsuba":
        return karatsuba(d, d)
    return modulus(d, d, factor.modulus or ())


def _usual(factor: Factor) -> Iterator[Bilinear]:
    """Algorithms of 2d − 1 products; the one of least noise gain is taken."""
    d = factor.degree
    if d == 2 and factor.local:
        yield schoolbook(2, 2, 2)
        return
    for points in _points(d, _scale(factor)):
        yield modulus(d, d, points)


@lru_cache(maxsize=64)
def _points(d: int, q: Fraction) -> tuple[Modulus, ...]:
    """Sets of 2d − 1 simple points, as large as the roots of the factor are, about."""
    if d == 2:
        zero = Fraction(0)
        return (zero, q, INFINITY), (zero, -q, INFINITY), (q, -q, INFINITY), (q, -q, zero)
    known: list[Point] = [Fraction(0), INFINITY, q, -q]
    left, times = 2 * d - 1 - len(known), Fraction(2)
    while True:
        group = [times * q, -times * q, q / times, -q / times]
        if left <= len(group):
            return tuple((*known, *some) for some in combinations(group, left))
        known, left, times = [*known, *group], left - len(group), 2 * times


def _scale(factor: Factor) -> Fraction:
    """The power of two nearest to the size of the polynomial's roots; 1 of points'."""
    if factor.local:
        return Fraction(1)
    size, degree = abs(factor.base[0]), len(factor.base) - 1
    e = (size.numerator.bit_length() - size.denominator.bit_length()) / degree
    return Fraction(2) ** round(e) if size != 1 else Fraction(1)


def _gain(part: Bilinear) -> Any:
    """Σ ‖H‖² ‖G‖² ‖C‖² over the states: their noise."""
    sizes = ([sum((v * v for v in row), number(0)) for row in rows] for rows in part)
    return sum((a * b * c for a, b, c in zip(*sizes, strict=True)), number(0))


def _unit(size: int, at: int) -> list[Any]:
    row = [number(0)] * size
    row[at] = number(1)
    return row


def transposed(rows: Sequence[Sequence[Any]]) -> Rows:
    return [list(column) for column in zip(*rows, strict=True)]


def matrix_product(a: Rows, b: Rows) -> Rows:
    """The product of two matrices, whose first has many zeros."""
    made = []
    for row in a:
        total = [number(0)] * len(b[0])
        for v, other in zip(row, b, strict=True):
            if v:
                total = [t + v * w for t, w in zip(total, other, strict=True)]
        made.append(total)
    return made


def _shifted(a: list[Any], reduced: list[Any]) -> list[Any]:
    """x·a modulo a monic polynomial."""
    top = a[-1]
    moved = [number(0), *a[:-1]]
    return [v - top * c for v, c in zip(moved, reduced, strict=False)] if top else moved


def _quotient(a: list[Any], b: list[Any]) -> list[Any]:
    """a over the monic b, which divides it."""
    rest, d = list(a), len(b) - 1
    over = [number(0)] * (len(a) - d)
    for k in reversed(range(len(over))):
        over[k] = c = rest[k + d]
        for j in range(d if c else 0):
            rest[k + j] -= c * b[j]
    return over


def _inverse(a: list[Any], reduced: list[Any]) -> list[Any]:
    """1/a modulo a monic polynomial to which it is prime, by Gauss and Jordan."""
    d, columns = len(a), [a]
    for _ in range(d - 1):
        columns.append(_shifted(columns[-1], reduced))
    rows = [[*row, number(int(i == 0))] for i, row in enumerate(transposed(columns))]
    for c in range(d):
        pivot = next(i for i in range(c, d) if rows[i][c])
        rows[c], rows[pivot] = rows[pivot], rows[c]
        rows[c] = [v / rows[c][c] for v in rows[c]]
        for i in range(d):
            if i != c and (times := rows[i][c]):
                rows[i] = [v - times * w for v, w in zip(rows[i], rows[c], strict=True)]
    return [row[d] for row in rows]


def fractions(rows: Rows) -> list[list[Fraction]]:
    """The rows as Fractions."""
    return [[rational.fraction(v) for v in row] for row in rows]
