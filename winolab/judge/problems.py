"""The problems that a kernel is judged on, as texts: fixed ones, random ones, what it serves."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from random import Random

from winolab.arguments.shapes import padding_text
from winolab.problem import Problem

# (batch, input, channels, filters, taps, stride, padding, dilation, groups): two dimensions, of
# which one-dimensional kernels get the last and three-dimensional ones the first twice.
Sizes = int | tuple[int, ...]
Shape = tuple[int, tuple[int, ...], int, int, tuple[int, ...], Sizes, object, Sizes, int]
PLAIN: tuple[Shape, ...] = (
    (2, (12, 10), 8, 16, (3, 3), 1, 1, 1, 1),
    (1, (8, 16), 64, 32, (3, 3), 1, 1, 1, 1),
    (1, (5, 9), 256, 8, (3, 3), 1, 1, 1, 1),  # long sums
    (3, (9, 7), 5, 7, (3, 3), 1, 1, 1, 1),  # no whole tile, no vector of channels
    (2, (6, 11), 3, 33, (3, 3), 1, 0, 1, 1),
    (1, (1, 1), 4, 4, (3, 3), 1, 1, 1, 1),  # one pixel
    (5, (4, 13), 1, 1, (3, 3), 1, 1, 1, 1),
    (2, (7, 8), 17, 9, (1, 1), 1, 0, 1, 1),
    (1, (14, 9), 6, 8, (5, 5), 1, 2, 1, 1),
    (1, (9, 12), 4, 6, (2, 4), 1, 1, 1, 1),
    (1, (280, 240), 1, 2, (3, 3), 1, 1, 1, 1),  # more than 2¹⁶ positions
    (2, (11, 12), 8, 8, (3, 3), 2, 1, 1, 1),
    (1, (12, 9), 8, 8, (3, 3), 1, 2, 2, 1),
    (2, (10, 9), 8, 12, (3, 3), 1, 1, 1, 4),
    (2, (7, 9), 6, 6, (3, 3), 1, 1, 1, 6),
    (2, (8, 10), 4, 8, (3, 3), 1, ((0, 1), (2, 1)), 1, 1),
    (1, (13, 11), 6, 4, (3, 5), 3, (2, 1), 2, 2),
    (1, (9, 14), 5, 6, (3, 3), (1, 2), (2, 1), 1, 1),  # dimensions that differ
    (2, (13, 10), 4, 5, (3, 2), (2, 1), (1, 0), (1, 2), 1),
    (1, (11, 12), 2, 3, (11, 7), 1, (5, 3), 1, 1),  # many taps
    (1, (3, 4), 3, 2, (3, 3), 1, 4, 1, 1),  # windows of padding alone
    (1, (2, 3), 1030, 4, (3, 3), 1, 1, 1, 1),  # many channels, filters, images, columns
    (1, (3, 2), 4, 1030, (3, 3), 1, 1, 1, 1),
    (300, (3, 3), 2, 3, (3, 3), 1, 1, 1, 1),
    (1, (2, 4100), 1, 2, (3, 3), 1, 1, 1, 1),
    (1, (66, 66), 16, 2, (3, 3), 1, 0, 32, 1),  # a window of more than 2¹⁶ elements
    (0, (6, 6), 4, 4, (3, 3), 1, 1, 1, 1),  # no image
)
LARGE = 1 << 20  # elements of an image
# More outputs than a GPU's threads are, which a kernel of as many blocks as fit goes through in
# turns: an H200 holds 132 · 2,048 threads, of which each may have four results.
OUTPUTS: Shape = (1, (520, 540), 1, 4, (1, 1), 1, 0, 1, 1)
KEYS = ("filter", "stride", "padding", "dilation", "groups", "batch", "channels", "out_channels")
WORDS = ("aligned", "contiguous", "square", "symmetric")
EXAMPLE = '"filter=3 stride=1|2 padding=0-1 channels=16n aligned"'


def fixed(ndim: int) -> Iterator[Problem]:
    """Problems that faults are often seen on, of so many dimensions."""
    yield from (p for p in map(partial(_problem, ndim=ndim), PLAIN) if p)


def many(ndim: int) -> Problem | None:
    """One of more outputs than a GPU has threads; of one dimension there is none."""
    return _problem(OUTPUTS, ndim) if ndim > 1 else None


def elsewhere(problem: Problem) -> Problem:
    """The same filters for other images, and one image more."""
    p = problem
    return replace(p, batch=p.batch + 1, input=tuple(n + 3 + d for d, n in enumerate(p.input)))


def _problem(shape: Shape, ndim: int) -> Problem | None:
    """That of so many dimensions; None where it were too large."""
    batch, sizes, channels, filters, taps, stride, padding, dilation, groups = shape
    pads, steps, spread = (
        _dimensions(v, ndim) if isinstance(v, tuple) else v for v in (padding, stride, dilation)
    )
    sizes = _dimensions(sizes, ndim)
    if ndim == 3 and max(sizes) > 99:
        sizes = (2, *sizes[1:])
    if math.prod(sizes) * channels > LARGE:
        return None
    return Problem.of(
        (batch, *sizes, channels),
        (filters, *_dimensions(taps, ndim), channels // groups),
        stride=steps,  # pyright: ignore[reportArgumentType]
        padding=pads,  # pyright: ignore[reportArgumentType]
        dilation=spread,  # pyright: ignore[reportArgumentType]
        groups=groups,
    )


def _dimensions(values: tuple, ndim: int) -> tuple:
    return {1: values[1:], 2: values, 3: (values[0], *values)}[ndim]


def drawn(rng: Random, ndim: int) -> Problem:
    """A random problem of at most some 10⁶ products: every argument may differ from its default."""
    while True:
        groups = rng.choice([1, 1, 1, 2, 3, 4])
        channels, filters = (groups * rng.choice([1, 2, 3, 4, 5, 8, 16, 19]) for _ in range(2))
        taps = [rng.choice([1, 2, 3, 3, 3, 4, 5, 7]) for _ in range(ndim)]
        if rng.random() < 0.6:
            taps = [taps[0]] * ndim
        dilation, stride = ([rng.choice([1, 1, 1, 2, 3]) for _ in taps] for _ in range(2))
        reach = [(r - 1) * d + 1 for r, d in zip(taps, dilation, strict=True)]
        padding = [(rng.randint(0, r // 2 + 1),) * 2 for r in reach]
        if rng.random() < 0.3:
            padding = [(rng.randint(0, r), rng.randint(0, r)) for r in reach]
        sizes = [
            max(1, r - lo - hi) + rng.randint(0, 14)
            for r, (lo, hi) in zip(reach, padding, strict=True)
        ]
        found = Problem.of(
            (rng.randint(1, 4), *sizes, channels),
            (filters, *taps, channels // groups),
            stride=stride,
            padding=padding,
            dilation=dilation,
            groups=groups,
        )
        if found.macs <= 1 << 20:
            return found


def text(problem: Problem) -> str:
    """A problem as the command names layers, with the defaults left out."""
    p = problem
    said = f"{_joined((p.batch, *p.input, p.in_channels))}>{_joined((p.out_channels, *p.filter))}"
    for letter, values in (("s", p.stride), ("d", p.dilation)):
        if any(v != 1 for v in values):
            said += letter + _joined(values[:1] if len(set(values)) == 1 else values)
    if any(v != (0, 0) for v in p.padding):
        pads = p.padding[:1] if len(set(p.padding)) == 1 else p.padding
        said += "p" + padding_text(pads)
    return said + (f"g{p.groups}" if p.groups > 1 else "")


def _joined(values: tuple[int, ...]) -> str:
    return "x".join(map(str, values))


@dataclass(frozen=True)
class Serves:
    """What a kernel says it serves, as texts: "filter=3 stride=1|2 channels=16n aligned".

    A key has numbers, ranges (0-2) and multiples (16n), separated by "|", that each dimension's
    value is one of; ``aligned``: addresses are multiples of 16 bytes, ``contiguous``: arrays are,
    ``square``: filters, strides and dilations are the same along all dimensions, ``symmetric``:
    both ends of a dimension are padded alike. Raises ValueError for another text.
    """

    said: str = ""

    def __post_init__(self) -> None:
        for part in self.said.split():
            key, equals, values = part.partition("=")
            known = key in KEYS if equals else key in WORDS
            if not known or (equals and not all(map(_choice, values.split("|")))):
                raise ValueError(
                    f"serves {part!r}; expected {', '.join(KEYS)} with values and "
                    f"{', '.join(WORDS)}, such as {EXAMPLE}"
                )

    def has(self, word: str) -> bool:
        """Whether the word is among what is said."""
        return word in self.said.split()

    def __contains__(self, problem: Problem) -> bool:
        p = problem
        if self.has("symmetric") and any(lo != hi for lo, hi in p.padding):
            return False
        if self.has("square") and any(len({*v}) > 1 for v in (p.filter, p.stride, p.dilation)):
            return False
        values: dict[str, tuple[int, ...]] = {
            "filter": p.filter,
            "stride": p.stride,
            "padding": tuple(end for pair in p.padding for end in pair),
            "dilation": p.dilation,
            "groups": (p.groups,),
            "batch": (p.batch,),
            "channels": (p.in_channels,),
            "out_channels": (p.out_channels,),
        }
        for part in self.said.split():
            key, equals, said = part.partition("=")
            choices = [_choice(choice) for choice in said.split("|")] if equals else []
            if equals and not all(any(c and c(v) for c in choices) for v in values[key]):
                return False
        return True

    def nearest(self, problem: Problem) -> Problem | None:
        """The problem, with the values that are not served changed to the first that are; None
        where that is none."""
        p = problem
        for part in self.said.split():
            key, equals, said = part.partition("=")
            if not equals:
                continue
            choices = [c for c in map(_choice, said.split("|")) if c]

            def fit(value: int, choices: list = choices) -> int:
                if any(c(value) for c in choices):
                    return value
                near = sorted(range(1025), key=lambda v: (abs(v - value), v))
                return next((v for v in near if any(c(v) for c in choices)), value)

            name = {"channels": "in_channels"}.get(key, key)
            value = getattr(p, name)
            if key == "padding":
                value = tuple((fit(lo), fit(hi)) for lo, hi in value)
            else:
                value = tuple(map(fit, value)) if isinstance(value, tuple) else fit(value)
            try:
                p = replace(p, **{name: value})
            except ValueError:
                return None
        if self.has("symmetric"):
            p = replace(p, padding=tuple((lo, lo) for lo, _ in p.padding))
        return p if p in self else None


def _choice(said: str) -> Callable[[int], bool] | None:
    if found := re.fullmatch(r"(\d+)(?:-(\d+))?", said):
        low, high = int(found[1]), int(found[2] or found[1])
        return lambda value: low <= value <= high
    if found := re.fullmatch(r"([1-9]\d*)n", said):
        return lambda value: value > 0 and value % int(found[1]) == 0
    return None


def smaller(p: Problem) -> Iterator[Problem]:
    """Problems that differ from this one by one size that is smaller, the boldest changes first."""
    ones = (1,) * p.ndim
    steps: list[dict] = [{"batch": 1}, {"batch": p.batch // 2}]
    if p.groups > 1:
        steps.append({"groups": 1})
        steps += [
            {"groups": g, "in_channels": p.in_channels // p.groups * g,
             "out_channels": p.out_channels // p.groups * g}
            for g in (1, p.groups // 2)
        ]  # fmt: skip
    for name in ("in_channels", "out_channels"):
        size = getattr(p, name)
        steps += [{name: p.groups}, {name: size // 2}, {name: size - p.groups}]
    steps += [{"stride": ones}, {"dilation": ones}, {"padding": ((0, 0),) * p.ndim}]
    for name in ("input", "filter", "stride", "dilation"):
        for d, size in enumerate(getattr(p, name)):
            for less in (1, size // 2, size - 1):
                values = list(getattr(p, name))
                values[d] = less
                steps.append({name: tuple(values)})
    for d, (lo, hi) in enumerate(p.padding):
        for pair in ((0, hi), (lo, 0), (max(0, lo - 1), hi), (lo, max(0, hi - 1))):
            pairs = list(p.padding)
            pairs[d] = pair
            steps.append({"padding": tuple(pairs)})
    for step in steps:
        try:
            found = replace(p, **step)
        except ValueError:
            continue
        if found != p and not found.empty:
            yield found
