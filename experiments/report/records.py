"""docs/records.md: the record table, others' sets beside ours, and what was not compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np

from experiments.harness.tables import stored
from winolab.algorithm import parse_algorithm
from winolab.arguments.matrices import is_line
from winolab.points import text_of
from winolab.ref.algebra.points import named_points, published
from winolab.ref.algebra.transforms import transforms
from winolab.ref.records.frontier import structures
from winolab.ref.records.protocols import PRECISIONS, PROTOCOLS
from winolab.ref.records.table import Record, every, factors
from winolab.tile import MAX_ALPHA

TITLE = "# Records"
WHAT = (
    "The best algorithms known for F(n, r), in one dimension; nested ones multiply their gains. "
    "`winolab.records(n, r)` and `winolab records N R` look them up; the modulus goes wherever "
    "points are named, `gamma:9:6:3@0,3/4,…,x^2+1`. Every one is proved when it is built, and a "
    "test multiplies long integers by it, apart from that proof. Generated from "
    "`winolab/ref/algebra/data/records.json` by `python -m experiments.report.documents`; "
    "`python -m experiments.calibrate.records` searches what has no rows yet, on Dask with "
    "`--dask`; an interrupted search goes on with the same command."
)
SEARCH = (
    "The search minimises the noise gain over real points and over factors x² + c and x² ± b x + c "
    "by BFGS from three starts (seed 0), goes to fractions of few bits nearby, and simulates the "
    "three of the least gain beside named and published sets, five seeds. A line with more states "
    "stands where it leaves at most nine tenths of the gain. Sets found by hand before stand with "
    "them, such as F(11,3)'s, F(14,3)'s and F(15,3)'s, which were chosen among sets of few bits by "
    "their simulated errors: there FP32's rounding of constants tells. States beyond n + r − 1 are "
    "after "
    "Barabasz & Gregg (1905.05233)."
)
DEFAULT = (
    '`points="best"` takes the lines marked ★; for tiles that CUDA kernels have unasked, but '
    "F(8,3), and where nothing is better, it keeps the set by states (`best_points.json`). It "
    "loses to no published set in a protocol or format, by the means over seeds and beyond their "
    "spread. One set serves "
    "every format, since an algorithm's text names none, and a kernel, its reference and its bound "
    "are to have the same constants: wherever a format's best set keeps relative errors below a "
    "twentieth, it errs at most a fifth more, but for F(9,8) in fp16, a kernel's, and F(14,3) in "
    "fp32_split (1.5e-3 and 4.6e-4), where all found that err less lose to a published set in "
    "bf16. `winolab.records(n, r, precision)` names a format's best and "
    '`points="best:fp16"` takes it. Formats: fp32, fp16, bf16, fp32_split, int8:state (a scale a '
    "state of both operands)."
)
LARGER = (
    "Filters of 10 to 31 taps are searched by the same command, `python -m "
    "experiments.calibrate.records --r 10 --r 11 …`, in processes (--workers) or on Dask: those "
    "that have rows took 6 s of a core each."
)
PLANE = (
    "What no other record beats in saving and in noise gain, nested with itself: multiplications "
    "saved, gain, and relative RMS of zero-mean data over 64 channels by format, two seeds (BF16's "
    "are FP16's times eight). Instructions are those of the transforms of x and of y, of a channel "
    "and an output, counted as the programs do. SFC's "
    "abstract (2407.02913) states 3.68 for 3×3 at errors like F(2×2,3×3)'s."
)
ACCURACIES = (
    "Those of whole networks, which are not run here, with the conditions that their sources "
    "state. Errors of INT8 and FP8 operands by scales, data and algorithm: `winolab reproduce "
    "moduli`."
)
TIES = (
    "Ties: Lavin's F(4,3) of neon errs 1 to 3 % less than ours in fp32, fp16 and bf16 by five "
    "seeds, whose means spread by 3 %; over 160 seeds its error over ours is 1.010 in fp32, 0.992 "
    "in fp16 and 0.998 in bf16, ± 0.006, and 1.07 in fp32_split. "
    "SFC-6(7×7,3×3), which adds where others multiply, errs as ours in fp32, fp32_split and "
    "int8:state within 2 %, and more in fp16 and bf16, by a tenth; on one channel in two "
    "dimensions it errs 1 % less than its transposed form, our `sfc:6`."
)
# The grid: filter widths, outputs of a tile, states beyond n + r − 1.
WIDTHS, OUTPUTS, MORE = range(2, 10), range(2, 17), 8
CONDITION = (
    "The condition number misleads: NOVA's points have the smallest of the Vandermonde matrix, and "
    "lose more than ours. Scaling rows changes it and no error; the noise gain stays. FP16: "
    "relative RMS, U[-1,1), 64 channels."
)


def page() -> str:
    """docs/records.md."""
    lines = [TITLE, "", WHAT, "", SEARCH, "", DEFAULT, "", "## Protocols", ""]
    lines += [f"- `{p.name}`: {p.what}." for p in PROTOCOLS.values()]
    lines += ["", "## What was searched", "", *_coverage()]
    lines += ["", "## Published sets beside ours, r = 3", "", *_published()]
    lines += ["", "## Two dimensions", "", *_plane()]
    lines += ["", "## Published accuracies", "", ACCURACIES, ""]
    lines += [f"- {name}: {what}." for name, what in published()["accuracies"].items()]
    lines += ["", "## Condition number and noise gain", "", CONDITION, "", *_conditions()]
    for r in sorted({c.r for c in every()}):
        lines += ["", f"## r = {r}", "", *_table([c for c in every() if c.r == r])]
    return "".join(f"{line}\n" for line in lines)


def _table(found: Sequence[Record]) -> Iterator[str]:
    shown = list(dict.fromkeys(name for c in found for name in c.errors))
    yield from _head("n", "states", "saving", "modulus", "gain", "of optimum", "additions",
                     "multiplications, FMAs", *shown, "best in", "found by")  # fmt: skip
    for c in found:
        errors = (_error(c, name=name) for name in shown)
        yield _line(
            f"{c.n}{' ★' if c.default else ''}", c.states, f"{c.saving:.2f}", _modulus(c),
            f"{c.gain:,.4g}", f"{c.gain / c.optimum:.2f}" if c.optimum else "", c.additions,
            c.multiplications + c.fmas, *errors, ", ".join(c.best), c.found,
        )  # fmt: skip


def _modulus(c: Record) -> str:
    return "matrices, in the table's file" if is_line(c.points) else f"`{c.points}`"


def _published() -> Iterator[str]:
    yield (
        'Ours is what `points="best"` takes; of sets with more states than n + r − 1 the least '
        "that a record of ours has in at most as many. Errors as the columns say, ours / theirs."
    )
    yield ""
    columns = ["1803.10986 fp32", "2201.10369 fp32", "u12 fp32", *(f"u11 {p}" for p in PRECISIONS)]
    yield from _head("n", "states", "set", *columns, "published")
    for sets in published()["sets"]:
        for n, points in sets["points"].items():
            theirs = _known(int(n), points)
            ours = beside(theirs)
            both = (
                f"{_error(*ours, name=name)} / {_error(theirs, name=name)}"
                if name in theirs.errors else ""
                for name in columns
            )  # fmt: skip
            reported = sets.get("reported", {}).get(n)
            yield _line(n, theirs.states, sets["authors"], *both,
                        f"{reported:.2e}" if reported else "")  # fmt: skip
    yield ""
    yield TIES
    yield ""
    yield "Quoted from:"
    yield ""
    yield from (f"- {s['authors']} ({s['source']}): {s['quoted']}." for s in published()["sets"])
    yield ""
    yield "Not compared:"
    yield ""
    yield from (f"- {name}: {why}." for name, why in published()["not_compared"].items())


def _coverage() -> Iterator[str]:
    """How many places of the grid have rows."""
    grid = [(n, r, n + r - 1 + more) for r in WIDTHS for n in OUTPUTS for more in range(MORE + 1)]
    possible = {place for place in grid if next(structures(*place), None)}
    places = {(row["n"], row["r"], row["states"]) for row in stored("records")}
    done = places & possible
    yield (
        f"F(n, r) with r from {WIDTHS[0]} to {WIDTHS[-1]}, n from {OUTPUTS[0]} to {OUTPUTS[-1]} "
        f"and up to n + r + {MORE - 1} states: {len(possible)} places have a modulus of points and "
        f"quadratic factors (n = 1 is direct), and {len(done)} of them, "
        f"{len(done) / len(possible):.0%}, are searched."
    )
    yield ""
    yield from _head("states", *(f"n + r − 1 + {more}" for more in range(MORE + 1)))
    for r in WIDTHS:
        cells = []
        for more in range(MORE + 1):
            mine = {p for p in possible if p[1] == r and p[2] - p[0] - r + 1 == more}
            cells.append(f"{len(mine & done)} of {len(mine)}")
        yield _line(f"r = {r}", *cells)
    yield ""
    yield f"{LARGER} {_beyond(places)}"


def _beyond(places: set[tuple[int, int, int]]) -> str:
    """What was searched of wider filters."""
    grid = [
        (n, r, n + r - 1 + more)
        for r in range(WIDTHS[-1] + 1, MAX_ALPHA)
        for n in range(OUTPUTS[0], min(OUTPUTS[-1], MAX_ALPHA - r + 1) + 1)
        for more in range(MORE + 1)
    ]
    possible = {place for place in grid if next(structures(*place), None)}
    done = sorted(places & possible)
    ends = [
        f"{min(of)} to {max(of)}"
        for of in ([r for _, r, _ in done], [n for n, _, _ in done])
        if done
    ]
    most = max((a - n - r for n, r, a in done), default=0)
    some = f", r = {ends[0]} with n = {ends[1]} and up to n + r + {most} states" if done else ""
    return f"That is {len(done)} of {len(possible):,} places{some}."


def _plane() -> Iterator[str]:
    """The frontier nested with itself."""
    rows = [row for row in stored("moduli") if row["table"] == "plane"]
    known = {(row["where"], row["column"]): float(np.mean(row["ours"])) for row in rows}
    columns = list(dict.fromkeys(row["column"] for row in rows))
    yield PLANE
    yield ""
    yield from _head("algorithm", "modulus of both", *columns, "instructions")
    for where, algorithm in dict.fromkeys((row["where"], row["algorithm"]) for row in rows):
        found = [known[where, c] for c in columns]
        numbers = (f"{v:.2f}" if c == "saving" else f"{v:.3g}" if c == "gain" else f"{v:.2e}"
                   for c, v in zip(columns, found, strict=True))  # fmt: skip
        both = " + ".join(f"{v:.0f}" for v in instructions(algorithm))
        yield _line(where, f"`{algorithm.partition('@')[2]}`", *numbers, both)


def instructions(algorithm: str) -> tuple[float, float]:
    """What transforms of x and of y take where an algorithm is nested with itself, a channel and
    an output: along one dimension for every input or state of the other, then along that.

    >>> instructions("winograd:2x2:3x3@0,1,-1,inf")
    (8.0, 6.0)
    """
    parsed = parse_algorithm(algorithm)
    tile = parsed.tiles[0]
    programs = transforms(tile.n, tile.r, parsed.points).programs
    x = programs.BT.counts.instructions * (tile.inputs + tile.alpha)
    y = programs.AT.counts.instructions * (tile.alpha + tile.n)
    return x / tile.n**2, y / tile.n**2


def _conditions() -> Iterator[str]:
    yield from _head("F(n, r)", "set", "condition number", "gain", "FP16")
    for sets in published()["sets"]:
        for n, points in sets["points"].items() if "NOVA" in sets["authors"] else ():
            integers = text_of(named_points("wincnn", int(n) + 2))
            usual = text_of(named_points("best", int(n) + 2, 3))
            for name, text in (("NOVA", points), ("wincnn's", integers), ("best", usual)):
                c = _known(int(n), text)
                numbers = f"{condition(text):,.3g}", f"{c.gain:,.4g}", _error(c, name="u11 fp16")
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


def beside(theirs: Record) -> list[Record]:
    """Records of ours that one of others is compared with."""
    n, r = theirs.n, theirs.r
    if theirs.states == n + r - 1:
        return [_known(n, text_of(named_points("best", theirs.states, r)))]
    mine = [c for c in every() if (c.n, c.r) == (n, r) and c.found.startswith("winolab")]
    return [c for c in mine if c.states <= theirs.states]


def _error(*some: Record, name: str) -> str:
    """The least of their errors."""
    known = [value for c in some if (value := c.errors.get(name)) is not None]
    return f"{min(known):.2e}" if known else "overflows"


def _head(*titles: str) -> Iterator[str]:
    yield _line(*titles)
    yield _line(*["---"] * len(titles))


def _line(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"
