"""Where what a call of Γ on Tensor Cores keeps lies in its workspace."""

from __future__ import annotations

from dataclasses import dataclass

from winolab.gpu.families import scale
from winolab.gpu.families.gamma_wgmma.geometry import Geometry
from winolab.gpu.families.gamma_wgmma.input import padded_size


@dataclass(frozen=True)
class Workspace:
    """Bytes of its parts, in their order; the filter's come last and can lie elsewhere."""

    header: int  # a call's own: flags, suspects, the sample of its input
    padded: int  # a copy of x with channels padded; 0 where x serves
    rows: int  # the filter's scales and thresholds
    transformed: int  # the transformed filter of a group
    groups: int

    @classmethod
    def of(cls, g: Geometry) -> Workspace:
        """The workspace of a call."""
        split = g.parts == 2
        return cls(
            header=scale.header_size(g.correlation, (g.tile,)) if split else 0,
            padded=padded_size(g.correlation, g.size) if g.config.padded else 0,
            rows=scale.size(g.correlation, g.block) if split else 0,
            transformed=g.transformed,
            groups=g.correlation.groups,
        )

    @property
    def prepared(self) -> int:
        """Bytes of what depends on the filter alone, of all groups."""
        return self.rows + self.groups * self.transformed

    @property
    def size(self) -> int:
        """Bytes of all."""
        return self.header + self.padded + self.prepared

    def filter(self, prepared: int, group: int) -> int:
        """The address of a group's transformed filter, what depends on filters at ``prepared``."""
        return prepared + self.rows + group * self.transformed
