"""Plans that a process made, kept for the next, in the folder ``plans`` of the kernels' own.

A plan is a function of its request, and a translation unit's text one of the unit, so that both are
found by what decides them: the request or the unit, field by field, and the sources of this package
(``sources``). A file begins with the hash of the rest; what is damaged, another user's or of other
sources is planned anew and written over, whole or not at all, by whichever process comes last: all
write the same. With ``WINOLAB_PLANS=0`` none are read or written.

What a GPU timed to be the fastest (winolab.bench.picks) is kept beside, and stands in the planner's
place where a process asks for it: by ``prefer``, or with ``WINOLAB_TIMED=1`` for all that is kept.
"""

from __future__ import annotations

import io
import os
import pickle
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from winolab.gpu.cublaslt import MATMUL
from winolab.gpu.machine import MachineError, without_cublaslt
from winolab.gpu.runtime.cache import (
    cache_folder,
    own,
    store,
    stored,
    users_folder,
    write,
)
from winolab.gpu.runtime.cache.source import Source, digest

if TYPE_CHECKING:
    from winolab.gpu.codegen.translation_unit import TranslationUnit
    from winolab.gpu.planner.request import Plan, Request

ROOT = Path(__file__).resolve().parents[3]
# What decides nothing about a plan or a kernel's text stands above the planner.
ABOVE = frozenset({"__pycache__", "api", "bench", "cli", "jax", "judge", "torch"})
DOCUMENT = ".md"
PLAIN = (str, bytes, int, float, bool, type(None))
HASH = 32  # letters
SETTLED = 2_000_000_000  # ns: what changed later may change once more at the same time


class Unkept(TypeError):
    """A value that is not told apart by its fields."""


_preferred: dict[tuple[Request, bool], Plan] = {}  # what stands in the planner's place
_seen: list[dict[tuple[Request, bool], None]] = []  # what ``observed`` notes


def planned(request: Request, apart: bool = False) -> Plan:
    """``planner.plan``, which is imported where no process before asked it the same; or what is
    preferred. Raises as the planner does, which is not kept."""
    for seen in _seen:
        seen[request, apart] = None
    if _preferred and (preferred := _preferred.get((request, apart))):
        return preferred
    return _planned(request, apart) if kept() else _made(request, apart)


@lru_cache(maxsize=4096)
def _planned(request: Request, apart: bool) -> Plan:
    try:
        asked = f"{described(request)} {apart}"
    except Unkept:
        return _made(request, apart)
    if os.environ.get("WINOLAB_TIMED") == "1" and (timed := kept_times(request, apart)):
        return timed[0][0]
    for library in (True, False):  # a plan that was made where cuBLASLt is, or where it lacks
        found = _read(_name(f"plan {asked} {library}"))
        plan: Plan | None = None if found is None else _unpacked(found)
        if plan is not None and _holds(plan, library):
            return plan
    plan = _made(request, apart)
    if _usual_families():
        _write(_name(f"plan {asked} {library_there()}"), packed(plan))
    return plan


def prefer(request: Request, apart: bool, plan: Plan) -> None:
    """Let this plan be what is planned for the request from now on, in this process. Calls that
    were made before keep theirs."""
    _preferred[request, apart] = plan


@contextmanager
def observed() -> Iterator[dict[tuple[Request, bool], None]]:
    """What is planned meanwhile: each request, and whether of a filter apart, once."""
    seen: dict[tuple[Request, bool], None] = {}
    _seen.append(seen)
    try:
        yield seen
    finally:
        _seen.remove(seen)


def keep_times(request: Request, apart: bool, times: tuple[tuple[Plan, float], ...]) -> None:
    """Keep plans and the seconds that they took on the request's GPU, the fastest first."""
    with suppress(Unkept):
        if kept() and _usual_families():
            _write(_name(f"timed {described(request)} {apart}"), packed(times))


def kept_times(request: Request, apart: bool) -> tuple[tuple[Plan, float], ...]:
    """What ``keep_times`` kept; nothing where there is nothing that loads here."""
    if not kept():
        return ()
    try:
        found = _read(_name(f"timed {described(request)} {apart}"))
    except Unkept:
        return ()
    times = None if found is None else _unpacked(found)
    if not isinstance(times, tuple) or not all(
        library_there() or not _library(p) for p, _ in times
    ):
        return ()
    return times


def source_of(unit: TranslationUnit) -> Source | None:
    """A plan's translation unit, printed where its hash is not known yet; None where a library
    has its kernels."""
    try:
        name = _name(f"source {described(unit)}") if kept() else None
    except Unkept:
        name = None
    if name and (found := _read(name)) and len(found) == HASH:
        return Source(found.decode(), unit.source)
    text = unit.source()
    if not text:
        return None
    made = Source.of(text)
    if name:
        _write(name, made.digest.encode())
    return made


def kept() -> bool:
    """Whether plans are read and written."""
    return os.environ.get("WINOLAB_PLANS") != "0"


def _made(request: Request, apart: bool) -> Plan:
    from winolab.gpu.planner.planner import plan

    return plan(request, apart)


def _usual_families() -> bool:
    """Whether the planner asks the registry's families and no others."""
    from winolab.gpu.families import registry
    from winolab.gpu.planner import planner

    return planner.FAMILIES is registry.FAMILIES


