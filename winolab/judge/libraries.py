"""What arrays of each library are judged with: guarded memory, poison, streams, bytes."""

from __future__ import annotations

import ctypes
import importlib
import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import ml_dtypes
import numpy as np

from winolab.arguments.dlpack import numpy_view
from winolab.arguments.words import type_of
from winolab.gpu import driver

GUARD = 1024  # elements in front of an array and behind it
PLACES = ("contiguous", "unaligned", "padded", "other order", "reversed")
STALL = 0.02  # seconds that a stream is kept busy before what a kernel reads is written
PERTURB = -6  # M_PERTURB of glibc's mallopt
ZEROS, HUGE = 0xFF, 0x01  # bytes whose complements are 0, and -1.7e38 of FP32
BF16 = np.dtype(ml_dtypes.bfloat16)


def pattern(what: str, dtype: np.dtype) -> Any:
    """A number to fill memory with: "nan", "huge" (finite), "zero"."""
    if what == "huge":
        return dtype.type(ml_dtypes.finfo(dtype).max) / dtype.type(4)
    return dtype.type({"nan": math.nan, "zero": 0.0}[what])


@cache
def _compilations() -> Any:
    """Numba's events, which learns NumPy's functions where it compiles first, or reads what it has
    compiled: here, before they are replaced. None without Numba."""
    try:
        numba: Any = importlib.import_module("numba")
    except ImportError:
        return None
    numba.njit(lambda: None)()
    return importlib.import_module("numba.core.event")


@contextmanager
def _compiling(begins: Callable[[], None], ends: Callable[[], None]) -> Iterator[None]:
    """Call ``begins`` and ``ends`` around what Numba compiles meanwhile: it does so at the first
    call with arrays of a kind, and knows NumPy's own functions alone."""
    events = _compilations()
    if events is None:
        yield
        return
    depth = 0

    class Around(events.Listener):
        def on_start(self, event: Any) -> None:
            nonlocal depth
            depth += 1
            begins()

        def on_end(self, event: Any) -> None:
            nonlocal depth
            depth -= 1
            if not depth:
                ends()

    with events.install_listener("numba:compile", Around()):
        yield


