"""The base of algorithm kinds: an algorithm as a value, and the text that names it.

A kind is a frozen dataclass that derives from ``Algorithm``, with the fields that it has and the
form of its text. Deriving makes it known to ``parse_algorithm``; winolab.algorithm has the kinds of
the package, and winolab.ref.kinds.registry the modules that compute them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import Field, field, fields
from typing import Any, ClassVar, Self

from winolab.arguments.values import counted, nearest, whole
from winolab.arguments.words import agreeing, plural
from winolab.device import DATASHEETS, datasheet
from winolab.points import check_served, points_for, shortened, text_of, tile_of
from winolab.tile import Tile

MOST = 10**9  # segments, sizes and products that a text may have
SCALINGS = ("power_of_two", "filter", "l1")
LIBRARIES = ("cudnn", "miopen", "acl", "onednn")  # whose names winolab.api.peers knows
TILE = re.compile(r"^F\((\d+(?:[x×]\d+)*),\s*(\d+(?:[x×]\d+)*)\s*\)(?=$|[@;])")
# kind -> its class, and an example of its text; a class enters itself where it is defined.
KINDS: dict[str, type[Algorithm]] = {}
FORMS: dict[str, str] = {}


class ShowsText:
    """A value that shows its text wherever it stands: ``repr`` is ``str``, in a notebook too."""

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        cls.__repr__ = ShowsText.__repr__  # which a dataclass writes unless the class has one

    def __repr__(self) -> str:
        return str(self)


class _OfKind(type):
    """Calling the base makes an algorithm of the kind that is named first."""

    def __call__(cls, *values, **named):
        return (
            _of_kind(*values, **named) if cls is Algorithm else super().__call__(*values, **named)
        )


def _of_kind(kind: str, *values: Any, **named: Any) -> Algorithm:
    if kind not in KINDS:
        raise ValueError(f"algorithm of kind {kind!r}; expected one of {', '.join(KINDS)}")
    made = KINDS[kind]
    names = [of.name for of in fields(made)]
    if foreign := [name for name in named if name not in names]:
        has = ", ".join(names) or "nothing"
        raise ValueError(f"{kind} takes no {foreign[0]}; it has {has}")
    if len(values) > len(names):
        takes, were = plural(len(names), "value"), agreeing(len(values), "was", "were")
        raise ValueError(f"{kind} takes {takes}; {len(values)} {were} given")
    return made(*values, **named)


class Algorithm(metaclass=_OfKind):
    """How a convolution is computed, as a value; its text form round-trips through parse_algorithm.

    ``kind`` is "direct", "winograd" (nested, one tile per spatial dimension), "gamma"
    (Im2col-Winograd: one tile along the last dimension, the others summed directly), or "dwm"
    (``tiles`` hold the largest piece as r; one tile stands for every dimension) or "fft"
    (``sizes`` of its transforms, real ``products`` a complex product), or "omega" and "winrs"
    (filter gradients in ``segments`` of dy, planned for ``device``). Each is a class of its own
    that has its own fields; ``Algorithm("gamma", (Tile(6, 3),))`` makes one by its kind.
    ``points`` is the text of the interpolation points, ``scaling`` names the row scaling. A set of
    points serves every tile, a list those with as many inputs as its modulus has degree, which have
    the states that it has: others, which are chosen inside (at an edge, along another dimension),
    take their own best points (``points_of``).

    Raises ValueError for a kind, fields, points, scalings, variants and devices that there are not,
    TypeError for numbers that are no integers and points that are not exact.
    """

    kind: ClassVar[str]
    form: ClassVar[str]
    in_pieces: ClassVar[bool] = False  # a GPU computes it as convolutions that are added up
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    # What a kind has that has no such field.
    tiles: tuple[Tile, ...] = ()
    points: str = "best"
    scaling: str | None = None
    variant: str | None = None
    segments: int | None = None
    device: str | None = None

    def __init__(self, kind: str, *values: Any, **named: Any) -> None:
        """Never runs: the metaclass makes an algorithm of the kind."""

    def __init_subclass__(cls) -> None:
        KINDS[cls.kind] = cls
        FORMS[cls.kind] = cls.form
        cls.__repr__ = Algorithm.__repr__  # which a dataclass writes unless the class has one

    def __post_init__(self) -> None:
        """Check every field, and bring it to the form that its text has."""
        for of in fields(self):
            object.__setattr__(self, of.name, of.metadata["read"](getattr(self, of.name)))
        self._check()
        if self.tiles:
            tiles = tuple(tile_of(t.n, t.r, self.points) for t in self.tiles)
            object.__setattr__(self, "tiles", tiles)
            check_served(self.points, self._served, " or ".join(dict.fromkeys(map(str, tiles))))

    def _check(self) -> None:
        """Raise ValueError where fields do not fit together."""

    @property
    def _served(self) -> Iterable[Tile]:
        """The tiles that the points may be for: those that are named."""
        return self.tiles

    def points_of(self, tile: Tile) -> str:
        """The points of a tile that this algorithm names, or that is chosen inside it."""
        return points_for(self.points, tile)

    def check_direction(self, direction: str) -> None:
        """Raise ValueError for a direction that the kind computes nowhere."""

    @property
    def fold(self) -> int:
        """Products of a sum of the first of two levels; 0: there is one level."""
        return 0

    @property
    def published(self) -> tuple[str, ...]:
        """What of a paper's kernels is on; by default nothing is."""
        return ()

    @classmethod
    def of(cls, algorithm: Algorithm) -> Self:
        """The algorithm, which is of this kind. Raises ValueError where it is not."""
        if not isinstance(algorithm, cls):
            raise ValueError(f"{algorithm} is no {cls.kind}; expected one such as {cls.form!r}")
        return algorithm

    @classmethod
    def options(cls) -> dict[str, Callable[[str], Any]]:
        """The fields that stand behind "@" or as key=value, with what reads their text."""
        return {of.name: of.metadata["text"] for of in fields(cls) if of.metadata["text"]}

    @classmethod
    def of_text(cls, numbers: list[list[Any]], options: dict[str, Any]) -> Algorithm | None:
        """The algorithm of what its text has: the numbers between colons, each "x" apart, and the
        options; None where the kind has others."""
        return None if numbers else cls(**options)

    @property
    def _usual_points(self) -> str:
        """Points that the text leaves out."""
        return "best"

    def _placed(self) -> Sequence[Any]:
        """What stands between the kind and the points."""
        return ()

    def _shown(self) -> dict[str, Any]:
        """What stands behind the points."""
        return {name: getattr(self, name) for name in self.options() if name != "points"}

    def __str__(self) -> str:
        text = ":".join(map(str, (self.kind, *self._placed())))
        if self.points != self._usual_points:
            text += f"@{self.points}"
        return text + "".join(f";{name}={value}" for name, value in self._shown().items() if value)

    def __repr__(self) -> str:
        return f"parse_algorithm({str(self)!r})"


