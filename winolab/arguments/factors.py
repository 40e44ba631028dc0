"""Factors of a modulus as a caller gives them: interpolation points, and polynomials with a product
of their residue ring; all exact.

F(n, r) multiplies polynomials modulo one of degree n + r − 1 (Winograd 1980; Blahut 2010, chapter
5). A point p is its factor x − p, infinity the leading coefficient. A factor of degree d > 1, which
has an irreducible polynomial or a power, takes a bilinear algorithm of its residue ring: two
polynomials of d terms are multiplied, and what comes out is reduced.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from numbers import Rational
from typing import Any

from winolab.arguments.polynomials import Polynomial, cyclotomic, reducible, shown
from winolab.arguments.words import plural

INFINITY = math.inf

# A finite rational, or INFINITY.
Point = Fraction | float

DIGITS = 20  # of a point's or a coefficient's numerator and of its denominator, at most
MOST_DEGREE = 12  # of an irreducible polynomial; powers reach as far as tiles do
PRODUCTS = ("direct", "karatsuba")  # named algorithms of a residue ring
_INFINITE = ("inf", "infinity", "oo", "∞")
_EXPONENT = re.compile(r"[eE][+-]?(\d+)$")
_FACTOR = re.compile(r"(?P<body>[^\[\]]*)(?:\[(?P<products>.*)\](?P<inverse>BT)?)?", re.DOTALL)
_POWER = re.compile(
    r"\((?P<base>[^()]*)\)(?:\^(?P<power>\d{1,9}))?|(?P<inf>\w+|∞)\^(?P<times>\d{1,9})"
)
_TERM = re.compile(r"([+-])(\d[\d./]*)?(?:\*?(x)(?:\^(\d{1,18}))?)?")
_COMPLEX = re.compile(r"([+-]?[\d./]+(?=[+-]))?([+-]?)([\d./]*)\*?i")


@dataclass(frozen=True)
class Factor:
    """A factor of degree 2 and more: ``base`` to the ``power``, and the product of its ring.

    ``base`` has the coefficients of a monic polynomial that is irreducible over the rationals,
    lowest first, or none for infinity. ``products`` names the algorithm: "" for as few as there
    can be, 2d − 1, "karatsuba", "direct", or the modulus, of degree 2d − 1, of one made of points:
    "0:1:inf". CRT's constant, an inverse in the ring, multiplies the filter or, where ``inverse``
    is "BT", the result, whose transform is that of the data.
    """

    base: Polynomial
    power: int = 1
    products: str = ""
    inverse: str = ""

    @property
    def degree(self) -> int:
        return max(1, len(self.base) - 1) * self.power

    @property
    def local(self) -> bool:
        """Whether it is a point of higher multiplicity, infinity included."""
        return len(self.base) < 3

    @property
    def modulus(self) -> Modulus | None:
        """The factors of its product, where it names them."""
        if not self.products or self.products in PRODUCTS:
            return None
        return tuple(map(as_factor, split(self.products, ":")))

    @property
    def states(self) -> int:
        """Products of its algorithm."""
        d, modulus = self.degree, self.modulus
        if modulus is not None:
            return sum(map(states_of, modulus))
        if self.products == "direct":
            return d * (d + 1) // 2 if self.local else d * d
        return karatsuba_states(d, d) if self.products else 2 * d - 1

    def __str__(self) -> str:
        base = shown(self.base)
        if self.power > 1:
            base = f"{base}^{self.power}" if base in ("x", "inf") else f"({base})^{self.power}"
        return base + (f"[{self.products}]{self.inverse}" if self.products else "")


Modulus = tuple[Point | Factor, ...]


def degree_of(factor: Point | Factor) -> int:
    """The degree of a factor: 1 of a point."""
    return factor.degree if isinstance(factor, Factor) else 1


def states_of(factor: Point | Factor) -> int:
    """The products of a factor's residue ring: 1 of a point."""
    return factor.states if isinstance(factor, Factor) else 1


def base_of(factor: Point | Factor) -> Polynomial:
    """What two factors of a modulus must not share: the irreducible polynomial."""
    if isinstance(factor, Factor):
        return factor.base
    return () if factor == INFINITY else (-Fraction(factor), Fraction(1))


