"""Structs of the kernels as their files declare them: the one place that describes each.

Python packs parameters into Layouts and sizes memory that hold such structs; both are read here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from struct import calcsize

from winolab.gpu.codegen.emit import EPILOGUE, kernel
from winolab.gpu.params import FLOAT, INT, LONG, MAP, POINTER, Layout

CHAR, SHORT = "B", "H"
KINDS = {
    "int": INT,
    "unsigned": INT,
    "unsigned int": INT,
    "long long": LONG,
    "unsigned long long": LONG,
    "float": FLOAT,
    "char": CHAR,
    "unsigned char": CHAR,
    "short": SHORT,
    "unsigned short": SHORT,
    "TensorMap": MAP,
}
TYPE = r"unsigned (?:long long|int|short|char)\b|long long|[\w:]+"
# One expression for all: of each struct its own took longer to compile than to search.
STRUCT = re.compile(r"^struct (?:__align__\((\d+)\) )?(\w+)(?: : \w+)? \{", re.M)
FIELD = re.compile(rf"(?:alignas\((\d+)\) )?(?:const )?({TYPE})\b(.*)")


@dataclass(frozen=True)
class Field:
    """A field: ``kind`` as in a Layout, or the name of a struct; ``count`` of an array."""

    name: str
    kind: str
    count: int = 1
    alignment: int = 1  # at least


def layout(
    struct: str, file: str, fused: bool = False, *, include: str = "", **counts: int
) -> Layout:
    """How a kernel file's parameter struct lies in memory. ``file`` and ``fused`` are as of
    ``emit.kernel``; ``include`` is another file whose structs are taken for the file's own;
    ``counts`` are the constants that sizes of its arrays name.

    Raises ValueError where there is no such struct, or its fields are not of one run.

    >>> layout("ReduceParams", "split_k").fields[0]
    ('buckets', 'Q')
    """
    found = layouts(struct, file, fused, include=include, **counts)
    if len(found) != 1:
        raise ValueError(f"{struct} of {file}.cuh has {len(found)} runs of fields; use layouts")
    return found[0]


def layouts(
    struct: str, file: str, fused: bool = False, *, include: str = "", **counts: int
) -> tuple[Layout, ...]:
    """Layouts of a struct's runs of fields, which structs of other files part: these are packed on
    their own, and ``Params.of`` puts all together. A struct of the same file lies flat, its fields
    as <field>_<its field>. Otherwise as ``layout``.
    """
    text = kernel(file, frozenset({EPILOGUE} if fused else ()))
    text += kernel(include) if include else ""
    runs: list[list[tuple[str, str]]] = [[]]
    for field in _fields(text, struct, counts):
        if field.kind in KINDS.values() or field.kind == POINTER:
            runs[-1].append((field.name, _kind(field)))
        elif f"struct {field.kind} {{" not in text:
            runs.append([])
        elif field.count > 1:
            size = field.count * _size(text, field.kind, counts)[0]
            runs[-1].append((field.name, f"{size}s"))
        else:
            inner = _fields(text, field.kind, counts)
            runs[-1] += [(f"{field.name}_{f.name}", _kind(f)) for f in inner]
    return tuple(Layout(*run) for run in runs if run)


@cache
def size(struct: str, *files: str, **counts: int) -> int:
    """Bytes of a struct, as C counts them; kernel ``files`` declare it and what lies in it."""
    return _size("".join(map(kernel, files)), struct, counts)[0]


def _kind(field: Field) -> str:
    return field.kind if field.count == 1 else f"{field.count * calcsize(field.kind)}s"


def _size(text: str, struct: str, counts: Mapping[str, int]) -> tuple[int, int]:
    """Bytes and alignment."""
    at, widest = 0, _declaration(text, struct)[0]
    for field in _fields(text, struct, counts):
        if field.kind in KINDS.values() or field.kind == POINTER:
            one = alignment = calcsize(field.kind)
        else:
            one, alignment = _size(text, field.kind, counts)
        alignment = max(64 if field.kind == MAP else alignment, field.alignment)
        at += -at % alignment + field.count * one
        widest = max(widest, alignment)
    return at + -at % widest, widest


def _declaration(text: str, struct: str) -> tuple[int, str]:
    """The struct's alignment, at least 1, and its body."""
    found = next((match for match in STRUCT.finditer(text) if match[2] == struct), None)
    if not found:
        raise ValueError(f"there is no struct {struct}: give one that the kernel file declares")
    return int(found[1] or 1), text[found.end() : text.index("\n};", found.end()) + 1]


def _fields(text: str, struct: str, counts: Mapping[str, int]) -> Iterator[Field]:
    """A struct's fields in order, without what it inherits."""
    body = re.sub(r"//.*", "", _declaration(text, struct)[1])
    while body != (body := re.sub(r"\{[^{}]*\}", ";", body)):  # of its functions
        pass
    for statement in body.split(";"):
        words = " ".join(statement.split())
        match = FIELD.fullmatch(words)
        if not match or "__device__" in words or words.startswith("static_assert"):
            continue
        alignment, of, names = int(match[1] or 1), match[2], match[3]
        for name in names.split(","):
            word, _, count = name.split("=")[0].strip().rstrip("]").partition("[")
            kind = POINTER if word.startswith("*") else KINDS.get(of, of.split("::")[-1])
            several = (counts[count] if count in counts else int(count)) if count else 1
            yield Field(word.lstrip("* "), kind, several, alignment)
