"""From an exact matrix to operations: pairs, shared terms, then chains of multiply-adds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import NamedTuple

Row = tuple[Fraction, ...]
Form = dict[int, Fraction]  # register -> coefficient
Output = tuple[int, int]  # sign, register


class Op(NamedTuple):
    """constant·a + sign·b, with one rounding; b is None for a product."""

    kind: str
    a: int
    b: int | None
    constant: Fraction = Fraction(1)

    @property
    def sign(self) -> int:
        return -1 if self.kind in ("sub", "fms") else 1


Schedule = tuple[tuple[Op, ...], tuple[Output, ...]]


@dataclass
class _Sum:
    """An output e·E + o·O of two forms (indices into the list of forms)."""

    even: int
    even_factor: Fraction
    odd: int
    odd_factor: Fraction


def schedules(rows: tuple[Row, ...]) -> list[Schedule]:
    """Schedules that compute ``rows``: column and row pairs, row pairs, and chains alone.

    Pairs and shared terms save operations nearly always; chains are there for where they do not.
    """
    found = []
    for pair_columns in (True, False):
        builder = _Builder(len(rows[0]))
        forms = _forms(rows)
        if pair_columns:
            forms = builder.columns(forms)
        forms, outputs = _pair_rows(forms)
        found.append(builder.finish(builder.share(forms), outputs))
    builder = _Builder(len(rows[0]))
    outputs = [i if any(row) else None for i, row in enumerate(rows)]
    found.append(builder.finish(_forms(rows), outputs))
    return found


def _forms(rows: tuple[Row, ...]) -> list[Form]:
    return [{j: v for j, v in enumerate(row) if v} for row in rows]


def _pairs(form: Form) -> list[tuple[int, int, int, int]]:
    """Two registers of the form, and their coefficients' ratio as integers, whose hash is fast."""
    ratios = ((i, j, form[j] / form[i]) for i, j in combinations(sorted(form), 2))
    return [(i, j, q.numerator, q.denominator) for i, j, q in ratios]


def rowwise(rows: tuple[Row, ...]) -> Schedule:
    """Each row by itself: one product, then a multiply-add per further term, in index order."""
    builder = _Builder(len(rows[0]))
    results = [builder.chain(sorted((v, c) for v, c in enumerate(row) if c)) for row in rows]
    return tuple(builder.ops), tuple(results)


class _Builder:
    def __init__(self, inputs: int) -> None:
        self.inputs = inputs
        self.ops: list[Op] = []
        self.known: dict[Op, int] = {}

    def op(self, kind: str, a: int, b: int | None, constant: Fraction = Fraction(1)) -> int:
        """The register of this operation, reusing one that exists."""
        op = Op(kind, a, b, constant)
        if op not in self.known:
            self.known[op] = self.inputs + len(self.ops)
            self.ops.append(op)
        return self.known[op]

    def columns(self, forms: list[Form]) -> list[Form]:
        """Replace pairs of inputs with equal |coefficients| in every row by sum and difference."""
        free = list(range(self.inputs))
        for p, q in combinations(range(self.inputs), 2):
            if p not in free or q not in free:
                continue
            uses = [(f.get(p, 0), f.get(q, 0)) for f in forms]
            both = [(u, v) for u, v in uses if u or v]
            if len(both) < 2 or any(abs(u) != abs(v) for u, v in both):
                continue
            free.remove(p)
            free.remove(q)
            plus, minus = self.op("add", p, q), self.op("sub", p, q)
            for form, (u, v) in zip(forms, uses, strict=True):
                if u:
                    del form[p], form[q]
                    form[plus if u == v else minus] = Fraction(u)
        return forms

    def finish(self, forms: list[Form], outputs: Sequence[int | _Sum | None]) -> Schedule:
        starts = Counter(
            (abs(c), v) for f in forms if not _has_unit(f) for v, c in f.items() if len(f) > 1
        )
        done = [self.emit(f, starts) if f else (0, 0) for f in forms]
        results: list[Output] = []
        for out in outputs:
            if isinstance(out, _Sum):
                results.append(self.combine(out, done))
            else:
                results.append((0, 0) if out is None else done[out])
        return tuple(self.ops), tuple(results)

    def share(self, forms: list[Form]) -> list[Form]:
        """Compute two-term sums that occur in several forms, up to scale, once."""
        pairs = [_pairs(form) for form in forms]
        while True:
            seen: Counter[tuple[int, ...]] = Counter()
            for of_form in pairs:
                seen.update(of_form)
            if not seen:
                return forms
            (i, j, *of_ratio), times = seen.most_common(1)[0]
            if times < 2:
                return forms
            ratio = Fraction(*of_ratio)
            if abs(ratio) == 1:
                register = self.op("add" if ratio > 0 else "sub", i, j)
            else:
                register = self.op("fma", j, i, ratio)
            for k, form in enumerate(forms):
                if i in form and j in form and form[j] == ratio * form[i]:
                    form[register] = form.pop(i)
                    del form[j]
                    pairs[k] = _pairs(form)

    def emit(self, form: Form, starts: Counter) -> Output:
        """A chain of multiply-adds; starts from a ±1 term, else from the most shared product."""
        terms = sorted(form.items())
        sign = 1
        units = [v for v, c in terms if c == 1]
        if not units and _has_unit(form):
            sign = -1
            terms = [(v, -c) for v, c in terms]
            units = [v for v, c in terms if c == 1]
        if units:
            first = (units[0], Fraction(1))
        else:
            first = max(terms, key=lambda term: starts[abs(term[1]), term[0]])
        rest = [term for term in terms if term[0] != first[0]]
        chained, total = self.chain([first, *rest])
        return sign * chained, total

    def chain(self, terms: list[tuple[int, Fraction]]) -> Output:
        """The sum of the terms in their order, up to the sign of the first."""
        if not terms:
            return 0, 0
        (total, lead), *rest = terms
        sign = 1 if lead > 0 else -1
        if abs(lead) != 1:
            total = self.op("mul", total, None, abs(lead))
        for v, c in rest:
            if abs(c) == 1:
                total = self.op("add" if sign * c > 0 else "sub", total, v)
            else:
                total = self.op("fma", v, total, sign * c)
        return sign, total

    def combine(self, out: _Sum, done: list[Output]) -> Output:
        """e·E + o·O, one of the factors being ±1."""
        (se, even), (so, odd) = done[out.even], done[out.odd]
        e, o = out.even_factor * se, out.odd_factor * so
        if abs(e) != 1:
            (e, even), (o, odd) = (o, odd), (e, even)
        if abs(o) != 1:
            return 1, self.op("fma" if e > 0 else "fms", odd, even, o)
        if e == o:
            return int(e), self.op("add", even, odd)
        return (1, self.op("sub", even, odd)) if e > 0 else (1, self.op("sub", odd, even))


