"""The package's front door: names come when they are asked for, and bring what they need alone."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import winolab

ROOT = Path(__file__).resolve().parents[1]
HEAVY = ("torch", "cupy", "jax", "scipy", "typer", "rich", "pandas", "matplotlib")


@pytest.mark.parametrize(
    ("asked", "absent"),
    [
        ("winolab.__version__", ("numpy", "mpmath", "winolab.algorithm", *HEAVY)),
        ("winolab.conv_forward, winolab.gamma(8, 6, 3)", HEAVY),
    ],
)
def test_what_is_not_asked_for_is_not_imported(asked: str, absent: tuple[str, ...]) -> None:
    """Issue 46, section 4: ``import winolab`` under 0.3 s."""
    script = f"import sys, winolab; {asked}; print(*({set(absent)} & sys.modules.keys()))"
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, cwd=ROOT, capture_output=True, text=True
    )
    assert not done.stdout.split()


def test_names_are_the_same_for_type_checkers_and_at_run_time() -> None:
    """A name is listed, is imported for type checkers, and is found where that import says."""
    homes: dict[str, str] = {}
    for node in ast.walk(ast.parse(Path(winolab.__file__).read_text())):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("winolab."):
            homes |= {alias.name: str(node.module) for alias in node.names}
    assert sorted(homes) == sorted(winolab.__all__) == sorted(set(winolab.__all__))
    for name, home in homes.items():
        found = getattr(winolab, name)
        assert found is getattr(sys.modules[home], name)
    assert set(winolab.__all__) <= set(dir(winolab))
    for wrong in ("conv_backwards", "_private"):
        with pytest.raises(AttributeError, match=f"module 'winolab' has no attribute '{wrong}'"):
            getattr(winolab, wrong)
