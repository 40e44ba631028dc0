"""Block shapes of direct products whose copies walk positions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from winolab.gpu.families.clusters import SharedSums, as_many_stages_as_fit
from winolab.gpu.families.im2col_maps import ROW_BYTES


@dataclass(frozen=True)
class Config(SharedSums):
    """The compile-time shape of the kernel: policies of kernel.cuh, by its names."""

    bn: int  # output positions of a block
    bm: int  # output channels of a block
    stages: int
    split_k: int = 1
    blocks: int = 1
    tf32: int = 0

    @property
    def threads(self) -> int:
        """Threads of a block: a warpgroup for 64 positions, and a warp that copies."""
        return 2 * self.bn + 32

    @property
    def sides(self) -> tuple[int, int]:
        return self.bn, self.bm

    @property
    def stage(self) -> int:
        return ROW_BYTES * (self.bn + self.bm)

    @property
    def scratch(self) -> int:
        """Places of positions, and the parts of two steps' filters."""
        return 8 * self.bn + super().scratch


# Positions and output channels of a block, and blocks of a multiprocessor. Of ten such shapes, and
# of clusters of three and six, these are within 0.5 % of the fastest on the mean of 209 layers
# (docs/notes/107).
SHAPES = ((128, 128, 1), (128, 64, 1), (64, 64, 2), (64, 64, 3), (64, 32, 2))
SPLITS = (1, 2, 4, 8)
CONFIGS = tuple(as_many_stages_as_fit(Config, SHAPES, SPLITS, 2))
# The same of FP32's parts, whose sums of a step are beside all sums: 128 × 128 would spill, and
# three blocks of 64 × 64.
TF32_SHAPES = tuple(shape for shape in SHAPES[1:] if shape[2] < 3)
TF32_CONFIGS = tuple(as_many_stages_as_fit(partial(Config, tf32=1), TF32_SHAPES, SPLITS, 2))
