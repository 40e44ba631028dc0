"""The nouns of the package: a tile F(n,r), a convolution problem, an algorithm and its text.

One class a kind of algorithm, and the function that makes one; winolab.kind has their base.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

from winolab.arguments.values import listed, whole
from winolab.arguments.variants import folded, of_direct, of_gamma, of_omega, published
from winolab.kind import (
    FORMS,
    KINDS,
    MOST,
    SCALINGS,
    Algorithm,
    Gradients,
    device_field,
    option,
    parse_algorithm,
    placed,
    points_field,
    scaling_field,
    segments_field,
    tiles_field,
)
from winolab.points import points_for, text_of, tile_of
from winolab.problem import Problem
from winolab.tile import MAX_ALPHA, Tile

PointsLike = Any  # a name, a text such as "0,1,-1,inf", or such points one by one

__all__ = [
    "FORMS", "KINDS", "MAX_ALPHA", "SCALINGS", "Algorithm", "Direct", "Dwm", "Fft", "Gamma",
    "Omega", "Problem", "Tile", "Winograd", "Winrs", "direct", "dwm", "fft", "gamma", "omega",
    "parse_algorithm", "tiled", "winograd", "winrs",
]  # fmt: skip


@dataclass(frozen=True)
class Direct(Algorithm):
    """Direct convolution, the oracle's algorithm."""

    kind = form = "direct"
    variant: str | None = option(None, of_direct)


def direct(*, variant: str | None = None) -> Direct:
    """Direct convolution, the oracle's algorithm.

    The ``variant`` "cublaslt" names that library's products for filters of one tap on CUDA arrays;
    elsewhere it changes nothing.
    """
    return Direct(variant)


@dataclass(frozen=True)
class Winograd(Algorithm):
    """Nested F(n0×n1×…, r0×r1×…) (Lavin & Gray, eq. 8): ``winograd((4, 4), (3, 3))``."""

    kind = "winograd"
    form = "winograd:4x4:3x3"
    tiles: tuple[Tile, ...] = tiles_field()
    points: str = points_field()
    scaling: str | None = scaling_field()

    def _check(self) -> None:
        if not self.tiles:
            raise ValueError("winograd has no tiles; expected one a dimension, as in '4x4:3x3'")

    @classmethod
    def of_text(cls, numbers: list[list[Any]], options: dict[str, Any]) -> Winograd | None:
        return winograd(*numbers, **options) if len(numbers) == 2 else None

    def _placed(self) -> Sequence[str]:
        return _times(t.n for t in self.tiles), _times(t.r for t in self.tiles)


def winograd(
    n: Sequence[int], r: Sequence[int], *, points: PointsLike = "best", scaling=None
) -> Winograd:
    """Nested F(n0×n1×…, r0×r1×…) (Lavin & Gray, eq. 8): ``winograd((4, 4), (3, 3))``."""
    for name, sizes in (("output", n), ("filter", r)):
        if isinstance(sizes, (str, bytes)) or not hasattr(sizes, "__len__"):
            raise TypeError(
                f"winograd: {name} sizes {sizes!r}; expected one a dimension, as in "
                "winograd((4, 4), (3, 3)); along the last alone, gamma(6, 4, 3)"
            )
    if len(n) != len(r):
        raise ValueError(f"winograd: {len(n)} output and {len(r)} filter sizes; expected as many")
    return Winograd(tuple(map(Tile, n, r)), points, scaling)


def _times(sizes: Iterable[int]) -> str:
    return "x".join(map(str, sizes))


def _check_one(algorithm: Algorithm) -> None:
    if len(algorithm.tiles) != 1:
        raise ValueError(f"{algorithm.kind} has {len(algorithm.tiles)} tiles; expected one")


def _three(numbers: list[list[Any]]) -> list[Any] | None:
    """α, n and r of a text; None where it has others."""
    return [v for (v,) in numbers] if list(map(len, numbers)) == [1, 1, 1] else None


@dataclass(frozen=True)
class Gamma(Algorithm):
    """Γα(n,r) of Im2col-Winograd (section 4.1): ``gamma(8, 6, 3)``."""

    kind = "gamma"
    form = "gamma:8:6:3@paper;scaling=l1"
    tiles: tuple[Tile, ...] = tiles_field()
    points: str = points_field()
    scaling: str | None = scaling_field()
    variant: str | None = option(None, of_gamma)

    def _check(self) -> None:
        _check_one(self)
        if "c64" in self.published and self.tiles[0].alpha != 16:
            raise ValueError(f"gamma: c64 is a block of 16 states, not of {self.tiles[0].alpha}")

    @property
    def fold(self) -> int:
        return folded(self.variant)

    @property
    def published(self) -> tuple[str, ...]:
        """What of Im2col-Winograd's kernels is on, its block first; by default nothing is."""
        return published(self.variant)

    @classmethod
    def of_text(cls, numbers: list[list[Any]], options: dict[str, Any]) -> Gamma | None:
        return gamma(*sizes, **options) if (sizes := _three(numbers)) else None

    def _placed(self) -> Sequence[int]:
        return self.tiles[0].alpha, self.tiles[0].n, self.tiles[0].r


