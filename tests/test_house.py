"""Rules of the house that no linter knows."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from importlib.metadata import version
from pathlib import Path

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


def test_files_stay_short() -> None:
    assert len(SOURCES) > 800
    lines = {name_of(path): len(path.read_text().splitlines()) for path in SOURCES}
    assert not {name: n for name, n in lines.items() if n > MAX_LINES}


def test_folders_stay_small() -> None:
    sizes = Counter(path.parent for path in (*SOURCES, *ROOT.glob("*.py")))
    assert len(sizes) > 50
    assert not {name_of(folder): n for folder, n in sizes.items() if n > MAX_FILES}


def test_no_constant_is_a_typed_decimal() -> None:
    for path in (path for path in SOURCES if "tests" not in path.parts):
        text = path.read_text()
        if not re.search(rf"\.[\d_]{{{MAX_DECIMALS + 1}}}", text):
            continue  # tokens would say the same, later
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.NUMBER and "." in token.string:
                decimals = token.string.lower().split("e")[0].split(".")[1]
                assert len(decimals) <= MAX_DECIMALS, f"{name_of(path)}:{token.start[0]}"


def test_members_of_plans_are_no_texts() -> None:
    """A misspelled member is a type error where it is no text, as in getattr(plan, "flagz", 0)."""
    paths = [path for path in SOURCES if "winolab/gpu/" in name_of(path)]
    assert len(paths) > 150
    rooms = [p for p in paths if {"planner", "families", "call.py", "planned.py"} & {*p.parts}]
    found = [name_of(p) for p in rooms if re.search(r'getattr\([^"\n]*, "\w+"', p.read_text())]
    assert not found


def test_every_public_name_is_documented() -> None:
    for name in winolab.__all__:
        assert getattr(winolab, name).__doc__, f"winolab.{name} has no docstring"


def test_sentences_have_their_subject() -> None:
    """No docstring and no comment begins with "Of": each is read alone."""
    for path in (*SOURCES, *(ROOT / "winolab").rglob("*.cuh")):
        opened = [n for n, line in enumerate(path.read_text().splitlines(), 1)
                  if line.lstrip().startswith(('"""Of ', "// Of ", "# Of "))]  # fmt: skip
        assert not opened, f"{name_of(path)}: lines {opened}"


def test_every_module_says_what_it_is() -> None:
    paths = sorted((ROOT / "winolab").rglob("*.py"))
    assert len(paths) > 250
    texts = {name_of(path): path.read_text() for path in paths}
    # without its docstring's end, Python would not take the file
    assert not [name for name, text in texts.items() if text and not text.startswith('"""')]
    assert not [name for name, text in texts.items() if text.startswith('""""""')]


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


def test_no_file_imports_from_a_test_file() -> None:
    """What tests share lies in modules without the prefix; code in strings counts."""
    pattern = re.compile(r"\bfrom tests\b[\w.]* import (?:\([^)]*\)|.*)|\bimport tests\.[\w.]*")
    paths = sorted((ROOT / "tests").rglob("*.py"))
    found = [(name_of(path), line) for path in paths for line in pattern.findall(path.read_text())]
    assert len(found) > 150
    assert not [(name, line) for name, line in found if re.search(r"\btest_", line)]


# Tests of another room's calls on CUDA arrays, and of documents.
MIRRORED = {
    "docs": "docs",
    "gpu/jax": "winolab/jax",
    "gpu/judge": "winolab/judge",
    "gpu/torch": "winolab/torch",
}
# Tests of no room: of all kernels, of what runs kernels on the CPU, of kernels that are judged.
ROOMLESS = {"gpu/every_kernel", "gpu/host", "judge/strangers"}
# Tests named for a subject, which import a module of that name from elsewhere.
SUBJECTS = {"gpu/planner/test_tolerance.py", "gpu/families/wgrad_ffma/test_winrs.py"}


def mirrored(test: Path) -> Path | None:
    """The folder whose modules a test is for, or the module, of tests in a folder named for it."""
    place = test.parent.relative_to(ROOT / "tests").as_posix()
    if place in ROOMLESS:
        return None
    inside = place.partition("/")[0] in ("experiments", "papers")
    return ROOT / MIRRORED.get(place, place if inside else f"winolab/{place}")


def test_tests_mirror_sources() -> None:
    """A folder of tests is a folder or a module of sources; a test that imports a module of its own
    name lies in the mirror of that module's folder."""
    tests = [path for path in SOURCES if path.name.startswith("test_")]
    rooms = {test: room for test in tests if (room := mirrored(test))}
    assert len(rooms) > 300
    missing = (r for r in rooms.values() if not r.is_dir() and not r.with_suffix(".py").is_file())
    assert not {name_of(room) for room in missing}
    sources = {path for path in SOURCES if "tests" not in path.parts}
    misplaced = set()
    for test, room in rooms.items():
        name = test.stem.removeprefix("test_")
        if name == room.name or room / f"{name}.py" in sources or (room / name).is_dir():
            continue
        pattern = rf"^(?:from|import) ([\w.]*\b{name})(?: |$)|^from ([\w.]+) import .*\b{name}\b"
        for whole, package in re.findall(pattern, test.read_text(), re.MULTILINE):
            path = ROOT.joinpath(*(whole or f"{package}.{name}").split("."))
            if {path.with_suffix(".py"), path / "__init__.py"} & sources:
                misplaced.add(test.relative_to(ROOT / "tests").as_posix())
    assert misplaced == SUBJECTS
