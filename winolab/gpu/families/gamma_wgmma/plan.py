"""Γ on Tensor Cores: FP32 by products of 16-bit parts, FP16 and BF16. Plans, source and launch.

Forward and backward data of any shape; wider filters run in pieces of r taps, the last one padded
up with zeros. Split FP32 launches four kernels: the largest elements of x, from which its scale
follows, the transformed filter, everything else, and what looks at results of 0; 16 bits only the
second and the third.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

from winolab.algorithm import Algorithm, Gamma, Problem, Tile
from winolab.device import Device
from winolab.gpu.codegen.structs import layout
from winolab.gpu.families import geometry, scale
from winolab.gpu.families.gamma_wgmma import (
    cost as gamma_tensor_times,
)
from winolab.gpu.families.gamma_wgmma import (
    filter as gamma_tensor_filter,
)
from winolab.gpu.families.gamma_wgmma.config import KC, PARTS, Variant, offered, variants
from winolab.gpu.families.gamma_wgmma.input import (
    fill,
    padded_channels,
    padded_size,
    padded_view,
    tensor_map,
)
from winolab.gpu.families.gamma_wgmma.rows import Stack, stack
from winolab.gpu.families.gamma_wgmma.source import SCALING, halvings, source
from winolab.gpu.families.gamma_wgmma.tiles import block_outputs
from winolab.gpu.params import Kernels, Params, TensorMap, View
from winolab.gpu.planner.correlation import Correlation
from winolab.gpu.planner.request import DTYPES, ITEMSIZE, BasePlan, Request
from winolab.ref.algebra.transforms import transforms
from winolab.ref.arithmetic.split import Scale

ARCHITECTURE = (9, 0)  # wgmma is 9.0's alone
LAUNCH_SECONDS, FILTER_RATE = 3e-6, 2e12  # fitted to an H100; the latter in bytes a second
CLUSTER_SHARE = 0.88  # of multiprocessors that clusters of four and more can use

# The main kernel's parameter struct, field for field.
PARAMS = layout("Params", "gamma_wgmma/block")


@dataclass(frozen=True)
class GammaTensorPlan(BasePlan):
    """One call: what is computed, by which kernels, on what grid, at what cost."""

    direction: str
    problem: Problem
    correlation: Correlation
    tile: Tile
    points: str
    precision: str
    out_dtype: str
    variant: Variant
    device: Device
    predicted: float = 0.0  # seconds, all launches
    given: Scale | None = None  # by the caller

    params = PARAMS  # of the main kernel
    scaling = SCALING
    whole = 0  # items that one block computes alone where clusters share the others

    @property
    def kernel(self) -> str:
        """The paper's name of the kernel."""
        return f"Γ{self.tile.alpha}({self.tile.n},{self.tile.r})"

    @property
    def algorithm(self) -> Algorithm:
        """What the reference calls it."""
        return Gamma((self.tile,), self.points)

    @property
    def tiles(self) -> tuple[Tile]:
        """The algorithm's."""
        return (self.tile,)

    @property
    def parts(self) -> int:
        """16-bit parts of a value."""
        return PARTS[self.precision]

    @property
    def size(self) -> int:
        """Bytes of an operand's element."""
        return ITEMSIZE[DTYPES[self.precision]]

    @property
    def outer(self) -> tuple[int, int, int]:
        """Taps that are summed directly, per dimension; rows fill up stages that share them."""
        depth, height, width = self.correlation.filter
        share = self.variant.share
        return depth, -(-height // share) * share, -(-width // self.tile.r)

    @property
    def kept(self) -> tuple[int, int, int]:
        """Taps of the transformed filter, per dimension: rows of zeros are left out of ``rest``."""
        depth, height, width = self.outer
        return depth, self.correlation.filter[1] if self.variant.rest else height, width

    @property
    def chunks(self) -> int:
        """Stages of 16 channels."""
        return -(-self.correlation.channels // KC)

    @property
    def steps(self) -> int:
        """Stages of a summation."""
        return math.prod(self.outer) // self.variant.share * self.chunks

    @property
    def block(self) -> int:
        """Output channels of a block."""
        return block_outputs(self.tile.alpha)

    @property
    def blocks_m(self) -> int:
        """Blocks of output channels."""
        return -(-self.correlation.out_channels // self.block)

    @property
    def blocks_row(self) -> int:
        """Blocks of output rows."""
        rows = self.stack.rows if self.stack else self.correlation.output[1]
        return -(-rows // self.variant.rows)

    @property
    def tiles_width(self) -> int:
        """Tiles of a row of outputs, with what fills up its last box."""
        run = max(1, self.variant.run)
        return -(-self.correlation.output[2] // (self.tile.n * run)) * run

    @property
    def columns(self) -> int:
        """Tile columns: of all depths and images, or of those abreast, one for every n outputs of
        the width.
        """
        c = self.correlation
        images = self.stack.abreast if self.stack else c.batch
        return images * c.output[0] * self.tiles_width

    @property
    def stack(self) -> Stack | None:
        """How images lie under one another, where blocks' rows run on from one to the next."""
        c, v = self.correlation, self.variant
        if not v.packed:
            return None
        columns = v.columns(self.tile) * v.multicast
        return stack(c, self.kept[1], self.tiles_width, columns, v.images, v.packed)

    @property
    def items(self) -> int:
        """Work of a block, or of a cluster that shares sums: the grid walks over them."""
        multicast = self.variant.multicast
        columns = self.variant.columns(self.tile) * multicast
        return self.blocks_m * self.blocks_row * -(-self.columns // columns) * multicast

    @property
    def threads(self) -> int:
        """Of a block."""
        return self.variant.threads

    @property
    def slots(self) -> int:
        """Items that run at once, on a cluster each or, by multicast pairs, on a block."""
        v = self.variant
        share = CLUSTER_SHARE if v.split * v.multicast > 2 else 1
        return (
            max(1, int(self.device.multiprocessors * share / (v.split * v.multicast))) * v.multicast
        )

    @property
    def grid(self) -> int:
        """Blocks."""
        return self.variant.split * min(max(self.items, self.variant.multicast), self.slots)

    @property
    def outputs(self) -> int:
        """Output channels of the transformed filter."""
        return (self.blocks_m - 1) * self.block + (self.variant.narrow or self.block)

    @property
    def _turn(self) -> int:
        """Items that run at once, where a block would meet the same channels again and again: after
        so many it turns to the next ones. Else more than there are.
        """
        at_once = self.grid // self.variant.multicast
        return at_once if at_once % max(1, self.blocks_m) == 0 else (1 << 31) - 1

    @property
    def _places(self) -> tuple[int, ...]:
        """What the main kernel is told besides of where its items lie."""
        s = self.stack
        return self._turn, self.correlation.batch, s.abreast if s else 0, s.pitch if s else 0

    @property
    def transformed(self) -> int:
        """Bytes of the transformed filter of a group."""
        states = math.prod(self.kept) * self.chunks * self.tile.alpha
        return states * self.parts * self.outputs * KC * 2

    @property
    def header(self) -> int:
        """Bytes of a call's own, first in the workspace: flags, doubts, the sample of its input."""
        return scale.watched(self.correlation, (self.tile,)) if self.parts == 2 else 0

    @property
    def padded(self) -> int:
        """Bytes of a copy of x with channels padded, behind the header; 0 where x serves."""
        return padded_size(self.correlation, self.size) if self.variant.padded else 0

    @property
    def rows(self) -> int:
        """Bytes of the filter's scales and thresholds, before the transformed filter."""
        return scale.size(self.correlation, self.block) if self.parts == 2 else 0

    @property
    def prepared(self) -> int:
        """Bytes of what depends on the filter alone, of all groups."""
        return self.rows + self.correlation.groups * self.transformed

    @property
    def simulated(self) -> str:
        """What the reference calls this arithmetic."""
        intervals = self.variant.intervals(self.parts)
        text = f"{self.precision},accumulation=tensor_core:{KC}:2:truncate"
        text += ":" * bool(intervals) + "+".join(map(str, intervals))
        if self.parts == 2:
            text += f",ahead={self.variant.skew},filters=fp64"
        if self.precision == "fp16":
            text += ",scale=" + ":".join(str(-h) for h in halvings(self.tile, self.points))
        return text + (f",scale={self.given}" if self.given else "")

    @property
    def watched(self) -> bool:
        """Whether the workspace begins with flags about the results (fallback.cuh)."""
        return self.parts == 2

    @property
    def workspace(self) -> int:
        """Bytes."""
        return self.header + self.padded + self.prepared

    def __str__(self) -> str:
        p, v = self.problem, self.variant
        shared = self.shared()["winolab_gamma"]
        return "\n".join(
            [
                f"{self.direction} x{p.x_shape} w{p.w_shape} padding {p.padding}",
                f"kernel     {self.kernel} {self.precision}, points {self.points}",
                f"block      {self.block} channels × {v.rows} rows × {v.columns(self.tile)} tiles, "
                f"{KC} channels a stage; {self.tiles_width} tiles a row of outputs",
                *([f"rows       {self.stack}"] if self.stack else []),
                f"policies   {v}",
                f"grid       {self.grid} blocks of {self.threads} threads, {self.items} items",
                f"memory     {shared} B shared, {self.workspace} B workspace",
                f"predicted  {self.predicted * 1e6:.1f} µs on {self.device.name}",
            ]
        )

    def scaled(self, scale: Scale | None) -> Self:
        """The plan with the caller's scale."""
        return replace(self, given=scale) if scale else self

    def timed(self, seconds: float) -> Self:
        """The plan with its predicted time, of which a group's main kernel takes ``seconds``."""
        seconds += self.transformed / (FILTER_RATE * self.device.memory_rate) + 2 * LAUNCH_SECONDS
        passes = 3 * LAUNCH_SECONDS if self.parts == 2 else 0.0  # of the scales
        if self.padded:
            passes += LAUNCH_SECONDS + gamma_tensor_times.moving(self.device, 2 * self.padded)
        return replace(self, predicted=self.correlation.groups * seconds + passes)

    def source(self) -> str:
        """The translation unit of the kernels."""
        return source(self.tile, self.points, self.precision, self.out_dtype, self.variant)

    def shared(self) -> dict[str, int]:
        """Bytes of dynamic shared memory, by kernel."""
        gamma = self.variant.shared_memory(self.tile, self.parts, self.size)
        scales = {"winolab_scale": 0, "winolab_scan": 0} if self.parts == 2 else {}
        copies = {"winolab_pad_channels": 0} if self.padded else {}
        filters = gamma_tensor_filter.shared(self)
        return copies | scales | filters | {"winolab_gamma": gamma}

    def launch(
        self, kernels: Kernels, a: View, b: View, out: View, workspace: int, index: int
    ) -> None:
        """Compute all groups on the current stream."""
        prepared = workspace + self.header + self.padded
        self._fill(kernels, a, workspace + self.header)
        self._transform(kernels, b, prepared, self.padded > 0)
        self._scale(kernels, a, workspace, prepared, beside_filter=True)
        self._correlate(kernels, a, prepared, out, workspace, follows=True)

    def prepare(self, kernels: Kernels, b: View, prepared: int, index: int) -> None:
        """Transform the filter."""
        self._transform(kernels, b, prepared, follows=False)  # no launch about x here

    def run(
        self, kernels: Kernels, a: View, prepared: int, out: View, workspace: int, index: int
    ) -> None:
        """Convolve with a transformed filter; ``workspace`` begins with the header."""
        self._fill(kernels, a, workspace + self.header)
        self._scale(kernels, a, workspace, prepared, beside_filter=False)
        scaled_or_padded = self.parts == 2 or self.padded > 0
        self._correlate(kernels, a, prepared, out, workspace, follows=scaled_or_padded)

    def _fill(self, kernels: Kernels, x: View, to: int) -> None:
        if self.padded:
            fill(kernels, self.correlation, self.device, x, to, self.size)

    def _scale(
        self, kernels: Kernels, x: View, header: int, rows: int, beside_filter: bool
    ) -> None:
        if self.parts == 2:
            params = self.scale_params(x, header, rows, late=beside_filter)
            scale.scale(kernels, params, self.early(beside_filter or self.padded > 0))

    def scale_params(self, x: View, header: int, rows: int, late: bool = False) -> Params:
        """Of the launches that sample and scan x: ``header`` and the filter's ``rows``."""
        wide, known, c = self.variant.xvec == 4, self._known[0], self.correlation
        room = scale.room(c, (self.tile,))
        return scale.parameters(c, header, rows, x, wide, known, self.block, late, room)

    @property
    def _known(self) -> tuple[int, float]:
        """What the caller's scales say (scale.known)."""
        return scale.known(self.given, transforms(self.tile.n, self.tile.r, self.points, SCALING))

    def early(self, follows: bool) -> bool:
        """Whether a launch that follows one of this plan's own may begin before that ends."""
        return follows and self.device.early_launches

    def _correlate(
        self, kernels: Kernels, x: View, prepared: int, y: View, header: int, follows: bool
    ) -> None:
        for group in range(self.correlation.groups):
            self._correlate_group(kernels, group, x, prepared, y, header, follows or group > 0)
        if self.parts == 2:
            scale.scan(kernels, self.device, self.scale_params(x, header, prepared))

    def _transform(self, kernels: Kernels, w: View, prepared: int, follows: bool) -> None:
        gamma_tensor_filter.transform(self, kernels, w, prepared, self._known[1], follows)

    def _maps(self, x: View, group: int, padded: int) -> tuple[TensorMap | None, ...]:
        """The tensor map of a group's channels of x, or of its copy at address ``padded``; None
        where x is copied by elements.
        """
        c, size, channels = self.correlation, self.size, self.correlation.channels
        if not self.variant.run:
            return (None,)
        if self.padded:
            x, channels = padded_view(c, padded, size), padded_channels(c, size)
        return (tensor_map(c, x, channels, group, size, self.variant.box(self.tile, size)),)

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
        c = self.correlation
        params = self.params.pack(
            *self._maps(x, group, header + self.header),
            x.address + self.size * group * c.channels,
            prepared + self.rows + group * self.transformed,
            y.address + ITEMSIZE[self.out_dtype] * group * c.out_channels,
            header,
            scale.row(c, prepared, group, self.block),
            *geometry.values(self, x, y),
            *self._places,
        )
        kernels["winolab_gamma"]((self.grid, 1, 1), self.threads, params, self.early(follows))


def plans(request: Request) -> Iterator[GammaTensorPlan]:
    """Every tile and block shape that can run. Raises ValueError where none can, and says why."""
    if request.device.compute_capability != ARCHITECTURE:
        raise request.unfit("Γ by wgmma needs {}.{}".format(*ARCHITECTURE))
    for plan in offered(GammaTensorPlan, variants, request):
        yield plan.timed(gamma_tensor_times.seconds(plan))
