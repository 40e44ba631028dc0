"""What is asked of the CUDA driver, for which a model of it stands in: no GPU is here."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from winolab.gpu.machine import MachineError, driver
from winolab.judge.claim import Claim
from winolab.judge.libraries import NumPy
from winolab.judge.loading import load
from winolab.judge.pages import trial, unmapped
from winolab.judge.pages.unmapped import BESIDE, Access, Allocation, Unmapped
from winolab.judge.trial import Case, Finding, Judge
from winolab.problem import Problem

STEP = 1 << 21  # bytes of the smallest piece that may be mapped
BASE = 0x7F00_0000_0000
OUT_OF_MEMORY = 2


class Driver:
    """A model of virtual memory: it refuses what the driver would, and counts what is held."""

    def __init__(self, fails: str = "") -> None:
        self.fails = fails
        self.reserved: dict[int, int] = {}
        self.mapped: dict[int, tuple[int, int]] = {}
        self.open: set[int] = set()
        self.held: set[int] = set()

    def __getattr__(self, name: str) -> Any:
        def call(*given: Any) -> int:
            if name == self.fails:
                return OUT_OF_MEMORY
            values = [getattr(v, "_obj", v) for v in given]
            getattr(self, f"_{name}")(*values)
            return 0

        return call

    def _cuCtxGetDevice(self, index: Any) -> None:
        index.value = 3

    def _cuGetErrorName(self, status: int, name: Any) -> None:
        assert status == OUT_OF_MEMORY
        name.value = b"CUDA_ERROR_OUT_OF_MEMORY"

    def _of_device(self, location: Any) -> None:
        assert (location.type, location.id) == (1, 3)

    def _cuMemGetAllocationGranularity(self, step: Any, of: Any, option: int) -> None:
        assert (of.type, of.handles, option) == (1, 0, 0)
        self._of_device(of.location)
        step.value = STEP

    def _cuMemAddressReserve(self, at: Any, size: Any, aligned: Any, wish: Any, flags: Any) -> None:
        assert size.value % STEP == 0
        assert (aligned.value, wish.value, flags.value) == (0, 0, 0)
        at.value = BASE + len(self.reserved) * (1 << 36)
        self.reserved[at.value] = size.value

    def _cuMemAddressFree(self, at: Any, size: Any) -> None:
        assert not any(at.value <= begin < at.value + size.value for begin in self.mapped)
        assert self.reserved.pop(at.value) == size.value

    def _cuMemCreate(self, handle: Any, size: Any, of: Any, flags: Any) -> None:
        assert size.value % STEP == 0
        assert flags.value == 0
        self._of_device(of.location)
        handle.value = 70 + len(self.held)
        self.held.add(handle.value)

    def _cuMemRelease(self, handle: Any) -> None:
        self.held.remove(handle.value)

    def _cuMemMap(self, at: Any, size: Any, offset: Any, handle: Any, flags: Any) -> None:
        assert at.value % STEP == 0
        assert (offset.value, flags.value) == (0, 0)
        assert handle.value in self.held
        inside = [b for b, n in self.reserved.items() if b <= at.value <= b + n - size.value]
        assert len(inside) == 1
        self.mapped[at.value] = (size.value, inside[0])

    def _cuMemSetAccess(self, at: Any, size: Any, access: Any, count: Any) -> None:
        assert self.mapped[at.value][0] == size.value
        assert (count.value, access.flags) == (1, 3)
        self._of_device(access.location)
        self.open.add(at.value)

    def _cuMemUnmap(self, at: Any, size: Any) -> None:
        assert self.mapped.pop(at.value)[0] == size.value
        self.open.discard(at.value)


def placed(monkeypatch: pytest.MonkeyPatch, fails: str = "") -> Driver:
    found = Driver(fails)
    monkeypatch.setattr(unmapped, "driver", lambda: found)
    return found


def test_structures_are_the_driver_s() -> None:
    """Sizes and offsets of cuda.h on a machine of 64 bits."""
    assert ctypes.sizeof(Allocation) == 32
    assert (Allocation.location.offset, Allocation.metadata.offset) == (8, 16)
    assert (ctypes.sizeof(Access), Access.flags.offset) == (12, 8)


@pytest.mark.parametrize("aligned", [2, 16, 64])
@pytest.mark.parametrize("size", [1, 60, STEP, 2 * STEP + 6])
def test_an_array_touches_what_is_not_mapped(
    monkeypatch: pytest.MonkeyPatch, size: int, aligned: int
) -> None:
    model = placed(monkeypatch)
    for end in ("end", "start"):
        memory = Unmapped(size, end, aligned)
        ((begin, (mapped, reserved)),) = model.mapped.items()
        assert model.open == {begin}
        assert begin - reserved >= BESIDE
        assert reserved + model.reserved[reserved] - begin - mapped >= BESIDE
        told = memory.__cuda_array_interface__
        assert (told["shape"], told["typestr"], told["version"]) == ((size,), "|u1", 3)
        address, read_only = told["data"]
        assert not read_only
        assert address % aligned == 0
        if end == "end":
            assert begin + mapped - address - size == -size % aligned
            assert address >= begin
        else:
            assert address == begin
            assert size <= mapped
        with memory.beside("reads or writes"):
            assert model.open == {begin}
        del memory  # nothing else refers to it
        assert (model.mapped, model.held, model.reserved) == ({}, set(), {})


@pytest.mark.parametrize("name", ["cuMemAddressReserve", "cuMemCreate", "cuMemMap",
                                  "cuMemSetAccess", "cuCtxGetDevice"])  # fmt: skip
def test_a_refusal_is_one_line_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    model = placed(monkeypatch, name)
    said = f"{name} of the CUDA driver: CUDA_ERROR_OUT_OF_MEMORY; --skip pages leaves this out"
    with pytest.raises(MachineError, match=rf"^{said}$"):
        Unmapped(60, "end", 4)
    assert (model.mapped, model.held, model.reserved) == ({}, set(), {})


def test_the_driver_has_these_functions() -> None:
    """Where there is one: its names are those that are called."""
    try:
        library = driver()
    except OSError:
        pytest.skip("there is no driver")
    names = [name[1:] for name in vars(Driver) if name.startswith("_cu")]
    assert len(names) == 10
    for name in names:
        assert getattr(library, name)


class Lost(RuntimeError):
    """A library's error."""


