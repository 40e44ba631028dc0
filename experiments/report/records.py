"""docs/records.md: the record table, others' sets beside ours, and what was not compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np

from winolab.points import text_of
from winolab.ref.algebra.points import named_points, published
from winolab.ref.records.protocols import PRECISIONS, PROTOCOLS
from winolab.ref.records.table import Record, every, factors

TITLE = "# Records"
WHAT = (
    "The best algorithms known for F(n, r), in one dimension; nested ones multiply their gains. "
    "`winolab.records(n, r)` and `winolab records N R` look them up; the modulus goes wherever "
    "points are named, `gamma:9:6:3@0,3/4,…,x^2+1`. Every one is proved when it is built, and a "
    "test multiplies long integers by it, apart from that proof. Generated from "
    "`winolab/ref/algebra/data/records.json` by `python -m experiments.report.documents`; "
    "`python -m experiments.calibrate.records` searches what has no rows yet."
)
SEARCH = (
    "The search minimises the noise gain over real points and over factors x² + c and x² ± b x + c "
    "by BFGS from three starts (seed 0), goes to fractions of few bits nearby, and simulates the "
    "three of the least gain beside named and published sets, five seeds. A line with more states "
    "stands where it leaves at most nine tenths of the gain. Sets found by hand before stand with "
    "them, such as F(11,3)'s, and F(14,3)'s, which was chosen among sets of few bits by its "
    "simulated error: there FP32's rounding of constants tells. States beyond n + r − 1 are after "
    "Barabasz & Gregg (1905.05233)."
)
DEFAULT = (
    '`points="best"` takes the lines marked ★; for tiles that CUDA kernels have unasked, and where '
    "nothing is better, it keeps the set by states (`best_points.json`). One set serves every "
    "format: wherever 16 bits keep relative errors below a twentieth, it errs at most a fifth more "
    "than the best set known in that format, which `winolab.records(n, r, precision)` names."
)
CONDITION = (
    "The condition number misleads: NOVA's points have the smallest of the Vandermonde matrix, and "
    "lose more than ours. Scaling rows changes it and no error; the noise gain stays. FP16: "
    "relative RMS, U[-1,1), 64 channels."
)


def page() -> str:
    """docs/records.md."""
    lines = [TITLE, "", WHAT, "", SEARCH, "", DEFAULT, "", "## Protocols", ""]
    lines += [f"- `{p.name}`: {p.what}." for p in PROTOCOLS.values()]
    lines += ["", "## Published sets beside ours, r = 3", "", *_published()]
    lines += ["", "## Condition number and noise gain", "", CONDITION, "", *_conditions()]
    for r in sorted({c.r for c in every()}):
        lines += ["", f"## r = {r}", "", *_table([c for c in every() if c.r == r])]
    return "".join(f"{line}\n" for line in lines)


def _table(found: Sequence[Record]) -> Iterator[str]:
    shown = list(dict.fromkeys(name for c in found for name in c.errors))
    yield from _head("n", "states", "saving", "modulus", "gain", "of optimum", "additions",
                     "multiplications, FMAs", *shown, "best in", "found by")  # fmt: skip
    for c in found:
        errors = (_error(c, name) for name in shown)
        yield _line(
            f"{c.n}{' ★' if c.default else ''}", c.states, f"{c.saving:.2f}", f"`{c.points}`",
            f"{c.gain:,.4g}", f"{c.gain / c.optimum:.2f}" if c.optimum else "", c.additions,
            c.multiplications + c.fmas, *errors, ", ".join(c.best), c.found,
        )  # fmt: skip


def _published() -> Iterator[str]:
    yield 'Ours is what `points="best"` takes; errors as the columns say, ours / theirs.'
    yield ""
    columns = ["1803.10986 fp32", *(f"u11 {p}" for p in PRECISIONS)]
    yield from _head("n", "set", *columns, "published")
    for sets in published()["sets"]:
        for n, points in sets["points"].items():
            ours = _known(int(n), text_of(named_points("best", int(n) + 2, 3)))
            theirs = _known(int(n), points)
            both = (f"{_error(ours, name)} / {_error(theirs, name)}" for name in columns)
            reported = sets.get("reported", {}).get(n)
            yield _line(n, sets["authors"], *both, f"{reported:.2e}" if reported else "")
    yield ""
    yield "Quoted from:"
    yield ""
    yield from (f"- {s['authors']} ({s['source']}): {s['quoted']}." for s in published()["sets"])
    yield ""
    yield "Not compared:"
    yield ""
    yield from (f"- {name}: {why}." for name, why in published()["not_compared"].items())


def _conditions() -> Iterator[str]:
    yield from _head("F(n, r)", "set", "condition number", "gain", "FP16")
    for sets in published()["sets"]:
        for n, points in sets["points"].items() if "NOVA" in sets["authors"] else ():
            integers = text_of(named_points("wincnn", int(n) + 2))
            usual = text_of(named_points("best", int(n) + 2, 3))
            for name, text in (("NOVA", points), ("wincnn's", integers), ("best", usual)):
                c = _known(int(n), text)
                numbers = f"{condition(text):,.3g}", f"{c.gain:,.4g}", _error(c, "u11 fp16")
                yield _line(f"F({n},3)", f"{name}: `{text}`", *numbers)


def condition(points: str) -> float:
    """Vandermonde's square matrix has this in the spectral norm; infinity has its unit row."""
    texts = points.split(",")
    unit, powers = np.eye(len(texts))[-1], np.arange(len(texts))
    rows = [unit if p == "inf" else float(Fraction(p)) ** powers for p in texts]
    return float(np.linalg.cond(np.array(rows)))


def _known(n: int, points: str) -> Record:
    wanted = factors(points)
    mine = (c for c in every() if (c.n, c.r) == (n, 3))
    return next(c for c in mine if factors(c.points) == wanted)


def _error(c: Record, name: str) -> str:
    value = c.errors.get(name)
    return "overflows" if value is None else f"{value:.2e}"


def _head(*titles: str) -> Iterator[str]:
    yield _line(*titles)
    yield _line(*["---"] * len(titles))


def _line(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"
