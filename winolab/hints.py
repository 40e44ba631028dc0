"""What a mistyped name may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

LIKENESS = 0.7  # of difflib: "fp_32" is like "fp32" (0.89), "fp8" not like "fp64" (0.57)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like ``name``, or that it begins; None where none is alike."""
    lower = {one.lower(): one for one in known}
    close = difflib.get_close_matches(name.lower(), lower, 1, LIKENESS)
    begun = [one for one in lower if len(name) > 2 and one.startswith(name.lower())]
    return lower[(close or begun)[0]] if close or len(begun) == 1 else None
