"""Sweeps: the cases that lists of values span, run on the cores, one row of JSON Lines a case.

A row is written and synced before the next case counts as done, so an interrupted sweep loses
nothing; the same call goes on where it stopped, because a case whose row is in the file is not run
again. A line that holds no row is reported with its number and left as it is.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from textwrap import shorten
from typing import Any

from winolab.api.gpu_case import CaseOnGpu
from winolab.api.memory import check_held
from winolab.arguments.shapes import nonempty
from winolab.cli.environment import provenance
from winolab.cli.screen.render import plain
from winolab.cli.screen.tables import METRICS
from winolab.lines import Lines
from winolab.measure import FULL, RESULTS, Case
from winolab.ref.arithmetic import loops
from winolab.spread import spread

Row = dict[str, Any]
# Behind a comma, what belongs to the value before it: points, and parts of a mixed precision.
POINTS = r"\s*[-−+\d∞(xi]|\s*oo"
FIELDS = r"\s*\w+="
# What every row says of its case in numbers.
NUMBERS = (*METRICS, "unbounded")
BEGINNING = b'{"algorithm": "'  # of a row's line
MOST_DAMAGED = 100  # lines before the first row: a file with more holds something else
MOST_REASON = 200  # characters
# Multiply-adds a second of one process, all that a case computes counted: NumPy's and Numba's.
RATE, RATE_OF_LOOPS = 2.5e8, 6e8
# On a GPU: the least of experiments/results/gpu_simulation.jsonl, with copies.
RATE_ON_GPU = 9e10


def values(text: str, keep: str = r"(?!)") -> list[str]:
    """The comma-separated values; a comma before the pattern ``keep`` belongs to its value."""
    return [value.strip() for value in re.split(f",(?!{keep})", text)]


def cases(**values: Sequence[Any]) -> list[Case]:
    """Every combination of the lists of values (keywords are Case's fields), each once, in order.

    Raises ValueError where one does not parse, a combination does not fit or computes nothing.
    """
    combinations = product(*values.values())
    found = dict.fromkeys(Case(**dict(zip(values, c, strict=True))) for c in combinations)
    for case in found:
        nonempty(case.problem)
        check_held(case)
    return list(found)


@dataclass(frozen=True)
class Damaged:
    """A line of a file of rows that holds no row."""

    path: Path
    line: int
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.path}:{self.line}: {self.reason}; the line is kept, its case runs again if it "
            "is asked for; repair or delete the line to silence this"
        )


class RowFile(Lines):
    """A JSON Lines file of rows that only grows, and that one process has at a time."""

    def __init__(self, path: Path | str) -> None:
        """Read the rows that are there and open the file for more.

        Raises as Lines, and ValueError where it holds lines but neither a row nor the beginning of
        one, as an interrupted write leaves it.
        """
        super().__init__(path)
        self.rows: dict[Case, Row] = {}
        self.damaged: list[Damaged] = []
        foreign = False
        for number, line in self.read():
            before = len(self.damaged)
            self._read(number, line)
            if len(self.damaged) > before and not self.rows:
                foreign = foreign or not (line.startswith(BEGINNING) or BEGINNING.startswith(line))
                if len(self.damaged) > MOST_DAMAGED:
                    break
        if foreign and not self.rows:
            self.close()
            raise ValueError(f"{self.path} holds no rows of a sweep; choose another file")

    def append(self, row: Row) -> None:
        """Write a row, on the disk when this returns."""
        super().append(row)
        self.rows[Case.of_row(row)] = row

    def __enter__(self) -> RowFile:
        return self

    def _read(self, number: int, line: bytes) -> None:
        if not line.strip():
            return
        try:
            row = json.loads(line, parse_constant=_refused)
            case = Case.of_row(row)
            for name in NUMBERS:
                _check_number(name, row[name])
            for name, value in row.items():
                if isinstance(value, (dict, list)):
                    raise ValueError(f"{name} is nested; expected numbers and texts")
            self.rows[case] = {**asdict(case), **row}
        except KeyError as error:
            self.damaged.append(Damaged(self.path, number, f"no field {error}"))
        except json.JSONDecodeError as error:
            self.damaged.append(Damaged(self.path, number, f"not JSON ({error.msg})"))
        except RecursionError:
            self.damaged.append(Damaged(self.path, number, "nested too deep"))
        except (ValueError, TypeError, AttributeError, ArithmeticError) as error:
            reason = shorten(str(error), MOST_REASON, placeholder=" …")
            self.damaged.append(Damaged(self.path, number, f"not a row ({reason})"))


def run(
    todo: Iterable[Case],
    *,
    file: RowFile | None = None,
    workers: int = 1,
    dask: str | None = None,
    advance: Callable[[float], None] = lambda cases: None,
    gpu: bool = False,
) -> list[Row]:
    """The rows of the cases, in their order; those in ``file`` are taken from it.

    With ``gpu`` this process runs them, and a GPU sums their products.

    ``workers`` processes run them, or Dask's (``winolab.spread``); a row's numbers depend on
    its case alone. ``advance`` is called with the number of cases, or the part of one, done since
    the last call.
    """
    todo = list(todo)
    rows = {case: file.rows[case] for case in todo if file and case in file.rows}
    missing = [case for case in todo if case not in rows]
    advance(len(rows))
    how = ((case, _on_gpu(case, advance)) for case in missing) if gpu else None
    for case, measured in how or _measured(missing, min(workers, len(missing)), dask, advance):
        rows[case] = plain(measured)
        if file:
            file.append(rows[case])
    return [rows[case] for case in todo]


def seconds(todo: Iterable[Case], workers: int, gpu: bool = False) -> float:
    """About how long so many processes, or a GPU, take for the cases, by their multiply-adds."""
    macs = 0.0
    for case in todo:
        outputs = math.prod(getattr(case.problem, RESULTS[case.direction]))
        part = 1.0 if case.sample == FULL else min(1.0, int(case.sample) / max(1, outputs))
        macs += part * case.problem.macs
    if gpu:
        return macs / RATE_ON_GPU
    return macs / (RATE_OF_LOOPS if loops.available() else RATE) / workers


def _measured(
    todo: list[Case], workers: int, dask: str | None, advance: Callable[[float], None]
) -> Iterator[tuple[Case, Row]]:
    if workers <= 1 and not dask:
        for case in todo:
            yield case, {**case.measure(advance), **provenance()}
        return
    for i, row in spread(_row, todo, workers, dask):
        yield todo[i], row
        advance(1)


def _on_gpu(case: Case, advance: Callable[[float], None]) -> Row:
    return {**CaseOnGpu.of(case).measure(advance), **provenance()}


def _row(case: Case) -> Row:
    """What was measured, and where."""
    return {**case.measure(), **provenance()}


def _refused(name: str) -> None:
    text = name.lower().removesuffix("inity")
    raise ValueError(f"{name} is no number in JSON; expected the text {text!r}")


def _check_number(name: str, value: Any) -> None:
    """Raise ValueError unless it is a number, or the text of one that is not finite."""
    if isinstance(value, str):
        right = value in ("nan", "inf", "-inf")
    else:
        right = isinstance(value, (int, float)) and not isinstance(value, bool)
        right = right and abs(value) <= sys.float_info.max  # an integer of 400 digits is none
    if not right:
        raise ValueError(f"{name} is {value!r}; expected a number of FP64")
