"""A plan's launches, recorded once and replayed with other addresses.

A plan packs parameters in Python; a replay writes the few device addresses into the packed structs
and launches through the driver, which is what keeps a call's cost on the host small. What comes
again with the same addresses may be launched as a graph (``gpu/runtime/cuda_graphs.py``).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any

from winolab.gpu import driver
from winolab.gpu.driver import Launchable
from winolab.gpu.params import MOST_BLOCKS, POINTER, Kernels, Params, TensorMap
from winolab.gpu.runtime.cuda_graphs import Repeated

SHIFT = 56  # recorded addresses are number << SHIFT + offset; no device has as much memory


def address_of(number: int) -> int:
    """What stands for the address of array ``number`` (from 0) while a plan is recorded."""
    return number + 1 << SHIFT


class Recording:
    """Launches that ``record`` made, to be replayed with addresses of its arrays."""

    def __init__(
        self,
        kernels: Mapping[str, Launchable],
        record: Callable[[Kernels], None],
        graphs: int = 0,
    ) -> None:
        """``graphs``: for how many sets of addresses, at most, a graph is kept."""
        self._launches: list[Any] = []  # driver.Launch, or a library's
        self._needed: list[Any] = []  # what they point to
        self._patches: dict[int, list[tuple[Any, int]]] = {}  # an array's pointers, offsets in it
        self._where: tuple[int, ...] = ()  # the stream and the addresses that the structs hold
        self._repeated = Repeated(graphs) if graphs else None
        self._lock = Lock()  # replays share the structs
        record({name: _Recorder(self, kernel) for name, kernel in kernels.items()})

    def add(
        self,
        kernel: Launchable,
        grid: tuple[int, int, int],
        threads: int,
        params: Params,
        early: bool,
    ) -> None:
        """One launch; a grid without blocks launches nothing. Raises ValueError for one that CUDA
        does not launch."""
        if 0 in grid:
            return
        if max(grid[1:]) > MOST_BLOCKS:
            raise ValueError(
                f"{kernel.name} takes {grid[1]} × {grid[2]} blocks along y and z, and CUDA "
                f"launches {MOST_BLOCKS} of each: convolve parts of the filter"
            )
        buffer = params.buffer()
        pointers = (ctypes.c_void_p * 1)(ctypes.addressof(buffer))
        for kind, offset, value in zip(params.kinds, params.offsets, params.values, strict=True):
            if isinstance(value, TensorMap):
                encoded = _Encoded(value, ctypes.addressof(buffer) + offset)
                self._patch(encoded, value.address)
            elif kind == POINTER and value:
                self._patch(ctypes.c_uint64.from_buffer(buffer, offset), int(value))
        made = kernel.launch(grid, threads, ctypes.addressof(pointers), early)
        self._launches.append(made)
        self._needed.append((kernel, buffer, pointers))

    def _patch(self, pointer: Any, recorded: int) -> None:
        number = recorded + (1 << SHIFT - 1) >> SHIFT
        mine = self._patches.setdefault(number - 1, [])
        mine.append((pointer, recorded - (number << SHIFT)))

    def replay(self, stream: int, *addresses: int) -> None:
        """Launch everything on ``stream``, arrays lying at these addresses."""
        where = (stream, *addresses)
        with self._lock:
            if self._repeated and (status := self._repeated.start(where)) is not None:
                driver.check(status)
                return
            if where != self._where:  # allocators like to hand out the same again
                held, self._where = self._where[1:], ()  # of no call, if one cannot be written
                for number, mine in self._patches.items():
                    address = addresses[number]
                    if not held or held[number] != address:
                        for pointer, offset in mine:
                            pointer.value = address + offset
                for each in self._launches:
                    each.on(stream)
                self._where = where
            for each in self._launches:
                if status := each.start():
                    driver.check(status)
            if self._repeated:
                self._repeated.launched(where, self._launches)


class _Encoded:
    """A tensor map in a packed struct, whose address is set as that of a pointer."""

    def __init__(self, map: TensorMap, to: int) -> None:
        self._encode = driver.encoder(map, to)

    def _set(self, address: int) -> None:
        self._encode(address)

    value = property(fset=_set)


class _Recorder:
    """Stands for a kernel while a plan is recorded."""

    def __init__(self, recording: Recording, kernel: Launchable) -> None:
        self._recording, self._kernel = recording, kernel

    def __call__(
        self, grid: tuple[int, int, int], threads: int, params: Params, early: bool = False
    ) -> None:
        self._recording.add(self._kernel, grid, threads, params, early)
