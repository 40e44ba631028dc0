"""The floors of the house: who may import whom, statically or by name, and that nothing circles."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.support import imports
from tests.support.imports import circles, graph, imported, modules

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("winolab", "experiments", "papers")
MODULES = modules(ROOT, PACKAGES)
IMPORTS = graph(ROOT, PACKAGES)
LIBRARY = [name for name in MODULES if name.partition(".")[0] == "winolab"]
CORE = {"numpy", "scipy", "mpmath", "ml_dtypes", "typer", "rich"}
# Who imports the GPU's libraries; a folder stands for what is in it.
CUPY = ("winolab.gpu.driver", "winolab.bench")
TORCH = ("winolab.torch", "winolab.gpu.runtime", "winolab.bench", "winolab.judge", "experiments")
DISCOVER = ("experiments.harness.studies", "experiments.measure.cases")  # what papers there are
FLINT = ("winolab.ref.arithmetic.rational",)
NUMBA = ("winolab.ref.arithmetic.compiled", "winolab.ref.arithmetic.loops")
PICTURES = ("winolab.api.picture", "experiments", "papers")
ALLOWED = {
    "flint": FLINT,
    "cupy": CUPY,
    "cupy_backends": CUPY,
    "torch": TORCH,
    "jax": ("winolab.jax", "experiments.measure", "experiments.judged"),
    "distributed": ("winolab.spread",),
    "numba": NUMBA,
    "llvmlite": NUMBA,
    "matplotlib": PICTURES,
}
FLOORS = (
    (
        *("algorithm", "arguments", "calls", "device", "kind", "lines", "options"),
        *("points", "problem", "version"),
    ),
    ("ref",),
    ("gpu.machine", "gpu.params", "gpu.codegen"),
    ("gpu.planner", "gpu.families"),
    ("gpu.driver", "gpu.runtime", "gpu.warm"),
    ("conv", "jax", "measure", "api", "torch"),
    ("bench", "cli", "judge", "spread"),
)
FRONT = ("winolab", "winolab.__main__")  # what stands on all floors


FAMILIES = "winolab.gpu.families"


def inside(module: str, place: str) -> bool:
    return module == place or module.startswith(f"{place}.")


def floor(module: str) -> int:
    if not inside(module, "winolab"):
        return len(FLOORS)
    found = [
        level
        for level, places in enumerate(FLOORS)
        if any(inside(module, f"winolab.{place}") for place in places)
    ]
    assert found, f"{module} stands on no floor: add it to FLOORS"
    return found[0]


@pytest.mark.parametrize("module", [name for name in LIBRARY if name not in FRONT])
def test_nothing_imports_from_a_floor_above(module: str) -> None:
    if module == "winolab.gpu":
        assert not IMPORTS[module]
        return
    for other in IMPORTS[module] - {"winolab.gpu"}:
        assert other != "winolab", (
            f"{module} imports through the package's front door; name the module that defines it"
        )
        assert floor(other) <= floor(module), f"{module} imports {other}"


@pytest.mark.parametrize("module", LIBRARY)
def test_the_library_imports_its_dependencies_only(module: str) -> None:
    allowed = CORE | set(sys.stdlib_module_names) | {"winolab"}
    found = {name.partition(".")[0] for name in imported(MODULES[module], ROOT, MODULES)}
    foreign = found - allowed - set(ALLOWED) - {"nvidia"}  # wheels whose files are looked for
    assert not foreign, f"{module} imports {sorted(foreign)}"


@pytest.mark.parametrize("module", MODULES)
def test_a_gpu_s_libraries_have_their_places(module: str) -> None:
    for name in imported(MODULES[module], ROOT, MODULES):
        places = ALLOWED.get(name.partition(".")[0])
        allowed = places is None or any(inside(module, place) for place in places)
        assert allowed, f"{module} imports {name}"


# Folders of kernels; what lies beside them, modules or a folder without kernels, several share.
FOLDERS = {path.parent.name for path in (ROOT / "winolab/gpu/families").glob("*/*.cuh")}


def family(module: str) -> str | None:
    """The kernel family whose folder has the module."""
    name = module.removeprefix(f"{FAMILIES}.").partition(".")[0]
    return name if inside(module, FAMILIES) and name in FOLDERS else None


def test_a_family_is_known_to_the_registry_alone() -> None:
    """Others import none, nor name its files; what several share lies beside their folders."""
    assert len(FOLDERS) > 8
    borrowed: set[tuple[str | None, str | None]] = set()
    for module, others in IMPORTS.items():
        if inside(module, "winolab.gpu") and module != f"{FAMILIES}.registry":
            found = {family(other) for other in others} - {None, family(module)}
            borrowed |= {(family(module), other) for other in found}
    for path in (ROOT / "winolab/gpu").rglob("*.*"):
        if path.suffix in (".py", ".cuh"):
            own = path.parent.name if path.parent.name in FOLDERS else None
            named = set(re.findall(r'"(?:\.\./)?(\w+)/\w+(?:\.cuh)?"', path.read_text())) & FOLDERS
            borrowed |= {(own, other) for other in named - {own}}
    assert not borrowed


def test_no_imports_run_in_a_circle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert not circles(IMPORTS)
    (tmp_path / "winolab").mkdir()
    for name, other in (("a", "b"), ("b", "a")):
        text = f"def late():\n    __import__('winolab.{other}')"
        (tmp_path / "winolab" / f"{name}.py").write_text(text)
    assert imports.main(tmp_path) == 1
    said = capsys.readouterr().out
    assert said == "winolab.a → winolab.b\n2 modules, 2 imports, 1 circles\n"


@pytest.mark.parametrize("module", [m for m in MODULES if not inside(m, "papers")])
def test_papers_are_found_and_not_named(module: str) -> None:
    """A folder under papers/ can go, and only what is in it goes."""
    if module not in DISCOVER:
        assert not {name for name in IMPORTS[module] if inside(name, "papers")}
    assert not re.search(r"""["' ]papers\.[a-z]\w*\.""", MODULES[module].read_text())


def test_what_is_imported_by_name_counts(tmp_path: Path) -> None:
    for name, text in {
        "plan": "from importlib import import_module\nimport_module(f'house.{room}_family')",
        "gamma_family": "def late():\n    from house.contract import Plan",
        "contract": "import typing\nif typing.TYPE_CHECKING:\n    import house.plan",
        "driver": "import importlib\ncupy = importlib.import_module('cupy')",
        "alone": "from importlib import import_module\nfrom house import driver",
    }.items():
        (tmp_path / "house").mkdir(exist_ok=True)
        (tmp_path / "house" / f"{name}.py").write_text(text)
    assert list(imported(tmp_path / "house" / "driver.py", tmp_path)) == ["importlib", "cupy"]
    found = graph(tmp_path, ["house"])
    assert found["house.plan"] == {"house.gamma_family"}
    assert found["house.alone"] == {"house.driver"}
    assert circles(found) == [["house.contract", "house.gamma_family", "house.plan"]]
    unread = tmp_path / "house" / "unread.py"
    unread.write_text("import importlib\nimportlib.import_module(name)")
    with pytest.raises(AssertionError, match=r"unread\.py:2 imports by a name not there"):
        list(imported(unread, tmp_path))
