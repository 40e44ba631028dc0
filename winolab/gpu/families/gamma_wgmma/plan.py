"""Γ on Tensor Cores: FP32 by products of 16-bit parts, FP16 and BF16. Plans and their times.

Forward and backward data of any shape; wider filters run in pieces of r taps, the last one padded
up with zeros. Split FP32 launches four kernels: the largest elements of x, from which its scale
follows, the transformed filter, everything else, and what looks at results of 0; 16 bits only the
second and the third.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

from winolab.gpu.families.gamma_wgmma import (
    cost as gamma_wgmma_cost,
)
from winolab.gpu.families.gamma_wgmma import (
    filter as gamma_wgmma_filter,
)
from winolab.gpu.families.gamma_wgmma.config import KC, Config
from winolab.gpu.families.gamma_wgmma.geometry import Geometry
from winolab.gpu.families.gamma_wgmma.launch import Launcher
from winolab.gpu.families.gamma_wgmma.offers import promising
from winolab.gpu.families.gamma_wgmma.source import SCALING, halvings, source
from winolab.gpu.families.gamma_wgmma.workspace import Workspace
from winolab.gpu.params import Kernels, Params, View
from winolab.gpu.planner.ranking import NEAR
from winolab.gpu.planner.request import BasePlan, CheckedCorrelation, Request
from winolab.ref.arithmetic.split import Scale

__all__ = ["Config", "GammaWgmmaPlan", "plans"]

ARCHITECTURE = (9, 0)  # wgmma is 9.0's alone


@dataclass(frozen=True)
class GammaWgmmaPlan(Geometry, BasePlan):
    """One call: what is computed, by which kernels, on what grid, at what cost."""

    predicted: float = 0.0  # seconds, all launches
    given: Scale | None = None  # by the caller

    scaling = SCALING

    @cached_property
    def layout(self) -> Workspace:
        """Layout of the workspace."""
        return Workspace.of(self)

    @property
    def header(self) -> int:
        """Bytes of a call's own, first in the workspace."""
        return self.layout.header

    @property
    def prepared(self) -> int:
        """Bytes of what depends on the filter alone, of all groups."""
        return self.layout.prepared

    @property
    def workspace(self) -> int:
        """Bytes."""
        return self.layout.size

    @property
    def launcher(self) -> Launcher:
        """What launches the kernels."""
        return Launcher(self, self.layout, self.given)

    @property
    def simulated(self) -> str:
        """What the reference calls this arithmetic."""
        intervals = self.config.intervals(self.parts)
        text = f"{self.precision},accumulation=tensor_core:{KC}:2:truncate"
        text += ":" * bool(intervals) + "+".join(map(str, intervals))
        if self.parts == 2:
            text += f",ahead={self.config.skew},filters=fp64"
        if self.precision == "fp16":
            text += ",scale=" + ":".join(str(-h) for h in halvings(self.tile, self.points))
        return text + (f",scale={self.given}" if self.given else "")

    @property
    def checks_accuracy(self) -> bool:
        """Whether the workspace begins with flags about the results (fallback.cuh)."""
        return self.parts == 2

    def __str__(self) -> str:
        p, v = self.problem, self.config
        shared = self.shared()[v.entry]
        return "\n".join(
            [
                f"{self.direction} x{p.x_shape} w{p.w_shape} padding {p.padding}",
                f"kernel     {self.kernel} {self.precision}, points {self.points}",
                f"block      {self.block} channels × {v.rows} rows × {v.columns(self.tile)} tiles, "
                f"{KC} channels a stage; {self.tiles_width} tiles a row of outputs",
                *([f"rows       {self.stack}"] if self.stack else []),
                f"policies   {v}",
                f"grid       {self.grid} blocks of {self.threads} threads, "
                f"{self.work_tiles} work tiles",
                f"memory     {shared} B shared, {self.workspace} B workspace",
                f"predicted  {self.predicted * 1e6:.1f} µs on {self.device.name}",
            ]
        )

    def scaled(self, scale: Scale | None) -> Self:
        """The plan with the caller's scale."""
        return replace(self, given=scale) if scale else self

    def timed(self, seconds: float) -> Self:
        """The plan with its predicted time, of which a group's main kernel takes ``seconds``."""
        padded = self.layout.padded if self.config.padded else 0
        predicted = gamma_wgmma_cost.of_call(
            self.device, self.correlation.groups, seconds, self.transformed, self.parts, padded
        )
        return replace(self, predicted=predicted)

    def source(self) -> str:
        """The translation unit of the kernels."""
        return source(self.tile, self.points, self.precision, self.out_dtype, self.config)

    def shared(self) -> dict[str, int]:
        """Bytes of dynamic shared memory, by kernel."""
        gamma = self.config.shared_memory(self.tile, self.parts, self.size)
        scales = {"winolab_scale": 0, "winolab_scan": 0} if self.parts == 2 else {}
        copies = {"winolab_gamma_wgmma_pad_channels": 0} if self.layout.padded else {}
        filters = gamma_wgmma_filter.shared(self)
        return copies | scales | filters | {self.config.entry: gamma}

    def launch(
        self, kernels: Kernels, a: View, b: View, out: View, workspace: int, index: int
    ) -> None:
        """Compute all groups on the current stream."""
        self.launcher.launch(kernels, a, b, out, workspace, index)

    def prepare(self, kernels: Kernels, b: View, prepared: int, index: int) -> None:
        """Transform the filter."""
        self.launcher.prepare(kernels, b, prepared, index)

    def run(
        self, kernels: Kernels, a: View, prepared: int, out: View, workspace: int, index: int
    ) -> None:
        """Convolve with a transformed filter; ``workspace`` begins with the header."""
        self.launcher.run(kernels, a, prepared, out, workspace, index)

    @property
    def checked_correlation(self) -> CheckedCorrelation | None:
        return self if self.checks_accuracy else None

    def scale_params(self, x: View, header: int, rows: int) -> Params:
        """Parameters of the launches that sample and scan x; ``header``, the filter's ``rows``."""
        return self.launcher.scale_params(x, header, rows)


def plans(request: Request) -> Iterator[GammaWgmmaPlan]:
    """Every tile and block shape that can run. Raises ValueError where none can, and says why."""
    if request.device.compute_capability != ARCHITECTURE:
        raise request.unfit("Γ by wgmma needs {}.{}".format(*ARCHITECTURE))
    yield from promising(GammaWgmmaPlan, _timed, request, math.inf)


def near(request: Request) -> Iterator[GammaWgmmaPlan]:
    """Those of ``plans`` that can be picked where the request does not say how."""
    if request.device.compute_capability != ARCHITECTURE:
        yield from plans(request)  # raises
    yield from promising(GammaWgmmaPlan, _timed, request, NEAR)


def _timed(plan: GammaWgmmaPlan) -> GammaWgmmaPlan:
    return replace(plan, predicted=gamma_wgmma_cost.predicted(plan))
