"""The few things the kernels need of an array, for CuPy and for torch."""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache, lru_cache, partial
from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol

from winolab.arguments.arrays import CUDA, seen
from winolab.arguments.dlpack import numpy_dtype
from winolab.arguments.words import type_of
from winolab.gpu import driver


class Described(NamedTuple):
    """What a plan depends on: how an array lies. Strides in elements."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    index: int  # of its device
    aligned: bool  # the address is a multiple of 16


class Library(Protocol):
    """Array operations of one library, on the device that is current."""

    def array(self, name: str, value: Any) -> Any:
        """``value`` as this library's array on a CUDA device. Raises as ``empty``."""
        ...

    def describe(self, array: Any) -> Described: ...
    def layout_key(self, array: Any) -> tuple:
        """What ``describe`` depends on, and whether the library keeps track, quickly."""
        ...

    def address(self, array: Any) -> int: ...
    def current(self) -> int:
        """The device that is current."""
        ...

    def on(self, index: int) -> AbstractContextManager:
        """Makes a device current."""
        ...

    def stream(self, index: int) -> int:
        """The address of the caller's current stream."""
        ...

    def looks(self) -> tuple[Callable[[], int], Callable[[int], int], Callable[[Any], int]]:
        """``current``, ``stream`` and ``address``, each as quick as it is to be had."""
        return self.current, self.stream, self.address

    def empty(self, shape: tuple[int, ...], dtype: str, index: int) -> Any:
        """A new array. Raises MemoryError that says how much was asked."""
        ...

    def maker(
        self, shape: tuple[int, ...], dtype: str, index: int, first: bool | None = None
    ) -> Callable[[], Any]:
        """What makes new arrays as ``empty``; where ``first`` is given, they are seen with channels
        first where they have them last, or the other way."""
        seen = {None: lambda made: made, True: self.channels_first, False: self.channels_last}
        return lambda: seen[first](self.empty(shape, dtype, index))

    def memory(self, size: int, index: int) -> tuple[Any, int]:
        """As many bytes, and their address. Raises as ``empty``."""
        ...

    def fits(self, size: int, index: int) -> bool:
        """Whether as many bytes are to be had."""
        with suppress(MemoryError):
            return not size or bool(self.memory(size, index))
        return False

    def capturing(self, index: int) -> bool:
        """Whether a graph captures the caller's current stream."""
        ...

    def used(self, stream: int, *memory: Any) -> None:
        """Told what a call took, and does not hand out; a graph that captures it needs it again."""
        ...

    def written(self, array: Any) -> None:
        """Told after kernels wrote to a caller's array, which the library did not see."""
        ...

    def copy(self, target: Any, source: Any) -> None:
        """Elements of ``source`` into ``target``, converted to its dtype."""
        ...

    def add(self, target: Any, source: Any) -> None:
        """Elements of ``source`` added to ``target``."""
        ...

    def largest(self, array: Any, *given: Any) -> float:
        """The largest magnitude of what is computed from finite arrays; waits for it.

        Of others, the largest finite one. Raises as ``empty``.
        """
        ...

    def contiguous(self, array: Any) -> Any:
        """A copy in order of its axes. Raises as ``empty``."""
        ...

    def channels_last(self, array: Any) -> Any: ...
    def channels_first(self, array: Any) -> Any: ...


def library_of(array: Any) -> Library:
    """The library of an array: torch where it is a tensor, CuPy for all else on a CUDA device."""
    torch = sys.modules.get("torch")
    return TORCH if torch is not None and isinstance(array, torch.Tensor) else CUPY


_captured: list[tuple[Any, ...]] = []  # memory of graphs, whose end nobody tells


