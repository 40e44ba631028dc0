"""Combinations by turns, where all of them would say the same several times."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any


def turns(*factors: Iterable[Any], of: int = 2) -> list[tuple[Any, ...]]:
    """One in ``of`` of all combinations: those whose indices add up to a multiple of it.

    Of factors with ``of`` values and more, all but any one of them meet in all combinations: two
    take turns, each value with about one in ``of`` of the other's; of three every pair meets.

    >>> turns("ab", [1, 2, 3])
    [('a', 1), ('a', 3), ('b', 2)]
    """
    return [
        tuple(value for _, value in chosen)
        for chosen in product(*(list(enumerate(factor)) for factor in factors))
        if sum(index for index, _ in chosen) % of == 0
    ]
