"""Memory of a GPU beside addresses where nothing is mapped, by the driver's virtual memory.

Who reads or writes there gets cudaErrorIllegalAddress, after which the process can use no device.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from winolab.gpu.machine import MachineError, driver

BESIDE = 1 << 28  # bytes of addresses, at least: what is read beyond them is not seen
DEVICE, PINNED = 1, 1  # CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_ALLOCATION_TYPE_PINNED
MINIMUM = 0  # CU_MEM_ALLOC_GRANULARITY_MINIMUM
READ_AND_WRITE = 3  # CU_MEM_ACCESS_FLAGS_PROT_READWRITE


class Location(ctypes.Structure):
    """The driver's CUmemLocation."""

    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class Allocation(ctypes.Structure):
    """The driver's CUmemAllocationProp."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("handles", ctypes.c_int),
        ("location", Location),
        ("metadata", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    )


class Access(ctypes.Structure):
    """The driver's CUmemAccessDesc."""

    _fields_ = (("location", Location), ("flags", ctypes.c_int))


class Unmapped:
    """``size`` bytes of the current device, behind the last of which nothing is mapped, or, with
    ``end`` "start", in front of the first.

    Their address is a multiple of ``aligned``, a power of 2, for which fewer than ``aligned`` bytes
    are left behind the last one. They are a CUDA array of bytes to CuPy and to PyTorch, which keep
    them. Raises MachineError for what the driver refuses.
    """

    kinds: tuple[str, ...] = ("reads or writes",)  # the driver tells neither
    own = ""  # the driver maps nothing of a device for reading alone
    spilled = False  # what is written between the last byte and the end is not looked for

    def __init__(self, size: int, end: str, aligned: int) -> None:
        index, step = ctypes.c_int(), ctypes.c_size_t()
        _call("cuCtxGetDevice", ctypes.byref(index))
        location = Location(DEVICE, index.value)
        of = Allocation(PINNED, 0, location)
        _call("cuMemGetAllocationGranularity", ctypes.byref(step), ctypes.byref(of), MINIMUM)
        held, beside = (-(-n // step.value) * step.value for n in (max(size, 1), BESIDE))
        undo: list[tuple[Any, ...]] = []
        self._free = weakref.finalize(self, _undo, undo)
        self._free.atexit = False  # the process ends, and has perhaps no device anymore
        reserved, handle = ctypes.c_uint64(), ctypes.c_uint64()
        room = ctypes.c_size_t(held + 2 * beside)
        _call("cuMemAddressReserve", ctypes.byref(reserved), room, ctypes.c_size_t(0),
              ctypes.c_uint64(0), ctypes.c_uint64(0))  # fmt: skip
        undo.append(("cuMemAddressFree", reserved, room))
        whole = ctypes.c_size_t(held)
        _call("cuMemCreate", ctypes.byref(handle), whole, ctypes.byref(of), ctypes.c_uint64(0))
        undo.append(("cuMemRelease", handle))
        begin = ctypes.c_uint64(reserved.value + beside)
        _call("cuMemMap", begin, whole, ctypes.c_size_t(0), handle, ctypes.c_uint64(0))
        undo.append(("cuMemUnmap", begin, whole))
        access = Access(location, READ_AND_WRITE)
        _call("cuMemSetAccess", begin, whole, ctypes.byref(access), ctypes.c_size_t(1))
        self.address: int = begin.value
        if end == "end":
            self.address += held - -(-size // aligned) * aligned
        self.size = size

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        data = (self.address, False)
        return {"shape": (self.size,), "typestr": "|u1", "data": data, "version": 3}

    @contextmanager
    def beside(self, kind: str) -> Iterator[None]:
        """What the kernel may not do beside them meanwhile; it never may."""
        yield


def _undo(calls: list[tuple[Any, ...]]) -> None:
    for name, *given in reversed(calls):
        getattr(driver(), name)(*given)  # of a device that is lost, nothing can be undone


def _call(name: str, *given: Any) -> None:
    """Call the driver's function. Raises MachineError where it refuses."""
    if status := getattr(driver(), name)(*given):
        said = ctypes.c_char_p()
        driver().cuGetErrorName(status, ctypes.byref(said))
        error = said.value.decode() if said.value else f"status {status}"
        raise MachineError(f"{name} of the CUDA driver: {error}; --skip pages leaves this out")
