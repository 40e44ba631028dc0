"""Ωα(n,r), filter gradients in FP32 on FFMA units: plans, source and launch (WinRS, sections 4, 5).

One launch computes every segment's share of the sum; a second one adds the shares up. The segments
are ranges of the flat summation axis (gradient_scheduler.cuh): every number of them balances.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache

from winolab.algorithm import Problem, Tile
from winolab.device import Device
from winolab.gpu.codegen.emit import unit
from winolab.gpu.codegen.structs import size
from winolab.gpu.families.wgrad import (
    Gradient,
    Segments,
    Timing,
    choose,
    narrow_rows,
    parameters,
    reduce,
    tiles,
)
from winolab.gpu.params import Kernels, View
from winolab.gpu.planner.device_model import MODEL, DeviceModel
from winolab.gpu.planner.request import BasePlan, FallbackLaunches, Request, Sum
from winolab.options import KernelConfig
from winolab.ref.algebra.program import Program, program
from winolab.ref.algebra.transforms import transforms
from winolab.ref.algorithms.winrs.kernels import TILES

THREADS = 384  # of a block: 8 consumer and 4 producer warps
UNITS = 2 * 128 * size("Unit", "gradient_scheduler")  # bytes of the tables of units
ARCHITECTURE = (8, 0)  # mbarriers
# Units after which a sum is transformed and added to what the block has stored, by alpha: where
# rows of dy are not narrow, and where they are (narrow_rows). Until then each state's sum grows,
# whose roundings are what errors on U[0, 1] consist of. With 2048 units, F(5,12) has a MARE of
# 1.2e-5 on 7 columns and 4e-6 on 15; as it is, all are below 9e-7 (simulated; with 48 for 40 an
# H100 had 1.03e-6 at 7² × 1024). At alpha 16 that takes 8 to 14 % of the time, and 26 to 50 % where
# rows are narrow.
FOLDS = {1: (2048, 2048), 4: (2048, 2048), 8: (2048, 512), 16: (256, 40)}


@dataclass(frozen=True)
class Config(KernelConfig):
    """The compile-time shape of one kernel: policies of wgrad_ffma/kernel.cuh, by its names."""

    bi: int  # input channels of a block
    bo: int  # output channels of a block
    kc: int  # units of a stage
    ci: int  # input channels that a producer thread transforms at once
    co: int  # output channels that a producer thread transforms at once
    stages: int
    passes: int  # over the staging memory of the epilogue
    state_blocks: int = 1  # blocks of a cluster, each of which holds its part of the states
    wrap: int = 0  # whether units run from one row of dy into the next
    vector: int = 1  # whether channels are loaded ci and co at once
    dwvec: int = 2  # floats of a store of dw
    consumer_registers: int = 192  # of a thread; 0 and 0: as many as the launch gives
    producer_registers: int = 120  # 384 × 168 in all, what the launch allocates: more never arrives

    def constants(self) -> dict[str, int]:
        """The constants of the source, by name."""
        return {name.upper(): value for name, value in asdict(self).items()}

    def lane(self, alpha: int) -> tuple[int, int]:
        """Input × output channels of a consumer lane, in each of its warp's states."""
        return self.bi // 8, self.bo * min(alpha // self.state_blocks, 8) // 32

    def shared_memory(self, alpha: int) -> int:
        """Bytes of the kernel's shared memory."""
        stage = self.kc * (self.bi + self.bo)
        staged = self.stages * stage + self.bo * self.bi // self.passes
        return 4 * (alpha // self.state_blocks) * staged + UNITS + 16 * (self.stages + 1)

    def __str__(self) -> str:
        names = ("state_blocks", "wrap", "vector", "dwvec")
        changed = [
            f"{f.name}={getattr(self, f.name)}"
            for f in fields(self)
            if f.name in names and getattr(self, f.name) != f.default
        ]
        return " ".join([f"{self.bi}x{self.bo}x{self.kc} stages={self.stages}", *changed])


# Block shapes by number of states. 32,768 accumulators a block fill the registers of 256 consumer
# threads; smaller blocks serve few channels.
CONFIGS: dict[int, tuple[Config, ...]] = {
    1: (Config(128, 256, 8, 4, 4, 6, 2), Config(64, 256, 8, 4, 4, 6, 1)),
    4: (Config(128, 64, 8, 4, 4, 5, 2), Config(64, 64, 8, 4, 4, 6, 1)),
    8: (
        Config(64, 64, 8, 4, 4, 4, 2),
        Config(64, 32, 8, 4, 2, 4, 1),
        Config(32, 64, 8, 2, 4, 4, 1),
        Config(32, 32, 8, 2, 2, 6, 1),
    ),
    16: (
        Config(64, 64, 4, 2, 2, 8, 2, state_blocks=2),
        Config(64, 32, 4, 2, 1, 6, 2),
        Config(32, 32, 4, 1, 1, 6, 1),
    ),
}
# Where blocks are not Hopper's, all threads have the same 168 registers, at most 64 of them
# accumulators, and a block has 99 KB of shared memory (compute capability 8.6, 8.9, 12.0) or 163 KB
# (8.0).
EARLIER: dict[int, tuple[Config, ...]] = {
    alpha: tuple(replace(v, consumer_registers=0, producer_registers=0) for v in shapes)
    for alpha, shapes in {
        1: (Config(64, 256, 8, 4, 4, 4, 2),),
        4: (Config(64, 64, 8, 4, 4, 4, 2),),
        8: (Config(64, 32, 8, 4, 2, 4, 2), Config(32, 32, 8, 2, 2, 4, 1)),
        16: (Config(32, 32, 4, 1, 1, 4, 1), Config(32, 16, 8, 2, 1, 2, 1)),
    }.items()
}


@dataclass(frozen=True)
class WgradFfmaPlan(BasePlan):
    """One call: what is computed, by which kernel, on what grid, at what cost."""

    problem: Problem
    gradient: Gradient
    tile: Tile
    points: str
    config: Config
    device: Device
    pitch: int  # positions of a row of dy on the summation axis
    segments: int
    blocks: int  # of a segment
    grid: int  # blocks launched: they walk over those of all segments
    fold: int  # units after which a sum is put aside
    workspace: int  # bytes: the buckets of the segments after the first
    predicted: float  # seconds, the sum of the buckets included
    direction: str = "backward_filter"
    precision: str = "fp32"
    simulated = "fp32"  # what the reference calls the arithmetic
    out_dtype = "float32"

    @property
    def tiles(self) -> tuple[Tile]:
        """Tiles of the gradient."""
        return (self.tile,)

    @property
    def sums(self) -> tuple[Sum, ...]:
        """How dw is summed."""
        g = self.gradient
        units = g.units(self.tile, self.pitch) * g.met / self.segments
        parts = max(1.0, units / self.fold)
        return (Sum(1.0, units / parts, parts),)

    @property
    def kernel(self) -> str:
        """The paper's name of the kernel."""
        alpha = 2 if self.tile.alpha == 1 else self.tile.alpha
        return f"Ω{alpha}({self.tile.n},{self.tile.r})"

    def __str__(self) -> str:
        p, v = self.problem, self.config
        shared = v.shared_memory(self.tile.alpha)
        work_tiles = self.blocks * self.segments
        return "\n".join(
            [
                f"{self.direction} x{p.x_shape} w{p.w_shape} padding {p.padding}",
                f"kernel     {self.kernel} fp32, points {self.points}",
                f"block      {v.bi} × {v.bo} input × output channels, {v.kc} units a stage",
                f"policies   {v}",
                f"grid       {self.grid} blocks of {THREADS} threads, {work_tiles} work tiles in "
                f"{self.segments} segments",
                f"memory     {shared} B shared, {self.workspace} B workspace",
                f"predicted  {self.predicted * 1e6:.1f} µs on {self.device.name}",
            ]
        )

    def source(self) -> str:
        """The translation unit of ``winolab_wgrad_ffma`` and ``winolab_reduce``."""
        return source(self.tile, self.points, self.config)

    def shared(self) -> dict[str, int]:
        """Bytes of dynamic shared memory, by kernel."""
        return {
            "winolab_wgrad_ffma": self.config.shared_memory(self.tile.alpha),
            "winolab_reduce": 0,
        }

    @property
    def fallback_launches(self) -> FallbackLaunches:
        return self

    def launch(
        self,
        kernels: Kernels,
        a: View,
        b: View,
        out: View,
        workspace: int,
        index: int,
        wanted: int = 0,
    ) -> None:
        """Compute all groups on the current stream; ``wanted``: fallback.cuh's flags."""
        g, v = self.gradient, self.config
        params = parameters(
            g,
            (a, b, out),
            workspace,
            (v.bi, v.bo, self.tile.n),
            self.segments,
            self.pitch,
            self.blocks,
            self.fold // v.kc,
            wanted,
        )
        kernels["winolab_wgrad_ffma"]((self.grid, 1, 1), THREADS, params)
        if self.segments > 1:
            early = self.device.early_launches
            count = self.segments - 1
            reduce(kernels["winolab_reduce"], g, out, workspace, count, early, wanted)


def instructions(tile: Tile) -> tuple[int, int]:
    """Those of G and of BT, to within one: planning builds no program."""
    alpha = tile.alpha
    if alpha == 1:
        return 0, 0
    return (alpha // 2 - 1) * (tile.r + 1) + alpha // 16, {4: 4, 8: 24, 16: 112}[alpha]


@lru_cache(maxsize=256)
def programs(tile: Tile, points: str, state_blocks: int) -> dict[str, Program]:
    """The transforms of F(n, r) by their names in the kernels, one of each kind for every part.

    Where states are parted, those of 0 and infinity come first, so that pairs of points ±p, which
    share half of their work, lie in one part.
    """
    found = transforms(tile.n, tile.r, points)
    if state_blocks == 1:
        made = found.programs
        return {
            "transform_filter": made.G,
            "transform_input": made.BT,
            "transform_output": made.AT,
        }
    order = [0, tile.alpha - 1, *range(1, tile.alpha - 1)]
    held = tile.alpha // state_blocks
    result = {"transform_output": program(tuple(tuple(r[s] for s in order) for r in found.AT))}
    for part in range(state_blocks):
        states = order[part * held : (part + 1) * held]
        for name, matrix in (("filter", found.G), ("input", found.BT)):
            suffix = f"_{part}" if part else ""
            result[f"transform_{name}{suffix}"] = program(tuple(matrix[s] for s in states))
    return result


@lru_cache(maxsize=256)
def source(tile: Tile, points: str, config: Config) -> str:
    """One config's translation unit: ``winolab_wgrad_ffma`` and ``winolab_reduce``."""
    sizes = {"N": tile.n, "R": tile.r, "ALPHA": tile.alpha, "FIRST": 1, "INPUT": 0, "OUTPUT": 0}
    return unit(
        f"F({tile.n},{tile.r}), points {points}, {config}",
        {**sizes, **config.constants()},
        programs(tile, points, config.state_blocks),
        ("wgrad_ffma/kernel",),
    )


def plans(request: Request) -> Iterator[WgradFfmaPlan]:
    """Every tile and block shape that can run. Raises ValueError where none can, and says why."""
    config, aligned, device = request.config_of(Config), request.aligned, request.device
    if device.compute_capability < ARCHITECTURE:
        raise request.unfit("the kernels need {}.{} or later".format(*ARCHITECTURE))
    gradient = Gradient.of(request.problem)
    shapes = CONFIGS if device.large_blocks else EARLIER
    for tile in tiles(gradient, request.algorithm, TILES["fp32"]):
        for shape in (config,) if config else shapes[tile.alpha]:
            while shape.shared_memory(tile.alpha) > device.shared_memory and shape.stages > 2:
                shape = replace(shape, stages=shape.stages - 1)
            if shape.shared_memory(tile.alpha) > device.shared_memory:
                continue
            for pitch in (gradient.whole_pitch(tile), gradient.wrapped_pitch(tile)):
                if pitch is None or (config and bool(config.wrap) != (pitch % tile.r > 0)):
                    continue
                made = replace(
                    shape,
                    wrap=int(pitch % tile.r > 0),
                    vector=int(_whole(aligned, gradient.channels, shape.ci)
                               and _whole(aligned, gradient.out_channels, shape.co)),
                    dwvec=2 if _whole(aligned, gradient.channels, 2) else 1,
                )  # fmt: skip
                yield _plan(request, gradient, tile, made, pitch)


def _whole(aligned: bool, channels: int, vector: int) -> bool:
    return aligned and channels % vector == 0


@lru_cache(maxsize=256)
def ends(g: Gradient, tile: Tile, pitch: int) -> float:
    """The share of a warp's pairs of units one of which lies at an end of its row."""
    starts = range(0, pitch, 1 if pitch % tile.r else tile.r)
    inside = range(g.padding[2], g.input[2] + g.padding[2] - tile.alpha + 1)
    share = sum(at not in inside or at + tile.r > g.output[2] for at in starts) / len(starts)
    return 1 - (1 - share) ** 2


def unit_cycles(
    g: Gradient, tile: Tile, v: Config, pitch: int, lanes: int, model: DeviceModel = MODEL
) -> dict[str, float]:
    """What a unit takes a block, averaged over the taps' rows and over a row's units."""
    m = model.wgrad_ffma
    edge = m.edge_wrapped if v.wrap else m.edge
    held = tile.alpha // v.state_blocks
    products = held * v.bi * v.bo
    operands = sum(products / channels for channels in v.lane(tile.alpha))
    filter_, input_ = (count / v.state_blocks + 2 * held for count in instructions(tile))
    loads = v.bo / v.co * tile.r + v.bi / v.ci * tile.alpha
    produced = v.bo * filter_ + v.bi * input_ + loads
    return {
        "products": g.met * products / lanes,
        "operands": g.met * model.device.operand * operands / 128,
        "transforms": g.met * m.producer * produced / 128,
        "row ends": g.met * edge * ends(g, tile, pitch) * loads / 128,
    }


def spent(plan: WgradFfmaPlan) -> dict[str, float]:
    """Seconds of a call, by what its longest block spends them on; they add up to all.

    "products" are FFMAs of all units and channels of its blocks, also of those that do not exist.
    """
    g, v, device = plan.gradient, plan.config, plan.device
    timing = _timing(device, g, plan.tile, v, plan.pitch)
    work_tiles, length, outputs = timing.work(g.units(plan.tile, plan.pitch), plan.segments)
    cycles = unit_cycles(g, plan.tile, v, plan.pitch, device.lanes)
    found = {name: work_tiles * length * each / device.clock for name, each in cycles.items()}
    found["outputs"] = work_tiles * (timing.item + outputs * timing.output)
    return {**found, "launch and sums": plan.predicted - sum(found.values())}


def seconds(plan: WgradFfmaPlan, model: DeviceModel = MODEL) -> float:
    """Predicted time of a call."""
    g = plan.gradient
    timing = _timing(plan.device, g, plan.tile, plan.config, plan.pitch, model)
    return timing.whole(g.units(plan.tile, plan.pitch), plan.segments, 4 * g.weights)


def _timing(
    device: Device, g: Gradient, tile: Tile, v: Config, pitch: int, model: DeviceModel = MODEL
) -> Timing:
    m = model.wgrad_ffma
    taps = g.filter[0] * g.filter[1] * -(-g.filter[2] // tile.n)
    store = m.store_parted if v.state_blocks > 1 else m.store
    stored = store * tile.n * v.bi * v.bo / v.state_blocks
    return Timing(
        g.groups * -(-g.channels // v.bi) * -(-g.out_channels // v.bo) * taps,
        device.multiprocessors // v.state_blocks,
        sum(unit_cycles(g, tile, v, pitch, device.lanes, model).values()) / device.clock,
        m.item / device.clock,
        v.kc,
        FOLDS[tile.alpha][narrow_rows(tile, g.output[2])],
        stored / device.clock,
        device,
        model,
    )


def _plan(request: Request, g: Gradient, tile: Tile, v: Config, pitch: int) -> WgradFfmaPlan:
    device, limit = request.device, request.workspace_limit
    count = request.algorithm.segments if request.algorithm else None
    timing = _timing(device, g, tile, v, pitch)
    segments: Segments = choose(g, g.units(tile, pitch), timing, limit, count=count)
    return WgradFfmaPlan(
        request.problem,
        g,
        tile,
        request.points_of(tile),
        v,
        device,
        pitch,
        segments.count,
        timing.blocks,
        v.state_blocks * min(timing.slots, timing.blocks * segments.count),
        timing.fold,
        segments.workspace,
        segments.seconds,
    )