def library_there() -> bool:
    """Whether the planner takes cuBLASLt to be there."""
    return not without_cublaslt()


def _holds(plan: Plan, library: bool) -> bool:
    """Whether a plan that was made with or without cuBLASLt is the planner's still: what was the
    best beside the library's products is the best without them."""
    if library and not _library(plan):
        return True
    return library_there() == library


def _library(plan: Plan) -> bool:
    """Whether a plan's products are cuBLASLt's."""
    return MATMUL in plan.shared()


@cache
def sources() -> str:
    """A hash of what plans and kernels' texts follow from: this package's files, Python, NumPy and
    the processor's kind, whose arithmetic rounds predicted times.

    Files whose sizes and times of changes are what a process met that hashed them are not read.
    """
    on = f"{platform.python_version()} {np.__version__} {platform.machine()}"
    files = [(name, entry, entry.stat()) for name, entry in _files(ROOT)]
    times = [(name, s.st_size, s.st_mtime_ns, s.st_ctime_ns) for name, _, s in files]
    key = digest(f"sources {on} {ROOT} {times}".encode())
    with suppress(MachineError, OSError):
        if path := stored(key):
            return path.read_text()
    of = [on.encode()]
    for name, entry, _ in files:
        with open(entry.path, "rb", buffering=0) as file:
            of.append(name.encode() + digest(file.read()).encode())
    found = digest(b"\n".join(of))
    settled = time.time_ns() - SETTLED
    if all(max(changed) < settled for _, _, *changed in times):
        with suppress(MachineError):
            store(key, found.encode(), ".sources")
    return found


def _files(folder: Path, above: str = "") -> Iterator[tuple[str, os.DirEntry[str]]]:
    """The files below a folder, in order, by names that begin with ``above``."""
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.is_dir():
            if entry.name not in ABOVE:
                yield from _files(Path(entry.path), f"{above}{entry.name}/")
        elif not entry.name.endswith(DOCUMENT):
            yield above + entry.name, entry


def described(value: Any) -> str:
    """A text that equal values share and no others, by their fields. Raises Unkept for what is not
    made of this package's dataclasses and named tuples, tuples and plain values."""
    kind = type(value)
    if kind in PLAIN:
        return repr(value)
    if kind is tuple:
        return f"({','.join(map(described, value))})"
    if not _ours(kind):
        raise Unkept(f"{kind.__module__}.{kind.__qualname__}")
    each = value if isinstance(value, tuple) else (getattr(value, f.name) for f in fields(kind))
    return f"{kind.__module__}.{kind.__qualname__}({','.join(map(described, each))})"


def _ours(kind: Any) -> bool:
    """Whether it is a dataclass or a named tuple of this package."""
    if not isinstance(kind, type) or kind.__module__.partition(".")[0] != "winolab":
        return False
    return is_dataclass(kind) or (issubclass(kind, tuple) and hasattr(kind, "_fields"))


def rebuilt(kind: type, *values: Any) -> Any:
    """The dataclass with these fields, as they were checked when they were packed."""
    made = object.__new__(kind)
    for field, value in zip(fields(kind), values, strict=True):
        object.__setattr__(made, field.name, value)
    return made


class _Packer(pickle.Pickler):
    """Dataclasses by their fields alone, without what they remember beside."""

    def reducer_override(self, value: Any) -> Any:
        if is_dataclass(value) and not isinstance(value, type):
            return rebuilt, (type(value), *(getattr(value, f.name) for f in fields(value)))
        return NotImplemented


class _Unpacker(pickle.Unpickler):
    """Makes dataclasses and named tuples of this package and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == (__name__, rebuilt.__name__):
            return rebuilt
        if module.partition(".")[0] == "winolab" and _ours(
            found := super().find_class(module, name)
        ):
            return found
        raise pickle.UnpicklingError(f"{module}.{name} is no part of a plan")


def packed(value: Plan | tuple[tuple[Plan, float], ...]) -> bytes:
    """A plan, or plans and their seconds, as a file has them."""
    file = io.BytesIO()
    _Packer(file, protocol=5).dump(value)
    return file.getvalue()


BROKEN = (
    *(pickle.UnpicklingError, ImportError, AttributeError, TypeError, ValueError, EOFError),
    *(IndexError, KeyError),
)


def _unpacked(content: bytes) -> Any:
    """What a file has; None of what is none."""
    try:
        return _Unpacker(io.BytesIO(content)).load()
    except BROKEN:
        return None


def _name(what: str) -> str:
    return f"{digest(f'{sources()} {what}'.encode())}.plan"


def _read(name: str) -> bytes | None:
    """The sound content of that name; None where there is none."""
    with suppress(MachineError, OSError):
        for folder in dict.fromkeys((cache_folder(), users_folder())):
            path = folder / "plans" / name
            if path.exists() and own(path.parent) and own(path):
                hashed, content = (whole := path.read_bytes())[:HASH], whole[HASH:]
                if hashed == digest(content).encode():
                    return content
    return None


def _write(name: str, content: bytes) -> None:
    """Keep it, where the cache can be written to; a call runs without."""
    with suppress(MachineError):
        write(users_folder() / "plans" / name, digest(content).encode() + content)
