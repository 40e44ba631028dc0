"""CUDA source of a family's kernels: constants, transforms printed from exact programs, files."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files

from winolab.gpu.driver import INT, LONG
from winolab.gpu.families import geometry
from winolab.ref.algebra.program import Program


def unit(
    title: str,
    constants: Mapping[str, int],
    programs: Mapping[str, Program],
    kernels: Sequence[str],
    wide: Collection[str] = (),
) -> str:
    """One translation unit: what ``kernels``, names of files in kernels/, need stands before them.

    Constants that are True become macros, those that are False nothing. ``programs`` become device
    functions of the names that they are given, in FP64 where ``wide`` has that name.
    """
    parts = [
        f"// {title}",
        "\n".join(_constant(name, v) for name, v in constants.items() if v is not False),
        *(program.cuda(name, name in wide) for name, program in programs.items()),
        *map(kernel, kernels),
    ]
    return "\n\n".join(parts)


def _constant(name: str, value: int) -> str:
    if value is True:
        return f"#define {name}"
    return f"constexpr {'int' if abs(value) < 1 << 31 else 'long long'} {name} = {value};"


def fingerprint(source: str) -> str:
    """Of a translation unit: equal ones are the same code. Comments, line ends and what ``#ifdef``
    drops do not count.
    """
    macros = set(re.findall(r"^#define (\w+)$", source, re.M))
    branches = r"^#ifdef (\w+).*\n((?:(?!#e).*\n)*)(?:#else.*\n((?:(?!#e).*\n)*))?#endif.*$"
    source = re.sub(branches, lambda m: m[2 if m[1] in macros else 3] or "", source, flags=re.M)
    return sha256(" ".join(re.sub(r"//.*", "", source).split()).encode()).hexdigest()


WGMMA_WIDTHS = (16, 32, 48, 64, 96, 128, 160, 192, 224, 256)  # m64nNk16 of tensor.cuh


@cache
def kernel(name: str) -> str:
    """The text of kernels/``name``.cuh, its instructions of many widths printed, and the fields of
    parameters that Python lays out.
    """
    text = files("winolab.gpu").joinpath("kernels", f"{name}.cuh").read_text()
    text = re.sub(r"// emit.file: (\w+)", lambda match: kernel(match[1]), text)
    text = text.replace("  // emit.fields: geometry\n", declared(geometry.FIELDS))
    for a in ("shared", "registers"):
        text = text.replace(f"  // emit.wgmma: {a}\n", wgmma(a))
    return text


def declared(fields: Sequence[tuple[str, str]]) -> str:
    """Fields of a struct in C, from a Layout's."""
    types = {LONG: "long long", INT: "int"}
    return "".join(f"  {types[kind]} {', '.join(names.split())};\n" for names, kind in fields)


def wgmma(a: str) -> str:
    """The body of a wrapper of wgmma, by width and type; A in "shared" memory or "registers"."""
    branches = []
    for n in WGMMA_WIDTHS:
        first = n // 2  # operand behind the accumulators
        sums = ", ".join(f"%{i}" for i in range(first))
        if a == "shared":
            left = f"%{first}"
            count, transposes = 1, 2
            inputs = '"l"(a), "l"(b), "r"((int)accumulate), "n"((int)A_MN), "n"((int)B_MN)'
        else:
            left = "{" + ", ".join(f"%{first + i}" for i in range(4)) + "}"
            count, transposes = 4, 1
            inputs = ", ".join(f'"r"(a[{i}])' for i in range(4))
            inputs += ', "l"(b), "r"((int)accumulate), "n"((int)B_MN)'
        right, add = first + count, first + count + 1
        flags = ", ".join(f"%{add + 1 + i}" for i in range(transposes))
        outputs = ", ".join(f'"+f"(d[{i}])' for i in range(first))
        for bf16, kind in ((1, "bf16"), (0, "f16")):
            branches.append(
                f"  if constexpr (N == {n} && BF16 == {bf16})\n"
                f'    asm volatile("{{\\n.reg .pred p;\\nsetp.ne.b32 p, %{add}, 0;\\n'
                f"wgmma.mma_async.sync.aligned.m64n{n}k16.f32.{kind}.{kind} "
                f'{{{sums}}}, {left}, %{right}, p, 1, 1, {flags};\\n}}"\n'
                f"                 : {outputs} : {inputs});\n"
            )
    known = " || ".join(f"N == {n}" for n in WGMMA_WIDTHS)
    return f'  static_assert({known}, "add the width to the list");\n' + "".join(branches)
