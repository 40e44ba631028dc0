"""The nouns of the package: a tile F(n,r), a convolution problem, an algorithm and its text."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from winolab.problem import Problem, listed, whole

PointsLike = Any  # a name, a text such as "0,1,-1,inf", or such points one by one

__all__ = [
    "FORMS", "MAX_ALPHA", "Algorithm", "Problem", "Tile", "direct", "dwm", "fft", "gamma", "omega",
    "parse_algorithm", "tiled", "winograd", "winrs",
]  # fmt: skip

MAX_ALPHA = 32


@dataclass(frozen=True, order=True)
class Tile:
    """The minimal filtering algorithm F(n, r): n outputs of an r-tap filter (Lavin & Gray, 3)."""

    n: int
    r: int

    def __post_init__(self) -> None:
        if self.n < 1 or self.r < 1:
            raise ValueError(f"F({self.n},{self.r}) needs at least one output and one tap")
        if self.alpha > MAX_ALPHA:
            raise ValueError(
                f"F({self.n},{self.r}) has alpha = n + r - 1 = {self.alpha}; "
                f"at most {MAX_ALPHA} is supported"
            )

    @property
    def alpha(self) -> int:
        """Inputs of a tile, and its multiplications."""
        return self.n + self.r - 1

    def __str__(self) -> str:
        return f"F({self.n},{self.r})"


@dataclass(frozen=True)
class Algorithm:
    """How a convolution is computed, as a value; its text form round-trips through parse_algorithm.

    ``kind`` is "direct", "winograd" (nested, one tile per spatial dimension), "gamma"
    (Im2col-Winograd: one tile along the last dimension, the others summed directly), or "dwm"
    (``tiles`` hold the largest piece as r; one tile stands for every dimension) or "fft"
    (``sizes`` of its transforms, real ``products`` a complex product), or "omega" and "winrs"
    (filter gradients in ``segments`` of dy, planned for ``device``).
    ``points`` names the interpolation points of every tile, ``scaling`` the row scaling.
    """

    kind: str
    tiles: tuple[Tile, ...] = ()
    points: str = "best"
    scaling: str | None = None
    variant: str | None = None
    sizes: tuple[int, ...] = ()
    products: int = 0
    segments: int | None = None
    device: str | None = None
    error: float | None = None

    def __post_init__(self) -> None:
        """Points and scaling as their text has them."""
        if not isinstance(self.points, str):
            text = "best" if self.points is None else ",".join(map(str, self.points))
            object.__setattr__(self, "points", text)
        if self.scaling == "none":
            object.__setattr__(self, "scaling", None)

    @property
    def fold(self) -> int:
        """Products of a sum of the first of two levels; 0: there is one level."""
        return int(self.variant.partition(":")[2]) if self.kind == "gamma" and self.variant else 0

    def __str__(self) -> str:
        if self.kind == "direct":
            return "direct"
        if self.kind == "fft":
            return f"fft:{'x'.join(map(str, self.sizes))}:{self.products}"
        if self.error is not None:
            text = "dwm"
        elif self.kind == "dwm":
            pieces = "x".join(str(t.r) for t in self.tiles)
            text = f"dwm:{pieces}:{'x'.join(str(t.n) for t in self.tiles)}"
        elif self.kind in ("gamma", "omega"):
            (tile,) = self.tiles
            text = f"{self.kind}:{tile.alpha}:{tile.n}:{tile.r}"
        elif self.kind == "winrs":
            text = "winrs"
        else:
            n = "x".join(str(t.n) for t in self.tiles)
            r = "x".join(str(t.r) for t in self.tiles)
            text = f"{self.kind}:{n}:{r}"
        if self.points != ("paper" if self.kind == "dwm" and self.tiles else "best"):
            text += f"@{self.points}"
        for key in ("scaling", "variant", "segments", "device", "error"):
            if key == "variant" and self.error is not None:  # balanced, as the error implies
                continue
            if getattr(self, key):
                text += f";{key}={getattr(self, key)}"
        return text


def direct() -> Algorithm:
    """Direct convolution, the oracle's algorithm."""
    return Algorithm("direct")


def tiled(tiles: tuple[Tile, ...], points: PointsLike = "best") -> Algorithm:
    """Of one tile Γ, of one a dimension nested Winograd; direct where none transforms anything."""
    if all(tile.alpha == 1 for tile in tiles):
        return direct()
    return Algorithm("gamma" if len(tiles) == 1 else "winograd", tiles, points)


