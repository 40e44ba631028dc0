"""Block shapes of direct filter gradients whose copies walk positions."""

from __future__ import annotations

from dataclasses import dataclass

from winolab.gpu.families.clusters import KC, SharedSums, as_many_stages_as_fit
from winolab.gpu.families.im2col_maps import CHANNELS


@dataclass(frozen=True)
class Config(SharedSums):
    """The compile-time shape of the kernel: policies of kernel.cuh, by its names."""

    bo: int  # output channels of a block
    bi: int  # input channels of a block
    stages: int
    split_k: int = 1
    blocks: int = 1

    @property
    def threads(self) -> int:
        """Threads of a block: two or three warpgroups that multiply, and a warp that copies."""
        return 32 + 128 * (3 if self.bo == 192 else 2)

    @property
    def sides(self) -> tuple[int, int]:
        return self.bo, self.bi

    @property
    def stage(self) -> int:
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
