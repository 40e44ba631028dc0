"""NumPy arrays that say that they are on a GPU, and kernels that run on the CPU in their place."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, cast

import numpy as np

from tests.gpu import hosted
from tests.gpu.support.cublaslt_stand_in import StandIn
from winolab import calls
from winolab.device import H100
from winolab.gpu import cublaslt, driver
from winolab.gpu.params import MATMUL, TensorMap
from winolab.gpu.runtime import arrays, loader, smaller
from winolab.gpu.runtime.arrays import Described


class Array:
    """A NumPy array that says that it is on a CUDA device."""

    is_cuda, requires_grad = True, False

    def __init__(self, values: np.ndarray, index: int = 0) -> None:
        self.values, self.index = values, index
        self.shape, self.dtype = values.shape, values.dtype

    def __getitem__(self, key: Any) -> Array:
        return Array(self.values[key], self.index)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.values[key] = value


class Library(arrays.Library):
    """Array operations, and what was asked of them."""

    def __init__(self) -> None:
        self.allocated: list[tuple[tuple[int, ...], str]] = []
        self.copied = 0
        self.loaded: list[str] = []  # titles of the kernels
        self.written_to: list[Array] = []
        self.room = math.inf  # bytes of memory at once, beside results
        self.refused: list[int] = []
        self.captures = False

    def reordered(self) -> list[str]:
        """Which arrays kernels copied into another memory order, of calls since the last ask."""
        found = [title.split()[3] for title in self.loaded if title.startswith("a copy of")]
        self.loaded.clear()
        return found

    def array(self, name: str, value: Any) -> Array:
        return value

    def describe(self, array: Array) -> Described:
        values = array.values
        strides = tuple(s // values.itemsize for s in values.strides)
        aligned = values.ctypes.data % 16 == 0
        return Described(values.shape, strides, values.dtype.name, array.index, aligned)

    def address(self, array: Array) -> int:
        return array.values.ctypes.data

    def layout_key(self, array: Array) -> Any:
        return self.describe(array)

    def current(self) -> int:
        return 0

    def on(self, index: int) -> Any:
        return nullcontext()

    def stream(self, index: int) -> int:
        return 7

    def empty(self, shape: tuple[int, ...], dtype: str, index: int) -> Array:
        if dtype == "uint8" and shape[0] > self.room:
            self.refused.append(shape[0])
            raise MemoryError(f"no device memory for {shape[0]} B")
        self.allocated.append((shape, dtype))
        memory = hosted.Guarded(shape, dtype)
        return Array(memory.array, index)

    def memory(self, size: int, index: int) -> tuple[Array, int]:
        memory = self.empty((size,), "uint8", index)
        return memory, self.address(memory)

    def capturing(self, index: int) -> bool:
        return self.captures

    def used(self, stream: int, *memory: Any) -> None:
        assert stream == 7

    def written(self, array: Array) -> None:
        self.written_to.append(array)

    def copy(self, target: Array, source: Array) -> None:
        self.copied += 1
        target.values[...] = source.values

    def add(self, target: Array, source: Array) -> None:
        target.values[...] += source.values

    def largest(self, array: Array, *given: Array) -> float:
        finite, *others = (np.isfinite(v.values) for v in (array, *given))
        if not finite.all() and all(v.all() for v in others):
            return np.inf
        return float(np.abs(array.values[finite]).max())

    def contiguous(self, array: Array) -> Array:
        self.copied += 1
        return Array(array.values.copy(order="C"), array.index)

    def channels_last(self, array: Array) -> Array:
        return Array(np.moveaxis(array.values, 1, -1), array.index)

    def channels_first(self, array: Array) -> Array:
        return Array(np.moveaxis(array.values, -1, 1), array.index)


def host_kernels(source: str, shared: Mapping[str, int]) -> dict[str, driver.Kernel]:
    """A source's kernels on the CPU, as the driver's are, and the function that a library has."""
    ours = {name: size for name, size in shared.items() if name != MATMUL}
    library = {MATMUL: cublaslt.Matmul(StandIn(), 1, 0)} if len(ours) < len(shared) else {}
    found = hosted.load(source, ours) if ours else {}
    kernels = {n: driver.Kernel(n, cast(int, k), k.shared, None) for n, k in found.items()}
    return cast(Any, {**library, **kernels})


def on_the_cpu(monkeypatch: Any, load: Any, launch: Any) -> None:
    """Let calls plan for an H100, load kernels by ``load`` and start them as ``launch`` does; what
    was kept of calls is as before when the test ends."""
    monkeypatch.setattr(driver, "device", lambda index: H100)
    monkeypatch.setattr(driver, "make_current", lambda index: None)
    monkeypatch.setattr(driver, "encoder", host_encoder)
    monkeypatch.setattr(driver, "Launch", launch)
    monkeypatch.setattr(cublaslt, "on", lambda index: nullcontext())
    monkeypatch.setattr(loader, "load", load)
    monkeypatch.setattr(loader, "load_units", one_by_one)
    monkeypatch.setattr(calls, "kept", {})
    monkeypatch.setattr(smaller, "_limits", {})
    monkeypatch.setattr(calls, "described_by", dict(calls.described_by))


def one_by_one(units: Sequence[loader.Asked], index: int) -> dict[str, Any]:
    """What ``loader.load`` has of each unit, nothing compiled before."""
    return {name: kernel for unit in units for name, kernel in loader.load(*unit, index).items()}


def host_encoder(map: TensorMap, to: int) -> Callable[[int], None]:
    """What writes a tensor map as kernels on the CPU read it."""

    def encode(address: int) -> None:
        described = replace(map, address=address).described()
        ctypes.memmove(to, described, len(described))

    return encode


class HostLaunch:
    """A kernel on the CPU, started as the driver would start it; early ones begin in their turn."""

    def __init__(
        self, kernel: Any, grid: tuple[int, int, int], threads: int, params: int, early: bool
    ) -> None:
        self.kernel, self.grid, self.threads, self.params = kernel, grid, threads, params

    def on(self, stream: int) -> None:
        assert stream == 7

    def start(self) -> int:
        handle: hosted.Kernel = self.kernel.handle
        message = ctypes.create_string_buffer(hosted.MESSAGE)
        failed = handle.library.host_launch(
            handle.index,
            (ctypes.c_uint * 3)(*self.grid),
            (ctypes.c_uint * 3)(self.threads, 1, 1),
            ctypes.c_size_t(self.kernel.shared),
            ctypes.c_void_p(self.params),
            ctypes.c_uint64(0),
            message,
            ctypes.c_size_t(hosted.MESSAGE),
        )
        assert not failed, message.value
        return 0