def winograd(
    n: Sequence[int], r: Sequence[int], *, points: PointsLike = "best", scaling=None
) -> Algorithm:
    """Nested F(n0×n1×…, r0×r1×…) (Lavin & Gray, eq. 8): ``winograd((4, 4), (3, 3))``."""
    if len(n) != len(r):
        raise ValueError(f"winograd: {len(n)} output sizes but {len(r)} filter sizes")
    return Algorithm("winograd", tuple(map(Tile, n, r)), points, scaling)


def gamma(
    alpha: int, n: int, r: int, *, points: PointsLike = "best", scaling=None, variant=None
) -> Algorithm:
    """Γα(n,r) of Im2col-Winograd (section 4.1): ``gamma(8, 6, 3)``.

    The ``variant`` "two_level:32" sums each 32 products apart before it adds them, in FP32.
    """
    tile = _tile("gamma", alpha, n, r)
    if variant:
        name, _, products = str(variant).partition(":")
        if name != "two_level" or not products.isdecimal() or not int(products):
            raise ValueError(
                f"gamma: unknown variant {variant!r}; expected two_level:32, or another number of "
                "products"
            )
    return Algorithm("gamma", (tile,), points, scaling, variant)


def omega(
    alpha: int,
    n: int,
    r: int,
    *,
    points: PointsLike = "best",
    scaling=None,
    segments: int | None = None,
) -> Algorithm:
    """Ωα(n,r) of WinRS (section 3), a filter gradient: ``omega(8, 3, 6)``.

    dy is cut into about ``segments`` parts, by default one; what r leaves of its width goes to the
    fastest kernel that ends it. Raises ValueError where alpha is not n + r − 1.
    """
    tile = _tile("omega", alpha, n, r)
    return Algorithm("omega", (tile,), points, scaling, segments=_positive(segments))


def _tile(kind: str, alpha: int, n: int, r: int) -> Tile:
    tile = Tile(n, r)
    if tile.alpha != alpha:
        raise ValueError(f"{kind}({alpha}, {n}, {r}): alpha must be n + r - 1 = {tile.alpha}")
    return tile


def winrs(
    *,
    points: PointsLike = "best",
    scaling=None,
    segments: int | None = None,
    device: str | None = None,
) -> Algorithm:
    """WinRS as its planner has it for ``device``, such as "rtx4090"; by default an H100.

    ``segments`` replaces the planner's count.
    """
    kind = "winrs"
    return Algorithm(kind, (), points, scaling, segments=_positive(segments), device=device)


def _positive(segments: int | None) -> int | None:
    if segments is not None and segments < 1:
        raise ValueError(f"segments = {segments}; expected at least 1")
    return segments


def dwm(
    piece: int | Sequence[int] = 3,
    tile: int | Sequence[int] = 2,
    *,
    error: float | None = None,
    points: str | None = None,
    scaling: str | None = None,
    variant: str | None = None,
) -> Algorithm:
    """The Decomposable Winograd Method: any filter, stride and dilation cut into small pieces.

    Pieces have at most ``piece`` taps a dimension and are computed by F(tile, their length); both
    are an int or one per spatial dimension. DWM's own choice is the default (its section 4), with
    its points, whose transforms for tiles of 2 multiply by powers of two only.

    The ``variant`` "balanced" makes the pieces of a filter equally long, but for one tap.
    With ``error`` the cheapest balanced pieces and tiles are chosen whose predicted relative RMS
    error, on zero-mean data in the precision of the call, is at most that, with the best points.
    Raises ValueError for sizes below 1, lists of different lengths, and errors that are not > 0.
    """
    if error is not None:
        if not error > 0:
            raise ValueError(f"dwm: error {error}; expected a relative RMS error above 0")
        return Algorithm("dwm", (), points or "best", scaling, "balanced", error=float(error))
    if variant not in (None, "balanced"):
        raise ValueError(f"dwm: unknown variant {variant!r}; expected 'balanced' or none")
    pieces, tiles = _sizes(piece), _sizes(tile)
    for name, sizes in (("piece", pieces), ("tile", tiles)):
        if not sizes or min(sizes) < 1:
            raise ValueError(f"dwm: {name} {sizes}; expected at least 1 in every dimension")
    ndim = max(len(pieces), len(tiles))
    if {len(pieces), len(tiles)} - {1, ndim}:
        raise ValueError(f"dwm: {len(pieces)} pieces but {len(tiles)} tiles")
    pieces, tiles = (s * ndim if len(s) == 1 else s for s in (pieces, tiles))
    return Algorithm("dwm", tuple(map(Tile, tiles, pieces)), points or "paper", scaling, variant)


