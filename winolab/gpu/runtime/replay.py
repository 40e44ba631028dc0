"""A plan's launches, recorded once and replayed with other addresses.

A plan packs parameters in Python; a replay writes the few device addresses into the packed structs
and launches through the driver, which is what keeps a call's cost on the host small. What comes
again with the same addresses may be launched as a graph (``gpu/runtime/cuda_graphs.py``).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
        self._patches: dict[int, _Patches] = {}  # by where the array's address comes in ``replay``
        self._where: tuple[int, ...] = ()  # the stream and the addresses that the structs hold
        self._repeated = Repeated(graphs) if graphs else None
        self._lock = Lock()  # replays share the structs
        record({name: _Recorder(self, kernel) for name, kernel in kernels.items()})
        self._starts = [each.start for each in self._launches]

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
        words = memoryview(buffer).cast("B").cast("Q")
        for kind, offset, value in zip(params.kinds, params.offsets, params.values, strict=True):
            if isinstance(value, TensorMap):
                encode = driver.encoder(value, ctypes.addressof(buffer) + offset)
                mine, beyond = self._of(value.address)
                mine.maps.append((encode, beyond))
            elif kind == POINTER and value:
                mine, beyond = self._of(int(value))
                mine.pointers.append((words, offset // 8, beyond))
            else:
                continue
            mine.places.append((ctypes.addressof(buffer) + offset, beyond, kind != POINTER))
        made = kernel.launch(grid, threads, ctypes.addressof(pointers), early)
        self._launches.append(made)
        self._needed.append((kernel, buffer, pointers))

    def _of(self, recorded: int) -> tuple[_Patches, int]:
        """What holds the address of the array that a recorded one is of, and how far it is."""
        number = recorded + (1 << SHIFT - 1) >> SHIFT
        return self._patches.setdefault(number, _Patches()), recorded - (number << SHIFT)

    def replay(self, *where: int) -> None:
        """Launch everything, on the stream that comes first, arrays lying at these addresses."""
        with self._lock:
            repeated = self._repeated
            if repeated and repeated.graphs and (status := repeated.start(where)) is not None:
                if status:
                    driver.check(status)
                return
            if where != self._where:  # allocators like to hand out the same again
                self._move(where)
            for start in self._starts:
                if status := start():
                    driver.check(status)
            if repeated:
                repeated.launched(where, self._launches)

    def tape(self, *where: int) -> Tape:
        """What ``replay`` does without Python, for the addresses that the structs hold when it
        returns. Nothing else may replay it from now on."""
        self._move(where)
        patches = [(number, *place) for number, of in self._patches.items() for place in of.places]
        calls = [each.words() for each in self._launches]
        launches, streams = [call[:2] for call in calls], [stream for *_, stream in calls]
        return Tape(self, launches, patches, streams, driver.replacing() or 0)

    def failed(self, launch: int, status: int) -> None:
        """Raise what a launch's status says, of its number; -1 is a tensor map."""
        (driver if launch < 0 else self._launches[launch]).check(status)

    def _move(self, where: tuple[int, ...]) -> None:
        """Let the structs hold these addresses."""
        held, self._where = self._where or (None,) * len(where), ()  # if one cannot be written
        for number, patches in self._patches.items():
            address = where[number]
            if held[number] != address:
                for words, place, beyond in patches.pointers:
                    words[place] = address + beyond
                for encode, beyond in patches.maps:
                    encode(address + beyond)
        if held[0] != where[0]:
            for each in self._launches:
                each.on(where[0])
        self._where = where


class _Patches:
    """Where packed structs hold an array's address: a struct's words and which of them, and what
    writes a tensor map; each with how far from the array's first element it points."""

    def __init__(self) -> None:
        self.pointers: list[tuple[memoryview, int, int]] = []
        self.maps: list[tuple[Callable[[int], None], int]] = []
        self.places: list[tuple[int, int, bool]] = []  # of both: address, how far, whether a map


@dataclass(frozen=True)
class Tape:
    """Launches for who replays them without Python (winolab/torch/native), by addresses in the
    host's memory, which ``owner`` holds.

    Of every launch its function and where its arguments lie; of every place that holds an array's
    address the array's number in ``replay``, the place, how far from the array it points and
    whether it is a tensor map, which ``replace`` changes; where streams lie.
    """

    owner: Recording
    launches: list[tuple[int, list[int]]]
    patches: list[tuple[int, int, int, bool]]
    streams: list[int]
    replace: int


class _Recorder:
    """Stands for a kernel while a plan is recorded."""

    def __init__(self, recording: Recording, kernel: Launchable) -> None:
        self._recording, self._kernel = recording, kernel

    def __call__(
        self, grid: tuple[int, int, int], threads: int, params: Params, early: bool = False
    ) -> None:
        self._recording.add(self._kernel, grid, threads, params, early)
