"""Loads a plan's kernels and launches them on CuPy's current stream.

Compiled code is kept in memory per device and on disk per source (``cache``).
"""

from __future__ import annotations

import ctypes
import importlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from struct import Struct, calcsize
from typing import Any, Protocol

from winolab.device import Device
from winolab.gpu.machine import MachineError, driver, install
from winolab.gpu.planner.correlation import MOST, uncounted
from winolab.gpu.runtime import nvrtc
from winolab.gpu.runtime.cache import cubin, remove
from winolab.gpu.tensor_map import TensorMap

POINTER, LONG, INT, FLOAT, MAP = "Q", "q", "i", "f", "128s"  # as struct packs them
MOST_BLOCKS = 65_535  # of a launch along y and along z, as CUDA counts them
ALIGNMENT = 64  # bytes, of a struct with tensor maps


class Layout:
    """A kernel's parameter struct: its fields in order, laid out as C does."""

    def __init__(self, *fields: tuple[str, str]) -> None:
        """``fields`` are (names separated by blanks, their kind)."""
        self.fields = tuple((name, kind) for names, kind in fields for name in names.split())
        # Trailing "0q" pads to the alignment of the widest field.
        kinds = [kind for _, kind in self.fields]
        self._struct = Struct(f"@{''.join(kinds)}0q")
        self.size = self._struct.size  # bytes
        starts = ("".join(kinds[:i]) + f"0{kind[-1]}" for i, kind in enumerate(kinds))
        self.offsets = tuple(calcsize(f"@{start}") for start in starts)

    def pack(self, *values: float | bytes | TensorMap | None) -> Params:
        """The struct with these values, bytes of arrays from their first element on; None for a
        tensor map that the kernel does not use. Raises ValueError for what no INT holds."""
        for (name, kind), value in zip(self.fields, values, strict=True):
            if kind == INT and isinstance(value, int) and not -MOST <= value <= MOST:
                raise uncounted(f"the number {name} of a launch", value)
        known = (b"" if v is None else v.described() if isinstance(v, TensorMap) else v
                 for v in values)  # fmt: skip
        kinds = tuple(kind for _, kind in self.fields)
        return Params(self.offsets, kinds, values, self._struct.pack(*known))


@dataclass(frozen=True)
class Params:
    """A parameter struct: its values in order, and its memory."""

    offsets: tuple[int, ...]
    kinds: tuple[str, ...]
    values: tuple[Any, ...]  # numbers, bytes of arrays, tensor maps, None
    data: bytes

    @classmethod
    def of(cls, *structs: Params) -> Params:
        """The struct of these structs."""
        at, data = [], b""
        for s in structs:
            alignment = ALIGNMENT if MAP in s.kinds else 8  # of the struct, and of its size
            data += bytes(-len(data) % alignment)
            at.append(len(data))
            data += s.data + bytes(-len(s.data) % alignment)
        return cls(
            tuple(first + o for first, s in zip(at, structs, strict=True) for o in s.offsets),
            tuple(kind for s in structs for kind in s.kinds),
            tuple(value for s in structs for value in s.values),
            data,
        )

    def buffer(self) -> Any:
        """Its memory for a launch, ALIGNMENT-aligned; tensor maps in it are not encoded yet."""
        memory = ctypes.create_string_buffer(len(self.data) + 2 * ALIGNMENT)
        buffer = (ctypes.c_char * len(self.data)).from_buffer(
            memory, -ctypes.addressof(memory) % ALIGNMENT
        )
        buffer.raw = self.data
        return buffer

    def maps(self) -> Iterator[tuple[int, TensorMap]]:
        """Offsets of tensor maps, and these."""
        for offset, value in zip(self.offsets, self.values, strict=True):
            if isinstance(value, TensorMap):
                yield offset, value


