"""Matrices of an algorithm as a caller gives them: a file's text, one line, or rows of numbers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from winolab.arguments.factors import exact, shortened
from winolab.arguments.words import plural

Matrix = tuple[tuple[Fraction, ...], ...]

NAMES = ("AT", "G", "BT")
MOST_TEXT = 1 << 20  # characters of a text of matrices, at most
_HEADER = re.compile(r"(AT|A\^T|G|BT|B\^T)\s*(?:\([^()]*\))?\s*[=:]?\s*(.*)")
_LINE = re.compile(r"AT(\[[^A-Z]*\])G(\[[^A-Z]*\])BT(\[[^A-Z]*\])")
# What the command itself prints around matrices.
_OWN = re.compile(r"(F\(\d+,\d+\)|points\b|y = AT|#|//)")


@dataclass(frozen=True)
class Matrices:
    """AT (n × α), G (α × r) and BT (α × n + r − 1), each a product of stages, the first last.

    Nothing of them is proved (winolab.ref.algebra.transforms does that); ``str`` is one line that
    ``parse`` reads: rows apart by "|", stages by "*".
    """

    AT: tuple[Matrix, ...]
    G: tuple[Matrix, ...]
    BT: tuple[Matrix, ...]

    def __post_init__(self) -> None:
        for name in NAMES:
            for left, right in zip(stages := getattr(self, name), stages[1:], strict=False):
                if len(left[0]) != len(right):
                    raise ValueError(
                        f"{name} is a product of {plural(len(left[0]), 'column')} and "
                        f"{plural(len(right), 'row')}; expected as many"
                    )

    @property
    def n(self) -> int:
        return len(self.AT[0])

    @property
    def r(self) -> int:
        return len(self.G[-1][0])

    @property
    def alpha(self) -> int:
        return len(self.G[0])

    def __str__(self) -> str:
        return "".join(name + "*".join(map(_one_line, getattr(self, name))) for name in NAMES)

    @classmethod
    def of(cls, given: Any) -> Matrices:
        """Those of a file's path, a text, AT, G and BT in this order or by name, or of what has
        them, such as Transforms.

        Raises ValueError where a matrix is missing or ragged, TypeError for numbers that are not
        exact, OSError for files that cannot be read.
        """
        if isinstance(given, cls):
            return given
        if isinstance(given, Path):
            try:
                given = given.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                raise ValueError(f"{given} is no text; expected AT, G and BT") from None
        if isinstance(given, str):
            return parse(given)
        if all(hasattr(given, name) for name in NAMES):
            stages = getattr(given, "stages", ()) or [(getattr(given, name),) for name in NAMES]
            pairs = zip(NAMES, stages, strict=True)
            return cls(*(tuple(matrix(name, m) for m in some) for name, some in pairs))
        if isinstance(given, Mapping):
            if missing := [name for name in NAMES if name not in given]:
                raise ValueError(f"there is no {missing[0]}; expected {', '.join(NAMES)}")
            given = [given[name] for name in NAMES]
        if not isinstance(given, Sequence) or len(given) != len(NAMES):
            raise TypeError(
                f"matrices are {shortened(repr(given))}; expected AT, G and BT, or their text"
            )
        return cls(*((matrix(n, m),) for n, m in zip(NAMES, given, strict=True)))


def is_line(text: str) -> bool:
    """Whether a text is meant to be matrices in one line."""
    return text.startswith("AT[")


def parse(text: str) -> Matrices:
    """The matrices of a text: JSON, one line, or a name and rows of numbers, line by line.

    A row's numbers stand apart by blanks or commas, brackets around them mean nothing; what
    ``winolab transforms`` prints is read back. Raises ValueError that names the line.
    """
    if len(text) > MOST_TEXT:
        raise ValueError(f"matrices of {len(text)} characters; expected at most {MOST_TEXT}")
    text = text.strip()
    if text.startswith(("{", "[")):
        return _json(text)
    if is_line(text):
        if (made := _LINE.fullmatch(re.sub(r"\s", "", text))) is None:
            raise ValueError(f"{shortened(text)!r} is malformed; expected AT[1,1|0,1]G[…]BT[…]")
        stages = ([s.strip("[]").split("|") for s in of.split("]*[")] for of in made.groups())
        return Matrices(
            *(
                tuple(matrix(name, [row.split(",") for row in stage]) for stage in of)
                for name, of in zip(NAMES, stages, strict=True)
            )
        )
    return _lines(text)


def _json(text: str) -> Matrices:
    try:
        given = json.loads(text, parse_float=Fraction)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the matrices are no JSON: {shortened(str(error))}") from None
    return Matrices.of(given)


def _lines(text: str) -> Matrices:
    found: dict[str, list[list[str]]] = {}
    rows: list[list[str]] | None = None
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        if line.startswith("operations"):
            break
        if _OWN.match(line):
            continue
        if header := _HEADER.fullmatch(line):
            name, line = header[1].replace("^", ""), header[2]
            if name in found:
                raise ValueError(f"line {number}: {name} comes twice; expected it once")
            rows = found.setdefault(name, [])
        for row in map(_numbers, re.split(r"\]\s*[,;]?\s*\[|;", line)):
            if row and rows is None:
                raise ValueError(
                    f"line {number}: {shortened(line)!r} stands before any matrix; expected a line "
                    "AT, G or BT, and rows of numbers behind it"
                )
            if wrong := [value for value in row if _number(value) is None]:
                raise ValueError(
                    f"line {number}: {shortened(wrong[0])!r} is no rational number such as -1/6"
                )
            if row and rows is not None:
                rows.append(row)
    return Matrices.of(found)


def _numbers(row: str) -> list[str]:
    return re.sub(r"[\[\](){},⎡⎢⎣⎤⎥⎦]", " ", row).split()


def matrix(name: str, rows: Any, texts: bool = True) -> Matrix:
    """The matrix in Python's own rational numbers, which ``texts`` may state. Raises TypeError for
    others, ValueError where there are none, or rows of different lengths."""
    made = []
    for i, row in enumerate(_listed(name, rows)):
        made.append([])
        for j, value in enumerate(_listed(f"{name}[{i}]", row)):
            q = _number(value) if texts and isinstance(value, str) else exact(value)
            if q is None:
                raise TypeError(
                    f"{name}[{i}][{j}] is {value!r}; expected an exact number, an int or a Fraction"
                )
            made[i].append(q)
        if len(made[i]) != len(made[0]):
            raise ValueError(
                f"{name}[{i}] has {plural(len(made[i]), 'number')} and {name}[0] {len(made[0])}; "
                "expected equally many"
            )
    return tuple(map(tuple, made))


def _number(text: str) -> Fraction | None:
    if len(text) > 2000 or re.search(r"[eE][+-]?\d{3}", text):
        return None
    try:
        return Fraction(text.strip())
    except (ValueError, ZeroDivisionError):
        return None


def _listed(name: str, values: Any) -> tuple[Any, ...]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise TypeError(f"{name} is {values!r}; expected a list")
    if not (found := tuple(values)):
        raise ValueError(f"{name} is empty; expected AT n × α, G α × r and BT α × n + r − 1")
    return found


def _one_line(of: Matrix) -> str:
    return "[" + "|".join(",".join(map(str, row)) for row in of) + "]"
