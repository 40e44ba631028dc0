"""How messages count and name things: "1 tile", "2 tiles", "an int"."""

from __future__ import annotations

from typing import Any


def plural(count: int, noun: str) -> str:
    """So many of a thing, whose plural has an s.

    >>> plural(1, "work tile"), plural(2, "work tile")
    ('1 work tile', '2 work tiles')
    """
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def agreeing(count: float, singular: str, several: str) -> str:
    """The verb that agrees with ``count`` things.

    >>> f"1 of 3 results {agreeing(1, 'is', 'are')} not finite"
    '1 of 3 results is not finite'
    """
    return singular if count == 1 else several


def with_article(noun: str) -> str:
    """The noun behind "a", or "an" before a vowel.

    >>> with_article("float"), with_article("int"), with_article("uint8"), with_article("ufunc")
    ('a float', 'an int', 'a uint8', 'a ufunc')
    """
    vowel = noun[:1].lower() in tuple("aeio") or noun[:2].lower() == "un"
    return f"{'an' if vowel else 'a'} {noun}"


def type_of(value: Any) -> str:
    """What a value is, where a message says what was given instead of an array.

    >>> type_of(3), type_of([3]), type_of(None)
    ('an int', 'a list', 'None')
    """
    return "None" if value is None else with_article(type(value).__name__)
