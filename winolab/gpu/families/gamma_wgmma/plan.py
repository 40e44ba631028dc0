"""Γ on Tensor Cores with wgmma (compute capability 9.0): plans."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from winolab.gpu.families.gamma.plan import GammaTensorPlan
from winolab.gpu.families.gamma_wgmma.config import Config
from winolab.gpu.families.gamma_wgmma.cost import seconds
from winolab.gpu.families.gamma_wgmma.launch import WgmmaLaunches
from winolab.gpu.families.gamma_wgmma.offers import promising
from winolab.gpu.families.gamma_wgmma.tiling import Tiling
from winolab.gpu.planner.ranking import NEAR
from winolab.gpu.planner.request import Request

__all__ = ["Config", "GammaWgmmaPlan", "plans"]


@dataclass(frozen=True)
class GammaWgmmaPlan(Tiling, GammaTensorPlan):
    """One call: what is computed, by which kernels, on what grid, at what cost."""

    @property
    def launches(self) -> WgmmaLaunches:
        """What launches the kernels."""
        return WgmmaLaunches(self, self.layout)

    @property
    def notes(self) -> list[str]:
        """Lines about how images lie."""
        return [f"rows       {self.packed_batch}"] if self.packed_batch else []

    def shared(self) -> dict[str, int]:
        """Bytes of dynamic shared memory, by kernel."""
        copies = {"winolab_gamma_wgmma_pad_channels": 0} if self.padded else {}
        return copies | super().shared()


def plans(request: Request) -> Iterator[GammaWgmmaPlan]:
    """Every tile and block shape that can run. Raises ValueError where none can, and says why."""
    yield from _promising(request, math.inf)


def near(request: Request) -> Iterator[GammaWgmmaPlan]:
    """Those of ``plans`` that can be picked where the request does not say how."""
    yield from _promising(request, NEAR)


def _promising(request: Request, near: float) -> Iterator[GammaWgmmaPlan]:
    request.need(request.device.wgmma, "Γ by wgmma needs 9.0")
    yield from promising(GammaWgmmaPlan, _timed, request, near)


def _timed(plan: GammaWgmmaPlan) -> GammaWgmmaPlan:
    return replace(plan, predicted=seconds(plan))
