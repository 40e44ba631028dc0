"""Rows of layers of networks: each case's last, the machine once a run, and what they say."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

LARGE = 32e6  # bytes that a layer moves for copies to say how fast it may be
Row = dict[str, Any]


def latest(rows: Iterable[Row]) -> list[Row]:
    """The rows of each case that were added last: each time, the first is of what was picked, or
    says that nothing serves the case."""
    found: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        mine = found.setdefault(key(row), [])
        if row.get("chosen") or row["method"] == "refused":
            mine.clear()
        mine.append(row)
    return [row for mine in found.values() for row in mine]


def there(
    rows: Iterable[Row], search: bool = False, clock: bool = False
) -> dict[tuple[str, str, str], Row]:
    """The row of what was picked for each case; without a source, so that it is due, where a case
    has no row of cuDNN's (``search``), or its rivals are not timed (``clock``)."""
    rows = list(rows)
    beside = judged(rows)

    def lacks(row: Row) -> bool:
        return (search and key(row) not in beside) or (clock and "rivals" not in row)

    return {key(row): row | {"source": ""} if lacks(row) else row
            for row in rows if row.get("chosen")}  # fmt: skip


def judged(rows: Iterable[Row]) -> set[tuple[str, str, str]]:
    """The cases that have a row of cuDNN's."""
    return {key(row) for row in rows if row["method"] == "cudnn"}


def key(row: Row) -> tuple[str, str, str]:
    """The case of a row."""
    return row["layer"], row["direction"], row["precision"]


def by_case(rows: Iterable[Row]) -> dict[tuple[str, str, str], list[Row]]:
    """The rows of each case."""
    found: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


def ratios(rows: Iterable[Row], clock: bool = False) -> Iterator[tuple[Row, float, float]]:
    """Each of our rows, with the speeds over the fastest of others (PyTorch in either memory order,
    and cuDNN's fastest algorithm where that was timed) and over a copy. ``clock``: of the cases
    whose rivals were timed, and of what won."""
    for mine in by_case(rows).values():
        torch, copy = (min((r["us"] for r in mine if r["method"] in of), default=math.nan)
                       for of in (("torch", "cudnn"), ("copy",)))  # fmt: skip
        if clock:
            mine = [r for r in mine if r["method"] == "clock"] or [r for r in mine if "rivals" in r]
        for own in mine:
            if clock or own.get("chosen"):
                yield own, torch / own["us"], copy / own["us"]


def summarized(rows: Iterable[Row]) -> Iterator[str]:
    """Geometric means by direction, precision and filter, with the least of each."""
    rows = list(rows)
    refused = Counter(
        (row["direction"], row["precision"]) for row in rows if row["method"] == "refused"
    )
    yield from (f"{' '.join(which)}: no kernel for {n} layers" for which, n in refused.items())
    groups: dict[tuple[str, str, str], list[tuple[float, float, Row]]] = {}
    for own, torch, copy in ratios(rows):
        which = own["direction"], own["precision"], own["group"]
        groups.setdefault(which, []).append((torch, copy, own))
    for which, found in sorted(groups.items()):
        mean = math.exp(sum(math.log(t) for t, *_ in found) / len(found))
        least, _, worst = min(found, key=lambda each: each[0])
        large = [c for _, c, own in found if own["bytes"] >= LARGE]
        of_copy = f", {min(large):.2f} of copy speed or more" if large else ""
        yield (
            f"{' '.join(which)}: {mean:.2f} times PyTorch over {len(found)} layers, least "
            f"{least:.2f} ({worst['layer']}){of_copy}"
        )
