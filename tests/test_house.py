"""Rules of the house that no linter knows."""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tokenize
from collections import Counter
from importlib.metadata import version
from pathlib import Path

import pytest

import winolab

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted(
    path
    for folder in ("winolab", "experiments", "papers", "tests")
    for path in (ROOT / folder).rglob("*.py")
)
MAX_LINES = 400
MAX_FILES = 15  # of Python in a folder: a newcomer reads the list at a glance
MAX_DECIMALS = 6  # a longer one is a rounded constant, typed: print it from its fraction


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_files_stay_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MAX_LINES


def test_folders_stay_small() -> None:
    sizes = Counter(path.parent for path in (*SOURCES, *ROOT.glob("*.py")))
    assert len(sizes) > 50
    assert not {name_of(folder): n for folder, n in sizes.items() if n > MAX_FILES}


@pytest.mark.parametrize(
    "path", [path for path in SOURCES if "tests" not in path.parts], ids=name_of
)
def test_no_constant_is_a_typed_decimal(path: Path) -> None:
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type == tokenize.NUMBER and "." in token.string:
            decimals = token.string.lower().split("e")[0].split(".")[1]
            assert len(decimals) <= MAX_DECIMALS, f"{name_of(path)}:{token.start[0]}"


def test_every_public_name_is_documented() -> None:
    for name in winolab.__all__:
        assert getattr(winolab, name).__doc__, f"winolab.{name} has no docstring"


def test_sentences_have_their_subject() -> None:
    """No docstring and no comment begins with "Of": each is read alone."""
    for path in (*SOURCES, *(ROOT / "winolab").rglob("*.cuh")):
        opened = [n for n, line in enumerate(path.read_text().splitlines(), 1)
                  if line.lstrip().startswith(('"""Of ', "// Of ", "# Of "))]  # fmt: skip
        assert not opened, f"{name_of(path)}: lines {opened}"


@pytest.mark.parametrize("path", sorted((ROOT / "winolab").rglob("*.py")), ids=name_of)
def test_every_module_says_what_it_is(path: Path) -> None:
    text = path.read_text()
    assert not text or ast.get_docstring(ast.parse(text)), f"{name_of(path)} has no docstring"


def test_one_version() -> None:
    assert version("winolab") == winolab.__version__
    assert f"version: {winolab.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_the_core_imports_without_the_extras() -> None:
    """With every module of the extras made unimportable, the library and the command import."""
    script = (
        "import sys\n"
        "for name in ('cupy', 'torch', 'pandas', 'matplotlib', 'nbclient', 'jupytext'):\n"
        "    sys.modules[name] = None\n"
        "import winolab, winolab.cli\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True, cwd=ROOT)


def test_the_papers_are_reproduced_without_the_other_extras() -> None:
    """``make reproduce`` installs the extra experiments alone: all that it imports does with it."""
    script = (
        "import sys\n"
        "class Absent:  # unlike None in sys.modules, which SciPy takes for PyTorch\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name in ('cupy', 'torch', 'jax', 'dask', 'numba', 'flint', 'pytest'):\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Absent())\n"
        "from experiments.harness import reproduce, studies\n"
        "assert all(list(studies.modules(name)) for name in studies.MODULES)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT)


@pytest.mark.parametrize("path", sorted((ROOT / "tests").rglob("*.py")), ids=name_of)
def test_no_file_imports_from_a_test_file(path: Path) -> None:
    """What tests share lies in modules without the prefix."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
            shared = names[0] != "tests" or not any(name.startswith("test_") for name in names)
            assert shared, f"{name_of(path)}:{node.lineno} imports {'.'.join(names)}"
