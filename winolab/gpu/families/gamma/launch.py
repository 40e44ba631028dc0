"""Launches of Γ on Tensor Cores: x's scale, the transformed filter, all else, the scan of x."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from winolab.gpu.families import correlation_params, scale
from winolab.gpu.families.epilogue import finished
from winolab.gpu.families.gamma import filter
from winolab.gpu.families.gamma.tiling import Tiling
from winolab.gpu.families.gamma.workspace import Workspace
from winolab.gpu.params import Kernels, Layout, Params, TensorMap, View
from winolab.gpu.planner.correlation import SCALING
from winolab.gpu.planner.request import ITEMSIZE
from winolab.ref.algebra.transforms import transforms


@dataclass(frozen=True)
class Launches:
    """Launches a call, whose workspace is laid out like that."""

    call: Tiling
    layout: Workspace

    params: ClassVar[Layout]  # of the main kernel
    by_image: ClassVar[bool] = False  # whether that asks for images' scales

    def launch(
        self, kernels: Kernels, a: View, b: View, out: View, workspace: int, index: int
    ) -> None:
        """Compute all groups on the current stream."""
        prepared = workspace + self.layout.header + self.layout.padded
        self._fill(kernels, a, workspace + self.layout.header)
        self._transform(kernels, b, prepared, self.layout.padded > 0)
        self._scale(kernels, a, workspace, prepared, beside_filter=True)
        self._correlate(kernels, a, prepared, out, workspace, follows=True)

    def prepare(self, kernels: Kernels, b: View, prepared: int, index: int) -> None:
        """Transform the filter."""
        self._transform(kernels, b, prepared, follows=False)  # no launch about x here

    def run(
        self, kernels: Kernels, a: View, prepared: int, out: View, workspace: int, index: int
    ) -> None:
        """Convolve with a transformed filter; ``workspace`` begins with the header."""
        self._fill(kernels, a, workspace + self.layout.header)
        self._scale(kernels, a, workspace, prepared, beside_filter=False)
        scaled_or_padded = self.call.parts == 2 or self.layout.padded > 0
        self._correlate(kernels, a, prepared, out, workspace, follows=scaled_or_padded)

    def _fill(self, kernels: Kernels, x: View, to: int) -> None:
        """Copy x to address ``to``, where the layout has room for that."""

    def _scale(
        self, kernels: Kernels, x: View, header: int, rows: int, beside_filter: bool
    ) -> None:
        if self.call.parts == 2:
            params = self.scale_params(x, header, rows, late=beside_filter)
            scale.scale(kernels, params, self.early(beside_filter or self.layout.padded > 0))

    def scale_params(self, x: View, header: int, rows: int, late: bool = False) -> Params:
        """Parameters of the launches that sample and scan x; ``header``, the filter's ``rows``."""
        wide, known, c = self.call.config.xvec == 4, self._known[0], self.call.correlation
        room = scale.room(c, (self.call.tile,))
        block, by_image = self.call.block, self.by_image
        return scale.parameters(c, header, rows, x, wide, known, block, late, room, by_image)

    @property
    def _known(self) -> tuple[int, float]:
        """What the caller's scales say (scale.known), which without any takes no transforms."""
        tile = self.call.tile
        if self.call.given is None:
            return scale.known(None)
        return scale.known(self.call.given, transforms(tile.n, tile.r, self.call.points, SCALING))

    def early(self, follows: bool) -> bool:
        """Whether a launch that follows one of this plan's own may begin before that ends."""
        return follows and self.call.device.early_launches

    def _correlate(
        self, kernels: Kernels, x: View, prepared: int, y: View, header: int, follows: bool
    ) -> None:
        for group in range(self.call.correlation.groups):
            self._correlate_group(kernels, group, x, prepared, y, header, follows or group > 0)
        if self.call.parts == 2:
            scale.scan(kernels, self.call.device, self.scale_params(x, header, prepared))

    def _transform(self, kernels: Kernels, w: View, prepared: int, follows: bool) -> None:
        filter.transform(self.call, self.layout, kernels, w, prepared, self._known[1], follows)

    def maps(self, x: View, group: int, padded: int) -> tuple[TensorMap | None, ...]:
        """Tensor maps that the main kernel's parameters begin with."""
        return ()

    def own(self) -> tuple[int, ...]:
        """What the main kernel is told besides of where its work tiles lie."""
        return ()

    def _correlate_group(
        self,
        kernels: Kernels,
        group: int,
        x: View,
        prepared: int,
        y: View,
        header: int,
        follows: bool,
    ) -> None:
        c = self.call.correlation
        params = self.params.pack(
            *self.maps(x, group, header + self.layout.header),
            x.address + self.call.size * group * c.channels,
            self.layout.filter(prepared, group),
            y.address + ITEMSIZE[self.call.out_dtype] * group * c.out_channels,
            header,
            scale.row(c, prepared, group, self.call.block),
            *correlation_params.values(self.call, x, y),
            *self.own(),
        )
        params = finished(params, y, group * c.out_channels, self.call.out_dtype)
        kernels[self.call.config.entry](
            (self.call.grid, 1, 1), self.call.threads, params, self.early(follows)
        )
