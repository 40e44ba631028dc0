"""The floors of the house: who may import whom, read from the import statements."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LIBRARY = sorted((ROOT / "winolab").rglob("*.py"))
CORE = {"numpy", "scipy", "mpmath", "ml_dtypes", "typer", "rich"}
GPU = {"cupy", "cupy_backends", "torch"}
WITH_CUPY = {"gpu/driver.py", "gpu/runtime/arrays.py", "gpu/runtime/conv.py"}
FLOORS = (
    {
        "algorithm",
        "arrays",
        "device",
        "arguments",
        "lines",
        "options",
        "points",
        "problem",
        "shapes",
        "version",
    },
    {"ref"},
    {"gpu"},
    {"conv", "measure"},
    {"bench", "cli"},
)


def imports(path: Path) -> Iterator[str]:
    """Absolute dotted names of everything that the file imports, wherever in it."""
    package = path.relative_to(ROOT).parent.parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*base, *(node.module or "").split("."))).strip(".")
            yield from (f"{module}.{alias.name}" for alias in node.names)


def floor(part: str) -> int:
    found = [level for level, parts in enumerate(FLOORS) if part in parts]
    assert found, f"winolab/{part} stands on no floor: add it to FLOORS"
    return found[0]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", LIBRARY, ids=name_of)
def test_nothing_imports_from_a_floor_above(path: Path) -> None:
    part = path.relative_to(ROOT / "winolab").parts[0].removesuffix(".py")
    if part in ("__init__", "__main__"):
        return
    for name in imports(path):
        names = name.split(".")
        if names[0] == "winolab" and len(names) > 1:
            known = ROOT / "winolab" / names[1]
            assert known.is_dir() or known.with_suffix(".py").is_file(), (
                f"{name_of(path)} imports {name} through the package's front door; "
                "name the module that defines it"
            )
            assert floor(names[1]) <= floor(part), f"{name_of(path)} imports {name}"


@pytest.mark.parametrize("path", LIBRARY, ids=name_of)
def test_the_library_imports_its_dependencies_only(path: Path) -> None:
    inside = path.relative_to(ROOT / "winolab")
    allowed = CORE | set(sys.stdlib_module_names) | {"winolab"}
    if str(inside) in WITH_CUPY or inside.parts[0] == "bench":
        allowed |= GPU
    foreign = {name.split(".")[0] for name in imports(path)} - allowed
    assert not foreign, f"{name_of(path)} imports {sorted(foreign)}"
