"""CUDA source of a family's kernels: constants, transforms printed from exact programs, files."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import Protocol

from winolab.gpu.codegen import fields
from winolab.gpu.params import INT, LONG


class Printed(Protocol):
    """What prints itself as device functions: a Program, a layout."""

    def cuda(self, name: str, wide: bool = False) -> str: ...


def unit(
    title: str,
    constants: Mapping[str, int],
    programs: Mapping[str, Printed],
    kernels: Sequence[str],
    wide: Collection[str] = (),
    files: Mapping[str, str] = {},
    macros: Mapping[str, str] = {},
    lean: bool = False,
) -> str:
    """One translation unit: ``kernels``, names as of ``kernel``, behind all that they include.

    ``programs`` become device functions of the names that they are given, in FP64 where ``wide``
    has that name. ``files`` are what the kernels include by macro: ``#include FETCH_FILE``; in the
    place of other ``macros`` stands what they mean. Lines behind ``#ifdef`` and a name of
    ``CONDITIONS`` are there where a constant has that name. A compiler that is given the constants
    and programs, the headers that are printed from Python, these macros and the folder of the
    shared kernels compiles the same. ``lean``: constants that no text names are left out, so that
    units which differ in these alone are one.
    """
    texts = _with_includes(kernels, files, CONDITIONS.intersection(constants))
    for name, meant in macros.items():
        texts = [re.sub(rf"\b{name}\b", meant, t) if name in t else t for t in texts]
    if lean:
        words = frozenset[str]().union(*map(_words, texts))
        constants = {name: value for name, value in constants.items() if name in words}
    parts = [
        f"// {title}",
        "\n".join(_constant(name, value) for name, value in constants.items()),
        *(program.cuda(name, name in wide) for name, program in programs.items()),
        *texts,
    ]
    return "\n\n".join(parts)


def without(source: str, kernels: Collection[str]) -> str:
    """A translation unit without the definitions of these kernels, which no other text names."""
    names = "|".join(kernels)
    return re.sub(
        rf'^extern "C" __global__[^{{}}]*?\b(?:{names})\([^{{}}]*\{{\n.*?^\}}\n',
        "",
        source,
        flags=re.M | re.S,
    )


def _constant(name: str, value: int) -> str:
    kind = "int" if abs(value) < 1 << 31 else "long long"
    return f"constexpr {kind} {name} = {int(value)};"


SPACES = ("first", "second", "third", "fourth")


def named(text: str, part: int) -> str:
    """Names of kernels as the ``part``-th unit of several in one has them."""
    return re.sub(r"\bwinolab_\w+", rf"\g<0>_{SPACES[part]}", text) if part else text


def in_namespaces(units: Iterable[str]) -> str:
    """One translation unit of up to four, each in a namespace of its own."""
    return "\n".join(
        f"namespace {space} {{\n{named(text, part)}\n}}  // namespace {space}"
        for part, (space, text) in enumerate(zip(SPACES, units, strict=False))
    )


# What C++ and CUDA name, as far as kernels use it.
GIVEN = re.compile(
    r"__\w+|make_\w+|atomic\w+|(?:thread|block)Idx|(?:block|grid)Dim|[xyzw]|m(?:in|ax)|f(?:min|max|abs)f"
    r"|sqrtf|clock64|(?:float|double|u?int)[1-4]?|unroll|pragma|if|ifdef|ifndef|elif|else|endif|define"
    r"|include|alignas|alignof|asm|auto|bool|break|case|char|class|const|constexpr|const_cast|continue"
    r"|decltype|default|do|enum|explicit|extern|false|for|inline|long|maybe_unused|namespace|nullptr"
    r"|operator|private|public|reinterpret_cast|return|short|signed|sizeof|static|static_assert"
    r"|static_cast|struct|switch|template|this|true|typename|union|unsigned|using|void|volatile|while"
)


def fingerprint(source: str) -> str:
    """A hash of a translation unit: equal ones compile to the same instructions. Comments, line
    ends and names do not count: names of our own are numbered as they come.
    """
    numbers = itertools.count()
    parts = re.split(r'("(?:\\.|[^"\\])*"|\b[A-Za-z_]\w*)', re.sub(r"//.*", "", source))
    texts = {
        name: name if name[0] == '"' or GIVEN.fullmatch(name) else f"${next(numbers)}"
        for name in dict.fromkeys(parts[1::2])
    }
    parts[1::2] = map(texts.__getitem__, parts[1::2])
    return sha256(" ".join("".join(parts).split()).encode()).hexdigest()


WGMMA_WIDTHS = (16, 32, 48, 64, 96, 128, 160, 192, 224, 256)  # m64nNk16 of mma.cuh


ROOT = Path(str(resources.files("winolab.gpu")))
SHARED, FAMILIES = ROOT / "codegen" / "kernels", ROOT / "families"
EPILOGUE, FALLBACK, TF32 = "EPILOGUE", "FALLBACK", "TF32"
# What applies an epilogue; what leaves the products out that a fallback is behind; what multiplies
# FP32's parts; what measures a kernel without some of its steps.
CONDITIONS = frozenset({EPILOGUE, FALLBACK, TF32, "LEFT_OUT"})
CONDITIONAL = re.compile(
    rf"^ *#ifdef ({'|'.join(sorted(CONDITIONS))})\n(.*?)(?:^ *#else\n(.*?))?^ *#endif\n\n?",
    re.M | re.S,
)
UNKNOWN = re.compile(rf"^ *#(?:ifndef|if|elif)\b.*\b(?:{'|'.join(sorted(CONDITIONS))})\b", re.M)
INCLUDE = r'^#include (?:"([^"]+)"|(\w+_FILE))\n'


def path(name: str) -> Path:
    """Where a kernel file is: ``"pipeline"`` among the shared ones, ``"FAMILY/kernel"`` a family's.

    Raises ValueError where there is none.
    """
    found = (FAMILIES if "/" in name else SHARED) / f"{name}.cuh"
    if not found.is_file():
        raise ValueError(f"there is no kernel file {name!r}: give that of {found.parent}")
    return found


@cache
def kernel(name: str, given: frozenset[str] = frozenset()) -> str:
    """The text of a kernel file as ``unit`` has it: without what it includes, with what is
    generated in its place, and with what is there under the ``given`` conditions.
    """
    text = _chosen(path(name).read_text(), given).replace("#pragma once\n\n", "")
    text = re.sub(INCLUDE + r"\n?", "", text, flags=re.M)
    return re.sub(r'^  #include "([^"]+)"\n', lambda m: headers()[m[1]], text, flags=re.M)


@cache
def headers() -> dict[str, str]:
    """The headers that are printed from Python, by name: a compiler that resolves includes by
    itself needs them as files.
    """
    return {
        "correlation_fields.cuh": declared(fields.CORRELATION),
        "wgmma_shared.cuh": wgmma("shared"),
        "wgmma_registers.cuh": wgmma("registers"),
        "wgmma_of_tf32.cuh": wgmma_of_tf32(),
    }


def _chosen(text: str, given: frozenset[str]) -> str:
    """A kernel file with what is there under the ``given`` conditions. Raises ValueError for a
    condition that is not asked for by #ifdef."""
    if found := UNKNOWN.search(text):
        raise ValueError(
            f"{found[0].strip()}: of {', '.join(sorted(CONDITIONS))} use #ifdef, #else"
        )
    return CONDITIONAL.sub(lambda m: m[2] if m[1] in given else m[3] or "", text)


