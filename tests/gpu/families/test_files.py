"""A file's name says the same in every family's folder (winolab/gpu/families/README.md)."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from winolab.gpu.codegen.emit import FAMILIES
from winolab.gpu.families import registry

SHARED = FAMILIES / "gamma"  # of three families, without main kernels
FOLDERS = sorted({path.parent for path in FAMILIES.glob("*/README.md")} - {SHARED})
ROLES = ("config.py", "tiling.py", "cost.py", "source.py", "launch.py", "plan.py")
# What is defined in one of them alone: names of classes and functions.
OWN = {
    r"\w*Config|\w*configs": "config.py",
    r"\w*Tiling": "tiling.py",
    r"\w*seconds": "cost.py",
    r"\w*source": "source.py",
    r"launch\w*|\w*Launches": "launch.py",
    r"\w*Plan|plans|\w*_plans": "plan.py",
}


def names(path: Path) -> list[str]:
    """Classes and functions at the top of a module."""
    tree = ast.parse(path.read_text())
    return [node.name for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))]


def test_every_folder_is_registered() -> None:
    named = {family.name.split(".")[0] for family in registry.FAMILIES}
    assert named == {folder.name for folder in FOLDERS}


@pytest.mark.parametrize("folder", [*FOLDERS, SHARED], ids=lambda folder: folder.name)
def test_a_file_s_name_says_what_it_has(folder: Path) -> None:
    elsewhere = {"source.py"} if folder.name in ("gamma_wgmma", "gamma_mma") else set()
    there = {path.name for path in folder.glob("*")}
    assert {*ROLES, "README.md"} - there == elsewhere
    for path in folder.glob("*.py"):
        for name in names(path):
            places = {role for own, role in OWN.items() if re.fullmatch(own, name)}
            assert not places or path.name in places, f"{path.name} has {name}"


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_files_import_those_above_them(folder: Path) -> None:
    """A plan knows launches, launches no plan."""
    order = ("config.py", "tiling.py", "cost.py", "launch.py", "plan.py")
    for at, role in enumerate(order):
        text = (folder / role).read_text()
        for below in order[at + 1 :]:
            assert f"{folder.name}.{below.removesuffix('.py')} import" not in text, role


@pytest.mark.parametrize(
    "path", sorted(FAMILIES.rglob("*.py")), ids=lambda path: f"{path.parent.name}.{path.stem}"
)
def test_a_plan_and_a_config_have_their_types(path: Path) -> None:
    """A member that is none is an error of the type checker: neither is Any."""
    assert not re.search(r"\b(plan|call|config|v|kind): Any\b", path.read_text())
