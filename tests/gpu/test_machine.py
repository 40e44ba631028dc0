"""What the driver says of itself, and which compiler fits it."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from winolab.gpu import machine
from winolab.gpu.machine import MachineError
from winolab.gpu.runtime import nvrtc


@pytest.mark.parametrize(
    ("number", "failed", "version"), [(12040, 0, (12, 4)), (13000, 0, (13, 0)), (0, 0, None),
                                      (12040, 999, None)]
)  # fmt: skip
def test_the_driver_says_which_cuda_it_runs(monkeypatch, number, failed, version) -> None:
    def asked(found) -> int:
        found._obj.value = number
        return failed

    monkeypatch.setattr(machine, "driver", lambda: SimpleNamespace(cuDriverGetVersion=asked))
    assert machine.driver_cuda() == version


def test_no_driver_is_an_answer(monkeypatch) -> None:
    def missing(name: str):
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    machine.driver.cache_clear()
    assert machine.driver_cuda() is None


@pytest.fixture
def wheels(tmp_path, monkeypatch) -> Iterator[dict[int, str]]:
    """NVIDIA's wheels of both versions of NVRTC, and nothing else; their libraries' names."""
    names = {}
    for major, folder in ((12, "cuda_nvrtc"), (13, "cu13")):
        lib = tmp_path / folder / "lib"
        lib.mkdir(parents=True)
        names[major] = str(lib / f"libnvrtc.so.{major}")
        for name in (f"libnvrtc.so.{major}", f"libnvrtc.alt.so.{major}"):
            (lib / name).touch()
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(machine, "find_spec", lambda name: spec)
    monkeypatch.setattr(machine.ctypes.util, "find_library", lambda name: None)
    monkeypatch.setattr(machine.Path, "glob", _without_system(Path.glob))
    nvrtc.library.cache_clear()
    yield names
    nvrtc.library.cache_clear()


def _without_system(glob):
    return lambda path, pattern: [] if path == Path("/usr/local") else glob(path, pattern)


@pytest.mark.parametrize(
    ("driver", "order"),
    [(None, (13, 12)), ((13, 0), (13, 12)), ((13, 2), (13, 12)), ((12, 9), (12, 13))],
)
def test_the_newest_compiler_that_the_driver_takes_comes_first(wheels, driver, order) -> None:
    names = machine.libraries("nvrtc", driver)
    assert [name for name in names if name in wheels.values()] == [wheels[major] for major in order]
    assert len(names) == 4  # and the loader's


def test_the_system_is_asked_where_no_wheel_serves(wheels, monkeypatch) -> None:
    asked = []
    monkeypatch.setattr(machine.ctypes.util, "find_library", lambda name: asked.append(name))
    machine.libraries("nvrtc", (12, 4))
    machine.libraries("nvrtc", None)
    assert not asked
    machine.libraries("nvrtc", (11, 8))
    machine.libraries("cublasLt", (12, 4))
    assert asked == ["nvrtc", "cublasLt"]


def test_the_compiler_is_the_first_that_loads(wheels, monkeypatch) -> None:
    def load(name: str) -> str:
        if name in missing:
            raise OSError(name)
        return name

    missing: set[str] = set()
    monkeypatch.setattr(ctypes, "CDLL", load)
    monkeypatch.setattr(nvrtc, "driver_cuda", lambda: (12, 4))
    assert nvrtc.library() == wheels[12]
    nvrtc.library.cache_clear()
    missing |= {wheels[12], "libnvrtc.so.12"}
    assert nvrtc.library() == wheels[13]  # the driver's refusal then says what to install
    nvrtc.library.cache_clear()
    missing |= {wheels[13], "libnvrtc.so.13"}
    with pytest.raises(MachineError, match=r"no NVRTC, .*: pip install nvidia-cuda-nvrtc"):
        nvrtc.library()