class Gradients:
    """What a kind derives from, too, that computes filter gradients alone."""

    def check_direction(self, direction: str) -> None:
        if direction != "backward_filter":
            raise gradients_alone(direction)


def gradients_alone(direction: str) -> ValueError:
    """The error for another direction than the filter gradient."""
    return ValueError(
        f"omega and winrs compute filter gradients only; for {direction.replace('_', ' ')} use "
        "gamma, such as 'gamma:8:6:3', winograd, dwm or direct"
    )


def placed(default: Any, read: Callable[[Any], Any]) -> Any:
    """A field before the points; ``read`` checks its value and brings it to its form."""
    return field(default=default, metadata={"read": read, "text": None})


def option(default: Any, read: Callable[[Any], Any], text: Callable[[str], Any] = str) -> Any:
    """A field behind the points: as ``placed``, and what reads its text, None where it cannot."""
    return field(default=default, metadata={"read": read, "text": text})


def tiles_field() -> Any:
    """The field of tiles."""
    return placed((), _tiles)


def _tiles(tiles: Any) -> tuple[Tile, ...]:
    tiles = tuple(tiles) if isinstance(tiles, Sequence) else (tiles,)
    if strange := [t for t in tiles if not isinstance(t, Tile)]:
        raise TypeError(f"a tile is {strange[0]!r}; expected a Tile(n, r)")
    return tiles


