"""Files and modules that comments, docstrings and documents name are there."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("winolab", "experiments", "papers", "tests", "docs")
ENDINGS = ("py", "cu", "cuh", "cpp", "h", "md")
TEXTS = sorted(
    path
    for place in ("*.md", *(f"{folder}/**/*.{end}" for folder in FOLDERS for end in ENDINGS))
    for path in ROOT.glob(place)
    if "_generated" not in path.parts and path != ROOT / "CHANGELOG.md"  # it tells what was
)
FILES: dict[str, list[Path]] = defaultdict(list)  # of each file, by any end of its path
for _path in (*TEXTS, ROOT / "CHANGELOG.md"):
    _parts = _path.relative_to(ROOT).parts
    for _first in range(len(_parts)):
        FILES["/".join(_parts[_first:])].append(_path.parent)
SHARED = ROOT / "winolab/gpu/codegen/kernels"
FILE = re.compile(r"(?<![\w/.<>*{}-])((?:[\w-]+/)*\w[\w-]*\.(?:py|cuh?|md))\b")
DOTTED = re.compile(r"(?<![\w./])(?:[a-z_]\w*\.)+\w+\b(?!\*)")
COMMENT = re.compile(r"(?:^ *|  )# .*")
OTHERS = {
    "py",
    "cu",
    "cuh",
    "md",
    "toml",
    "ipynb",
    "json",
    "jsonl",
    "hpp",
    "cpp",
}  # endings of files
VARIABLES = {"params", "tensor"}  # named as modules are
LIBRARIES = {"jax", "torch"}  # of others, whose names ours have at their ends


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


TAILS: dict[str, list[Path]] = defaultdict(list)  # modules, by any end of their names
for _path in TEXTS:
    if _path.suffix == ".py":
        _parts = module_of(_path).split(".")
        for _first in range(len(_parts)):
            if _parts[_first] not in LIBRARIES:
                TAILS[".".join(_parts[_first:])].append(_path)


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Lines of a file that are for its readers alone, by number."""
    text = path.read_text()
    if path.suffix == ".md":
        bare = re.sub(r"```.*?```", lambda m: "\n" * m[0].count("\n"), text, flags=re.DOTALL)
        yield from enumerate(bare.splitlines(), 1)
    elif path.suffix == ".py":
        for number, line in enumerate(text.splitlines(), 1):
            if said := COMMENT.search(line):
                yield number, said[0]
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (
                said := ast.get_docstring(node, clean=False)
            ):
                yield from enumerate(said.splitlines(), node.body[0].lineno)
    else:
        for number, line in enumerate(text.splitlines(), 1):
            yield number, line.partition("//")[2]


@cache
def members(path: Path) -> set[str]:
    """Names at the top level of a module."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        else:
            found |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
            found |= {n.asname or n.name for n in ast.walk(node) if isinstance(n, ast.alias)}
    return found


def is_there(dotted: str) -> bool:
    """Whether a dotted name is a module's or, if it begins as one, its member's."""
    parts = dotted.split(".")
    for known in range(len(parts), 0, -1):
        if modules := TAILS.get(".".join(parts[:known])):
            return known == len(parts) or any(parts[known] in members(m) for m in modules)
    return parts[0] != "winolab"


def missing(line: str, family: Path | None = None) -> list[str]:
    """What a line names and is not there; of a bare file name in a kernel family's README, beside
    it or among those that families share."""
    found = []
    for name in FILE.findall(line):
        places = FILES.get(name, [])
        if not places or (family and "/" not in name and not {family, SHARED} & set(places)):
            found.append(name)
    for name in DOTTED.findall(line):
        first, *_, last = name.split(".")
        if last not in OTHERS and first not in VARIABLES and not is_there(name):
            found.append(name)
    return found


def family_of(path: Path) -> Path | None:
    """The folder of a kernel family whose README it is."""
    inside = path.suffix == ".md" and path.parent.parent.name == "families"
    return path.parent if inside else None


@pytest.mark.parametrize("top", [*FOLDERS, ""])
def test_what_is_named_is_there(top: str) -> None:
    texts = [
        path for path in TEXTS if path.relative_to(ROOT).parts[:-1][:1] == ((top,) if top else ())
    ]
    assert texts
    stale = [
        f"{path.relative_to(ROOT)}:{number}: {name}"
        for path in texts
        for number, line in prose(path)
        for name in missing(line, family_of(path))
    ]
    assert not stale


def test_what_is_not_there_is_found() -> None:
    """Sentences that renames had left behind."""
    for stale in ("gpu/graph.py", "tail.cuh", "tests/ref/test_choose.py", "ref.split.Scale",
                  "errors.error_ratio", "launch.Kernel", "winolab.noise.gain"):  # fmt: skip
        assert missing(f"as {stale} has it") == [stale]
    for there in ("gpu/runtime/cuda_graphs.py", "fallback_kernel.cuh", "driver.Kernel",
                  "np.float32", "ref.error.metrics.error_ratio", "winolab.conv_*",
                  "facts.toml"):  # fmt: skip
        assert not missing(f"as {there} has it")
    nested = ROOT / "winolab/gpu/families/nested"
    assert missing("Files: `plan.py`, `params.py`, `scale.cuh`", nested) == ["params.py"]