class NumPy:
    """NumPy's arrays on the CPU."""

    name, cuda, places = "numpy", False, PLACES
    poisoned: tuple[str, ...] = ("empty", "empty_like")

    @property
    def module(self) -> Any:
        return np

    def flat(self, count: int, dtype: np.dtype) -> Any:
        """Memory of so many elements, aligned to 64 bytes."""
        memory = np.empty(count * dtype.itemsize + 64, np.uint8)
        first = -memory.ctypes.data % 64
        return memory[first : first + count * dtype.itemsize].view(dtype)

    def over(self, memory: Any, dtype: np.dtype) -> Any:
        """The elements of memory that is an array of bytes to the library, where it lies."""
        return self.module.asarray(memory).view(dtype)

    def plain(self, array: Any) -> bool:
        """Whether it is an array of the library's own type, which lies where its arrays do."""
        return type(array) is self.module.ndarray

    def strides(self, array: Any) -> tuple[int, ...]:
        """Elements between neighbours along each axis."""
        return tuple(step // array.itemsize for step in array.strides)

    def view(self, flat: Any, shape: tuple, strides: tuple, first: int) -> Any:
        """An array in the memory; strides and ``first`` are in elements."""
        steps = [s * flat.itemsize for s in strides]
        return self.module.lib.stride_tricks.as_strided(flat[first:], shape, steps)

    def put(self, array: Any, values: Any) -> None:
        """Write NumPy's numbers, or one, to an array where it lies."""
        array[...] = values

    def staged(self, values: np.ndarray) -> Any:
        """The numbers where ``put`` takes them from without waiting for a stream."""
        return values

    def get(self, array: Any) -> np.ndarray:
        """A copy of an array in NumPy. Raises TypeError for what is no array."""
        if not hasattr(array, "dtype") or not hasattr(array, "shape"):
            raise TypeError(f"the result is {type_of(array)}; expected an array")
        return np.array(np.asarray(array))

    def dtype(self, array: Any) -> str:
        """An array's type of elements by name."""
        return str(array.dtype).rpartition(".")[2]

    def wait(self) -> None:
        """Wait for what runs."""

    @contextmanager
    def stream(self, gate: Any = None) -> Iterator[None]:
        """Another stream, busy for a while, or until the gate opens."""
        yield

    @contextmanager
    def memory(self, what: str) -> Iterator[None]:
        """New arrays without initial values hold ``what``, also those of memory used before; on the
        CPU what C allocates holds zeros, or huge numbers."""

        def filled(array: Any) -> Any:
            self.poison(array, what)
            return array

        with self.created(filled):
            if not self.cuda:
                perturb(ZEROS if what == "zero" else HUGE)
            try:
                yield
            finally:
                if not self.cuda:
                    perturb(0)

    @contextmanager
    def created(self, change: Callable[[Any], Any]) -> Iterator[None]:
        """New arrays without initial values are what ``change`` makes of them; it may fill, but not
        replace, what a caller gives as ``out``."""
        own = {name: getattr(self.module, name) for name in self.poisoned}
        changing = {name: self._changing(create, change) for name, create in own.items()}
        with ExitStack() as stack:
            if self.module is np:
                sides = partial(self._replace, own), partial(self._replace, changing)
                stack.enter_context(_compiling(*sides))
            stack.callback(self._replace, own)
            self._replace(changing)
            yield

    def _replace(self, functions: dict[str, Callable[..., Any]]) -> None:
        for name, function in functions.items():
            setattr(self.module, name, function)

    def _changing(self, create: Callable[..., Any], change: Callable[[Any], Any]) -> Any:
        def created(*args: Any, **kwargs: Any) -> Any:
            array = create(*args, **kwargs)
            changed = change(array)
            return array if kwargs.get("out") is array else changed

        return created

    def poison(self, array: Any, what: str) -> None:
        """Fill an array of floating-point numbers."""
        if array.dtype.kind == "f" or array.dtype == BF16:
            array[...] = pattern(what, array.dtype)


class CuPy(NumPy):
    """CuPy's arrays on a GPU."""

    name, cuda, places = "cupy", True, PLACES[:4]

    @property
    def module(self) -> Any:
        return driver.cupy()

    def flat(self, count: int, dtype: np.dtype) -> Any:
        return self.module.empty(count, dtype)

    def put(self, array: Any, values: Any) -> None:
        array[...] = self.module.asarray(values)

    def staged(self, values: np.ndarray) -> Any:
        return self.module.asarray(values)

    def get(self, array: Any) -> np.ndarray:
        if not isinstance(array, self.module.ndarray):
            raise TypeError(f"the result is {type_of(array)}; expected CuPy's array")
        return self.module.asnumpy(array)

    def wait(self) -> None:
        self.module.cuda.Device().synchronize()

    @contextmanager
    def stream(self, gate: Any = None) -> Iterator[None]:
        other = self.module.cuda.Stream(non_blocking=True)
        with other:
            stall(other.ptr, gate)
            yield
            other.synchronize()


def gates(count: int) -> list[Any]:
    """Events of the current device, one STALL after the other: streams that wait for one go on at
    the same time."""
    cp = driver.cupy()
    stream, found = cp.cuda.Stream(non_blocking=True), []
    for _ in range(count):
        stall(stream.ptr)
        found.append(cp.cuda.Event(disable_timing=True))
        found[-1].record(stream)
    return found


def stall(stream: int, gate: Any = None) -> None:
    """Keep a stream busy for a while, or until the gate opens."""
    cp = driver.cupy()
    if gate is not None:
        cp.cuda.ExternalStream(stream).wait_event(gate)
        return
    source = (
        'extern "C" __global__ void stall(long long cycles) {'
        "long long first = clock64(); while (clock64() - first < cycles) {} }"
    )
    with cp.cuda.ExternalStream(stream):
        cp.RawKernel(source, "stall")((1,), (1,), (np.int64(STALL * 1.7e9),))


class Torch(NumPy):
    """PyTorch's tensors, on the CPU or on a GPU."""

    name, places = "torch", PLACES[:4]
    poisoned = ("empty", "empty_like")

    def __init__(self, cuda: bool) -> None:
        self.cuda = cuda

    @property
    def module(self) -> Any:
        return importlib.import_module("torch")

    def flat(self, count: int, dtype: np.dtype) -> Any:
        device = "cuda" if self.cuda else "cpu"
        return self.module.zeros(count, dtype=self._kind(dtype), device=device)

    def over(self, memory: Any, dtype: np.dtype) -> Any:
        torch = self.module
        if self.cuda:
            return torch.as_tensor(memory, device="cuda").view(self._kind(dtype))
        return torch.from_numpy(np.asarray(memory)).view(self._kind(dtype))

    def plain(self, array: Any) -> bool:
        device = "cuda" if self.cuda else "cpu"
        return type(array) is self.module.Tensor and array.device.type == device

    def strides(self, array: Any) -> tuple[int, ...]:
        return tuple(array.stride())

    def _kind(self, dtype: np.dtype) -> Any:
        return getattr(self.module, "bfloat16" if dtype == BF16 else dtype.name)

    def view(self, flat: Any, shape: tuple, strides: tuple, first: int) -> Any:
        return flat.as_strided(shape, strides, first)

    def put(self, array: Any, values: Any) -> None:
        with self.module.no_grad():
            if isinstance(values, self.module.Tensor):
                array.copy_(values)
            elif np.ndim(values) == 0:
                array.fill_(float(values))  # no copy from the CPU, which waits for the stream
            else:
                array.copy_(self.tensor(values))

    def staged(self, values: np.ndarray) -> Any:
        made = self.tensor(values)
        return made.cuda() if self.cuda else made

    def tensor(self, values: Any) -> Any:
        """NumPy's numbers as a tensor on the CPU."""
        made = np.ascontiguousarray(values)
        if made.dtype != BF16:
            return self.module.from_numpy(made.copy()).reshape(np.shape(values))
        bits = self.module.from_numpy(made.view(np.int16).copy())
        return bits.view(self.module.bfloat16).reshape(np.shape(values))

    def get(self, array: Any) -> np.ndarray:
        if not isinstance(array, self.module.Tensor):
            raise TypeError(f"the result is {type_of(array)}; expected torch's tensor")
        if array.is_cuda != self.cuda:
            raise TypeError(f"the result lies on {array.device}; expected the operands' device")
        return np.array(numpy_view("the result", array.detach().cpu()))

    def wait(self) -> None:
        if self.cuda:
            self.module.cuda.synchronize()

    @contextmanager
    def stream(self, gate: Any = None) -> Iterator[None]:
        other = self.module.cuda.Stream()
        with self.module.cuda.stream(other):
            stall(other.cuda_stream, gate)
            yield
            other.synchronize()

    def poison(self, array: Any, what: str) -> None:
        if array.dtype.is_floating_point:
            with self.module.no_grad():
                array.fill_({"nan": math.nan, "zero": 0.0}.get(what, 1e4))


def perturb(byte: int) -> None:
    """Have glibc fill what it allocates with the byte's complement; 0: with nothing."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(PERTURB, byte)


def library(name: str, cuda: bool) -> NumPy:
    """By name: numpy, torch, cupy. Raises ValueError for another."""
    if name == "numpy":
        return NumPy()
    if name == "torch":
        return Torch(cuda)
    if name == "cupy":
        return CuPy()
    raise ValueError(f"arrays {name!r}; expected numpy, torch or cupy")


@dataclass
class Zone:
    """An array of a library somewhere in a larger memory of one pattern."""

    library: NumPy
    flat: Any
    array: Any

    @classmethod
    def of(cls, library: NumPy, shape: tuple[int, ...], dtype: np.dtype, place: str) -> Zone:
        """``place``: one of PLACES."""
        axes = list(range(len(shape)))
        gaps = [0] * len(shape)
        if place == "other order":
            axes = [0, axes[-1], *axes[1:-1]] if len(shape) > 2 else axes[::-1]
        if place == "padded":
            gaps = [1] * (len(shape) - 1) + [3]
        strides, step = [0] * len(shape), 1
        for axis in reversed(axes):
            strides[axis] = step
            step *= shape[axis] + gaps[axis]
        first = GUARD + (place == "unaligned")
        flat = library.flat(step + 2 * GUARD + 1, dtype)
        if place == "reversed":
            for axis, size in enumerate(shape):
                first += strides[axis] * max(0, size - 1)
                strides[axis] = -strides[axis]
        return cls(library, flat, library.view(flat, shape, tuple(strides), first))

    def fill(self, what: str, values: Any = None) -> None:
        """The pattern around the array, the values, or the pattern too, in it."""
        dtype = np.dtype(ml_dtypes.bfloat16 if "bfloat16" in str(self.array.dtype)
                         else self.library.dtype(self.array))  # fmt: skip
        self.library.put(self.flat, pattern(what, dtype))
        if values is not None and values.size:
            self.library.put(self.array, values)

    def bytes(self) -> bytes:
        """All of the memory."""
        return self.library.get(self.flat).tobytes()
