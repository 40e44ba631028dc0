"""The compile-time shapes of the depthwise kernels, and which of them serve a problem."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from winolab.gpu.families.depthwise.geometry import Depthwise
from winolab.options import KernelConfig

THREADS = 128  # of a block
# Filters whose taps are template parameters, in three dimensions; others are arguments.
KNOWN = frozenset(
    [
        *((1, 1, r) for r in range(1, 8)),
        *((1, r, 1) for r in (3, 5, 7)),
        *((1, r, r) for r in (3, 5, 7)),
        (3, 3, 3),
    ]
)
MOST_STRIDE = 2  # that is a template parameter
REGISTERS = 200  # that sums, taps and columns of a thread may take


@dataclass(frozen=True)
class Config(KernelConfig):
    """The compile-time shape of a kernel.

    ``kind``: "rows" and "scatter" have taps in registers and walk down rows, "any" has sizes as
    arguments. ``lanes`` threads of a block are neighbours in channels, ``vector`` channels each,
    and have ``columns`` outputs of a row.
    """

    kind: str
    lanes: int
    vector: int
    columns: int

    def __str__(self) -> str:
        return f"{self.kind} {self.lanes}x{self.vector} columns={self.columns}"

    @property
    def channels(self) -> int:
        """Channels of a block."""
        return self.lanes * self.vector

    @property
    def slots(self) -> int:
        """Threads of a block that have the same channels."""
        return THREADS // self.lanes


def kind(d: Depthwise, gradient: bool) -> str:
    """The fastest kernel that computes it: "rows", "scatter" or "any"."""
    known = d.filter in KNOWN and max(d.stride[1:]) <= MOST_STRIDE
    if not known or (d.multiplier > 1 and (d.rotated or d.gathered)):
        return "any"
    if d.gathered and not gradient:
        return "scatter" if set(d.dilation[1:]) == {1} else "any"
    simple = all(1 in pair for pair in zip(d.stride[1:], d.dilation[1:], strict=True))
    return "rows" if simple else "any"


def registers(d: Depthwise, v: Config, gradient: bool) -> int:
    """About how many a thread's sums, taps and columns take."""
    stride_height, stride_width = d.stride[1:]
    if v.kind == "any":
        return 64
    if v.kind == "scatter":
        open_, read = max(d.filter[1], stride_height), v.columns // stride_width + d.filter[2] // 2
    else:
        open_ = -(-d.filter[1] // stride_height)
        read = (v.columns - 1) * stride_width + d.filter[2]
    kept = d.taps + open_ * v.columns + 2 * read + (v.columns if gradient else 0)
    return v.vector * kept + 24


def configs(d: Depthwise, gradient: bool, itemsize: int, aligned: bool) -> Iterator[Config]:
    """Those that serve a problem: vectors as far as channels and alignment allow."""
    made = kind(d, gradient)
    columns = {"rows": (4, 7, 8), "scatter": (4, 8), "any": (8, 16)}[made]
    if made == "any" and not slides(d):
        columns = (4,)
    for vector in (1, 2, 4, 8):
        if vector > 1 and not vectors(d, made, vector, itemsize, aligned):
            break
        for lanes in (4, 8, 16, 32):
            if lanes > 4 and lanes * vector >= 2 * d.channels:
                break
            for count in columns:
                v = Config(made, lanes, vector, count)
                if (vector, count) == (1, columns[0]) or registers(d, v, gradient) <= REGISTERS:
                    yield v


def vectors(d: Depthwise, made: str, vector: int, itemsize: int, aligned: bool) -> bool:
    """Whether so many channels are read at once."""
    whole = aligned and d.channels % vector == 0 and vector * itemsize <= 16
    return made != "any" and d.multiplier == 1 and whole


def slides(d: Depthwise) -> bool:
    """Whether neighbouring outputs of a phase meet neighbouring columns."""
    return d.stride[2] == 1 and not d.gathered
