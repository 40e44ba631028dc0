"""The few things the kernels need of an array, for CuPy and for torch."""

from __future__ import annotations

import importlib
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Protocol

from winolab.gpu import launch


class Library(Protocol):
    """Array operations of one library; shapes and strides as tuples, strides in elements."""

    def array(self, name: str, value: Any) -> Any:
        """``value`` as this library's float32 array on a CUDA device."""
        ...

    def device(self, array: Any) -> int: ...
    def address(self, array: Any) -> int: ...
    def strides(self, array: Any) -> tuple[int, ...]: ...
    def stream(self, array: Any) -> AbstractContextManager: ...
    def channels_last(self, array: Any) -> Any: ...
    def channels_first(self, array: Any) -> Any: ...
    def contiguous_channels(self, array: Any) -> bool: ...
    def with_contiguous_channels(self, array: Any) -> Any: ...
    def empty(self, shape: tuple[int, ...], like: Any) -> Any: ...
    def workspace(self, size: int, like: Any) -> Any: ...
    def like(self, result: Any, given: Any) -> Any:
        """``result`` in the memory order of ``given``."""
        ...


def library_of(array: Any) -> Library:
    """The library of an array: torch where it is a tensor, CuPy for all else on a CUDA device."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return Torch()
    return CuPy()


class CuPy:
    """CuPy arrays, and what ``__dlpack__`` or ``__cuda_array_interface__`` turns into them."""

    def array(self, name: str, value: Any) -> Any:
        cp = launch.cupy()
        if not isinstance(value, cp.ndarray):
            if hasattr(value, "__cuda_array_interface__"):
                value = cp.asarray(value)
            elif hasattr(value, "__dlpack__") and value.__dlpack_device__()[0] == 2:
                value = cp.from_dlpack(value)
            else:
                raise TypeError(f"{name} is a {type(value).__name__}; expected a CUDA array")
        return _float32(name, value, value.dtype == cp.float32)

    def device(self, array: Any) -> int:
        return array.device.id

    def address(self, array: Any) -> int:
        return array.data.ptr

    def strides(self, array: Any) -> tuple[int, ...]:
        return tuple(s // array.itemsize for s in array.strides)

    def stream(self, array: Any) -> AbstractContextManager:
        return nullcontext()

    def channels_last(self, array: Any) -> Any:
        return launch.cupy().moveaxis(array, 1, -1)

    def channels_first(self, array: Any) -> Any:
        return launch.cupy().moveaxis(array, -1, 1)

    def contiguous_channels(self, array: Any) -> bool:
        return array.shape[-1] <= 1 or array.strides[-1] == array.itemsize

    def with_contiguous_channels(self, array: Any) -> Any:
        if self.contiguous_channels(array):
            return array
        return launch.cupy().ascontiguousarray(array)

    def empty(self, shape: tuple[int, ...], like: Any) -> Any:
        return _allocate(lambda: launch.cupy().empty(shape, "float32"), shape)

    def workspace(self, size: int, like: Any) -> Any:
        return _allocate(lambda: launch.cupy().empty(size, "uint8"), (size,))

    def like(self, result: Any, given: Any) -> Any:
        if given.flags.c_contiguous:
            return launch.cupy().ascontiguousarray(result)
        return result


class Torch:
    """Torch CUDA tensors; memory and stream are torch's own."""

    def array(self, name: str, value: Any) -> Any:
        torch = _torch()
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"{name} is a {type(value).__name__}; expected a torch tensor like x")
        if value.device.type != "cuda":
            raise ValueError(f"{name} is on {value.device}; expected a CUDA device")
        return _float32(name, value.detach(), value.dtype == torch.float32)

    def device(self, array: Any) -> int:
        return array.device.index

    def address(self, array: Any) -> int:
        return array.data_ptr()

    def strides(self, array: Any) -> tuple[int, ...]:
        return array.stride()

    def stream(self, array: Any) -> AbstractContextManager:
        torch = _torch()
        return _stream(torch.cuda.current_stream(array.device).cuda_stream)

    def channels_last(self, array: Any) -> Any:
        return array.movedim(1, -1)

    def channels_first(self, array: Any) -> Any:
        return array.movedim(-1, 1)

    def contiguous_channels(self, array: Any) -> bool:
        return array.shape[-1] <= 1 or array.stride(-1) == 1

    def with_contiguous_channels(self, array: Any) -> Any:
        return array if self.contiguous_channels(array) else array.contiguous()

    def empty(self, shape: tuple[int, ...], like: Any) -> Any:
        torch = _torch()
        return _allocate(lambda: torch.empty(shape, device=like.device), shape)

    def workspace(self, size: int, like: Any) -> Any:
        torch = _torch()
        make = lambda: torch.empty(size, dtype=torch.uint8, device=like.device)  # noqa: E731
        return _allocate(make, (size,))

    def like(self, result: Any, given: Any) -> Any:
        return result.contiguous() if given.is_contiguous() else result


@dataclass(frozen=True)
class _Handle:
    """A stream's address, behind the protocol by which libraries exchange streams."""

    address: int

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.address


@lru_cache(maxsize=64)
def _stream(address: int) -> Any:
    """CuPy's view of a stream; from CuPy 14 on ExternalStream is deprecated."""
    cuda = launch.cupy().cuda
    if hasattr(cuda.Stream, "from_external"):
        return cuda.Stream.from_external(_Handle(address))
    return cuda.ExternalStream(address)


@cache
def _torch() -> Any:
    return importlib.import_module("torch")


def _float32(name: str, array: Any, right: bool) -> Any:
    if not right:
        raise TypeError(f"{name} has dtype {array.dtype}; the CUDA kernels compute in float32")
    return array


def _allocate(make, shape: tuple[int, ...]) -> Any:
    """What ``make`` allocates. Raises MemoryError that says how much was asked."""
    try:
        return make()
    except (RuntimeError, MemoryError) as error:
        if "out of memory" not in str(error).lower():
            raise
        raise MemoryError(f"no device memory for an array of shape {shape}: {error}") from error
