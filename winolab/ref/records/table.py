"""The record table: for each F(n, r) and format the best algorithms known.

data/records.json has them, written by experiments/calibrate/records.py; data/published.json has the
sets of others, and where they are quoted from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any

from winolab.arguments.factors import split
from winolab.arguments.values import whole
from winolab.arguments.words import plural
from winolab.kind import ShowsText
from winolab.points import text_of, tile_of
from winolab.ref.algebra.points import record_table
from winolab.ref.algebra.transforms import Transforms, transforms
from winolab.ref.error.metrics import noise_gain
from winolab.ref.records.protocols import PRECISIONS


@dataclass(frozen=True)
class Record(ShowsText):
    """An algorithm F(n, r): its modulus, who found it, what it costs and what it loses.

    ``optimum`` is the least noise gain that a search over real numbers found with as many states.
    ``additions``, ``multiplications`` (shifts included) and ``fmas`` are of the three transforms
    together. ``errors`` are means over five seeds by protocol and format
    (winolab.ref.records.protocols): "u11 fp32" is the relative RMS of zero-mean data over 64
    channels; None where the format overflows. ``best`` names the formats in which no known
    algorithm of as many states loses less, by more than the spread over seeds; ``default`` says
    that points="best" takes it for F(n, r), in place of the set by states.
    """

    n: int
    r: int
    points: str
    found: str
    states: int
    gain: float
    additions: int
    multiplications: int
    fmas: int
    optimum: float | None = None
    best: tuple[str, ...] = ()
    default: bool = False
    errors: Mapping[str, float | None] = field(default_factory=dict, hash=False)

    @classmethod
    def of(cls, n: int, r: int, points: str, found: str, **known: Any) -> Record:
        """A record of these points; gain and counts from the matrices, which are proved."""
        made = transforms(n, r, points)
        states = tile_of(n, r, points).alpha
        counts = [p.counts for p in (made.programs.AT, made.programs.G, made.programs.BT)]
        return cls(
            n, r, points, found, states, noise_gain(f"gamma:{states}:{n}:{r}@{points}"),
            sum(c.additions for c in counts),
            sum(c.multiplications + c.shifts for c in counts),
            sum(c.fmas for c in counts),
            **known,
        )  # fmt: skip

    @property
    def saving(self) -> float:
        """Multiplications of direct sums over the algorithm's, in one dimension."""
        return self.n * self.r / self.states

    @property
    def instructions(self) -> int:
        """Floating-point instructions of the three transforms."""
        return self.additions + self.multiplications + self.fmas

    def transforms(self) -> Transforms:
        """AT, G and BT: building them proves that they convolve."""
        return transforms(self.n, self.r, self.points)

    def to_dict(self) -> dict[str, Any]:
        """The record as JSON has it."""
        return {**asdict(self), "saving": self.saving, "instructions": self.instructions}

    def __str__(self) -> str:
        return (
            f"F({self.n},{self.r}) in {plural(self.states, 'state')}, saving {self.saving:.2f}, "
            f"gain {self.gain:.4g}: {self.points} ({self.found})"
        )


def factors(points: Any) -> frozenset[str]:
    """What sets share that are the same but for their order.

    >>> factors("0,1,-1,inf") == factors("-1,inf,2/2,0")
    True
    """
    return frozenset(split(text_of(points), ","))


@cache
def every() -> tuple[Record, ...]:
    """The whole table, by r, n and states; published sets with it."""
    return tuple(Record(**{**row, "best": tuple(row["best"])}) for row in record_table())


def records(
    n: int | None = None, r: int | None = None, precision: str | None = "fp32"
) -> tuple[Record, ...]:
    """The best algorithms known for F(n, r) in a format, by their states; by default all there are.

    ``precision`` is "fp32", "fp16", "bf16", "fp32_split" or "int8:state" (a scale a state of both
    operands); None has what lost, too, if others published it.
    More states than n + r − 1 buy accuracy: a record is listed where it leaves at most nine tenths
    of the noise gain. Raises ValueError for another precision and where nothing is recorded,
    TypeError for n and r that are no integers.

    >>> [record.states for record in winolab.records(6, 5)][0]
    10
    """
    n, r = (None if v is None else whole(v, name) for v, name in ((n, "n"), (r, "r")))
    if precision not in (None, *PRECISIONS):
        raise ValueError(
            f"no records of precision {precision!r}; expected one of {', '.join(PRECISIONS)}"
        )
    mine = [c for c in every() if n in (None, c.n) and r in (None, c.r)]
    if not mine:
        known = ", ".join(str(w) for w in sorted({c.r for c in every()}))
        asked = f"n = {n}" if r is None else f"F({'n' if n is None else n},{r})"
        raise ValueError(
            f"no record of {asked}; there are records of r = {known} and n from 2 to "
            f"{max(c.n for c in every())}: winolab points searches others"
        )
    return tuple(c for c in mine if precision in (None, *c.best))
