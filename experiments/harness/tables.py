"""What a reproduced table is: its jobs, and its cells beside the paper's."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import stdtrit

from experiments.harness import machines
from experiments.harness.facts import ROOT
from experiments.harness.jobs import Row, Work
from experiments.harness.verdicts import Range, Verdict

RESULTS = ROOT / "experiments" / "results"  # kept rows
COMPUTED = ROOT / "results" / "rows"  # what a run computed, which git ignores


@dataclass(frozen=True)
class Cell:
    """One number of a paper beside ours.

    ``low`` and ``high`` enclose ours (what they are, the table says). ``accepted`` is the range in
    which ours agrees, made of the paper's number and of the table's rule; a cell without one is not
    judged. ``standing`` is what it counts as instead: fitted, not comparable, not reproduced (ours
    is NaN then). ``aim`` is a number that was to be reached, our own; it is no paper's.
    """

    where: str
    column: str
    paper: float | None
    ours: float
    low: float
    high: float
    accepted: Range | None = None
    standing: Verdict | None = None
    aim: float | None = None
    claim: bool = False  # of prose: counted apart from numbers
    prediction: float | None = None
    bound: float | None = None
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """Ours over the paper's, where there are both."""
        return self.ours / self.paper if self.paper and not math.isnan(self.ours) else None

    @property
    def verdict(self) -> Verdict:
        """What the cell counts as."""
        if self.standing is not None:
            return self.standing
        if self.accepted is None:
            return Verdict.SHOWN
        least, most = self.accepted
        met = least <= self.ours <= most  # NaN meets nothing
        if self.aim is not None:
            return Verdict.REACHED if met else Verdict.MISSED
        return Verdict.AGREES if met else Verdict.DISAGREES

    @property
    def agrees(self) -> bool | None:
        """Whether a judged cell agrees; None of all others."""
        return {Verdict.AGREES: True, Verdict.DISAGREES: False}.get(self.verdict)


def one(where: str, column: str, paper: float | None, ours: float, **more: Any) -> Cell:
    """A cell of one number, which encloses itself."""
    return Cell(where, column, paper, ours, ours, ours, **more)


def claim(text: str, paper: float, ours: float, accepted: Range, note: str = "") -> Cell:
    """A claim of a paper's prose, which holds where ours lies in the range."""
    return one("claim", text, paper, ours, accepted=accepted, claim=True, note=note)


@dataclass(frozen=True)
class Table:
    """A table or a figure of a paper that can be regenerated.

    ``tolerance`` says when a cell agrees, one rule for the table. A table that is ``long`` takes
    minutes. ``sources`` are the files of experiments/results that a GPU wrote and that ``cells``
    reads: such a table has no jobs. ``values`` are the fields of rows that were measured, where
    tests plant wrong numbers. One that is ``missing`` is of the paper's numbers alone.
    """

    paper: str
    name: str
    title: str
    jobs: Callable[[bool], Sequence[Work]]
    cells: Callable[[Sequence[Row]], list[Cell]]
    tolerance: str
    long: bool = False
    sources: tuple[str, ...] = ()
    values: tuple[str, ...] = ("ours",)
    missing: bool = False

    @property
    def key(self) -> str:
        return f"{self.paper} {self.name}"


def none(full: bool) -> list[Work]:
    """No job: the jobs of a table whose rows come from elsewhere."""
    return []


def interval(values: Sequence[float], confidence: float = 0.9) -> tuple[float, float, float]:
    """Mean over seeds and its Student interval; a single seed encloses itself."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return mean, mean, mean
    half = float(stdtrit(len(values) - 1, (1 + confidence) / 2)) * float(
        np.std(values, ddof=1) / math.sqrt(len(values))
    )
    return mean, mean - half, mean + half


def select(rows: Iterable[Row], **values: Any) -> list[Row]:
    """The rows whose fields have these values."""
    found = list(rows)
    for name, value in values.items():
        found = [row for row in found if row.get(name) == value]
    return found


def store(paper: str, rows: Sequence[Row], update: bool = False) -> None:
    """Write rows to results/rows/<paper>.jsonl, with ``update`` to experiments/results as well;
    those of other tables in a file stay."""
    replaced = {row["table"] for row in rows}
    for folder in (COMPUTED, RESULTS) if update else (COMPUTED,):
        path = folder / f"{paper}.jsonl"
        kept = [row for row in _lines(path) if row["table"] not in replaced]
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = (json.dumps(row, allow_nan=False) for row in [*kept, *rows])
        path.write_text("".join(f"{line}\n" for line in lines))


def stored(paper: str) -> list[Row]:
    """The rows kept for a paper; empty where there are none."""
    return _lines(RESULTS / f"{paper}.jsonl")


def _lines(path: Path) -> list[Row]:
    if not path.is_file():
        return []
    now = path.stat()
    return list(_parsed(path, now.st_mtime_ns, now.st_size))


@lru_cache(maxsize=16)
def _parsed(path: Path, changed: int, size: int) -> tuple[Row, ...]:
    """The rows of a file as it was then: files of 10 MB are asked for by many tables."""
    return tuple(machines.stored(path))


def rows_of(table: Table) -> list[Row]:
    """The kept rows that a table comes from."""
    if not table.sources:
        return select(stored(table.paper), table=table.name)
    return [row for source in table.sources for row in stored(source)
            if row.get("method") not in ("refused", "failed")]  # fmt: skip
