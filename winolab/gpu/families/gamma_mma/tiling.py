"""What a call of Γ by mma.sync is cut into: as all Γ on Tensor Cores, a block alone a work tile."""

from __future__ import annotations

from dataclasses import dataclass

from winolab.gpu.families.gamma import tiling
from winolab.gpu.families.gamma_mma.config import Config


@dataclass(frozen=True)
class Tiling(tiling.Tiling):
    """What is computed, by blocks of which config, on what grid."""

    config: Config
