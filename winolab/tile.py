"""A tile F(n,r): how many outputs of how many taps, in how many states."""

from __future__ import annotations

from dataclasses import dataclass

from winolab.arguments.values import whole
from winolab.arguments.words import plural

MAX_ALPHA = 32  # inputs of a tile, n + r − 1, at most
MAX_STATES = 128


@dataclass(frozen=True, order=True, repr=False)
class Tile:
    """A filtering algorithm F(n, r): n outputs of an r-tap filter (Lavin & Gray, 3).

    ``alpha``: its states, by default n + r − 1, which is minimal; a modulus whose factors are no
    points has more (winolab.points.tile_of).
    """

    n: int
    r: int
    alpha: int = 0

    def __post_init__(self) -> None:
        for name in ("n", "r", "alpha"):
            object.__setattr__(self, name, whole(getattr(self, name), f"{name} of a tile F(n, r)"))
        if self.n < 1 or self.r < 1:
            raise ValueError(f"F({self.n},{self.r}) needs at least one output and one tap")
        if self.inputs > MAX_ALPHA:
            raise ValueError(
                f"F({self.n},{self.r}) has alpha = n + r - 1 = {self.inputs}; "
                f"at most {MAX_ALPHA} is supported"
            )
        object.__setattr__(self, "alpha", self.alpha or self.inputs)
        if not self.inputs <= self.alpha <= MAX_STATES:
            raise ValueError(
                f"F({self.n},{self.r}) in {plural(self.alpha, 'state')}; expected n + r - 1 = "
                f"{self.inputs}, or more, to {MAX_STATES}"
            )

    @property
    def inputs(self) -> int:
        """Inputs of a tile, n + r − 1."""
        return self.n + self.r - 1

    @property
    def minimal(self) -> bool:
        """Whether it has as few states as there can be, n + r − 1."""
        return self.alpha == self.inputs

    @property
    def exchanged(self) -> Tile:
        """F(r, n) in as many states."""
        return Tile(self.r, self.n, self.alpha)

    def __str__(self) -> str:
        return f"F({self.n},{self.r})"

    def __repr__(self) -> str:
        states = "" if self.minimal else f", alpha={self.alpha}"
        return f"Tile(n={self.n}, r={self.r}{states})"
