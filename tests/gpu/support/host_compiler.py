"""The C++ compiler of kernels on the CPU: sources that ``hosted.translate`` wrote become libraries.

It comes with the package ziglang of the dev extra; without it, the system's c++ serves.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from winolab.gpu.codegen.emit import kernel

HEADERS = Path(__file__).parents[1] / "host"
ALL = HEADERS / "kernel.hpp"  # includes what a translated source begins with
FLAGS = [
    *("-x", "c++", "-std=c++17", "-fPIC", "-g0", "-w"),
    *("-ffp-contract=off", "-fno-strict-aliasing"),
    "-ftrivial-auto-var-init=pattern",  # a register read before it is written is NaN
    *("-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics"),
    # Nobody unwinds their stacks; saying how is a tenth of a compiler's time.
    *("-fno-unwind-tables", "-fno-asynchronous-unwind-tables"),
]
# No run-time library: host/engine.cpp has what these checks call. They take a fifth of a compiler's
# time and a quarter of a kernel's, so that one source in CHECKED_EVERY has them, by its digest: a
# fault of a family is in many of its sources, and what changes is drawn anew.
CHECKS = "-fsanitize=alignment,bounds,null,shift,integer-divide-by-zero"
CHECKED_EVERY = int(os.environ.get("WINOLAB_CHECKED_EVERY", "8"))
# What takes a kernel's time is in the library beside it, which is compiled once; of the kernel
# itself the compiler's optimizer would take longer than it saves.
OPTIMIZED = "-O1"
OUTER = "template void add_outer_product<{0}, {1}, {0}>(float (&)[{1}][{0}], const float (&)[{0}],"
OUTER_PRODUCTS = "\n".join(f"{OUTER}const float (&)[{{1}}]);".format(*s) for s in ((16, 8), (8, 8)))
# Namespaces of units with several of a kind.
SPACED = "split", "fallback", "first", "second", "third", "fourth"
# host/count.cpp has what this check calls, once an access: none may be a vector of several
COUNTING = "-DHOST_COUNT"
COUNT = (COUNTING, "-fsanitize=thread", "-fno-tree-vectorize", "-fno-tree-slp-vectorize")


class HostError(RuntimeError):
    """What a kernel did wrong, or the compiler's complaint."""


@cache
def compiler() -> tuple[str, ...]:
    """The command of a C++ compiler. Raises HostError that says what to install."""
    native = "-mcpu=native" if platform.machine() in ("arm64", "aarch64") else "-march=native"
    if (found := find_spec("ziglang")) and found.origin:
        return (str(Path(found.origin).with_name("zig")), "cc", native)
    for name in ("c++", "g++", "clang++"):
        if found := shutil.which(name):
            return (found, native)
    raise HostError("no C++ compiler: pip install ziglang, or a system c++")


def build(source: str, flags: tuple[str, ...] = ()) -> Path:
    """The shared library of a translated source, compiled unless it was before."""
    zig = "zig" in compiler()[0]
    # zig takes no -O0 beside -O1; what is counted are accesses that the optimizer leaves.
    quick = () if flags else ("-Xclang", "-O0") if zig else ("-O0",)
    drawn = int(hashlib.sha256(source.encode()).hexdigest(), 16) % CHECKED_EVERY == 0
    quick = (*quick, *[CHECKS] * (drawn and not flags))
    outer = kernel("ffma") + OUTER_PRODUCTS
    spaces = (f"namespace {name} {{\n{outer}\n}}" for name in SPACED)
    library = "\n".join(['#include "library.cpp"', outer, *spaces])
    beside = _object(library, (CHECKS, *[COUNTING] * (COUNTING in flags)))
    flags = (*flags, *quick)
    if zig and platform.system() == "Linux" and _front_end(flags):
        return _with_headers_compiled(source, flags, beside)
    made = _object(source, flags)
    command = [*compiler(), "-shared", str(made), str(beside), "-o"]
    return _kept("so", [made.name, beside.name], lambda to: _run([*command, str(to)]))


def _with_headers_compiled(source: str, flags: tuple[str, ...], beside: Path) -> Path:
    """The library of a source, in half of the time: of the headers the compiler reads what it made
    of them before, and zig is asked for its front end and its linker alone.
    """

    def precompile(to: Path) -> None:
        _run(_front(flags, "-emit-pch", "c++-header", ALL, to, "-fno-pch-timestamp"))

    def link(to: Path) -> None:
        text, made = to.with_name("kernel.cpp"), to.with_name("kernel.o")
        text.write_text(source)
        _run(_front(flags, "-emit-obj", "c++", text, made, "-include-pch", str(headers)))
        _run([compiler()[0], "ld.lld", "-shared", str(made), str(beside), "-o", str(to)])

    headers = _kept("pch", [_headers(), *_front_end(flags)], precompile)
    return _kept("so", [source, headers.name, beside.name], link)


def _front(
    flags: tuple[str, ...], action: str, language: str, source: Path, to: Path, *more: str
) -> list[str]:
    return [compiler()[0], "clang", *_front_end(flags), *more, action,
            "-main-file-name", source.name, "-o", str(to), "-x", language, str(source)]  # fmt: skip


@cache
def _front_end(flags: tuple[str, ...]) -> tuple[str, ...]:
    """What zig's cc asks its front end, without files and action; () where it does not say."""
    command = [*compiler(), *FLAGS, OPTIMIZED, *flags, f"-I{HEADERS}", "-c", "-###"]
    command += [str(ALL), "-o", "made.o"]
    run = subprocess.run(command, capture_output=True, text=True, cwd=HEADERS)
    told = [line for line in run.stderr.splitlines() if '"-cc1"' in line]
    asked = shlex.split(told[0])[1:] if len(told) == 1 else []
    pairs = "-main-file-name", "-o", "-x", "-dependency-file", "-MT"
    left_out = {i + j for i, name in enumerate(asked) if name in pairs for j in (0, 1)}
    return tuple(
        name
        for i, name in enumerate(asked)
        if i not in left_out and name not in ("-emit-obj", str(ALL))
    )


def _object(source: str, flags: tuple[str, ...]) -> Path:
    """The object file of a source."""
    command = [*compiler(), *FLAGS, OPTIMIZED, *flags, f"-I{HEADERS}", "-c"]

    def compile_(to: Path) -> None:
        text = to.with_name("kernel.cpp")
        text.write_text(source)
        _run([*command, str(text), "-o", str(to)])

    return _kept("o", [source, _headers(), *command], compile_)


@cache
def _headers() -> str:
    return "".join(p.read_text() for p in sorted(HEADERS.glob("*.[hc]pp")))


def _kept(kind: str, what: Sequence[str], make: Callable[[Path], None]) -> Path:
    """The file that ``make`` writes, kept under the digest of ``what`` it is made of."""
    key = hashlib.sha256("\0".join([*what, *compiler()]).encode()).hexdigest()[:24]
    folder = Path(os.environ.get("WINOLAB_CACHE") or Path(tempfile.gettempdir()) / "winolab-host")
    kept = folder / f"{key}.{kind}"
    if kept.exists():
        return kept
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        made = Path(scratch) / f"made.{kind}"
        make(made)
        made.replace(kept)
    return kept


def _run(command: list[str]) -> None:
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        raise HostError(f"{' '.join(command)} failed:\n{run.stderr[-6000:]}")
