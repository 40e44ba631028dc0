"""Sweeps: the cases that lists of values span, run on the cores, one row of JSON Lines a case.

A row is written and synced before the next case counts as done, so an interrupted sweep loses
nothing; the same call goes on where it stopped, because a case whose row is in the file is not run
again. A line that holds no row is reported with its number and left as it is.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import re
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from winolab.environment import provenance
from winolab.measure import Case
from winolab.problem import Problem
from winolab.render import plain
from winolab.tables import METRICS

Row = dict[str, Any]
# Processes take the cores; the threads of a BLAS under them would only wait for each other.
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
# Behind a comma, what belongs to the value before it: points, and parts of a mixed precision.
POINTS = r"\s*[-+\d∞]|\s*inf|\s*oo"
PARTS = r"\s*\w+="
# What every row says of its case in numbers.
NUMBERS = (*METRICS, "unbounded")


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
    return list(found)


def nonempty(problem: Problem) -> Problem:
    """The problem itself; ValueError where it has no multiply-adds."""
    if problem.macs == 0:
        raise ValueError(
            f"x{problem.x_shape} and w{problem.w_shape} leave nothing to compute; expected sizes "
            "above 0"
        )
    return problem


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


class RowFile:
    """A JSON Lines file of rows that only grows."""

    def __init__(self, path: Path | str) -> None:
        """Read the rows that are there and open the file for more.

        Raises OSError where it cannot be written, ValueError where it holds lines but no row.
        """
        self.path = Path(path)
        self.rows: dict[Case, Row] = {}
        self.damaged: list[Damaged] = []
        content = self.path.read_bytes() if self.path.exists() else b""
        for number, line in enumerate(content.splitlines(), 1):
            self._read(number, line)
        if self.damaged and not self.rows and len(self.damaged) > 1:
            raise ValueError(f"{self.path} holds no rows of a sweep; choose another file")
        self._file = self.path.open("ab")
        if content and not content.endswith(b"\n"):
            self._write(b"\n")  # an interrupted write: the next row starts a line of its own

    def append(self, row: Row) -> None:
        """Write a row, on the disk when this returns."""
        self._write(json.dumps(row, allow_nan=False).encode() + b"\n")
        self.rows[Case.of_row(row)] = row

    def close(self) -> None:
        """Close the file; what was appended is there already."""
        self._file.close()

    def __enter__(self) -> RowFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self, number: int, line: bytes) -> None:
        if not line.strip():
            return
        try:
            row = json.loads(line, parse_constant=_refused)
            case = Case.of_row(row)
            for name in NUMBERS:
                _check_number(name, row[name])
            self.rows[case] = row
        except KeyError as error:
            self.damaged.append(Damaged(self.path, number, f"no field {error}"))
        except json.JSONDecodeError as error:
            self.damaged.append(Damaged(self.path, number, f"not JSON ({error.msg})"))
        except (ValueError, TypeError, AttributeError) as error:
            self.damaged.append(Damaged(self.path, number, f"not a row ({error})"))

    def _write(self, content: bytes) -> None:
        self._file.write(content)
        self._file.flush()
        os.fsync(self._file.fileno())


def run(
    todo: Iterable[Case],
    *,
    file: RowFile | None = None,
    workers: int = 1,
    advance: Callable[[float], None] = lambda cases: None,
) -> list[Row]:
    """The rows of the cases, in their order; those in ``file`` are taken from it.

    ``workers`` processes run them; a row's numbers depend on its case alone. ``advance`` is called
    with the number of cases, or the part of one, done since the last call.
    """
    todo = list(todo)
    rows = {case: file.rows[case] for case in todo if file and case in file.rows}
    missing = [case for case in todo if case not in rows]
    advance(len(rows))
    where = provenance()
    for case, measured in _measured(missing, min(workers, len(missing)), advance):
        rows[case] = plain({**measured, **where})
        if file:
            file.append(rows[case])
    return [rows[case] for case in todo]


def spread(
    function: Callable[[Any], Any], items: Sequence[Any], workers: int
) -> Iterator[tuple[int, Any]]:
    """(i, function(items[i])) in the order in which ``workers`` processes finish them.

    An exception, an interrupt too, ends all of them at once.
    """
    for name in THREADS:
        os.environ.setdefault(name, "1")
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=spawn, initializer=_leave_interrupts) as pool:
        futures = {pool.submit(function, item): i for i, item in enumerate(items)}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in multiprocessing.active_children():
                child.terminate()
            raise


def _measured(
    todo: list[Case], workers: int, advance: Callable[[float], None]
) -> Iterator[tuple[Case, Row]]:
    if workers <= 1:
        for case in todo:
            yield case, case.measure(advance)
        return
    for i, row in spread(Case.measure, todo, workers):
        yield todo[i], row
        advance(1)


def _leave_interrupts() -> None:
    """In a worker: an interrupt at the keyboard is the parent's to handle."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _refused(name: str) -> None:
    text = name.lower().removesuffix("inity")
    raise ValueError(f"{name} is no number in JSON; expected the text {text!r}")


def _check_number(name: str, value: Any) -> None:
    """Raise ValueError unless it is a number, or the text of one that is not finite."""
    if isinstance(value, str):
        right = value in ("nan", "inf", "-inf")
    else:
        right = isinstance(value, (int, float)) and not isinstance(value, bool)
        right = right and math.isfinite(value)
    if not right:
        raise ValueError(f"{name} is {value!r}; expected a number")
