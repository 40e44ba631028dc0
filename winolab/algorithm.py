"""The nouns of the package: a tile F(n,r), a convolution problem, an algorithm and its text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from numbers import Real
from typing import Any

from winolab.arguments import counted, listed, nearest, whole
from winolab.device import DATASHEETS, datasheet
from winolab.points import check_served, points_for, shortened, text_of
from winolab.problem import MAX_ALPHA, Problem, Tile

PointsLike = Any  # a name, a text such as "0,1,-1,inf", or such points one by one

__all__ = [
    "FORMS", "MAX_ALPHA", "Algorithm", "Problem", "Tile", "direct", "dwm", "fft", "gamma", "omega",
    "parse_algorithm", "tiled", "winograd", "winrs",
]  # fmt: skip

MOST = 10**9  # segments, sizes and products that a text may have
SCALINGS = ("power_of_two", "filter", "l1")
# kind -> the fields that its algorithms have.
FIELDS = {
    "direct": (),
    "winograd": ("tiles", "points", "scaling"),
    "gamma": ("tiles", "points", "scaling", "variant"),
    "dwm": ("tiles", "points", "scaling", "variant", "error"),
    "omega": ("tiles", "points", "scaling", "segments"),
    "winrs": ("points", "scaling", "segments", "device"),
    "fft": ("sizes", "products"),
}


@dataclass(frozen=True)
class Algorithm:
    """How a convolution is computed, as a value; its text form round-trips through parse_algorithm.

    ``kind`` is "direct", "winograd" (nested, one tile per spatial dimension), "gamma"
    (Im2col-Winograd: one tile along the last dimension, the others summed directly), or "dwm"
    (``tiles`` hold the largest piece as r; one tile stands for every dimension) or "fft"
    (``sizes`` of its transforms, real ``products`` a complex product), or "omega" and "winrs"
    (filter gradients in ``segments`` of dy, planned for ``device``).
    ``points`` is the text of the interpolation points, ``scaling`` names the row scaling. A set of
    points serves every tile, a list those with as many states: others, which are chosen inside (at
    an edge, along another dimension), take their own best points (``points_of``).

    Raises ValueError for a kind, fields, points, scalings, variants and devices that there are not,
    TypeError for numbers that are no integers and points that are not exact.
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
        """Check every field, and bring it to the form that its text has."""
        if self.kind not in FIELDS:
            raise ValueError(
                f"algorithm of kind {self.kind!r}; expected one of {', '.join(FIELDS)}"
            )
        scaling = None if self.scaling == "none" else self.scaling
        error = None if self.error is None else _error(self.error)
        for name, value in {
            "tiles": _tiles(self.tiles),
            "points": text_of(self.points),
            "scaling": scaling,
            "variant": self._variant("balanced" if error and not self.variant else self.variant),
            "sizes": tuple(whole(v, "a size of fft") for v in listed(self.sizes, 1)),
            "products": whole(self.products, "products"),
            "segments": None if self.segments is None else whole(self.segments, "segments"),
            "device": None if self.device is None else _device(self.device),
            "error": error,
        }.items():
            object.__setattr__(self, name, value)
        for field in fields(self)[1:]:
            if field.name not in FIELDS[self.kind] and getattr(self, field.name) != field.default:
                raise ValueError(f"{self.kind} takes no {field.name}")
        if scaling is not None and scaling not in SCALINGS:
            raise ValueError(
                f"unknown scaling {scaling!r}; expected one of none, {', '.join(SCALINGS)}"
            )
        if self.segments is not None and not 1 <= self.segments < MOST:
            raise ValueError(f"segments = {self.segments}; expected at least 1, and below {MOST}")
        self._check_tiles()
        if self.tiles:
            check_served(self.points, self._alphas, " or ".join(map(str, self.tiles)))

    def _check_tiles(self) -> None:
        """Raise ValueError unless there are as many tiles, or sizes, as the kind has."""
        if self.kind in ("gamma", "omega") and len(self.tiles) != 1:
            raise ValueError(f"{self.kind} has {len(self.tiles)} tiles; expected one")
        if self.kind == "winograd" and not self.tiles:
            raise ValueError("winograd has no tiles; expected one a dimension, as in '4x4:3x3'")
        if self.kind == "dwm" and bool(self.tiles) == bool(self.error):
            raise ValueError("dwm has either pieces and tiles or an error to keep to")
        fits = self.sizes and min(self.sizes) >= 1 and max(self.sizes) < MOST
        if self.kind == "fft" and not (fits and self.products in (3, 4)):
            raise ValueError(
                f"fft: sizes {self.sizes}, {self.products} products; expected >= 1, and 3 or 4"
            )

    def _variant(self, variant: str | None) -> str | None:
        """The variant in the form of its text."""
        if not variant or self.kind not in ("gamma", "dwm"):
            return variant or None
        name, _, products = str(variant).partition(":")
        if self.kind == "gamma" and name == "two_level" and (count := counted(products)):
            return f"two_level:{count}"
        if self.kind == "dwm" and variant == "balanced":
            return variant
        of_gamma = "two_level:32, or another number of products"
        known = of_gamma if self.kind == "gamma" else "'balanced' or none"
        raise ValueError(f"{self.kind}: unknown variant {variant!r}; expected {known}")

    @property
    def _alphas(self) -> set[int]:
        """States of the tiles that are named, by dwm with pieces of up to so many taps."""
        if self.kind == "dwm":
            return {n for t in self.tiles for n in range(t.n, t.alpha + 1)}
        return {t.alpha for t in self.tiles}

    def points_of(self, tile: Tile) -> str:
        """The points of a tile that this algorithm names, or that is chosen inside it."""
        return points_for(self.points, tile.alpha)

    @property
    def fold(self) -> int:
        """Products of a sum of the first of two levels; 0: there is one level."""
        return int(self.variant.partition(":")[2]) if self.kind == "gamma" and self.variant else 0

    def __str__(self) -> str:
        n, r = ("x".join(str(getattr(t, side)) for t in self.tiles) for side in "nr")
        text = self.kind
        if self.kind == "fft":
            text += f":{'x'.join(map(str, self.sizes))}:{self.products}"
        elif self.kind in ("gamma", "omega"):
            text += f":{self.tiles[0].alpha}:{n}:{r}"
        elif self.tiles:
            text += f":{r}:{n}" if self.kind == "dwm" else f":{n}:{r}"
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
    """Of one tile Γ, of one a dimension nested Winograd; direct where none transforms anything.

    Points that serve none of the tiles are those of others: these take their own best.
    """
    if all(tile.alpha == 1 for tile in tiles):
        return direct()
    points = points_for(text_of(points), *(t.alpha for t in tiles))
    return Algorithm("gamma" if len(tiles) == 1 else "winograd", tiles, points)


