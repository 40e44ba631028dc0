"""Kernels of a translation unit, loaded on a device."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace

import pytest

from winolab.device import H100
from winolab.gpu import driver
from winolab.gpu.machine import MachineError
from winolab.gpu.runtime import loader, nvrtc
from winolab.gpu.runtime.loader import Asked


class CUDADriverError(RuntimeError):
    """CuPy's."""

    def __init__(self, said: str, status: int) -> None:
        super().__init__(said)
        self.status = status


class Driver:
    """CuPy with a driver that refuses the first ``refused`` modules."""

    def __init__(self, refused: int, said: str = "INVALID_IMAGE", status: int = 200) -> None:
        self.refused, self.said, self.status = refused, said, status
        runtime = SimpleNamespace(driverGetVersion=lambda: 12040)
        driver = SimpleNamespace(CUDADriverError=CUDADriverError)
        self.cuda = SimpleNamespace(driver=driver, runtime=runtime, Device=lambda _: nullcontext())

    def RawModule(self, path: str) -> SimpleNamespace:
        assert Path(path).read_bytes() == b"\x7fELF"
        if self.refused:
            self.refused -= 1
            raise CUDADriverError(f"CUDA_ERROR_{self.said}", self.status)
        return SimpleNamespace(
            get_function=lambda _: SimpleNamespace(kernel=SimpleNamespace(ptr=1))
        )


@pytest.mark.parametrize("refused", [1, 2])
def test_a_cubin_that_the_driver_refuses_is_compiled_once_more(
    tmp_path, monkeypatch, compiler, refused
) -> None:
    cupy = Driver(refused)
    monkeypatch.setenv("WINOLAB_CACHE", str(tmp_path))
    monkeypatch.setattr(driver, "cupy", lambda: cupy)
    monkeypatch.setattr(driver, "device", lambda _: H100)
    title = f"refused {refused}"
    if refused == 1:
        found = loader.load("source", title, {"k": 0}, 0)["k"]
        assert isinstance(found, driver.Kernel)
        assert found.handle == 1
    else:
        message = r"CUDA 12\.4, refuses code that NVRTC 13\.2 compiled for sm_90a .*update"
        with pytest.raises(MachineError, match=message):
            loader.load("source", title, {"k": 0}, 0)
    assert len(compiler) == 2


def test_code_that_does_not_fit_is_no_broken_cache(tmp_path, monkeypatch, compiler) -> None:
    """It is kept, and loaded once there is memory."""
    cupy = Driver(1, "OUT_OF_MEMORY", 2)
    monkeypatch.setenv("WINOLAB_CACHE", str(tmp_path))
    monkeypatch.setattr(driver, "cupy", lambda: cupy)
    monkeypatch.setattr(driver, "device", lambda _: H100)
    with pytest.raises(MemoryError, match=r"code of full: free some \(CUDA_ERROR_OUT_OF_MEMORY\)"):
        loader.load("another source", "full", {"k": 0}, 0)
    assert isinstance(loader.load("another source", "full", {"k": 0}, 0)["k"], driver.Kernel)
    assert len(compiler) == 1


def test_units_of_a_plan_are_compiled_beside_each_other(
    tmp_path, monkeypatch, compiler, caplog
) -> None:
    """Each begins before another ends; what the cache has is not compiled again."""
    cupy, both = Driver(0), Barrier(2, timeout=60)
    monkeypatch.setenv("WINOLAB_CACHE", str(tmp_path))
    monkeypatch.setattr(driver, "cupy", lambda: cupy)
    monkeypatch.setattr(driver, "device", lambda _: H100)
    stand_in = nvrtc.compile_cubin

    def compiled(text: str, arch: str) -> nvrtc.Compiled:
        both.wait()
        return stand_in(text, arch)

    monkeypatch.setattr(nvrtc, "compile_cubin", compiled)
    split, behind = Asked("split", "products", {"k": 0}), Asked("again", "fallback", {"k_2": 0})
    found = loader.load_units([split, behind], 0)
    assert {name: kernel.name for name, kernel in found.items()} == {"k": "k", "k_2": "k_2"}
    assert sorted(text for text, _ in compiler) == ["again", "split"]
    assert {f"compiling {each} for sm_90a" for each in ("products", "fallback")} <= {
        record.getMessage() for record in caplog.records
    }
    monkeypatch.setattr(nvrtc, "compile_cubin", stand_in)
    another = Asked("another", "other products", {"k": 0})
    assert loader.load_units([another, behind], 0).keys() == {"k", "k_2"}
    assert [text for text, _ in compiler[2:]] == ["another"]
    assert loader.load_units([split, behind], 0) is found
