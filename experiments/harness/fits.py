"""What was fitted on the papers' numbers: the constants, the cells they come from, and the script.

A paper with fitted constants has a module ``fits`` with FITS; each names the cells that it reads,
which then count as fitted and nowhere else. ``python -m papers.<paper>.fits`` fits them anew and
prints them beside those in use; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import typer

Place = tuple[str, str, str]  # a table's key, and a cell's ``where`` and ``column``
Values = dict[str, float]


@dataclass(frozen=True)
class Fit:
    """Constants that were fitted: what is in use, and what the fit gives.

    ``used`` and ``fitted`` are by the constants' names; a constant in use is the fitted one,
    rounded by at most the share ``rounding``.
    """

    what: str
    places: tuple[Place, ...]
    used: Callable[[], Values]
    fitted: Callable[[], Values]
    rounding: float

    @property
    def told(self) -> str:
        """A line a constant."""
        used, fitted = self.used(), self.fitted()
        return "\n".join(f"{name}: {used[name]:.6g} in use, {fitted[name]:.6g} fitted"
                         for name in used)  # fmt: skip


def command(fits: Sequence[Fit]) -> None:
    """A paper's fits as a program."""

    def main() -> None:
        """Fit anew what was fitted on the paper's numbers, and print it beside what is in use."""
        print("\n".join(fit.told for fit in fits))

    typer.run(main)