class CuPy(Library):
    """CuPy arrays, and what ``__dlpack__`` or ``__cuda_array_interface__`` turns into them."""

    def array(self, name: str, value: Any) -> Any:
        cp = driver.cupy()
        if isinstance(value, cp.ndarray):
            array = value
        elif hasattr(value, "__cuda_array_interface__"):
            array = cp.asarray(value)
        elif hasattr(value, "__dlpack__") and value.__dlpack_device__()[0] == CUDA:
            array = cp.from_dlpack(value)
        else:
            raise TypeError(f"{name} is {type_of(value)}; expected a CUDA array like the other")
        if not array.dtype.isnative:  # which its name does not say
            raise TypeError(
                f"{name} has dtype {array.dtype}, whose bytes are swapped; convert it to "
                f"{array.dtype.name}"
            )
        return array

    def describe(self, array: Any) -> Described:
        strides = tuple([s // array.itemsize for s in array.strides])
        place = array.device.id, array.data.ptr % 16 == 0
        return Described(array.shape, strides, array.dtype.name, *place)

    def layout_key(self, array: Any) -> tuple:
        data = array.data
        return array.shape, array.strides, array.dtype, data.device_id, data.ptr % 16

    def address(self, array: Any) -> int:
        return array.data.ptr

    def current(self) -> int:
        return driver.cupy().cuda.runtime.getDevice()

    def on(self, index: int) -> AbstractContextManager:
        return driver.cupy().cuda.Device(index)

    def stream(self, index: int) -> int:
        return driver.cupy().cuda.get_current_stream().ptr

    def empty(self, shape: tuple[int, ...], dtype: str, index: int) -> Any:
        try:
            return driver.cupy().ndarray(shape, numpy_dtype(dtype))
        except MemoryError as error:
            raise _exhausted(error, _bytes(shape, dtype)) from error

    def memory(self, size: int, index: int) -> tuple[Any, int]:
        try:
            memory = driver.cupy().cuda.alloc(size)
        except MemoryError as error:
            raise _exhausted(error, size) from error
        return memory, memory.ptr

    def capturing(self, index: int) -> bool:
        return driver.cupy().cuda.runtime.streamIsCapturing(self.stream(index))

    def used(self, stream: int, *memory: Any) -> None:
        # CuPy's pool would hand it out again, and every replay write over what is there by then.
        if driver.cupy().cuda.runtime.streamIsCapturing(stream):
            _captured.append(memory)

    def written(self, array: Any) -> None:
        pass

    def copy(self, target: Any, source: Any) -> None:
        target[...] = source

    def add(self, target: Any, source: Any) -> None:
        target += source

    def largest(self, array: Any, *given: Any) -> float:
        cupy = driver.cupy()
        with _asking(array.nbytes, MemoryError):
            finite = cupy.nan_to_num(array, nan=0.0, posinf=0.0, neginf=0.0)
            largest = float(abs(finite).max())
            return math.inf if _overflown(cupy, array, given) else largest

    def contiguous(self, array: Any) -> Any:
        with _asking(array.nbytes, MemoryError):
            return driver.cupy().array(array, order="C")

    def channels_last(self, array: Any) -> Any:
        return driver.cupy().moveaxis(array, 1, -1)

    def channels_first(self, array: Any) -> Any:
        return driver.cupy().moveaxis(array, -1, 1)


class Torch(Library):
    """Torch CUDA tensors; memory and stream are torch's own."""

    def array(self, name: str, value: Any) -> Any:
        torch = _torch()
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"{name} is {type_of(value)}; expected a torch tensor like the other")
        if not value.is_cuda:
            raise ValueError(f"{name} is on {value.device}; expected a CUDA device")
        if name == "out" and value.is_neg():
            raise ValueError("out is a view that negates; give the tensor itself, or a new one")
        if not value.is_neg():
            return value
        with _asking(value.nbytes, torch.OutOfMemoryError):
            return value.resolve_neg()

    def describe(self, array: Any) -> Described:
        dtype = str(array.dtype).removeprefix("torch.")
        place = array.device.index, array.data_ptr() % 16 == 0
        return Described(array.shape, array.stride(), dtype, *place)

    # Whether torch.compile traces this, which reads no address: winolab.torch.graph says so.
    compiling: Callable[[], bool] = staticmethod(lambda: False)

    def layout_key(self, array: Any) -> tuple:
        if self.compiling():
            raise KeyError("tensors that are traced have no place that a call was kept for")
        tracked = array.requires_grad and _torch().is_grad_enabled()
        tracked = tracked or _forward()._current_level >= 0
        return (
            array.shape, array.stride(), array.dtype, array.get_device(), array.data_ptr() % 16,
            array.is_neg(), tracked and self.requires_grad(array),
        )  # fmt: skip

    def requires_grad(self, *arrays: Any) -> bool:
        """Whether torch keeps track of what becomes of any of them, for derivatives."""
        if any(array.requires_grad for array in arrays) and _torch().is_grad_enabled():
            return True
        forward = _forward()
        if forward._current_level < 0 or not _torch()._C._is_fwd_grad_enabled():
            return False
        return any(forward.unpack_dual(array).tangent is not None for array in arrays)

    def address(self, array: Any) -> int:
        return array.data_ptr()

    def current(self) -> int:
        return _current_device()()

    def on(self, index: int) -> AbstractContextManager:
        return _torch().cuda.device(index)

    def stream(self, index: int) -> int:
        return _stream_of()(index)

    def looks(self) -> tuple[Callable[[], int], Callable[[int], int], Callable[[Any], int]]:
        return _current_device(), _stream_of(), _torch().Tensor.data_ptr

    def empty(self, shape: tuple[int, ...], dtype: str, index: int) -> Any:
        return _maker(shape, dtype, index)()

    def maker(self, *how: Any) -> Callable[[], Any]:
        return _maker(*how)

    def memory(self, size: int, index: int) -> tuple[Any, int]:
        memory = _maker((size,), "uint8", index)()
        return memory, memory.data_ptr()

    def capturing(self, index: int) -> bool:
        return _torch().cuda.is_current_stream_capturing()

    def used(self, stream: int, *memory: Any) -> None:
        pass  # torch's graphs have pools of their own

    def written(self, array: Any) -> None:
        if not array.is_inference():  # gradients notice that what they saved is no more
            _torch().autograd.graph.increment_version(array)

    def copy(self, target: Any, source: Any) -> None:
        target.copy_(source)

    def add(self, target: Any, source: Any) -> None:
        target.add_(source)

    def largest(self, array: Any, *given: Any) -> float:
        torch = _torch()
        with _asking(array.nbytes, torch.OutOfMemoryError):
            largest = float(array.detach().nan_to_num(0.0, 0.0, 0.0).abs().max())
            return math.inf if _overflown(torch, array, given) else largest

    def contiguous(self, array: Any) -> Any:
        torch = _torch()
        with _asking(array.nbytes, torch.OutOfMemoryError):
            return array.detach().clone(memory_format=torch.contiguous_format)

    def channels_last(self, array: Any) -> Any:
        return array.detach().movedim(1, -1)

    def channels_first(self, array: Any) -> Any:
        return array.movedim(-1, 1)


def _overflown(library: Any, array: Any, given: tuple[Any, ...]) -> bool:
    """Whether an array is not finite that is computed of finite ones."""
    first, *others = (not bool(library.isfinite(v).all()) for v in (array, *given))
    return first and not any(others)


CUPY, TORCH = CuPy(), Torch()


@cache
def _torch() -> Any:
    return importlib.import_module("torch")


@cache
def _forward() -> Any:
    """Torch's forward differentiation: at a ``_current_level`` of -1 no tensor has a tangent."""
    module = _torch().autograd.forward_ad
    if hasattr(module, "_current_level"):
        return module
    return SimpleNamespace(_current_level=0, unpack_dual=module.unpack_dual)


@cache
def _current_device() -> Callable[[], int]:
    """Torch's current device, without looking whether CUDA has been initialized."""
    torch = _torch()
    return getattr(torch._C, "_cuda_getDevice", None) or torch.cuda.current_device


@cache
def _stream_of() -> Callable[[int], int]:
    """Torch's stream of a device, without the object that torch.cuda.current_stream makes of it."""
    torch = _torch()
    raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    return raw or (lambda index: torch.cuda.current_stream(index).cuda_stream)


@lru_cache(maxsize=4096)
def _maker(shape: Any, dtype: str, index: int, first: bool | None = None) -> Callable[[], Any]:
    """Torch's ``maker``, for the device that is current. Moved axes are no view, which would take
    the host as long as the tensor; as torch.compile's code does, it leaves out half of what
    torch.empty_strided takes."""
    torch = _torch()
    kind, device = getattr(torch, dtype), _device(index)
    shape, strides = seen(shape, first)
    new = partial(torch.empty_strided, shape, strides, dtype=kind, device=device)
    if quick := getattr(torch._C._dynamo.guards, f"_empty_strided_{device.type}", None):
        new = partial(quick, shape, strides, kind)
    exhausted = torch.OutOfMemoryError

    def made() -> Any:
        try:
            return new()
        except exhausted as error:
            raise _exhausted(error, _bytes(shape, dtype)) from error

    return made


@cache
def _device(index: int) -> Any:
    return _torch().device("cuda", index)


@contextmanager
def _asking(size: int, error: type[Exception]) -> Iterator[None]:
    """Says how much was asked where the library raises ``error``."""
    try:
        yield
    except error as found:
        raise _exhausted(found, size) from found


def _exhausted(error: Exception, size: int) -> MemoryError:
    """Says how much was asked."""
    return MemoryError(
        f"no device memory for {size} B: free some, or give a smaller workspace_limit ({error})"
    )


def _bytes(shape: tuple[int, ...], dtype: str) -> int:
    return math.prod(shape) * numpy_dtype(dtype).itemsize
