"""Block shapes of direct products whose copies walk positions."""

from __future__ import annotations

from dataclasses import dataclass

from winolab.options import KernelConfig

KC, ROW_BYTES = 64, 128  # channels of a step, and their bytes
MOST_SPLITS = 8  # blocks of a cluster that every device can run
MOST_SUMS = 128 * 256  # of a block
MOST_SHARED = 227 << 10  # bytes of a block; of several that a multiprocessor has KEPT more each
KEPT = 1 << 10
MOST_STAGES = 8


@dataclass(frozen=True)
class Config(KernelConfig):
    """The compile-time shape of the kernel: policies of kernel.cuh, by its names."""

    bn: int  # output positions of a block
    bm: int  # output channels of a block
    stages: int  # steps on their way
    split_k: int = 1  # blocks of a cluster, which have a part of the steps each
    blocks: int = 1  # of a multiprocessor

    @property
    def threads(self) -> int:
        """Threads of a block: a warpgroup for 64 positions, and a warp that copies."""
        return 2 * self.bn + 32

    @property
    def stage(self) -> int:
        """Bytes of a stage."""
        return ROW_BYTES * (self.bn + self.bm)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of sums."""
        return 4 * (self.bm + 8)

    @property
    def shared_memory(self) -> int:
        """Bytes of the kernel's shared memory: stages and their barriers, other parts' sums, places
        of positions, a barrier."""
        others = (self.split_k - 1) * -(-self.bn // self.split_k) * self.row_bytes
        return self.stages * (self.stage + 16) + max(others, 16) + 8 * self.bn + 8

    @property
    def runs(self) -> bool:
        """Whether there is such a block: of channels that wgmma takes, whose sums fit where its
        stages were."""
        sides = self.bn in (64, 128, 192, 256) and self.bm in range(32, 257, 32)
        held = self.blocks * (self.shared_memory + KEPT * (self.blocks > 1)) <= MOST_SHARED
        counts = 1 <= self.split_k <= MOST_SPLITS and self.stages > 1
        room = self.bn * self.row_bytes <= self.stages * self.stage
        return sides and held and counts and room and self.bn * self.bm <= MOST_SUMS

    def __str__(self) -> str:
        named = ("split_k", "blocks")
        more = "".join(f" {name}={n}" for name in named if (n := getattr(self, name)) > 1)
        return f"{self.bn}x{self.bm} positions, stages={self.stages}{more}"


def _fitting() -> tuple[Config, ...]:
    """As many stages as fit, for each shape, number of parts and of blocks."""
    found = []
    for bn, bm, split_k, blocks in (
        (*shape[:2], split_k, shape[2]) for shape in SHAPES for split_k in SPLITS
    ):
        every = (Config(bn, bm, stages, split_k, blocks) for stages in range(MOST_STAGES, 1, -1))
        found += [v for v in every if v.runs][:1]
    return tuple(found)


# Positions and output channels of a block, and blocks of a multiprocessor. Of ten such shapes, and
# of clusters of three and six, these are within 0.5 % of the fastest on the mean of 209 layers
# (docs/notes/107).
SHAPES = ((128, 128, 1), (128, 64, 1), (64, 64, 2), (64, 64, 3), (64, 32, 2))
SPLITS = (1, 2, 4, 8)
CONFIGS = _fitting()