def winograd(
    n: Sequence[int], r: Sequence[int], *, points: PointsLike = "best", scaling=None
) -> Algorithm:
    """Nested F(n0×n1×…, r0×r1×…) (Lavin & Gray, eq. 8): ``winograd((4, 4), (3, 3))``."""
    for name, sizes in (("output", n), ("filter", r)):
        if not hasattr(sizes, "__len__"):
            raise TypeError(
                f"winograd: {name} sizes {sizes!r}; expected one a dimension, as in "
                "winograd((4, 4), (3, 3)); along the last alone, gamma(6, 4, 3)"
            )
    if len(n) != len(r):
        raise ValueError(f"winograd: {len(n)} output sizes but {len(r)} filter sizes")
    return Algorithm("winograd", tuple(map(Tile, n, r)), points, scaling)


def gamma(
    alpha: int, n: int, r: int, *, points: PointsLike = "best", scaling=None, variant=None
) -> Algorithm:
    """Γα(n,r) of Im2col-Winograd (section 4.1): ``gamma(8, 6, 3)``.

    The ``variant`` "two_level:32" sums each 32 products apart before it adds them, in FP32.
    """
    return Algorithm("gamma", (_tile("gamma", alpha, n, r),), points, scaling, variant)


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
    return Algorithm("omega", (_tile("omega", alpha, n, r),), points, scaling, segments=segments)


def _tile(kind: str, alpha: int, n: int, r: int) -> Tile:
    tile = Tile(n, r)
    if tile.alpha != whole(alpha, f"alpha of {kind}"):
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
    return Algorithm("winrs", (), points, scaling, segments=segments, device=device)


def _tiles(tiles: Any) -> tuple[Tile, ...]:
    tiles = tuple(tiles) if isinstance(tiles, Sequence) else (tiles,)
    if strange := [t for t in tiles if not isinstance(t, Tile)]:
        raise TypeError(f"a tile is {strange[0]!r}; expected a Tile(n, r)")
    return tiles


def _device(name: Any) -> str:
    """The short name of a GPU that there is a data sheet of."""
    found = datasheet(name)
    return next(short for short, device in DATASHEETS.items() if device == found)


def _error(value: Any) -> float:
    if not isinstance(value, Real):
        raise TypeError(f"dwm: error is {value!r}; expected a relative RMS error above 0")
    try:
        if (error := float(value)) > 0:
            return error
    except OverflowError:  # of integers
        return math.inf
    raise ValueError(f"dwm: error {value}; expected a relative RMS error above 0")


