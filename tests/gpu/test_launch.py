from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from winolab.gpu import launch, nvrtc


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


class CUDARuntimeError(RuntimeError):
    """CuPy's."""


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (0, "no GPU: CuPy counts 0 CUDA devices"),
        ("cudaErrorNoDevice: no CUDA-capable device is detected", "finds no usable GPU"),
        (
            "cudaErrorInsufficientDriver: CUDA driver version is insufficient",
            r"CuPy 14\.0 .* is the driver at least as new as CuPy's CUDA\?",
        ),
    ],
)
def test_without_a_gpu_or_with_another_driver_it_says_so(monkeypatch, found, message) -> None:
    def count():
        if isinstance(found, str):
            raise CUDARuntimeError(found)
        return found

    runtime = SimpleNamespace(getDeviceCount=count, CUDARuntimeError=CUDARuntimeError)
    fake = SimpleNamespace(__version__="14.0", cuda=SimpleNamespace(runtime=runtime))
    monkeypatch.setitem(sys.modules, "cupy", fake)
    launch.cupy.cache_clear()
    with pytest.raises(RuntimeError, match=message):
        launch.cupy()
    launch.cupy.cache_clear()


def test_structs_are_laid_out_as_c_does() -> None:
    layout = launch.Layout(("n", launch.INT), ("x y", launch.POINTER), ("f", launch.FLOAT))
    assert layout.fields == (("n", "i"), ("x", "Q"), ("y", "Q"), ("f", "f"))
    data = layout.pack(1, 2, 3, 0.5).data
    assert len(data) == 32  # 4 bytes before the pointers, 4 behind the float
    assert data[8:24] == (2).to_bytes(8, "little") + (3).to_bytes(8, "little")