def _with_includes(
    kernels: Iterable[str], files: Mapping[str, str], given: frozenset[str]
) -> list[str]:
    """Texts of kernel files, each once, each behind those that it includes."""
    seen: set[str] = set()
    found: list[str] = []

    def add(file: Path) -> None:
        name, includes = _included(file, given)
        if name in seen:
            return
        seen.add(name)
        for included, macro in includes:
            beside = file.parent / (included or files[macro])
            add(beside if beside.is_file() else SHARED / beside.name)
        found.append(kernel(name, given))

    for name in kernels:
        add(path(name))
    return found


@cache
def _included(file: Path, given: frozenset[str]) -> tuple[str, list[tuple[str, str]]]:
    """What ``kernel`` calls a file, and what it includes: names, or macros."""
    return _name(file), re.findall(INCLUDE, _chosen(file.read_text(), given), re.M)


@lru_cache(maxsize=256)
def _words(text: str) -> frozenset[str]:
    """The words of a text but for its comments."""
    return frozenset(re.findall(r"\w+", re.sub(r"//.*", "", text)))


def _name(file: Path) -> str:
    """What ``kernel`` calls a file."""
    file = file.resolve().with_suffix("")
    return file.name if file.parent == SHARED.resolve() else f"{file.parent.name}/{file.name}"


def declared(fields: Sequence[tuple[str, str]]) -> str:
    """Fields of a struct in C, from a Layout's."""
    types = {LONG: "long long", INT: "int"}
    return "".join(f"  {types[kind]} {', '.join(names.split())};\n" for names, kind in fields)


def wgmma_of_tf32() -> str:
    """The body of the wrapper of wgmma of TF32, by width: A in registers, B by rows of sums."""
    return _by_width(_branch(n, "", "k8", "tf32", "registers", ()) for n in WGMMA_WIDTHS)


def wgmma(a: str) -> str:
    """The body of a wrapper of wgmma, by width and type; A in "shared" memory or "registers"."""
    turns = ("A_MN", "B_MN") if a == "shared" else ("B_MN",)
    return _by_width(
        _branch(n, f" && BF16 == {bf16}", "k16", kind, a, turns)
        for n in WGMMA_WIDTHS
        for bf16, kind in ((1, "bf16"), (0, "f16"))
    )


def _branch(n: int, also: str, depth: str, kind: str, a: str, turns: tuple[str, ...]) -> str:
    """A width's branch, on one more condition; ``turns``: flags of operands that may lie turned."""
    first = n // 2  # operand behind the accumulators
    sums = ", ".join(f"%{i}" for i in range(first))
    if a == "shared":
        count, left, given = 1, f"%{first}", ['"l"(a)']
    else:
        count, given = 4, [f'"r"(a[{i}])' for i in range(4)]
        left = "{" + ", ".join(f"%{first + i}" for i in range(4)) + "}"
    right, add = first + count, first + count + 1
    flags = "".join(f", %{add + 1 + i}" for i in range(len(turns)))
    outputs = ", ".join(f'"+f"(d[{i}])' for i in range(first))
    given += ['"l"(b)', '"r"((int)accumulate)', *(f'"n"((int){turn})' for turn in turns)]
    return (
        f"  if constexpr (N == {n}{also})\n"
        f'    asm volatile("{{\\n.reg .pred p;\\nsetp.ne.b32 p, %{add}, 0;\\n'
        f"wgmma.mma_async.sync.aligned.m64n{n}{depth}.f32.{kind}.{kind} "
        f'{{{sums}}}, {left}, %{right}, p, 1, 1{flags};\\n}}"\n'
        f"                 : {outputs} : {', '.join(given)});\n"
    )


def _by_width(branches: Iterable[str]) -> str:
    known = " || ".join(f"N == {n}" for n in WGMMA_WIDTHS)
    return f'  static_assert({known}, "add the width to the list");\n' + "".join(branches)
