"""A translation unit that need not be printed to be known."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field


def digest(content: bytes) -> str:
    """The hash by which what the cache holds is named and verified."""
    return hashlib.sha256(content).hexdigest()[:32]


@dataclass(frozen=True)
class Source:
    """A translation unit by the hash of its text; ``printed`` returns that, which takes up to 30 ms
    where a plan prints it."""

    digest: str
    printed: Callable[[], str] = field(compare=False, repr=False)

    @classmethod
    def of(cls, text: str | Source) -> Source:
        return text if isinstance(text, Source) else cls(digest(text.encode()), lambda: text)