def gamma(
    alpha: int, n: int, r: int, *, points: PointsLike = "best", scaling=None, variant=None
) -> Gamma:
    """Γα(n,r) of Im2col-Winograd (section 4.1): ``gamma(8, 6, 3)``.

    The ``variant`` "two_level:32" sums each 32 products apart before it adds them, in FP32. Others
    name CUDA kernels as the paper has them, and elsewhere change nothing: its blocks "base",
    "ruse" (tiles side by side share what they load) or, of 16 states, "c64", with "+fused" (the
    filter's transform inside the block: no workspace) or "+segments" (smaller tiles at the edge).
    """
    points = text_of(points)
    return Gamma((_tile("gamma", alpha, n, r, points),), points, scaling, variant)


def _tile(kind: str, alpha: int, n: int, r: int, points: str) -> Tile:
    tile = tile_of(n, r, points)
    if tile.alpha != whole(alpha, f"alpha of {kind}"):
        wanted = "n + r - 1" if tile.minimal else "what its points have"
        raise ValueError(f"{kind}({alpha}, {n}, {r}): alpha must be {wanted} = {tile.alpha}")
    return tile


def tiled(tiles: tuple[Tile, ...], points: PointsLike = "best") -> Algorithm:
    """Γ for one tile, nested Winograd for one a dimension; direct where none transforms.

    Points that serve none of the tiles are those of others: these take their own best.
    """
    if all(tile.alpha == 1 for tile in tiles):
        return direct()
    points = points_for(text_of(points), *tiles)
    return Gamma(tiles, points) if len(tiles) == 1 else Winograd(tiles, points)


def _balanced(text: Any) -> str | None:
    if not text or text == "balanced":
        return text or None
    raise ValueError(f"dwm: unknown variant {text!r}; expected 'balanced' or none")


def _error(value: Any) -> float | None:
    if value is None:
        return None
    if not isinstance(value, Real):
        raise TypeError(f"dwm: error is {value!r}; expected a relative RMS error above 0")
    try:
        if (error := float(value)) > 0:
            return error
    except OverflowError:  # of integers
        return math.inf
    raise ValueError(f"dwm: error {value}; expected a relative RMS error above 0")


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _sizes(value: int | Sequence[int], what: str = "a size of an algorithm") -> tuple[int, ...]:
    return tuple(whole(v, what) for v in listed(value, 1))


@dataclass(frozen=True)
class Dwm(Algorithm):
    """The Decomposable Winograd Method: any filter, stride and dilation cut into small pieces."""

    kind = "dwm"
    form = "dwm:3:2"
    in_pieces = True
    tiles: tuple[Tile, ...] = tiles_field()
    points: str = points_field()
    scaling: str | None = scaling_field()
    variant: str | None = option(None, _balanced)
    error: float | None = option(None, _error, _number)

    def _check(self) -> None:
        if self.error and not self.variant:
            object.__setattr__(self, "variant", "balanced")
        if bool(self.tiles) == bool(self.error):
            raise ValueError("dwm has either pieces and tiles or an error to keep to; give one")

    @property
    def _served(self) -> Iterable[Tile]:
        """The tiles with pieces of up to so many taps."""
        return (tile_of(t.n, r, self.points) for t in self.tiles for r in range(1, t.r + 1))

    @classmethod
    def of_text(cls, numbers: list[list[Any]], options: dict[str, Any]) -> Dwm | None:
        if len(numbers) != (0 if "error" in options else 2):
            return None
        return dwm(*numbers, **options)

    @property
    def _usual_points(self) -> str:
        return "paper" if self.tiles else "best"

    def _placed(self) -> Sequence[str]:
        if not self.tiles:
            return ()
        return _times(t.r for t in self.tiles), _times(t.n for t in self.tiles)

    def _shown(self) -> dict[str, Any]:
        """Without the variant that an error implies."""
        shown = super()._shown()
        return shown | {"variant": None} if self.error else shown