class OnGpu(NumPy):
    """Arrays of NumPy in the place of a GPU's, on which the kernel is seen to touch what it may
    not when the device is waited for."""

    cuda = True

    def __init__(self, said: str, calls: int) -> None:
        self.said, self.calls = said, calls
        self.waits = 0

    def over(self, memory: Any, dtype: np.dtype) -> Any:
        return np.empty(memory.size // dtype.itemsize, dtype)

    def wait(self) -> None:
        self.waits += 1
        if self.waits > self.calls:
            raise Lost(self.said)


@pytest.mark.parametrize(
    ("calls", "where"), [(1, "beyond the end of x"), (3, "before the start of x"),
                         (5, "beyond the end of w")],
)  # fmt: skip
def test_a_device_that_is_lost_says_where(
    monkeypatch: pytest.MonkeyPatch, calls: int, where: str
) -> None:
    placed(monkeypatch)
    case = Case(Problem.of((1, 5, 6, 3), (5, 3, 3, 3), padding=1), place=trial.PLACE)
    right = load("tests.judge.kernels:right")
    for said, due in (
        ("an illegal memory access", f"reads or writes {where}: Lost: an illegal memory access"),
        ("no room", ""),
    ):
        candidate = replace(right, arrays=OnGpu(said, calls))
        heard: list[str] = []
        found = trial.run(Judge(candidate, Claim()), case, heard.append).finding
        crash = Finding("crash", "it raised Lost: no room")
        assert found == (Finding("pages", f"the kernel {due}") if due else crash)
        assert heard[-1] == ""
        assert f"reads or writes {where}" in heard
    placed(monkeypatch, "cuMemCreate")  # no fault of the kernel's
    candidate = replace(right, arrays=OnGpu("", calls))
    with pytest.raises(MachineError, match="cuMemCreate"):
        trial.run(Judge(candidate, Claim()), case, heard.append)
    assert trial.possible(candidate)
