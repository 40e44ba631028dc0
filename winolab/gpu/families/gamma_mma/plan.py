"""Γ on Tensor Cores without wgmma (compute capability 8.x), by mma.sync: plans."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from winolab.gpu.families.gamma.offers import offered
from winolab.gpu.families.gamma.plan import GammaTensorPlan
from winolab.gpu.families.gamma_mma.config import WIDTHS, Config, configs
from winolab.gpu.families.gamma_mma.cost import seconds
from winolab.gpu.families.gamma_mma.launch import MmaLaunches
from winolab.gpu.families.gamma_mma.tiling import Tiling
from winolab.gpu.planner.request import Request

__all__ = ["Config", "GammaMmaPlan", "plans"]


@dataclass(frozen=True)
class GammaMmaPlan(Tiling, GammaTensorPlan):
    """One call: what is computed, by which kernels, on what grid, at what cost."""

    @property
    def launches(self) -> MmaLaunches:
        """What launches the kernels."""
        return MmaLaunches(self, self.layout)


def plans(request: Request) -> Iterator[GammaMmaPlan]:
    """Every tile and block shape that can run; on 9.0, which has wgmma, only the request's.

    Raises ValueError where none can, and says why.
    """
    if request.device.wgmma and not request.config:
        return  # gamma_wgmma serves it
    yield from map(_timed, offered(GammaMmaPlan, configs, request, WIDTHS))


def _timed(plan: GammaMmaPlan) -> GammaMmaPlan:
    return replace(plan, predicted=seconds(plan))
