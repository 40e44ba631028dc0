"""Search for algorithms with quadratic factors: the noise gain's optimum, then cheap rationals.

A structure says how many factors of each kind a modulus has; gradient descent (BFGS) finds the real
numbers of the least noise gain, and a descent over fractions of few bits what is near them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from scipy.optimize import minimize

from winolab.ref.algebra.points import INFINITY, Point, show

Pool = Sequence[Fraction]
STARTS = 3
# Numbers that a descent draws from; those that are dyadic are exact in binary floating point.
DENOMINATORS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16)
CHEAP = sorted({Fraction(a, b) for b in DENOMINATORS for a in range(1, 6 * b + 1) if a < 34})
DYADIC = [q for q in CHEAP if q.denominator & (q.denominator - 1) == 0]
NEAREST = 7  # of them that are tried for each number
WITHIN, NEAR = 1.02, 1.03  # times the least rational gain, the optimum: fewer bits may cost that
MIDDLE = float(np.log(np.pi / 2 / (np.pi / 3) - 1))  # of an angle's logit: x² ± x + 1


@dataclass(frozen=True)
class Structure:
    """Factors of a modulus: 0, pairs ±p, a lone point, x² + c, pairs x² ± b x + c; infinity always.

    >>> Structure(zero=1, pairs=2, even=1).states
    9
    """

    zero: int = 0
    pairs: int = 0
    lone: int = 0
    even: int = 0
    twins: int = 0

    @property
    def degree(self) -> int:
        return 1 + self.zero + 2 * self.pairs + self.lone + 2 * self.even + 4 * self.twins

    @property
    def states(self) -> int:
        return self.degree + self.even + 2 * self.twins


@dataclass(frozen=True)
class Found:
    """A modulus of rationals: its text, its gain, and the gain of the structure's optimum."""

    points: str
    gain: float
    optimum: float


