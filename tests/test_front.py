"""The package's front door: names come when they are asked for, and bring what they need alone."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import winolab
from winolab.gpu.machine import NotInstalled

ROOT = Path(__file__).resolve().parents[1]
FAMILIES = ", ".join(
    f"winolab.gpu.families.{path.parent.name}.plan"
    for path in sorted(ROOT.glob("winolab/gpu/families/*/plan.py"))
)
HEAVY = ("torch", "cupy", "jax", "scipy", "typer", "rich", "pandas", "matplotlib")


@pytest.mark.parametrize(
    ("asked", "absent"),
    [
        ("winolab.__version__", ("numpy", "mpmath", "winolab.algorithm", *HEAVY)),
        ("winolab.conv_forward, winolab.gamma(8, 6, 3)", HEAVY),
        ("winolab.plan((2, 9, 9, 32), (32, 3, 3, 32))", HEAVY),
        # a plan that was kept is read by these, and not timed
        (f"import winolab.gpu.runtime.conv, {FAMILIES}", ("winolab.gpu.planner.device_sections",)),
    ],
)
def test_what_is_not_asked_for_is_not_imported(asked: str, absent: tuple[str, ...]) -> None:
    """``import winolab`` takes 0.3 s at most, and a process's first call 0.1 s where its plan was
    kept."""
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


@pytest.mark.parametrize("library", ["torch", "jax"])
@pytest.mark.parametrize("asked", ["winolab.{}", "from winolab.{} import conv"])
def test_without_an_extra_one_line_says_how_to_install_it(library: str, asked: str) -> None:
    """The import system's own line would name the library alone."""
    script = f"import sys; sys.modules[{library!r}] = None; import winolab; {asked.format(library)}"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    *_, raiser, last = done.stderr.splitlines()
    said = f"{library} is not installed: pip install '.[{library}]' in winolab's checkout"
    assert last == f"winolab.gpu.machine.NotInstalled: {said}"
    assert raiser == "    raise lacking"  # nothing was raised before it
    assert "During handling" not in done.stderr
    assert issubclass(NotInstalled, ImportError)  # which pytest.importorskip and others catch