@dataclass(frozen=True)
class View:
    """An array in device memory: address, and strides in elements, three spatial dimensions.

    x, y and their gradients are (batch, depth, height, width) with channels contiguous; w and dw
    are (OC, depth, height, width, IC). Dimensions that the problem lacks come first, with stride 0.
    """

    address: int
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Kernel:
    """A kernel loaded on one device: its handle, and its dynamic shared memory in bytes.

    ``module`` keeps the handle valid.
    """

    name: str
    handle: int
    shared: int
    module: Any

    def __call__(
        self, grid: tuple[int, int, int], threads: int, params: Params, early: bool = False
    ) -> None:
        """Launch on CuPy's current stream; ``params`` is the struct that the kernel takes."""
        buffer = params.buffer()
        for offset, tensor in params.maps():
            encoder(tensor, ctypes.addressof(buffer) + offset)(tensor.address)
        pointers = (ctypes.c_void_p * 1)(ctypes.addressof(buffer))
        launch = Launch(self, grid, threads, ctypes.addressof(pointers), early)
        launch.on(cupy().cuda.get_current_stream().ptr)
        check(launch.start())


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


def check(status: int) -> None:
    """Raise CuPy's CUDADriverError where the driver's status is none of success."""
    if status:
        raise cupy().cuda.driver.CUDADriverError(status)


class Launcher(Protocol):
    """What a plan calls to launch a kernel: (grid, threads, parameters), and Kernel's ``early``."""

    def __call__(
        self, grid: tuple[int, int, int], threads: int, params: Params, /, early: bool = False
    ) -> None: ...


Kernels = Mapping[str, Launcher]


def encoder(map: TensorMap, to: int) -> Callable[[int], None]:
    """What writes a tensor map, of an array at a given address, as the GPU reads it; ``to``: an
    address that is a multiple of ALIGNMENT.
    """
    sizes, strides = (ctypes.c_uint64 * 5)(*map.sizes), (ctypes.c_uint64 * 4)(*map.strides)
    box, steps = (ctypes.c_uint32 * 5)(*map.box), (ctypes.c_uint32 * 5)(1, 1, 1, 1, 1)
    kind = {2: 1, 4: 2}[map.size]  # CU_TENSOR_MAP_DATA_TYPE_UINT16, _UINT32
    # CU_TENSOR_MAP_SWIZZLE_NONE, _64B, _128B
    swizzle = 0 if map.plain else {64: 2, 128: 3}[map.size * map.box[0]]
    plain, l2_256, zeros = 0, 3, 0
    place, begin = ctypes.c_void_p(to), ctypes.c_void_p()
    start = partial(
        driver().cuTensorMapEncodeTiled,
        *(place, kind, 5, begin, sizes, strides, box, steps, plain, swizzle, l2_256, zeros),
    )

    def encode(address: int) -> None:
        begin.value = address
        check(start())

    return encode


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


@cache
def _loaded(
    source: str, title: str, names: tuple[tuple[str, int], ...], index: int
) -> Mapping[str, Kernel]:
    cp = cupy()
    arch = nvrtc.architecture(device(index).compute_capability)
    path = cubin(source, arch, title)
    refused = cp.cuda.driver.CUDADriverError
    with cp.cuda.Device(index):
        try:
            return _kernels(path, names)
        except refused:
            remove(path)  # a broken cache: compile once more
        try:
            return _kernels(cubin(source, arch, title), names)
        except refused as error:
            raise MachineError(_refusal(arch, str(error))) from error


def _kernels(path: Path, names: tuple[tuple[str, int], ...]) -> Mapping[str, Kernel]:
    module = cupy().RawModule(path=str(path))
    kernels = {}
    for name, shared in names:
        function = module.get_function(name)
        if shared:  # the most of all plans: CuPy loads a file once
            most = max(shared, function.max_dynamic_shared_size_bytes)
            function.max_dynamic_shared_size_bytes = most
        kernels[name] = Kernel(name, function.kernel.ptr, shared, module)
    return kernels


def _refusal(arch: str, error: str) -> str:
    """Why the driver does not take what NVRTC made, and what to change."""
    compiler = "{}.{}".format(*nvrtc.version())
    version = cupy().cuda.runtime.driverGetVersion()
    return (
        f"the driver, of CUDA {version // 1000}.{version % 1000 // 10}, refuses code that NVRTC "
        f"{compiler} compiled for {arch} ({error}): update the driver, or install an NVRTC that is "
        "not newer, such as nvidia-cuda-nvrtc-cu12"
    )


def load(source: str, title: str, shared: Mapping[str, int], index: int) -> Mapping[str, Kernel]:
    """The kernels of a translation unit on device ``index``, compiled where no cache has them.

    ``shared`` names them, with the bytes of dynamic shared memory of each; ``title`` is what the
    log calls them.
    """
    return _loaded(source, title, tuple(shared.items()), index)