@lru_cache(maxsize=256)
def karatsuba_states(n: int, r: int) -> int:
    """Products of polynomials of n and r terms by halves (winolab.ref.algebra.bilinear)."""
    if min(n, r) == 1:
        return n * r
    if n == r == 3:
        return 6
    half = -(-max(n, r) // 2)
    if min(n, r) <= half:
        short = min(n, r)
        return karatsuba_states(half, short) + karatsuba_states(max(n, r) - half, short)
    return 2 * karatsuba_states(half, half) + karatsuba_states(n - half, r - half)


@lru_cache(maxsize=256)
def symbolic_fourier(length: int, inputs: int) -> Modulus:
    """The modulus of a cyclic convolution of that length, which its corrections make linear.

    x^N − 1 is a product of cyclotomic polynomials, whose rings have no other constants than small
    integers; products that wrap around are corrected by zeros at 0 and at infinity, a product each
    and those of higher powers directly (after symbolic Fourier convolution, He et al. 2407.02913).
    """
    found: list[Point | Factor] = []
    for d in range(1, length + 1):
        if length % d == 0:
            base = cyclotomic(d)
            products = "karatsuba" if len(base) > 3 else ""
            found.append(_checked(base, 1, products, ""))
    low = (inputs - length) // 2
    zero = (Fraction(0), Fraction(1))
    for base, power in ((zero, low), ((), inputs - length - low)):
        if power > 0:
            found.append(_checked(base, power, "direct" if power > 2 else "", ""))
    return tuple(found)


def as_factor(value: Any) -> Point | Factor:
    """The factor that a value is: an exact number, infinity, a text such as "x^2+1", or a Factor.

    A complex point "1+i" is the polynomial of it and its conjugate. Raises ValueError for texts
    that are none and polynomials that are reducible, TypeError for numbers that are not exact.
    """
    if isinstance(value, Factor):
        return _checked(value.base, value.power, value.products, value.inverse)
    if isinstance(value, str):
        return _of_text(value.strip())
    point = exact(value)
    if point is not None:
        return _bounded(point)
    if _is_infinity(value):
        return INFINITY
    raise TypeError(
        f"point {value!r} is not an exact number; give an int, a Fraction, "
        'a text such as "-1/2", or infinity'
    )


def exact(value: Any) -> Fraction | None:
    """The rational number that ``value`` is, in Python's own integers; None where it is none.

    NumPy's integers are Rational, and a Fraction made of them holds them: they wrap.
    """
    if type(value) is Fraction and type(value.numerator) is int is type(value.denominator):
        return value
    if not isinstance(value, Rational):
        return None
    return Fraction(int(value.numerator), int(value.denominator))


def show(factor: Point | Factor) -> str:
    """The text of a factor."""
    return "inf" if factor == INFINITY else str(factor)


def split(text: str, separator: str) -> list[str]:
    """The parts of a list, whose brackets may hold lists."""
    parts, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter == "[") - (letter == "]")
        if letter == separator and not depth:
            parts.append(text[start:at])
            start = at + 1
    return [*parts, text[start:]]


def shortened(text: str) -> str:
    """A text for a message of one line."""
    return text if len(text) <= 80 else text[:80] + "…"


def is_factor(text: str) -> bool:
    """Whether a text that is no name is meant to be a factor."""
    return text.startswith(_INFINITE) or text[:1].isdigit() or text[:1] in tuple("-−+.(xi")


def _is_infinity(value: Any) -> bool:
    """Whether it is any library's infinity; arrays, which compare by element, are no points."""
    try:
        return bool(value == INFINITY)
    except (TypeError, ValueError):
        return False


def _of_text(text: str) -> Point | Factor:
    text = text.replace("−", "-")  # as papers print it
    if text in _INFINITE:
        return INFINITY
    if len(text) > 60 * MOST_DEGREE:  # before a pattern looks at all of it
        if not re.search(r"[xi(\[]", text[:80]):
            raise _too_long()
        raise ValueError(f"factor {shortened(text)!r} is too long; expected one such as x^2+1")
    if (made := _FACTOR.fullmatch(text)) and re.search(r"[x(i\[]|inf|oo|∞", text):
        return _polynomial(text, made)
    if len(text) > 2 * DIGITS + 8:
        raise _too_long()
    exponent = _EXPONENT.search(text)
    if exponent and int(exponent[1]) > 2 * DIGITS:
        raise _too_long()
    try:
        return _bounded(Fraction(text))
    except (ValueError, ZeroDivisionError):
        hint = "; infinity is written inf" if text.lower().lstrip("+") in _INFINITE else ""
        raise ValueError(
            f'point {shortened(text)!r} is not a rational number such as "-1/2"{hint}'
        ) from None