def _pair_rows(rows: list[Form]) -> tuple[list[Form], list[int | _Sum | None]]:
    """Split rows that are equal and opposite, entry by entry, into their common E and O."""
    forms: list[Form] = []
    outputs: list[int | _Sum | None] = [None] * len(rows)
    partner: dict[int, int] = {}
    for p, q in combinations(range(len(rows)), 2):
        alike = {v: abs(c) for v, c in rows[p].items()} == {v: abs(c) for v, c in rows[q].items()}
        if (
            p not in partner
            and q not in partner
            and alike
            and 0 < len(_even(rows, p, q)) < len(rows[p])
        ):
            partner[p], partner[q] = q, p
    for p, row in enumerate(rows):
        if not row:
            continue
        if p not in partner:
            outputs[p] = len(forms)
            forms.append(row)
        elif p < partner[p]:
            q = partner[p]
            even = _even(rows, p, q)
            odd = {v: c for v, c in row.items() if v not in even}
            even, odd, e, o = _factored(even, odd)
            i = len(forms)
            forms += [even, odd]
            outputs[p], outputs[q] = _Sum(i, e, i + 1, o), _Sum(i, e, i + 1, -o)
    return forms, outputs


def _even(rows: list[Form], p: int, q: int) -> Form:
    return {v: c for v, c in rows[p].items() if rows[q].get(v) == c}


def _factored(even: Form, odd: Form) -> tuple[Form, Form, Fraction, Fraction]:
    """Take a factor out of one of the two, so that the final multiply-adds need no product."""
    one = Fraction(1)
    if _has_unit(odd) and not _has_unit(even):
        even, e = _normalised(even)
        return even, odd, e, one
    if _has_unit(odd):
        return even, odd, one, one
    odd, o = _normalised(odd)
    return even, odd, one, o


def _normalised(form: Form) -> tuple[Form, Fraction]:
    """The form over one of its coefficients, and that factor: the one that leaves simple constants.

    The halves of a row of BT are multiples of one even polynomial; over the right coefficient
    dyadic points keep dyadic constants, so that rows that sum to zero still do so in floating point
    (at α = 16, a factor that breaks this loses 2.5 times on U[1, 2]).
    """
    candidates = []
    for factor in dict.fromkeys(c for _, c in sorted(form.items())):
        scaled = {v: c / factor for v, c in form.items()}
        candidates.append((_size([*scaled.values(), factor]), factor, scaled))
    _, factor, scaled = min(candidates, key=lambda candidate: candidate[0])
    return scaled, factor


def _size(constants: list[Fraction]) -> tuple[int, int]:
    """How many constants binary floating point cannot hold, then the bits of all of them."""
    inexact = sum(not is_dyadic(q) for q in constants)
    return inexact, sum(q.numerator.bit_length() + q.denominator.bit_length() for q in constants)


def _has_unit(form: Form) -> bool:
    return any(abs(c) == 1 for c in form.values())


def is_dyadic(q: Fraction) -> bool:
    """Whether q is an integer over a power of two, as binary floating point holds."""
    return q.denominator & (q.denominator - 1) == 0
