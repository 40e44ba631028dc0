"""Where what a call of Γ on Tensor Cores keeps lies in its workspace."""

from __future__ import annotations

from dataclasses import dataclass

from winolab.gpu.families import scale
from winolab.gpu.families.gamma.tiling import Tiling


@dataclass(frozen=True)
class Workspace:
    """Bytes of its parts, in their order; the filter's come last and can lie elsewhere."""

    header: int  # a call's own: flags, suspects, the sample of its input
    padded: int  # a copy of x with channels padded; 0 where x serves
    rows: int  # the filter's scales and thresholds
    transformed: int  # the transformed filter of a group
    groups: int

    @classmethod
    def of(cls, call: Tiling) -> Workspace:
        """The workspace of a call."""
        split = call.parts == 2
        return cls(
            header=scale.header_size(call.correlation, (call.tile,)) if split else 0,
            padded=call.padded,
            rows=scale.size(call.correlation, call.block) if split else 0,
            transformed=call.transformed,
            groups=call.correlation.groups,
        )

    @property
    def prepared_size(self) -> int:
        """Bytes of what depends on the filter alone, of all groups."""
        return self.rows + self.groups * self.transformed

    @property
    def size(self) -> int:
        """Bytes of all."""
        return self.header + self.padded + self.prepared_size

    def filter(self, prepared: int, group: int) -> int:
        """The address of a group's transformed filter, what depends on filters at ``prepared``."""
        return prepared + self.rows + group * self.transformed
