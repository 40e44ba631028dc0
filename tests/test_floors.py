"""The floors of the house: who may import whom, statically or by name, and that nothing circles."""

from __future__ import annotations

import ast
import re
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.support import imports
from tests.support.imports import circles, graph, imported, modules
from winolab.algorithm import KINDS
from winolab.gpu.families.registry import FAMILIES as KNOWN

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("winolab", "experiments", "papers")
MODULES = modules(ROOT, PACKAGES)
LIBRARY = [name for name in MODULES if name.partition(".")[0] == "winolab"]
CORE = {"numpy", "scipy", "mpmath", "ml_dtypes", "typer", "rich"}
# Who imports the GPU's libraries; a folder stands for what is in it.
CUPY = ("winolab.gpu.driver", "winolab.bench", "experiments.judged.kernels_gpu")
TORCH = ("winolab.torch", "winolab.gpu.runtime", "winolab.bench", "winolab.judge", "experiments")
# What papers there are, and what each measures.
DISCOVER = (
    *("experiments.harness.studies", "experiments.measure.cases"),
    "experiments.measure.sitting",
)
FLINT = ("winolab.ref.arithmetic.rational",)
NUMBA = (
    *("winolab.ref.arithmetic.compiled", "winolab.ref.arithmetic.loops"),
    "winolab.judge.libraries",  # which it replaces functions of
)
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
        *("points", "problem", "tile", "version"),
    ),
    ("ref",),
    ("gpu.machine", "gpu.params", "gpu.codegen"),
    ("gpu.planner", "gpu.families"),
    ("gpu.cublaslt", "gpu.driver", "gpu.runtime", "gpu.warm"),
    ("bench",),
    ("conv", "jax", "measure", "api", "torch"),
    ("cli", "judge", "spread"),
)
FRONT = ("winolab", "winolab.__main__")  # what stands on all floors


FAMILIES = "winolab.gpu.families"


@cache
def imports_of() -> dict[str, set[str]]:
    """Every module's imports: half a thousand files are read once, and not to collect tests."""
    return graph(ROOT, PACKAGES)


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


def test_nothing_imports_from_a_floor_above() -> None:
    assert len(LIBRARY) > 250
    imports = {name: imports_of()[name] - {"winolab.gpu"} for name in LIBRARY if name not in FRONT}
    through = [name for name, others in imports.items() if "winolab" in others]
    assert not through, "import through the package's front door; name the module that defines it"
    above = [
        f"{module} imports {other}"
        for module, others in imports.items()
        for other in sorted(others)
        if floor(other) > floor(module)
    ]
    assert not above
    assert not imports["winolab.gpu"]


def test_the_library_imports_its_dependencies_only() -> None:
    allowed = CORE | set(sys.stdlib_module_names) | {"winolab"}
    allowed |= {*ALLOWED, "nvidia"}  # wheels whose files are looked for
    found = {
        module: {name.partition(".")[0] for name in imported(MODULES[module], ROOT, MODULES)}
        for module in LIBRARY
    }
    assert not {module: names - allowed for module, names in found.items() if names - allowed}


def test_a_gpu_s_libraries_have_their_places() -> None:
    assert len(MODULES) > len(LIBRARY) + 100
    misplaced = [
        f"{module} imports {name}"
        for module, file in MODULES.items()
        for name in imported(file, ROOT, MODULES)
        if (places := ALLOWED.get(name.partition(".")[0]))
        and not any(inside(module, place) for place in places)
    ]
    assert not misplaced


# Families' folders have a page; what lies beside them, modules or a folder without, several share.
FOLDERS = {each.name.partition(".")[0] for each in KNOWN}


def family(module: str) -> str | None:
    """The kernel family whose folder has the module."""
    name = module.removeprefix(f"{FAMILIES}.").partition(".")[0]
    return name if inside(module, FAMILIES) and name in FOLDERS else None


def test_a_family_is_known_to_the_registry_alone() -> None:
    """Others import none, nor name its files; what several share lies beside their folders."""
    assert len(FOLDERS) > 8
    borrowed: set[tuple[str | None, str | None]] = set()
    for module, others in imports_of().items():
        if inside(module, "winolab.gpu") and module != f"{FAMILIES}.registry":
            found = {family(other) for other in others} - {None, family(module)}
            borrowed |= {(family(module), other) for other in found}
    for path in (ROOT / "winolab/gpu").rglob("*.*"):
        if path.suffix in (".py", ".cuh"):
            own = path.parent.name if path.parent.name in FOLDERS else None
            named = set(re.findall(r'"(?:\.\./)?(\w+)/\w+(?:\.cuh)?"', path.read_text())) & FOLDERS
            borrowed |= {(own, other) for other in named - {own}}
    assert not borrowed


def kinds_asked_for(text: str) -> list[str]:
    """What a module compares with kinds of algorithms, by class or by name."""
    classes = {kind.__name__ for kind in KINDS.values()}
    found = []
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Call(func=ast.Name(id="isinstance"), args=[_, of]):
                asked = {n.id for n in ast.walk(of) if isinstance(n, ast.Name)} & classes
            case ast.Compare(left=ast.Attribute(attr="kind"), comparators=[of]):
                asked = {n.value for n in ast.walk(of) if isinstance(n, ast.Constant)} & {*KINDS}
            case _:
                continue
        found += [ast.unparse(node)] if asked else []
    return found


def test_planner_and_runtime_ask_for_no_kind_of_algorithm() -> None:
    """What they ask stands on the kinds, so that a new one changes neither."""
    asked = {
        module: found
        for module in LIBRARY
        if inside(module, "winolab.gpu.planner") or inside(module, "winolab.gpu.runtime")
        if (found := kinds_asked_for(MODULES[module].read_text()))
    }
    # what families of transforms say that run no tiles of another kind
    assert asked == {"winolab.gpu.planner.correlation": ["algorithm.kind == 'winograd'"]}
    for text in ("isinstance(a.b, Dwm | Omega)", "isinstance(a, (str, Dwm))", "a.kind in ('dwm',)"):
        assert kinds_asked_for(text) == [text]
    assert not kinds_asked_for("isinstance(a, Float)\norder.kind == 'pairwise'")


def test_no_imports_run_in_a_circle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert not circles(imports_of())
    (tmp_path / "winolab").mkdir()
    for name, other in (("a", "b"), ("b", "a")):
        text = f"def late():\n    __import__('winolab.{other}')"
        (tmp_path / "winolab" / f"{name}.py").write_text(text)
    assert imports.main(tmp_path) == 1
    said = capsys.readouterr().out
    assert said == "winolab.a → winolab.b\n2 modules, 2 imports, 1 circles\n"


def test_papers_are_found_and_not_named() -> None:
    """A folder under papers/ can go, and only what is in it goes."""
    for module in (m for m in MODULES if not inside(m, "papers")):
        found = {name for name in imports_of()[module] if inside(name, "papers")}
        assert module in DISCOVER or not found, module
        assert not re.search(r"""["' ]papers\.[a-z]\w*\.""", MODULES[module].read_text()), module


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
