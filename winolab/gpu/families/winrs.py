"""WinRS's own plan on a GPU: Algorithms 1 and 2 choose a pair and cut dy, each kernel runs once.

A family has the kernels; boxes.cuh says how these walk over their segments.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from winolab.algorithm import Problem, Tile
from winolab.arguments.words import plural
from winolab.device import Device
from winolab.gpu.codegen.emit import named
from winolab.gpu.codegen.structs import layout
from winolab.gpu.families.wgrad import Gradient, adding, of_this_gpu
from winolab.gpu.params import Params
from winolab.gpu.planner.base_plan import BasePlan
from winolab.gpu.planner.correlation import three
from winolab.gpu.planner.device_model import MODEL
from winolab.gpu.planner.request import Request, Sum
from winolab.ref.algorithms.winrs.kernels import Kernel
from winolab.ref.algorithms.winrs.plan import Plan, plan

PARAMS = layout("BoxParams", "boxes")  # behind gradient_scheduler.cuh's


@dataclass(frozen=True)
class Boxes:
    """The segments of one kernel of a pair: boxes of dy, which are ``pitch`` columns wide."""

    cuts: tuple[int, int, int]  # along depth, height and width
    column: int  # of dy, where they begin
    bucket: int  # of the first of them
    buckets: int  # of both kernels' segments in a box of depths and rows

    @property
    def params(self) -> Params:
        """What boxes.cuh is told."""
        return PARAMS.pack(*self.cuts, self.column, self.bucket, self.buckets)


class Blocks(Protocol):
    """What a kernel config says of its block."""

    bi: int
    bo: int
    kc: int

    @property
    def threads(self) -> int: ...
    def shared_memory(self, tile: Tile) -> int: ...


class Part(Protocol):
    """One kernel of the pair, what it computes and in how many blocks."""

    @property
    def problem(self) -> Problem: ...
    @property
    def gradient(self) -> Gradient: ...
    @property
    def tile(self) -> Tile: ...
    @property
    def points(self) -> str: ...
    @property
    def config(self) -> Blocks: ...
    @property
    def device(self) -> Device: ...
    @property
    def pitch(self) -> int: ...
    @property
    def segments(self) -> int: ...
    @property
    def grid(self) -> int: ...
    @property
    def workspace(self) -> int: ...
    @property
    def cuts(self) -> tuple[int, int, int]: ...


@dataclass(frozen=True)
class PairPlan(BasePlan):
    """A pair of kernels, each launched once over its segments of dy."""

    parts: tuple[Part, ...]  # the pair's first kernel, and the second if there is one
    segment: tuple[int, ...]  # size of the largest of the first kernel
    predicted: float  # seconds, the sum of the buckets included
    direction: str = "backward_filter"

    entry = ""  # the kernels' name
    precision: str = "fp32"

    @property
    def problem(self) -> Problem:
        """Both kernels'."""
        return self.parts[0].problem

    @property
    def device(self) -> Device:
        """Both kernels'."""
        return self.parts[0].device

    @property
    def tiles(self) -> tuple[Tile]:
        """The first kernel's tile; ``sums`` have both."""
        return (self.parts[0].tile,)

    @property
    def points(self) -> str:
        """The caller's, of both kernels."""
        return self.parts[0].points

    @property
    def segments(self) -> int:
        """Segments of both kernels."""
        return sum(part.segments for part in self.parts)

    @property
    def workspace(self) -> int:
        """Bytes of the buckets of the segments that dw itself is not."""
        return self.parts[0].workspace

    @property
    def sums(self) -> tuple[Sum, ...]:
        """How dw is summed, by kernel: each has a share of dy's columns."""
        g = self.parts[0].gradient
        rows = g.batch * g.output[0] * g.output[1] * g.met
        width = sum(part.pitch * part.cuts[2] for part in self.parts)
        return tuple(
            Sum(
                part.pitch * part.cuts[2] / width,
                rows / (part.cuts[0] * part.cuts[1]) * part.pitch / part.tile.r,
                tile=part.tile,
            )
            for part in self.parts
        )

    @property
    def kernel(self) -> str:
        """The paper's names of the kernels."""
        return " and ".join(str(Kernel(part.tile)) for part in self.parts)

    def __str__(self) -> str:
        p, shared = self.problem, max(self.shared().values())
        size = "×".join(map(str, self.segment))
        threads = self.parts[0].config.threads
        return "\n".join(
            [
                p.told(self.direction),
                f"kernel     {self.kernel} {self.precision}, points {self.points}, by WinRS's "
                "planner",
                *(f"block      {k.config.bi} × {k.config.bo} input × output channels, "
                  f"{k.config.kc} units a stage; {k.config}" for k in self.parts),
                f"grid       {' and '.join(str(k.grid) for k in self.parts)} blocks of {threads} "
                f"threads, {plural(self.segments, 'segment')} of up to {size}",
                f"memory     {shared} B shared, {self.workspace} B workspace",
                f"predicted  {self.predicted * 1e6:.1f} µs on {self.device.name}",
            ]
        )  # fmt: skip

    @abstractmethod
    def source(self) -> str:
        """The translation unit of each kernel, and of ``winolab_reduce``."""

    def shared(self) -> dict[str, int]:
        """Bytes of dynamic shared memory, by kernel."""
        main = {
            named(self.entry, i): k.config.shared_memory(k.tile) for i, k in enumerate(self.parts)
        }
        return main | {"winolab_reduce": 0}


@dataclass(frozen=True)
class Cut:
    """What a kernel of the pair gets: ``count`` segments side by side in each of its boxes."""

    kernel: Kernel
    columns: int  # units of a segment's row
    count: int
    boxes: Boxes

    @property
    def pitch(self) -> int:
        """Columns of a segment."""
        return self.columns * self.kernel.tile.r

    @property
    def segments(self) -> int:
        """All of them."""
        depth, height, across = self.boxes.cuts
        return depth * height * across


def planned(request: Request, limit: int | None, precision: str = "fp32") -> Plan:
    """What Algorithms 1 and 2 decide. Raises ValueError for options that the kernels lack."""
    algorithm = request.algorithm
    of_this_gpu(algorithm)
    if algorithm is None or algorithm.scaling:
        raise ValueError(f"the CUDA kernels compute winrs without options, not {algorithm}")
    return plan(
        request.problem,
        request.device,
        precision,
        points=algorithm.points,
        segments=algorithm.segments,
        workspace_limit=limit,
    )


def cuts(made: Plan) -> Iterator[Cut]:
    """The kernels of a plan with their segments."""
    heights = three(made.shape.parts, 1)[-2:] if made.shape.parts else (1, 1)
    across = made.pair.units // made.shape.units
    buckets = across + (made.pair.second is not None)
    for kernel, columns, count, column, bucket in (
        (made.pair.first, made.shape.units, across, 0, 0),
        (made.pair.second, made.pair.rest, 1, made.pair.units * made.pair.first.tile.r, across),
    ):
        if kernel is not None:
            boxes = Boxes((heights[0], heights[1], count), column, bucket, buckets)
            yield Cut(kernel, columns, count, boxes)


def summed(made: Plan, g: Gradient) -> float:
    """Seconds of the launch that adds up the segments' buckets."""
    return adding(made.device, len(made.segments), 4 * g.weights, MODEL, 1)
