"""CuPy and the CUDA driver: kernels' launches, encoded tensor maps, devices."""

from __future__ import annotations

import ctypes
import importlib
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from winolab.device import Device
from winolab.gpu.machine import MachineError, driver, install
from winolab.gpu.params import Params, PositionsMap, TensorMap


class Launchable(ABC):
    """What a plan launches on one device: a kernel, or a library's function."""

    name: str

    @abstractmethod
    def launch(self, grid: tuple[int, int, int], threads: int, params: int, early: bool) -> Any:
        """One launch, with the members of Launch that replays have; arguments are Launch's."""

    def __call__(
        self, grid: tuple[int, int, int], threads: int, params: Params, early: bool = False
    ) -> None:
        """Launch on CuPy's current stream; ``params`` is the struct that the kernel takes."""
        buffer = params.buffer()
        for offset, tensor in params.maps():
            encoder(tensor, ctypes.addressof(buffer) + offset)(tensor.address)
        pointers = (ctypes.c_void_p * 1)(ctypes.addressof(buffer))
        launch = self.launch(grid, threads, ctypes.addressof(pointers), early)
        launch.on(cupy().cuda.get_current_stream().ptr)
        check(launch.start())


@dataclass(frozen=True)
class Kernel(Launchable):
    """A kernel loaded on one device: its handle, and its dynamic shared memory in bytes.

    ``module`` keeps the handle valid.
    """

    name: str
    handle: int
    shared: int
    module: Any

    def launch(self, grid: tuple[int, int, int], threads: int, params: int, early: bool) -> Launch:
        return Launch(self, grid, threads, params, early)


class _Attribute(ctypes.Structure):
    """The driver's CUlaunchAttribute."""

    _fields_ = (("id", ctypes.c_int), ("padding", ctypes.c_int), ("value", ctypes.c_int * 16))


class _Config(ctypes.Structure):
    """The driver's CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    )


class Launch:
    """One launch of a kernel, as often as wanted, by the driver's cuLaunchKernelEx.

    ``params`` is where the pointer to the kernel's struct lies; ``early``: it may begin before the
    launch before it on the stream ends, and the kernel waits, by launch_before_done() of
    pipeline.cuh, where it reads what that writes. ``start()`` launches on the stream that
    ``on`` named and returns the driver's status, which costs the host 0.2 µs beside the driver; as
    a method that is told the stream and raises, it cost 0.4.
    """

    SERIALIZATION = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION

    def __init__(
        self, kernel: Kernel, grid: tuple[int, int, int], threads: int, params: int, early: bool
    ) -> None:
        self.kernel, self.grid, self.threads = kernel, grid, threads
        self.params, self.early = params, early
        attribute = ctypes.pointer(_Attribute(self.SERIALIZATION, 0, (1,)))
        block = (threads, 1, 1)
        self._config = _Config(grid, block, kernel.shared, None, attribute, int(early))
        handle, pointer = ctypes.c_void_p(kernel.handle), ctypes.c_void_p(params)
        self.start: Callable[[], int] = partial(
            driver().cuLaunchKernelEx, ctypes.byref(self._config), handle, pointer, None
        )

    def on(self, stream: int) -> None:
        """Where launches go from now on."""
        self._config.stream = stream

    def check(self, status: int) -> None:
        """Raise what a status of ``start`` says, if it says anything."""
        check(status)

    def words(self) -> tuple[int, list[int], int]:
        """What ``start`` does, for who has no Python: the address of a function, where each of its
        64-bit arguments lies, and where the stream does."""
        config = ctypes.addressof(self._config)
        self._words = (ctypes.c_uint64 * 4)(config, self.kernel.handle, self.params, 0)
        places = [ctypes.addressof(self._words) + 8 * i for i in range(4)]
        return address_of(driver().cuLaunchKernelEx), places, config + _Config.stream.offset


def check(status: int) -> None:
    """Raise CuPy's CUDADriverError where the driver's status is none of success."""
    if status:
        raise cupy().cuda.driver.CUDADriverError(status)


def encoder(map: TensorMap, to: int) -> Callable[[int], None]:
    """What writes a tensor map, of an array at a given address, as the GPU reads it; ``to``: an
    address that is a multiple of ALIGNMENT.

    A map that was written is told the next address alone, where the driver has
    cuTensorMapReplaceAddress, of CUDA 12.0 as maps are: two arguments where encoding has twelve.
    """
    kind = {2: 1, 4: 2}[map.size]  # CU_TENSOR_MAP_DATA_TYPE_UINT16, _UINT32
    # CU_TENSOR_MAP_SWIZZLE_NONE, _64B, _128B
    swizzle = 0 if map.plain else {64: 2, 128: 3}[map.size * map.box[0]]
    plain, l2_256, zeros = 0, 3, 0
    place, begin = ctypes.c_void_p(to), ctypes.c_void_p()
    how = plain, swizzle, l2_256, zeros
    if isinstance(map, PositionsMap):
        start = _by_positions(map, (place, kind, map.rank, begin), how)
    else:
        sizes, strides = (ctypes.c_uint64 * 5)(*map.sizes), (ctypes.c_uint64 * 4)(*map.strides)
        box, steps = (ctypes.c_uint32 * 5)(*map.spans), (ctypes.c_uint32 * 5)(*map.steps)
        start = partial(
            driver().cuTensorMapEncodeTiled,
            *(place, kind, 5, begin, sizes, strides, box, steps, *how),
        )

    replace = _replace()
    again = replace and partial(replace, place, begin)
    written = False

    def encode(address: int) -> None:
        nonlocal written
        begin.value = address
        if status := again() if written and again else start():
            check(status)
        written = True

    return encode


def _by_positions(map: PositionsMap, to: tuple[Any, ...], how: tuple[Any, ...]) -> partial[int]:
    """What writes a map whose copies walk positions: of four dimensions without the depth."""
    kept = [i for i in range(5) if map.rank == 5 or i != 3]
    spatial = [i - 1 for i in kept[1:-1]]
    return partial(
        driver().cuTensorMapEncodeIm2col,
        *to,
        (ctypes.c_uint64 * map.rank)(*(map.sizes[i] for i in kept)),
        (ctypes.c_uint64 * (map.rank - 1))(*(map.strides[i - 1] for i in kept[1:])),
        (ctypes.c_int * len(spatial))(*(map.lower[i] for i in spatial)),
        (ctypes.c_int * len(spatial))(*(map.upper[i] for i in spatial)),
        *map.box[:2],
        (ctypes.c_uint32 * map.rank)(*(map.steps[i] for i in kept)),
        *how,
    )


def replacing() -> int | None:
    """The address of cuTensorMapReplaceAddress, where the driver has it."""
    found = _replace()
    return None if found is None else address_of(found)


def _replace() -> Any:
    return getattr(driver(), "cuTensorMapReplaceAddress", None)


def address_of(function: Any) -> int:
    """Where a function of a library begins."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0


