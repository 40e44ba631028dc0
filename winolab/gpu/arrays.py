"""The few things the kernels need of an array, for CuPy and for torch."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any, NamedTuple, Protocol

import numpy as np

from winolab.gpu import launch

DTYPES = ("float32", "float16", "bfloat16")
CUDA = 2  # DLPack's number of the device type
SAME_DEVICE = nullcontext()


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
        """``value`` as this library's array on a CUDA device."""
        ...

    def describe(self, array: Any) -> Described: ...
    def address(self, array: Any) -> int: ...
    def on(self, index: int) -> AbstractContextManager:
        """Makes a device current."""
        ...

    def stream(self, index: int) -> int:
        """The address of the caller's current stream."""
        ...

    def empty(self, shape: tuple[int, ...], dtype: str, index: int) -> Any: ...
    def copy(self, target: Any, source: Any) -> None:
        """Elements of ``source`` into ``target``, converted to its dtype."""
        ...

    def contiguous(self, array: Any) -> Any:
        """A copy in order of its axes."""
        ...

    def channels_last(self, array: Any) -> Any: ...
    def channels_first(self, array: Any) -> Any: ...


def library_of(array: Any) -> Library:
    """The library of an array: torch where it is a tensor, CuPy for all else on a CUDA device."""
    torch = sys.modules.get("torch")
    return TORCH if torch is not None and isinstance(array, torch.Tensor) else CUPY


def on_gpu(value: Any) -> bool:
    """Whether the array lives on a CUDA device."""
    if isinstance(value, np.ndarray):
        return False
    if hasattr(value, "is_cuda"):
        return value.is_cuda
    if hasattr(value, "__cuda_array_interface__"):
        return True
    return hasattr(value, "__dlpack_device__") and value.__dlpack_device__()[0] == CUDA


class CuPy:
    """CuPy arrays, and what ``__dlpack__`` or ``__cuda_array_interface__`` turns into them."""

    def array(self, name: str, value: Any) -> Any:
        cp = launch.cupy()
        if isinstance(value, cp.ndarray):
            return value
        if hasattr(value, "__cuda_array_interface__"):
            return cp.asarray(value)
        if hasattr(value, "__dlpack__") and value.__dlpack_device__()[0] == CUDA:
            return cp.from_dlpack(value)
        raise TypeError(f"{name} is a {type(value).__name__}; expected a CUDA array like the other")

    def describe(self, array: Any) -> Described:
        size = array.itemsize
        return Described(
            array.shape,
            tuple([s // size for s in array.strides]),
            array.dtype.name,
            array.device.id,
            array.data.ptr % 16 == 0,
        )

    def address(self, array: Any) -> int:
        return array.data.ptr

    def on(self, index: int) -> AbstractContextManager:
        cuda = launch.cupy().cuda
        return SAME_DEVICE if cuda.runtime.getDevice() == index else cuda.Device(index)

    def stream(self, index: int) -> int:
        return launch.cupy().cuda.get_current_stream().ptr

    def empty(self, shape: tuple[int, ...], dtype: str, index: int) -> Any:
        cp = launch.cupy()
        return _allocated(lambda: cp.empty(shape, _numpy(dtype)), shape, dtype)

    def copy(self, target: Any, source: Any) -> None:
        target[...] = source

    def contiguous(self, array: Any) -> Any:
        return launch.cupy().array(array, order="C")

    def channels_last(self, array: Any) -> Any:
        return launch.cupy().moveaxis(array, 1, -1)

    def channels_first(self, array: Any) -> Any:
        return launch.cupy().moveaxis(array, -1, 1)


class Torch:
    """Torch CUDA tensors; memory and stream are torch's own."""

    def array(self, name: str, value: Any) -> Any:
        torch = _torch()
        if not isinstance(value, torch.Tensor):
            raise TypeError(
                f"{name} is a {type(value).__name__}; expected a torch tensor like the other"
            )
        if not value.is_cuda:
            raise ValueError(f"{name} is on {value.device}; expected a CUDA device")
        return value

    def describe(self, array: Any) -> Described:
        return Described(
            array.shape,
            array.stride(),
            _name(array.dtype),
            array.device.index,
            array.data_ptr() % 16 == 0,
        )

    def address(self, array: Any) -> int:
        return array.data_ptr()

    def on(self, index: int) -> AbstractContextManager:
        cuda = _torch().cuda
        return SAME_DEVICE if cuda.current_device() == index else cuda.device(index)

    def stream(self, index: int) -> int:
        return _torch().cuda.current_stream(index).cuda_stream

    def empty(self, shape: tuple[int, ...], dtype: str, index: int) -> Any:
        torch = _torch()
        kind = getattr(torch, dtype)
        return _allocated(lambda: torch.empty(shape, dtype=kind, device="cuda"), shape, dtype)

    def copy(self, target: Any, source: Any) -> None:
        target.copy_(source)

    def contiguous(self, array: Any) -> Any:
        return array.detach().clone(memory_format=_torch().contiguous_format)

    def channels_last(self, array: Any) -> Any:
        return array.detach().movedim(1, -1)

    def channels_first(self, array: Any) -> Any:
        return array.movedim(-1, 1)


CUPY, TORCH = CuPy(), Torch()


@cache
def _torch() -> Any:
    return importlib.import_module("torch")


@cache
def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


@cache
def _numpy(dtype: str) -> np.dtype:
    """The NumPy dtype of that name; bfloat16 is ml_dtypes', which CuPy has from version 14 on."""
    if dtype == "bfloat16":
        return np.dtype(importlib.import_module("ml_dtypes").bfloat16)
    return np.dtype(dtype)


def _allocated(make: Callable[[], Any], shape: tuple[int, ...], dtype: str) -> Any:
    """What ``make`` allocates. Raises MemoryError that says how much was asked."""
    try:
        return make()
    except (RuntimeError, MemoryError) as error:
        if "out of memory" not in str(error).lower():
            raise
        raise MemoryError(
            f"no device memory for {dtype} of shape {tuple(shape)}, "
            f"{_bytes(shape, dtype)} B: free some, or give a smaller workspace_limit ({error})"
        ) from error


def _bytes(shape: tuple[int, ...], dtype: str) -> int:
    return int(np.prod(shape, dtype=object)) * _numpy(dtype).itemsize
