"""The calls that were made before, found again by what is asked and how arrays lie.

No array library and no GPU is needed here, so that a call looks here before either is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from typing import Any, Protocol

MOST = 4096  # calls that are kept


class Recorded(Protocol):
    """A call that is planned, loaded and recorded for arrays that lie in a certain way."""

    def run(self, a: Any, b: Any, out: Any, *more: Any) -> Any: ...


kept: dict[Any, Recorded] = {}
# What tells quickly how an array lies in memory, by its type; runtime/conv.py adds what it knows.
described_by: dict[type, Callable[[Any], Any]] = {type(None): lambda nothing: nothing}


def recall(asked: Hashable, a: Any, b: Any, out: Any, *more: Any) -> Recorded | None:
    """The call that was kept for arrays that lie like these and for what is asked of them.

    ``more``: bias and residual, where there is one.
    """
    try:
        by = described_by
        if more:
            return kept[(asked, *[by[type(array)](array) for array in (a, b, out, *more)])]
        return kept[asked, by[type(a)](a), by[type(b)](b), by[type(out)](out)]
    except (KeyError, TypeError, RuntimeError):
        return None  # nothing yet, an argument without a hash, a tensor without memory


def remember(key: Hashable, call: Recorded) -> None:
    """Keep the call under one more key, unless there are many; TypeError for one without a hash."""
    if len(kept) < 2 * MOST:
        kept[key] = call


def keep(
    call: Recorded,
    asked: Iterable[Hashable],
    arrays: Iterable[Any],
    describe: Callable[[Any], Any],
) -> None:
    """Let ``recall`` find the call by each of ``asked`` that has a hash, and by its arrays.

    ``describe`` tells how arrays lie whose type nothing is known of.
    """
    if len(kept) >= MOST:
        kept.clear()
    described = [described_by.setdefault(type(array), describe)(array) for array in arrays]
    for each in asked:
        with suppress(TypeError):
            kept[(each, *described)] = call
