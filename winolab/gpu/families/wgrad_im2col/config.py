"""Block shapes of direct filter gradients whose copies walk positions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from winolab.gpu.families.clusters import KC, SharedSums, as_many_stages_as_fit
from winolab.gpu.families.im2col_maps import CHANNELS, ROW_BYTES


@dataclass(frozen=True)
class Config(SharedSums):
    """The compile-time shape of the kernel: policies of kernel.cuh, by its names."""

    bo: int  # output channels of a block
    bi: int  # input channels of a block
    stages: int
    split_k: int = 1
    blocks: int = 1
    tf32: int = 0

    @property
    def threads(self) -> int:
        """Threads of a block: two or three warpgroups that multiply, TF32 one for 64 output
        channels, and a warp that copies."""
        return 32 + (2 * self.bo if self.tf32 else 128 * (3 if self.bo == 192 else 2))

    @property
    def sides(self) -> tuple[int, int]:
        return self.bo, self.bi

    @property
    def stage(self) -> int:
        if self.tf32:
            return ROW_BYTES * (self.bo + self.bi)
        return 2 * KC * CHANNELS * (self.bo // CHANNELS - (-self.bi // CHANNELS))


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
CONFIGS = tuple(as_many_stages_as_fit(Config, SHAPES, SPLITS, 3))
# The same of FP32's parts: of six shapes the second alone is within 0.8 % of the fastest on a mean
# of 23 layers, these two have all (docs/notes/134).
TF32_SHAPES = ((128, 64, 1), (64, 32, 3))
TF32_SPLITS = (1, 2, 4, 8)
TF32_CONFIGS = tuple(as_many_stages_as_fit(partial(Config, tf32=1), TF32_SHAPES, TF32_SPLITS, 2))
