"""Plans of Γ on Tensor Cores: FP32 by products of 16-bit parts, FP16 and BF16.

Forward and backward data of any shape; wider filters run in pieces of r taps, the last one padded
up with zeros. Split FP32 launches four kernels: the largest elements of x, from which its scale
follows, the transformed filter, everything else, and what looks at results of 0; 16 bits only the
second and the third.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

from winolab.arguments.epilogue import Epilogue
from winolab.arguments.words import plural
from winolab.gpu.codegen.translation_unit import TranslationUnit
from winolab.gpu.families import filter_units
from winolab.gpu.families.gamma import filter
from winolab.gpu.families.gamma.config import KC
from winolab.gpu.families.gamma.launch import Launches
from winolab.gpu.families.gamma.source import SCALING, filter_source, halvings, source
from winolab.gpu.families.gamma.tiling import Tiling
from winolab.gpu.families.gamma.workspace import Workspace
from winolab.gpu.families.scale import found_source
from winolab.gpu.params import Kernels, Params, View
from winolab.gpu.planner.base_plan import BasePlan
from winolab.gpu.planner.request import CheckedCorrelation
from winolab.ref.algebra.transforms import transforms
from winolab.ref.arithmetic.split import Scale


@dataclass(frozen=True)
class GammaTensorPlan(Tiling, BasePlan, ABC):
    """One call: what is computed, by which kernels, on what grid, at what cost."""

    predicted: float = 0.0  # seconds, all launches
    epilogue: Epilogue | None = None

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
    def prepared_size(self) -> int:
        """Bytes of what depends on the filter alone, of all groups."""
        return self.layout.prepared_size

    @property
    def workspace(self) -> int:
        """Bytes."""
        return self.layout.size

    @property
    @abstractmethod
    def launches(self) -> Launches:
        """What launches the kernels."""

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
    def split_sums(self) -> tuple[tuple[float, int], ...]:
        """All results, in the parts of a cluster's blocks."""
        return ((1.0, self.config.split_k),)

    @property
    def checks_accuracy(self) -> bool:
        """Whether the workspace begins with flags about the results (fallback.cuh)."""
        return self.parts == 2

    @property
    def notes(self) -> list[str]:
        """Lines about how images lie."""
        return []

    def __str__(self) -> str:
        p, v = self.problem, self.config
        shared = self.shared()[v.entry]
        return "\n".join(
            [
                p.told(self.direction),
                f"kernel     {self.kernel} {self.precision}, points {self.points}",
                f"block      {self.block} channels × {plural(v.rows, 'row')} × "
                f"{plural(v.columns(self.tile), 'tile')}, {KC} channels a stage; "
                f"{plural(self.tiles_width, 'tile')} a row of outputs",
                *self.notes,
                f"policies   {v}",
                f"grid       {plural(self.grid, 'block')} of {self.threads} threads, "
                f"{plural(self.work_tiles, 'work tile')}",
                f"memory     {shared} B shared, {self.workspace} B workspace",
                f"predicted  {self.predicted * 1e6:.1f} µs on {self.device.name}",
            ]
        )

    def scaled(self, scale: Scale | None) -> Self:
        """The plan with the caller's scale."""
        return replace(self, given=scale) if scale else self

    def with_epilogue(self, epilogue: Epilogue) -> Self | None:
        """The plan whose kernels apply it as they store y, unless outputs are looked at again."""
        return None if self.checks_accuracy else replace(self, epilogue=epilogue)

    def source(self) -> str:
        """The translation unit of the kernels."""
        how = self.tile, self.points, self.precision, self.out_dtype, self.config
        return source(*how, self.epilogue)

    def shared(self) -> dict[str, int]:
        """Bytes of dynamic shared memory, by kernel."""
        gamma = self.config.shared_memory(self.tile, self.parts, self.size)
        return self.filter_shared() | {self.config.entry: gamma}

    def translation_units(self) -> tuple[TranslationUnit, ...]:
        """Those of filter and products; of 16 bits, whose filters take a tenth, one of both."""
        return filter_units.units_of(self) if self.parts == 2 else (self,)

    def filter_source(self) -> str:
        """The text of what transforms the filter, and of scales."""
        how = self.tile, self.points, self.precision, self.out_dtype, self.config
        return filter_source(*how)

    def filter_shared(self) -> dict[str, int]:
        """Bytes of dynamic shared memory of their kernels, by name."""
        scales = {"winolab_scale": 0, "winolab_scan": 0} if self.parts == 2 else {}
        return scales | filter.shared(self)

    def launch(
        self, kernels: Kernels, a: View, b: View, out: View, workspace: int, index: int
    ) -> None:
        """Compute all groups on the current stream."""
        self.launches.launch(kernels, a, b, out, workspace, index)

    def prepare(self, kernels: Kernels, b: View, prepared: int, index: int) -> None:
        """Transform the filter."""
        self.launches.prepare(kernels, b, prepared, index)

    def run(
        self, kernels: Kernels, a: View, prepared: int, out: View, workspace: int, index: int
    ) -> None:
        """Convolve with a transformed filter; ``workspace`` begins with the header."""
        self.launches.run(kernels, a, prepared, out, workspace, index)

    @property
    def checked_correlation(self) -> CheckedCorrelation | None:
        return self if self.checks_accuracy else None

    def found_source(self) -> str:
        """The text of what the kernels found."""
        return found_source(transforms(self.tile.n, self.tile.r, self.points, SCALING))

    def scale_params(self, x: View, header: int, rows: int) -> Params:
        """Parameters of the launches that sample and scan x; ``header``, the filter's ``rows``."""
        return self.launches.scale_params(x, header, rows)