def _polynomial(text: str, made: re.Match[str]) -> Point | Factor:
    body = re.sub(r"\s", "", made["body"]).replace("**", "^")
    power, infinite = 1, body in _INFINITE
    if (whole := _POWER.fullmatch(body)) and (whole["base"] or whole["inf"] in _INFINITE):
        infinite = whole["inf"] is not None or whole["base"] in _INFINITE
        body, power = whole["base"] or whole["inf"], int(whole["power"] or whole["times"] or 1)
    products = re.sub(r"\s", "", made["products"] or "")
    if made["products"] is not None and not products:
        raise ValueError(f"factor {shortened(text)!r} names no products; leave out the brackets")
    base = () if infinite else _coefficients(body, text)
    if len(base) > 2 and not any(base[:-1]):
        base, power = (Fraction(0), Fraction(1)), power * (len(base) - 1)
    return _checked(base, power, products, made["inverse"] or "")


def _coefficients(body: str, text: str) -> Polynomial:
    """The monic polynomial that a text states, or that a complex point has."""
    wrong = ValueError(
        f"factor {shortened(text)!r} is no polynomial over the rationals; expected a text such as "
        "x^2+1, (x-1/2)^2 or x^2-1/2*x+1"
    )
    try:
        if (point := _COMPLEX.fullmatch(body)) is not None:
            real, sign, size = point.groups()
            a, b = Fraction(real or 0), Fraction(size or 1) * (-1 if sign == "-" else 1)
            return tuple(map(_bounded, (a * a + b * b, -2 * a, Fraction(1))))
        body = body if body[:1] in ("+", "-") else f"+{body}"
        terms, found = list(_TERM.finditer(body)), {}
        if "".join(t[0] for t in terms) != body or not terms:
            raise wrong
        for sign, size, x, power in (t.groups() for t in terms):
            if not (x or size):
                raise wrong
            k = int(power or 1) if x else 0
            if k > MOST_DEGREE:
                raise ValueError(
                    f"factor {shortened(text)!r} has degree {k}; expected at most {MOST_DEGREE}"
                )
            found[k] = found.get(k, Fraction(0)) + Fraction(f"{sign}{size or 1}")
    except ZeroDivisionError:
        raise wrong from None
    except ValueError as error:
        raise (error if "factor" in str(error) or "digits" in str(error) else wrong) from None
    degree = max((k for k, c in found.items() if c), default=0)
    if not degree:
        raise ValueError(f"factor {shortened(text)!r} is a constant; a point p stands for x - p")
    return tuple(_bounded(found.get(k, Fraction(0)) / found[degree]) for k in range(degree + 1))


def _checked(base: Polynomial, power: int, products: str, inverse: str) -> Point | Factor:
    factor = Factor(base, power, products, inverse)
    name = str(Factor(base, power))
    if power < 1:
        raise ValueError(f"factor {name} has power {power}; expected at least 1")
    if parts := reducible(base):
        times = {p: parts.count(p) * power for p in parts}
        listed = ",".join(p if n == 1 else f"({p})^{n}" for p, n in times.items())
        raise ValueError(f"factor {name} is reducible; give what it is made of: {listed}")
    d = factor.degree
    if d == 1:
        if products:
            raise ValueError(f"factor {name} is a point, of one product; leave out the brackets")
        return -base[0] if len(base) else INFINITY
    if products and products not in PRODUCTS:
        modulus = factor.modulus or ()
        distinct(modulus)
        if (had := sum(map(degree_of, modulus))) != 2 * d - 1:
            raise ValueError(
                f"{name}[{shortened(products)}] multiplies {plural(d, 'term')} by {d} modulo "
                f"degree {had}; expected points and factors of degree {2 * d - 1}, or "
                f"{' or '.join(PRODUCTS)}"
            )
        products = ":".join(map(show, modulus))
    return Factor(base, power, products, inverse)


def distinct(factors: Modulus) -> None:
    """Raise ValueError where two factors share their polynomial."""
    seen: set[Polynomial] = set()
    for f in factors:
        if (base := base_of(f)) in seen:
            if not isinstance(f, Factor):
                raise ValueError(
                    f"point {show(f)} is repeated; interpolation points must be distinct"
                )
            name = shown(base)
            raise ValueError(f"factor {name} is repeated; give its power once, such as ({name})^2")
        seen.add(base)


def _bounded(point: Fraction) -> Fraction:
    if max(abs(point.numerator), point.denominator) >= 10**DIGITS:
        raise _too_long()
    return point


def _too_long() -> ValueError:
    return ValueError(
        f"a point has more than {DIGITS} digits; expected at most {DIGITS} in its numerator and in "
        "its denominator"
    )