def dwm(
    piece: int | Sequence[int] | None = None,
    tile: int | Sequence[int] | None = None,
    *,
    error: float | None = None,
    points: PointsLike | None = None,
    scaling: str | None = None,
    variant: str | None = None,
) -> Algorithm:
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
        return Algorithm("dwm", (), text_of(points), scaling, variant, error=error)
    pieces, tiles = _sizes(3 if piece is None else piece), _sizes(2 if tile is None else tile)
    for name, sizes in (("piece", pieces), ("tile", tiles)):
        if not sizes or min(sizes) < 1:
            raise ValueError(f"dwm: {name} {sizes}; expected at least 1 in every dimension")
    ndim = max(len(pieces), len(tiles))
    if {len(pieces), len(tiles)} - {1, ndim}:
        raise ValueError(f"dwm: {len(pieces)} pieces but {len(tiles)} tiles")
    pieces, tiles = (s * ndim if len(s) == 1 else s for s in (pieces, tiles))
    points = "paper" if points is None else text_of(points)
    return Algorithm("dwm", tuple(map(Tile, tiles, pieces)), points, scaling, variant)


def fft(size: int | Sequence[int] = 16, *, products: int = 3) -> Algorithm:
    """Overlap-save with transforms of ``size``, an int or one per spatial dimension.

    A complex product is made of 4 or 3 real ``products`` (Lavin & Gray, section 4.4).
    """
    return Algorithm("fft", sizes=_sizes(size), products=products)


def _sizes(value: int | Sequence[int]) -> tuple[int, ...]:
    return tuple(whole(v, "a size of an algorithm") for v in listed(value, 1))


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


# kind -> an example of its text form.
FORMS = {
    "direct": "direct",
    "winograd": "winograd:4x4:3x3",
    "gamma": "gamma:8:6:3@paper;scaling=l1",
    "dwm": "dwm:3:2",
    "omega": "omega:8:3:6@paper;segments=9",
    "winrs": "winrs;device=rtx4090",
    "fft": "fft:16:3",
}
# Fields that stand before "@"; all others are options behind it.
PLACED = {"tiles", "sizes", "products"}


def parse_algorithm(text: str | Algorithm) -> Algorithm:
    """The algorithm that ``text`` names: "gamma:8:6:3@paper", "winograd:4x4:3x3;scaling=l1", …

    After "@" stand the points (a name or a list), after ";" options as key=value.
    Raises ValueError that lists the accepted forms and the nearest one.
    """
    if isinstance(text, Algorithm):
        return text
    if not isinstance(text, str):
        raise TypeError(f"algorithm is of type {type(text).__name__}, no Algorithm and no text")
    shown = repr(shortened(text))
    body, *pairs = text.strip().split(";")
    body, *points = body.split("@", 1)
    kind, *placed = body.split(":")
    if kind not in FORMS:
        near = nearest(kind, FORMS)
        hint = f"; did you mean {FORMS[near]!r}?" if near else ""
        forms = ", ".join(map(repr, FORMS.values()))
        raise ValueError(f"unknown algorithm {shown}; accepted are forms like {forms}{hint}")
    options: dict[str, Any] = {}
    for key, _, value in [("points", "", p) for p in points] + [p.partition("=") for p in pairs]:
        if key in options:
            raise ValueError(f"algorithm {shown} gives its {key} twice; give one")
        reader = {"segments": counted, "error": _number}.get(key, str)
        options[key] = reader(value.strip()) if value.strip() else None
    numbers = [[counted(part) for part in field.split("x")] for field in placed]
    known = options.keys() <= set(FIELDS[kind]) - PLACED
    read = all(None not in values for values in (options.values(), *numbers))
    if not (known and read) or (made := _made(kind, numbers, options)) is None:
        raise ValueError(f"algorithm {shown} is malformed; {kind} has the form {FORMS[kind]!r}")
    return made


def _made(kind: str, numbers: list[list[Any]], options: dict[str, Any]) -> Algorithm | None:
    """The algorithm of these numbers, None where the kind has others."""
    match kind, numbers:
        case "direct", []:
            return direct()
        case "winograd", [n, r]:
            return winograd(n, r, **options)
        case "gamma", [[alpha], [n], [r]]:
            return gamma(alpha, n, r, **options)
        case "omega", [[alpha], [n], [r]]:
            return omega(alpha, n, r, **options)
        case "winrs", []:
            return winrs(**options)
        case "dwm", [] if "error" in options:
            return dwm(**options)
        case "dwm", [piece, tile] if "error" not in options:
            return dwm(piece, tile, **options)
        case "fft", [size]:
            return fft(size)
        case "fft", [size, [products]]:
            return fft(size, products=products)
    return None
