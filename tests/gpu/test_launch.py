from __future__ import annotations

import sys

import pytest

from winolab.gpu import launch, nvrtc
from winolab.gpu.emit import _kernel
from winolab.gpu.launch import FILTER_PARAMS, PARAMS


def c_fields(struct: str, source: str) -> list[str]:
    """Names of the fields of a C struct, in order."""
    body = source.split(f"struct {struct} {{")[1].split("};")[0]
    lines = [line.split("//")[0].strip() for line in body.splitlines()]
    names = []
    for statement in " ".join(lines).split(";"):
        words = statement.replace("*", " ").split()
        kept = [w for w in words if w not in ("const", "float", "int", "long")]
        names += [name.strip() for name in " ".join(kept).split(",") if name.strip()]
    return names


@pytest.mark.parametrize(
    ("struct", "file", "fields"),
    [("Params", "gamma", PARAMS), ("FilterParams", "filter", FILTER_PARAMS)],
)
def test_parameters_lie_as_the_kernels_read_them(struct, file, fields) -> None:
    assert c_fields(struct, _kernel(file)) == [name for name, _ in fields]


def test_compiled_code_is_cached_whole(tmp_path, monkeypatch) -> None:
    compiled = nvrtc.Compiled(b"\x7fELF", {"k": nvrtc.Resources(32, 0, 0)})
    calls = []
    monkeypatch.setenv("WINOLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(nvrtc, "version", lambda: (13, 0))
    monkeypatch.setattr(nvrtc, "compile_cubin", lambda *a: calls.append(a) or compiled)
    first = launch.cubin("source", "sm_90a", "k")
    assert launch.cubin("source", "sm_90a", "k") == first
    assert len(calls) == 1
    assert first.read_bytes() == b"\x7fELF"
    assert [p.name for p in first.parent.iterdir()] == [first.name]
    assert launch.cubin("other", "sm_90a", "k") != first
    monkeypatch.setenv("WINOLAB_DUMP", str(tmp_path / "dump"))
    launch.cubin("source", "sm_90a", "k")
    assert sorted(p.suffix for p in (tmp_path / "dump").iterdir()) == [".cu", ".txt"]


def test_without_cupy_it_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    launch.cupy.cache_clear()
    with pytest.raises(RuntimeError, match="pip install cupy"):
        launch.cupy()
    launch.cupy.cache_clear()


def test_views_move_by_elements() -> None:
    view = launch.View(4096, (1, 2, 3, 4))
    assert view.offset(3) == launch.View(4108, (1, 2, 3, 4))