def structures(n: int, r: int, states: int) -> Iterator[Structure]:
    """Those that F(n, r) has with so many states; at most one factor x² + c."""
    more = states - (n + r - 1)
    rest = n + r - 2 - 2 * more
    if more < 0 or rest < 0:
        return
    for zero in (0, 1):
        for lone in (0, 1):
            if (rest - zero - lone) % 2 == 0 and rest >= zero + lone:
                yield Structure(zero, (rest - zero - lone) // 2, lone, more % 2, more // 2)


def optimum(n: int, r: int, structure: Structure, seed: int = 0) -> tuple[float, np.ndarray]:
    """The least noise gain of real factors that BFGS finds from some starts, and their numbers."""
    rng = np.random.default_rng(seed)
    s = structure

    def objective(at: np.ndarray) -> float:
        with np.errstate(all="ignore"):
            found = np.log(gain(n, r, *_factors(s, at)))
        return float(found) if np.isfinite(found) else 1e6

    best = (np.inf, _start(s, rng))
    for _ in range(STARTS if s.pairs + s.lone + s.even + s.twins else 1):
        at = _start(s, rng)
        found = minimize(objective, at, method="BFGS", options={"gtol": 1e-4}) if len(at) else None
        least = float(found.fun) if found else objective(at)
        if least < best[0]:
            best = (least, found.x if found else at)
    return float(np.exp(best[0])), best[1]


def search(
    n: int, r: int, structure: Structure, seed: int = 0, pools: Sequence[Pool] = (CHEAP, DYADIC)
) -> list[Found]:
    """The optimum's nearest rationals of each pool; of nearly the least gain those of fewest bits.

    A pool that has no distinct factors near the optimum has none in the list.

    >>> found, dyadic = search(4, 3, Structure(zero=1, pairs=2))
    >>> found.gain <= 1.03 * found.optimum, dyadic.points
    (True, '0,5/8,-5/8,3/2,-3/2,inf')
    """
    least, at = optimum(n, r, structure, seed)
    found = (_rational(n, r, structure, least, _numbers(structure, at), pool) for pool in pools)
    return [made for made in found if made]


def _rational(
    n: int, r: int, structure: Structure, least: float, reals: np.ndarray, pool: Pool
) -> Found | None:
    logs = np.log([float(q) for q in pool])
    near = [[pool[i] for i in np.argsort(abs(logs - np.log(v)))[:NEAREST]] for v in reals]
    chosen = tuple(some[0] for some in near)
    seen: dict[tuple[Fraction, ...], float] = {}

    def tried(numbers: tuple[Fraction, ...]) -> float:
        if numbers not in seen:
            seen[numbers] = _rational_gain(n, r, structure, numbers)
        return seen[numbers]

    def moves() -> Iterator[tuple[Fraction, ...]]:
        for i, some in enumerate(near):
            yield from ((*chosen[:i], q, *chosen[i + 1 :]) for q in some)

    while tried(best := min(moves(), key=tried, default=chosen)) < tried(chosen):
        chosen = best
    limit = max(WITHIN * tried(chosen), NEAR * least)
    if not np.isfinite(limit):
        return None
    while cheaper := [m for m in moves() if tried(m) <= limit and _bits(m) < _bits(chosen)]:
        chosen = min(cheaper, key=lambda m: (_bits(m), tried(m)))
    return Found(_text(structure, chosen), float(tried(chosen)), least)


def gain(n: int, r: int, points: np.ndarray, quadratics: np.ndarray) -> float:
    """The noise gain (winolab.ref.error.metrics) at real points, quadratics x² + b x + c (rows b,
    c) and infinity, each ring with the products that winolab.ref.algebra.bilinear chooses."""
    factors = [np.array([-p, 1.0]) for p in points] + [np.array([c, b, 1.0]) for b, c in quadratics]
    whole = np.ones(1)
    for factor in factors:
        whole = np.convolve(whole, factor)
    total = float((whole**2).sum())
    for i, factor in enumerate(factors):
        others = np.ones(1)
        for k, other in enumerate(factors):
            if k != i:
                others = np.convolve(others, other)
        if len(factor) == 2:
            p = -factor[0]
            value = np.polynomial.polynomial.polyval(p, others)
            powers = p ** (2 * np.arange(max(n, r)))
            total += powers[:n].sum() * powers[:r].sum() * (others**2).sum() / value**2
        else:
            total += _ring(n, r, factor, others)
    return total / (n * r)


def _ring(n: int, r: int, factor: np.ndarray, others: np.ndarray) -> float:
    """Σ ‖H‖² ‖G‖² ‖C‖² of a quadratic factor's three products."""
    c, b = factor[:2]
    step = np.array([[0.0, -c], [1.0, -b]])  # multiplies by x
    powers = [np.array([1.0, 0.0])]
    for _ in range(max(n, r, len(others), 3) - 1):
        powers.append(step @ powers[-1])
    table = np.array(powers).T
    value = table[:, : len(others)] @ others
    inverse = np.linalg.inv(np.column_stack([value, step @ value]))
    of_h, of_g = table[:, :n], inverse @ table[:, :r]
    scale = 2.0 ** round(np.log2(abs(c)) / 2)
    least = np.inf
    low, high, zero, infinite = (1, scale), (1, -scale), (1, 0), (0, 1)
    for chosen in ((zero, low, infinite), (zero, high, infinite), (low, high, infinite),
                   (low, high, zero)):  # fmt: skip
        at = np.array(chosen, float)
        squares = np.column_stack([at[:, 0] ** 2, at[:, 0] * at[:, 1], at[:, 1] ** 2])
        basis = table[:, :3] @ np.linalg.inv(squares)  # (2, 3): each state's result, reduced
        columns = [np.convolve(column, others) for column in basis.T]
        sizes = [(np.asarray(m) ** 2).sum(axis=1) for m in (at @ of_h, at @ of_g, columns)]
        least = min(least, float((sizes[0] * sizes[1] * sizes[2]).sum()))
    return least


def _start(s: Structure, rng: np.random.Generator) -> np.ndarray:
    """Magnitudes evenly on the logarithmic scale, disturbed; then logarithms of c, angles."""
    count = s.pairs + s.lone
    spread = np.linspace(-1, 1, count) * (0.5 + 0.1 * count) if count > 1 else np.zeros(count)
    logs = spread + rng.normal(0, 0.15, count)
    angles = MIDDLE + rng.normal(0, 0.3, s.twins) + np.linspace(-1, 1, s.twins) * (s.twins > 1)
    return np.concatenate([logs, rng.normal(0, 0.1, s.even + s.twins), angles])


def _numbers(s: Structure, at: np.ndarray) -> np.ndarray:
    """Magnitudes of points, c of x² + c, then c and b of each pair of quadratics."""
    count = s.pairs + s.lone + s.even
    c = np.exp(at[count : count + s.twins])
    angle = np.pi / 2 / (1 + np.exp(at[count + s.twins :]))
    return np.concatenate([np.exp(at[:count]), c, 2 * np.sqrt(c) * np.cos(angle)])


def _factors(s: Structure, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The points and the quadratics' b and c."""
    return _placed(s, _numbers(s, at))


def _placed(s: Structure, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    k = s.pairs + s.lone
    pairs, lone, even = numbers[: s.pairs], numbers[s.pairs : k], numbers[k : k + s.even]
    c, b = np.split(numbers[k + s.even :], 2)
    points = np.concatenate([np.zeros(s.zero), pairs, -pairs, lone])
    rows = [(0.0, v) for v in even]
    rows += [(sign * v, w) for v, w in zip(b, c, strict=True) for sign in (1, -1)]
    return points, np.array(rows).reshape(-1, 2)


def _rational_gain(n: int, r: int, s: Structure, numbers: tuple[Fraction, ...]) -> float:
    points, quadratics = _placed(s, np.array([float(q) for q in numbers]))
    distinct = len({*points.tolist()}) == len(points)
    distinct &= len({*map(tuple, quadratics.tolist())}) == len(quadratics)
    if not distinct or any(b * b >= 4 * c for b, c in quadratics):
        return np.inf
    return gain(n, r, points, quadratics)


def _text(s: Structure, numbers: tuple[Fraction, ...]) -> str:
    """The modulus as parse_points reads it."""
    k = s.pairs + s.lone
    points: list[Point] = [Fraction(0)] * s.zero
    for p in sorted(numbers[: s.pairs]):
        points += [p, -p]
    points += [*numbers[s.pairs : k], INFINITY]
    texts = list(map(show, points)) + [f"x^2+{c}" for c in numbers[k : k + s.even]]
    rest = numbers[k + s.even :]
    for c, b in zip(rest[: s.twins], rest[s.twins :], strict=True):
        times = "" if b == 1 else f"{b}*"
        texts += [f"x^2{sign}{times}x+{c}" for sign in "+-"]
    return ",".join(texts)


def _bits(numbers: tuple[Fraction, ...]) -> int:
    return sum(q.numerator.bit_length() + q.denominator.bit_length() for q in numbers)