def dwm(
    piece: int | Sequence[int] | None = None,
    tile: int | Sequence[int] | None = None,
    *,
    error: float | None = None,
    points: PointsLike | None = None,
    scaling: str | None = None,
    variant: str | None = None,
) -> Dwm:
    """The Decomposable Winograd Method: any filter, stride and dilation cut into small pieces.

    Pieces have at most ``piece`` taps a dimension and are computed by F(tile, their length); both
    are an int or one per spatial dimension. DWM's own choice, pieces of 3 taps and tiles of 2, is
    the default (its section 4), with its points, whose transforms for tiles of 2 multiply by powers
    of two only.

    The ``variant`` "balanced" makes the pieces of a filter equally long, but for one tap.
    With ``error`` the cheapest balanced pieces and tiles are chosen whose predicted relative RMS
    error, on zero-mean data in the precision of the call, is at most that, with the best points.
    Raises ValueError for sizes below 1, lists of different lengths, errors that are not > 0, and
    pieces or tiles beside an error.
    """
    if error is not None:
        if piece is not None or tile is not None:
            raise ValueError("dwm: an error chooses pieces and tiles; give it or them")
        return Dwm((), text_of(points), scaling, variant, error=error)
    pieces, tiles = _sizes(3 if piece is None else piece), _sizes(2 if tile is None else tile)
    for name, sizes in (("piece", pieces), ("tile", tiles)):
        if not sizes or min(sizes) < 1:
            raise ValueError(f"dwm: {name} {sizes}; expected at least 1 in every dimension")
    ndim = max(len(pieces), len(tiles))
    if {len(pieces), len(tiles)} - {1, ndim}:
        raise ValueError(f"dwm: {len(pieces)} piece and {len(tiles)} tile sizes; expected as many")
    pieces, tiles = (s * ndim if len(s) == 1 else s for s in (pieces, tiles))
    points = "paper" if points is None else text_of(points)
    return Dwm(tuple(map(Tile, tiles, pieces)), points, scaling, variant)


@dataclass(frozen=True)
class Omega(Gradients, Algorithm):
    """Ωα(n,r) of WinRS (section 3), a filter gradient: ``omega(8, 3, 6)``."""

    kind = "omega"
    form = "omega:8:3:6@paper;segments=9"
    tiles: tuple[Tile, ...] = tiles_field()
    points: str = points_field()
    scaling: str | None = scaling_field()
    segments: int | None = segments_field()
    variant: str | None = option(None, of_omega)

    def _check(self) -> None:
        _check_one(self)

    @classmethod
    def of_text(cls, numbers: list[list[Any]], options: dict[str, Any]) -> Omega | None:
        return omega(*sizes, **options) if (sizes := _three(numbers)) else None

    def _placed(self) -> Sequence[int]:
        return self.tiles[0].alpha, self.tiles[0].n, self.tiles[0].r


def omega(
    alpha: int,
    n: int,
    r: int,
    *,
    points: PointsLike = "best",
    scaling=None,
    segments: int | None = None,
    variant: str | None = None,
) -> Omega:
    """Ωα(n,r) of WinRS (section 3), a filter gradient: ``omega(8, 3, 6)``.

    dy is cut into about ``segments`` parts, by default one; what r leaves of its width goes to the
    fastest kernel that ends it. The ``variant`` "fused" names CUDA kernels that transform inside
    the block, whose workspace is the segments' buckets alone, "fused:fp16" those with sums in
    FP16; elsewhere it changes nothing. Raises ValueError where alpha is not the number of states,
    n + r − 1 at points.
    """
    points = text_of(points)
    return Omega((_tile("omega", alpha, n, r, points),), points, scaling, segments, variant)


@dataclass(frozen=True)
class Winrs(Gradients, Algorithm):
    """WinRS as its planner has it for ``device``, such as "rtx4090"; by default an H100."""

    kind = "winrs"
    form = "winrs;device=rtx4090"
    points: str = points_field()
    scaling: str | None = scaling_field()
    segments: int | None = segments_field()
    device: str | None = device_field()


def winrs(
    *,
    points: PointsLike = "best",
    scaling=None,
    segments: int | None = None,
    device: str | None = None,
) -> Winrs:
    """WinRS as its planner has it for ``device``, such as "rtx4090"; by default an H100.

    ``segments`` replaces the planner's count.
    """
    return Winrs(points, scaling, segments, device)


@dataclass(frozen=True)
class Fft(Algorithm):
    """Overlap-save with transforms of ``size``, an int or one per spatial dimension."""

    kind = "fft"
    form = "fft:16:3"
    sizes: tuple[int, ...] = placed((), lambda value: _sizes(value, "a size of fft"))
    products: int = placed(0, lambda value: whole(value, "products"))

    def _check(self) -> None:
        fits = self.sizes and min(self.sizes) >= 1 and max(self.sizes) < MOST
        if not (fits and self.products in (3, 4)):
            raise ValueError(
                f"fft: sizes {self.sizes}, products {self.products}; expected sizes of 1 or more, "
                f"below {MOST}, and 3 or 4 products"
            )

    @classmethod
    def of_text(cls, numbers: list[list[Any]], options: dict[str, Any]) -> Fft | None:
        match numbers:
            case [size]:
                return fft(size)
            case [size, [products]]:
                return fft(size, products=products)
        return None

    def _placed(self) -> Sequence[Any]:
        return _times(self.sizes), self.products


def fft(size: int | Sequence[int] = 16, *, products: int = 3) -> Fft:
    """Overlap-save with transforms of ``size``, an int or one per spatial dimension.

    A complex product is made of 4 or 3 real ``products`` (Lavin & Gray, section 4.4).
    """
    return Fft(_sizes(size), products)