@cache
def cupy() -> Any:
    """The module cupy. Raises MachineError that says what to install or change."""
    try:
        cupy = importlib.import_module("cupy")
    except ImportError as error:
        raise MachineError(f"CUDA arrays need CuPy: {install('gpu')} ({error})") from error
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise MachineError(
            f"CuPy {cupy.__version__} finds no usable GPU: nvidia-smi has to list one, and a CUDA "
            f"version at least as new as CuPy's{_hidden()} ({error})"
        ) from error
    if not count:
        raise MachineError(f"CuPy counts 0 CUDA devices: nvidia-smi has to list a GPU{_hidden()}")
    return cupy


def cupy_cuda() -> int | None:
    """The CUDA that CuPy is for, as 12040; None where it cannot be imported. Needs no GPU."""
    try:
        return importlib.import_module("cupy").cuda.runtime.runtimeGetVersion()
    except (ImportError, OSError, RuntimeError):
        return None


def _hidden() -> str:
    """What a variable that hides GPUs asks for, where it is set."""
    value = os.environ.get("CUDA_VISIBLE_DEVICES")
    return "" if value is None else f", and CUDA_VISIBLE_DEVICES, now {value!r}, to name it"


class _Thread(threading.local):
    """Per thread, the devices whose context it has."""

    ready: frozenset[int] = frozenset()


_thread = _Thread()


def make_current(index: int) -> None:
    """Give the calling thread the device's context, which only the runtime's first call does."""
    if index not in _thread.ready:
        cupy().cuda.runtime.free(0)
        _thread.ready |= {index}


def integers(address: int, count: int, stream: int) -> list[int]:
    """32-bit integers in device memory, once the stream's work is done."""
    runtime, found = cupy().cuda.runtime, (ctypes.c_int32 * count)()
    runtime.memcpyAsync(
        ctypes.addressof(found), address, 4 * count, runtime.memcpyDeviceToHost, stream
    )
    runtime.streamSynchronize(stream)
    return list(found)


@cache
def device(index: int) -> Device:
    """The GPU of that index."""
    runtime = cupy().cuda.runtime
    p = runtime.getDeviceProperties(index)
    clock = runtime.deviceGetAttribute(runtime.cudaDevAttrClockRate, index) * 1e3
    # two transfers a cycle of the memory's clock, of a bus so many bits wide
    transfers = runtime.deviceGetAttribute(runtime.cudaDevAttrMemoryClockRate, index) * 2e3
    width = runtime.deviceGetAttribute(runtime.cudaDevAttrGlobalMemoryBusWidth, index)
    return Device(
        p["name"].decode(),
        (p["major"], p["minor"]),
        p["multiProcessorCount"],
        clock,
        p["sharedMemPerBlockOptin"],
        p["l2CacheSize"],
        p["totalGlobalMem"],
        transfers * width / 8,
    )
