"""Block shapes of the kernels of thin layers, and which of them serve a correlation."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from winolab.gpu.params import LINE, VECTOR
from winolab.gpu.planner.correlation import Correlation
from winolab.options import KernelConfig

THREADS = 256  # of a block
OUTPUTS, CHANNELS = 8, 16  # most output channels, most channels that are summed
AT_ONCE = 8  # channels of a tap that a thread holds, at most
KINDS = ("outputs", "channels")
LANES = (1, 2, 4, 8, 16, 32)
POSITIONS = (2, 4, 8)
REGISTERS = 128  # that a thread may take: two blocks of a multiprocessor
# Bytes of x's lines that a block of "outputs" touches in a filter's rows, for a chunk of channels
# narrower than a line: L1 has lost so many at the next chunk. 32x512x512x3>64x3x3p1 in FP32 takes
# 12.6 ms backward with one lane a position, 3.2 with four (thin.jsonl).
MOST_LINES = 384 << 10  # bytes
MOST_SHARED = 96 << 10  # bytes of a filter: two blocks of 9.0, one of 8.x


@dataclass(frozen=True)
class Config(KernelConfig):
    """The compile-time shape of a kernel, which is called as its ``kind``.

    "outputs" has few output channels, ``few`` at most, and ``lanes`` threads of ``vector`` channels
    share a position's sums; "channels" sums few of them, ``few`` at a time, and these threads have
    output channels. A thread has ``positions``.
    """

    kind: str
    lanes: int
    vector: int
    positions: int
    few: int

    def __str__(self) -> str:
        shape = f"{self.lanes}x{self.vector} positions={self.positions}"
        return f"{self.kind} {shape} few={self.few}"

    @property
    def width(self) -> int:
        """Channels that the lanes of a position have at once."""
        return self.lanes * self.vector

    @property
    def together(self) -> int:
        """Positions of a work tile."""
        return self.positions * THREADS // self.lanes

    def registers(self, c: Correlation) -> int:
        """About how many a thread takes: sums, x, pixels, and where these are among several taps;
        a filter's numbers."""
        single = math.prod(c.filter) == 1
        held = self.positions * (self.few + self.vector + (2 if single else 9))
        return held + self.vector + (20 if single else 30)

    def shared_memory(self, c: Correlation) -> int:
        """Bytes of shared memory: the filter, filled up, of all or of a block's output channels."""
        chunks = -(-c.channels // self.width) if self.kind == "outputs" else 1
        others = self.few if self.kind == "outputs" else -(-c.channels // self.few) * self.few
        return 4 * math.prod(c.filter) * chunks * others * self.width

    def serves(self, c: Correlation, sizes: tuple[int, int]) -> bool:
        """Whether the kernel computes it; ``sizes``: bytes of an element of x, and of y."""
        outputs = self.kind == "outputs"
        whole, size = (c.channels, sizes[0]) if outputs else (c.out_channels, sizes[1])
        vectors = self.vector == 1 or (self.vector * size == VECTOR and whole % self.vector == 0)
        enough = c.out_channels <= self.few if outputs else c.channels <= CHANNELS
        return self.runs and enough and vectors and self.shared_memory(c) <= MOST_SHARED

    @property
    def runs(self) -> bool:
        """Whether a kernel has this shape: lanes exchange halves of their positions."""
        shape = self.lanes in LANES and self.positions in POSITIONS
        return self.kind in KINDS and shape and 1 <= self.few <= CHANNELS


def _lost(v: Config, c: Correlation, size: int) -> bool:
    """Whether L1 loses what the next chunk of channels needs; ``size``: bytes of x's element."""
    narrow = v.kind == "outputs" and v.width < c.channels and v.width * size < LINE
    return narrow and v.together * LINE * math.prod(c.filter[:2]) >= MOST_LINES


def configs(c: Correlation, sizes: tuple[int, int]) -> Iterator[Config]:
    """Block shapes that serve it, none with half of its lanes empty; ``sizes``: as of
    ``Config.serves``."""
    for kind, few, wide, size in (
        ("outputs", c.out_channels, c.channels, sizes[0]),
        ("channels", c.channels, c.out_channels, sizes[1]),
    ):
        if few > (OUTPUTS if kind == "outputs" else CHANNELS):
            continue
        vector = VECTOR // size if wide % (VECTOR // size) == 0 else 1
        for lanes in LANES:
            if lanes > 1 and lanes * vector >= 2 * wide:
                break
            for positions in POSITIONS:
                v = Config(kind, lanes, vector, positions, min(few, AT_ONCE))
                fits = v.registers(c) <= REGISTERS and v.serves(c, sizes)
                if fits and not _lost(v, c, sizes[0]):
                    yield v