def points_field() -> Any:
    """The field of interpolation points."""
    return option("best", text_of)


def scaling_field() -> Any:
    """The field of the row scaling."""
    return option(None, _scaling)


def _scaling(name: Any) -> str | None:
    if name is None or name == "none":
        return None
    if name not in SCALINGS:
        raise ValueError(f"unknown scaling {name!r}; expected one of none, {', '.join(SCALINGS)}")
    return name


def segments_field() -> Any:
    """The field of the number of segments of dy."""
    return option(None, _segments, counted)


def _segments(count: Any) -> int | None:
    if count is None:
        return None
    if not 1 <= (count := whole(count, "segments")) < MOST:
        raise ValueError(f"segments = {count}; expected at least 1, and below {MOST}")
    return count


def device_field() -> Any:
    """The field of the GPU that is planned for."""
    return option(None, _device)


def _device(name: Any) -> str | None:
    """The short name of a GPU that there is a data sheet of."""
    if name is None:
        return None
    found = datasheet(name)
    return next(short for short, sheet in DATASHEETS.items() if sheet == found)


def _tile_text(found: re.Match[str]) -> str:
    n, r = (part.strip().replace("×", "x") for part in found.groups())
    return f"winograd:{n}:{r}"


def _unknown(kind: str, shown: str) -> ValueError:
    """The error for an algorithm of no kind of ours."""
    if kind.lower() in LIBRARIES:
        return ValueError(
            f"algorithm {shown} is another library's; winolab.predict, bound, tolerance and "
            "accuracy, and the commands tolerance and judge, know what it means: name its tile "
            "here, such as 'winograd:4x4:3x3'"
        )
    near = nearest(kind, FORMS)
    hint = f"; did you mean {FORMS[near]!r}?" if near else ""
    forms = ", ".join(map(repr, (*FORMS.values(), "F(4x4,3x3)")))
    return ValueError(f"unknown algorithm {shown}; accepted are forms like {forms}{hint}")


def parse_algorithm(text: str | Algorithm) -> Algorithm:
    """The algorithm that ``text`` names: "gamma:8:6:3@paper", "winograd:4x4:3x3;scaling=l1", …

    "F(4x4,3x3)" is "winograd:4x4:3x3". After "@" stand the points (a name or a list), after ";"
    options as key=value.
    Raises ValueError that lists the accepted forms and the nearest one, or the options.

    >>> parse_algorithm("gamma:8:6:3@paper").points
    'paper'
    """
    if isinstance(text, Algorithm):
        return text
    if not isinstance(text, str):
        raise TypeError(
            f"algorithm is of type {type(text).__name__}; expected an Algorithm or a text"
        )
    shown = repr(shortened(text))
    body, *pairs = TILE.sub(_tile_text, text.strip()).split(";")
    body, *behind = body.split("@", 1)
    kind, *places = body.split(":")
    if kind not in KINDS:
        raise _unknown(kind, shown)
    readers, options = KINDS[kind].options(), {}
    if unknown := [key for key, _, _ in (p.partition("=") for p in pairs) if key not in readers]:
        near = nearest(unknown[0], readers)
        hint = f"; did you mean {near!r}?" if near else ""
        raise ValueError(
            f"algorithm {shown} is malformed: {kind} has no option {shortened(unknown[0])!r}; "
            f"its options: {', '.join(readers) or 'none'}{hint}"
        )
    for key, _, value in [("points", "", p) for p in behind] + [p.partition("=") for p in pairs]:
        if key in options:
            raise ValueError(f"algorithm {shown} gives its {key} twice; give one")
        options[key] = readers.get(key, str)(value.strip()) if value.strip() else None
    numbers = [[counted(part) for part in place.split("x")] for place in places]
    read = all(None not in values for values in (options.values(), *numbers))
    known = read and options.keys() <= readers.keys()
    if not known or (made := KINDS[kind].of_text(numbers, options)) is None:
        long = any(
            len(part) > 9 and part.isdecimal() for place in places for part in place.split("x")
        )
        below = f", of numbers below {MOST}" if long else ""
        form = f"{FORMS[kind]!r}{below}"
        raise ValueError(f"algorithm {shown} is malformed; {kind} has the form {form}")
    return made
