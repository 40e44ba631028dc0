"""Launches of Γ by wgmma: its main kernel reads boxes of x, or of a copy with padded channels."""

from __future__ import annotations

from dataclasses import dataclass

from winolab.gpu.codegen.structs import layout
from winolab.gpu.families.gamma.launch import Launches
from winolab.gpu.families.gamma_wgmma.config import Config
from winolab.gpu.families.gamma_wgmma.input import fill, padded_channels, padded_view, tensor_map
from winolab.gpu.families.gamma_wgmma.tiling import Tiling
from winolab.gpu.params import Kernels, TensorMap, View

# The main kernel's parameter struct, field for field.
PARAMS = layout(Config.params, "gamma_wgmma/block")


@dataclass(frozen=True)
class WgmmaLaunches(Launches):
    """Launches a call, whose workspace is laid out like that."""

    call: Tiling

    params = PARAMS

    @property
    def by_image(self) -> bool:
        """Whether images have scales of their own: rows of a packed batch go on from one to the
        next."""
        return not self.call.config.packed

    def _fill(self, kernels: Kernels, x: View, to: int) -> None:
        if self.layout.padded:
            fill(kernels, self.call.correlation, self.call.device, x, to, self.call.size)

    def maps(self, x: View, group: int, padded: int) -> tuple[TensorMap | None, ...]:
        """The tensor map of a group's channels of x, or of its copy at address ``padded``; None
        where x is copied by elements.
        """
        c, size, channels = self.call.correlation, self.call.size, self.call.correlation.channels
        if not self.call.config.run:
            return (None,)
        if self.layout.padded:
            x, channels = padded_view(c, padded, size), padded_channels(c, size)
        return (
            tensor_map(c, x, channels, group, size, self.call.config.box(self.call.tile, size)),
        )

    def own(self) -> tuple[int, ...]:
        """Work tiles after which blocks move on to other channels; the packed batch, if it is."""
        packed = self.call.packed_batch
        where = (packed.abreast, packed.pitch) if packed else (0, 0)
        return self.call.rotation, self.call.correlation.batch, *where