def fft(size: int | Sequence[int] = 16, *, products: int = 3) -> Algorithm:
    """Overlap-save with transforms of ``size``, an int or one per spatial dimension.

    A complex product is made of 4 or 3 real ``products`` (Lavin & Gray, section 4.4).
    """
    sizes = _sizes(size)
    if not sizes or min(sizes) < 1 or products not in (3, 4):
        raise ValueError(f"fft: sizes {sizes}, {products} products; expected >= 1, and 3 or 4")
    return Algorithm("fft", sizes=sizes, products=products)


def _sizes(value: int | Sequence[int]) -> tuple[int, ...]:
    return tuple(whole(v, "a size of an algorithm") for v in listed(value, 1))


def _parse_direct(fields: list[str], options: dict) -> Algorithm:
    if fields or options:
        raise _Malformed
    return direct()


def _parse_winograd(fields: list[str], options: dict) -> Algorithm:
    if len(fields) != 2 or not options.keys() <= {"points", "scaling"}:
        raise _Malformed
    n, r = ([_integer(v) for v in field.split("x")] for field in fields)
    return winograd(n, r, **options)


def _parse_gamma(fields: list[str], options: dict) -> Algorithm:
    if len(fields) != 3 or not options.keys() <= {"points", "scaling", "variant"}:
        raise _Malformed
    return gamma(*map(_integer, fields), **options)


def _parse_omega(fields: list[str], options: dict) -> Algorithm:
    if len(fields) != 3 or not options.keys() <= {"points", "scaling", "segments"}:
        raise _Malformed
    return omega(*map(_integer, fields), **_counted(options))


def _parse_winrs(fields: list[str], options: dict) -> Algorithm:
    if fields or not options.keys() <= {"points", "scaling", "segments", "device"}:
        raise _Malformed
    return winrs(**_counted(options))


def _counted(options: dict) -> dict:
    return {k: _integer(v) if k == "segments" else v for k, v in options.items()}


DWM_OPTIONS = {"points", "scaling", "variant", "error"}


def _parse_dwm(fields: list[str], options: dict) -> Algorithm:
    if not fields and "error" in options and options.keys() <= DWM_OPTIONS:
        return dwm(**{**options, "error": _number(options["error"])})
    if len(fields) != 2 or not options.keys() <= DWM_OPTIONS - {"error"}:
        raise _Malformed
    piece, tile = ([_integer(v) for v in field.split("x")] for field in fields)
    return dwm(piece, tile, **options)


def _parse_fft(fields: list[str], options: dict) -> Algorithm:
    if not 1 <= len(fields) <= 2 or options:
        raise _Malformed
    products = _integer(fields[1]) if len(fields) == 2 else 3
    return fft([_integer(v) for v in fields[0].split("x")], products=products)


class _Malformed(Exception):
    """The text has not the form of its kind."""


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise _Malformed from None


def _integer(text: str) -> int:
    if not text.isdecimal():
        raise _Malformed
    return int(text)


# kind -> an example of its text form, and what reads the fields behind it.
FORMS = {
    "direct": ("direct", _parse_direct),
    "winograd": ("winograd:4x4:3x3", _parse_winograd),
    "gamma": ("gamma:8:6:3@paper;scaling=l1", _parse_gamma),
    "dwm": ("dwm:3:2", _parse_dwm),
    "omega": ("omega:8:3:6@paper;segments=9", _parse_omega),
    "winrs": ("winrs;device=rtx4090", _parse_winrs),
    "fft": ("fft:16:3", _parse_fft),
}


def parse_algorithm(text: str | Algorithm) -> Algorithm:
    """The algorithm that ``text`` names: "gamma:8:6:3@paper", "winograd:4x4:3x3;scaling=l1", …

    After "@" stand the points (a name or a list), after ";" options as key=value.
    Raises ValueError that lists the accepted forms and the nearest one.
    """
    if isinstance(text, Algorithm):
        return text
    if not isinstance(text, str):
        raise TypeError(f"algorithm is of type {type(text).__name__}, no Algorithm and no text")
    body, *pairs = text.strip().split(";")
    body, _, points = body.partition("@")
    kind, *fields = body.split(":")
    options = {key: value for key, _, value in (pair.partition("=") for pair in pairs)}
    if points:
        options["points"] = points
    if kind in FORMS:
        try:
            return FORMS[kind][1](fields, options)
        except _Malformed:
            raise ValueError(
                f"algorithm {text!r} is malformed; {kind} has the form {FORMS[kind][0]!r}"
            ) from None
    near = difflib.get_close_matches(kind.lower(), FORMS, 1, 0.3)
    hint = f"; did you mean {FORMS[near[0]][0]!r}?" if near else ""
    forms = ", ".join(repr(form) for form, _ in FORMS.values())
    raise ValueError(f"unknown algorithm {text!r}; accepted are forms like {forms}{hint}")
