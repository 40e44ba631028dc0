"""Block shapes of direct filter gradients whose copies walk positions."""

from __future__ import annotations

from dataclasses import dataclass

from winolab.gpu.families.im2col_maps import CHANNELS
from winolab.options import KernelConfig

KC = 64  # positions of a step
MOST_SPLITS = 8  # blocks of a cluster that every device can run
MOST_SUMS = 128 * 256  # of a block
MOST_SHARED = 227 << 10  # bytes of a block; of several that a multiprocessor has KEPT more each
KEPT = 1 << 10
MOST_STAGES = 8


@dataclass(frozen=True)
class Config(KernelConfig):
    """The compile-time shape of the kernel: policies of kernel.cuh, by its names."""

    bo: int  # output channels of a block
    bi: int  # input channels of a block
    stages: int  # steps on their way
    split_k: int = 1  # blocks of a cluster, which have a part of the positions each
    blocks: int = 1  # of a multiprocessor

    @property
    def threads(self) -> int:
        """Threads of a block: two or three warpgroups that multiply, and a warp that copies."""
        return 32 + 128 * (3 if self.bo == 192 else 2)

    @property
    def stage(self) -> int:
        """Bytes of a stage."""
        return 2 * KC * CHANNELS * (self.bo // CHANNELS - (-self.bi // CHANNELS)) + 16

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of sums."""
        return 4 * (self.bi + 8)

    @property
    def shared_memory(self) -> int:
        """Bytes of the kernel's shared memory."""
        others = (self.split_k - 1) * -(-self.bo // self.split_k) * self.row_bytes
        return self.stages * self.stage + max(others, 16) + 8  # and a barrier

    @property
    def runs(self) -> bool:
        """Whether there is such a block: of channels that wgmma takes, whose sums fit where its
        stages were."""
        sides = self.bo in (64, 128, 192, 256) and self.bi in range(32, 257, 32)
        held = self.blocks * (self.shared_memory + KEPT * (self.blocks > 1)) <= MOST_SHARED
        counts = 1 <= self.split_k <= MOST_SPLITS and self.stages > 1
        room = self.bo * self.row_bytes <= self.stages * (self.stage - 16)
        return sides and held and counts and room and self.bo * self.bi <= MOST_SUMS

    def __str__(self) -> str:
        named = ("split_k", "blocks")
        more = "".join(f" {name}={n}" for name in named if (n := getattr(self, name)) > 1)
        return f"{self.bo}x{self.bi} positions, stages={self.stages}{more}"


def _fitting() -> tuple[Config, ...]:
    """As many stages as fit, for each shape, number of parts and of blocks."""
    found = []
    for bo, bi, split_k, blocks in (
        (*shape[:2], split_k, shape[2]) for shape in SHAPES for split_k in SPLITS
    ):
        every = (Config(bo, bi, stages, split_k, blocks) for stages in range(MOST_STAGES, 2, -1))
        found += [v for v in every if v.runs][:1]
    return tuple(found)


# Output and input channels of a block, and blocks of a multiprocessor. Of 85 configs, with more
# widths, more blocks of a multiprocessor and clusters of six, these are within 0.5 % of the fastest
# on the mean of 41 layers (docs/notes/105).
SHAPES = (
    (128, 256, 1),
    (192, 128, 1),
    (64, 192, 1),
    (128, 128, 1),
    (128, 64, 1),
    (64, 128, 1),
    (64, 64, 2),
)
SPLITS = (1, 2, 3, 4, 8)
CONFIGS = _fitting()
