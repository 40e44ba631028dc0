"""A measurement of cases in turn whose rows take the place of those that its file had."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from winolab.bench.compare import free
from winolab.cli import bench
from winolab.cli.screen.render import plain
from winolab.lines import Lines

Row = dict[str, Any]
Case = TypeVar("Case")


def replaced(
    output: Path,
    end: float,
    cases: Iterable[Case],
    run: Callable[[Case, Row], Iterable[Row]],
    named: Callable[[Case], str],
    told: Callable[[list[Row]], str],
) -> list[Row]:
    """The rows of all cases that begin before ``end``, of ``time.monotonic()``.

    ``run`` gets a case and the facts of the machine, which each row then has; ``named`` is what a
    case is called and ``told`` what is printed of its rows. Rows are in the file as soon as they
    are there; those that it had stay until the first is.
    """
    machine = {**bench.context(), "run": datetime.now(UTC).isoformat(timespec="milliseconds")}
    found: list[Row] = []
    with ExitStack() as stack:
        file = None
        for case in cases:
            if time.monotonic() > end:
                print(f"no time for {named(case)}", flush=True)
                continue
            rows = list(run(case, machine))
            free()
            if file is None:
                output.unlink(missing_ok=True)
                file = stack.enter_context(Lines(output))
            for row in rows:
                file.append(plain({**row, **machine}))
            print(f"{named(case)}: {told(rows)}", flush=True)
            found += rows
    return found
