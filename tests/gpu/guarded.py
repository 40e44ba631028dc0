"""Random problems for every kernel, each between guard zones and against FP64.

Problems of one Mold share a compiled kernel. A failure says by which command it is run again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from random import Random
from typing import Any

import numpy as np
import typer

from tests.gpu.every_kernel import views
from tests.gpu.every_kernel.zone import GUARD, PATTERN, Zone
from tests.gpu.support.molds import (
    ONE_TAP,
    PLANES,
    SEEDS,
    channels_of,
    few,
    known_taps,
    steps_of,
)
from winolab.algorithm import Problem, Tile, parse_algorithm, tiled
from winolab.bench import oracle
from winolab.device import H100, Device, datasheet
from winolab.gpu import driver
from winolab.gpu.families.registry import FAMILIES
from winolab.gpu.families.winrs import PairPlan
from winolab.gpu.planner.correlation import Correlation
from winolab.gpu.planner.request import DTYPES, Request
from winolab.gpu.runtime.call import kernels_of
from winolab.ref.algorithms.engine import gains
from winolab.ref.algorithms.winograd import programs_of
from winolab.ref.arithmetic.formats import FORMATS
from winolab.ref.arithmetic.simulated import arithmetic
from winolab.ref.error.metrics import Moments, predict
from winolab.ref.error.roundings import Cost

BATCHES = 1, 2, 3, 9  # images; packed ones ask for many
UNIFORM = Moments(0.0, 1 / 3, roundoff=1 / 7)  # of U[-1, 1)
UNIT = {"float32": 0.0, "float16": 2.0**-11, "bfloat16": 2.0**-8}  # of rounding the result
# Times the predicted deviation: of the outputs of a tile that have the largest, and of all. Errors
# of long sums have an exponential tail (10 deviations in 2e5 simulated sums of 954 products).
MOST, MEAN = 20.0, 3.0
# A device on which blocks of a filter's rows are paired, however few and short these are.
ROOMLESS = replace(H100, multiprocessors=1, shared_memory=0, l2=0)
CALLS = 10  # with one problem, whose bits must be the same
# Every so many problems one is large: its blocks refill their stages between work tiles.
OFTEN, LARGE = 14, 6e6  # elements of an operand or the result
FAMILY = {family.name: family for family in FAMILIES}


@dataclass(frozen=True)
class Mold:
    """What a kernel's source depends on, drawn from a seed."""

    family: str  # a key of FAMILY
    algorithm: str
    precision: str
    number: int

    def __str__(self) -> str:
        return f"{self.family} {self.algorithm} {self.precision} {self.number}"

    @property
    def seed(self) -> str:
        """What its kernel and its problems are drawn from."""
        family = SEEDS.get(self.family, self.family)
        return f"{family} {self.algorithm} {self.precision} {self.number}"

    @property
    def gradient(self) -> bool:
        """Whether its kernel computes filter gradients; each third of some families does."""
        third = self.family in (*ONE_TAP, "depthwise", "implicit_gemm", "fused2d")
        return self.number % 3 == 2 if third else self.family.startswith("wgrad")

    @property
    def planes(self) -> bool:
        """Whether its kernel works on arrays that lie channels-first."""
        return self.family == "depthwise" and self.number >= PLANES

    @property
    def device(self) -> Device:
        """The GPU that kernels are planned for: mma.sync's, which run on 9.0 too, for an A100."""
        return datasheet("a100") if self.family == "gamma_mma" else driver.device(0)

    @cached_property
    def shape(self) -> tuple[int, tuple[int, int], bool, str, Any]:
        """Filter's height, divisors of the channels, alignment, dtype of the result, config."""
        rng = Random(self.seed)
        for _ in range(1000):
            height = rng.choice([1, 2, 3, 3, 4, 5, 7, 8])
            steps = rng.choice([1, 2, 4, 4, 4]), rng.choice([1, 2, 4, 4, 4])
            aligned = rng.random() < 0.7
            dtype = rng.choice(["float32", DTYPES[self.precision]])
            found = self._plans(self._draw(rng, height, steps, BATCHES), aligned, dtype)
            if found:
                # Plans with tiles as wgmma's rows, packed batches, or load warps are few.
                few = [
                    [p for p in found if getattr(p.config, way, 0)]
                    for way in ("u_ring", "packed", "load_warp")
                ]
                found = rng.choice([*filter(None, few), found])
                return height, steps, aligned, dtype, rng.choice(found).config
        raise AssertionError(f"{self}: no problem has a plan")

    def problem(self, number: int) -> tuple[Any, bool, Random]:
        """A plan, whether its arrays are aligned, and what draws their data."""
        rng = Random(f"{self.seed} {number}")
        height, steps, aligned, dtype, config = self.shape
        batches = BATCHES[-1:] if getattr(config, "packed", 0) else BATCHES
        large = number % OFTEN == OFTEN - 1
        asked = config  # of the fused kernel 0 parts are the planner's choice, 1 is none
        if self.family == "fused2d" and not config.split_k:
            asked = replace(config, split_k=1)
        for _ in range(40_000):  # one in 1,400 fits the rarest config
            case = self._draw(rng, height, steps, batches, large=large)
            found = self._plans(case, aligned, dtype, asked)
            found = [plan for plan in found if plan.config == config]
            if found:
                return self._cut(rng.choice(found), rng), aligned, rng
        raise AssertionError(f"{self}: no problem fits {config}")

    def _plans(
        self, case: tuple[Problem, str, str], aligned: bool, dtype: str, config: Any = None
    ) -> list[Any]:
        problem, direction, algorithm = case
        try:
            found = list(
                FAMILY[self.family].plans(
                    Request(
                        problem, direction, self.device, parse_algorithm(algorithm),
                        self.precision, aligned=aligned, config=config, out_dtype=dtype,
                    )
                )
            )  # fmt: skip
        except ValueError:
            return []
        if self.planes and not config:
            return [twin for p in found[:1] if (twin := p.in_planes)]
        return found

    def _draw(
        self,
        rng: Random,
        height: int,
        steps: Sequence[int],
        batches: Sequence[int],
        *,
        large: bool = False,
    ) -> tuple[Problem, str, str]:
        algorithm = self.algorithm
        tiles = parse_algorithm(algorithm).tiles
        direction = "backward_filter"
        if not self.gradient:
            direction = rng.choice(["forward", "backward_data"])
        elif tiles:
            algorithm += rng.choice(["", "", ";segments=1", ";segments=3"])
            algorithm = "winograd:3x3:2x2" if len(tiles) == 2 else algorithm
        taps = self._taps(rng, height)
        stride, dilation = steps_of(self.family, self.seed, len(taps))
        groups = rng.choice([1, 1, 1, 2, 3]) if self.family not in ONE_TAP else 1
        channels, out_channels = (
            channels_of(rng, most, s) for most, s in zip((90, 150), steps, strict=True)
        )
        if self.family == "gamma_ffma" and rng.random() < 0.4:  # whole blocks
            out_channels = rng.choice([64, 64, 128])
        thin = self.family in ("patches", "thin", "wgrad_thin")
        grouped = self.family in ("grouped", "wgrad_grouped")
        grouped |= self.family == "implicit_gemm" and groups > 1
        if thin or grouped:
            groups, channels, out_channels = few(rng, thin=thin)
        elif direction == "backward_data":
            channels, out_channels = out_channels, channels
        if self.family == "depthwise":
            groups, channels, out_channels = channels, 1, rng.choice([1, 1, 1, 2])
        reach = [(r - 1) * d + 1 for r, d in zip(taps, dilation, strict=True)]
        ends = reach if self.family not in ONE_TAP else [0] * len(reach)
        padding = [(rng.randint(0, r), rng.randint(0, r)) for r in ends]
        most = [5, 12, 40][-len(taps) :]
        sizes = [
            max(1, r - lo - hi) + rng.randint(0, size)
            for r, (lo, hi), size in zip(reach, padding, most, strict=True)
        ]
        problem = Problem.of(
            (rng.choice(batches), *sizes, channels * groups),
            (out_channels * groups, *taps, channels),
            padding=padding,
            groups=groups,
            stride=stride,
            dilation=dilation,
        )
        if large:
            images = LARGE * problem.batch / max(map(math.prod, (problem.x_shape, problem.y_shape)))
            problem = replace(problem, batch=max(problem.batch, int(images)))
        return problem, direction, algorithm

    def _taps(self, rng: Random, height: int) -> list[int]:
        """Taps of the filter, along each dimension."""
        if known := known_taps("depthwise on planes" if self.planes else self.family, self.seed):
            return known
        tiles = parse_algorithm(self.algorithm).tiles
        if self.family == "nested":
            return [t.r + (t.r % t.n == 0) * rng.randint(0, t.r) for t in tiles]
        width = rng.randint(1, 9)
        if tiles:
            width = rng.choice([1, 1, 1, 2]) * (tiles[0].n if self.gradient else tiles[0].r)
        if height == 1 and rng.random() < 0.5:
            return [width]
        if rng.random() < 0.25:
            return [rng.randint(1, 3), height, width]
        return [height, width]

    def _cut(self, plan: Any, rng: Random) -> Any:
        """The plan, where it is one in chunks, with others half of the time."""
        if "images" not in plan.__dataclass_fields__ or rng.random() < 0.5:
            return plan
        images = rng.randint(1, plan.problem.batch)
        if not self.gradient:
            return replace(plan, images=images)
        rows = rng.randint(1, plan.rows)
        return replace(plan, images=images, rows=rows, segments=rng.randint(1, 3))


def run(mold: Mold, number: int) -> float:
    """One problem. The largest error over the proven bound; AssertionError says what failed.

    Checked: the inputs and everything around the arrays keep their bits, so does the result over
    CALLS calls; every error is within the bound and in line with the prediction.
    """
    cp = driver.cupy()
    plan, aligned, rng = mold.problem(number)
    p, dtype = plan.problem, DTYPES[mold.precision]
    places = views.of_plan(plan, rng, aligned=aligned)
    a, b, out = map(Zone, places, (dtype, dtype, plan.out_dtype))
    words = plan.workspace // 4
    workspace = cp.full(words + 2 * GUARD, PATTERN[4], "uint32")
    draw = cp.random.default_rng(rng.getrandbits(32))
    for zone in (a, b):
        zone.fill(draw.random(zone.bits.shape, dtype="float32") * 2 - 1)
    kept = [zone.memory.copy() for zone in (a, b)]
    kernels = kernels_of(plan, 0)
    seen = [zone.view(filter=zone is (out if mold.gradient else b)) for zone in (a, b, out)]

    def check(good: Any, what: str) -> None:
        assert bool(good), f"{what}\npython -m tests.gpu.guarded {mold} {number}\n{plan}"

    def computed() -> Any:
        out.poison()
        plan.launch(kernels, *seen, workspace[GUARD:].data.ptr, 0)
        return out.bits

    first = computed().copy()
    result = out.values
    differ = sum((computed() != first).sum() for _ in range(CALLS - 1))
    out.poison()
    check(not differ, f"{int(differ)} elements differ over {CALLS} calls")
    for name, zone, before in zip("ab", (a, b), kept, strict=True):
        check((zone.memory == before).all(), f"{name} or its surroundings were written to")
    check((out.memory == out.pattern).all(), "something beside the result was written")
    for side in (workspace[:GUARD], workspace[GUARD + words :]):
        check((side == PATTERN[4]).all(), "something beside the workspace was written")

    exact = oracle.fp64(plan.direction, p, a.values, b.values)
    error = abs(result - exact)
    proven, deviation, largest = limits(plan)
    rounding = UNIT[plan.out_dtype] * (abs(exact) + proven)
    check((error <= proven + rounding).all(), f"{float(error.max()):.2e} > {proven:.2e}, proven")
    if not all(place.distinct for place, _ in places[:2]):
        return float((error / (proven + rounding)).max())  # equal data have larger errors
    check(
        (error <= MOST * largest + 2 * rounding).all(),
        f"{float(error.max()):.2e} > {MOST} · {largest:.2e}, predicted",
    )
    rms, due = float((error**2).mean() ** 0.5), float((rounding**2).mean() ** 0.5)
    check(rms <= MEAN * deviation + due, f"root mean square {rms:.2e} > {MEAN} · {deviation:.2e}")
    return float((error / (proven + rounding)).max())


def limits(plan: Any) -> tuple[float, float, float]:
    """A proven bound of every output's error (winolab.ref.error.bounds), its predicted deviation,
    and that of the outputs of a tile that have the largest.

    Of data in [-1, 1), whatever the order of the sums: of K products, each is rounded K times at
    most. The magnitude is M = P_AT Σ (P_G |w|) ∘ (P_BT |x|).
    """
    p, run = plan.solved, plan.simulated
    if isinstance(plan, PairPlan):  # sums of positions by a tile or by the other, and both added
        tiles = [part.tile for part in plan.parts]
        least = min(t.r for t in tiles)
        depth = p.batch * math.prod(p.output[:-1]) * (-(-p.output[-1] // least) + 2)
        depth = 1 << max(0, depth - 1).bit_length()
        each = [_limits((t,), plan.points, None, run, depth) for t in tiles]
        proven, deviation, largest = (max(values) for values in zip(*each, strict=True))
        return proven, deviation, largest
    if plan.direction == "backward_filter":
        tiles = plan.tiles
        depth = p.batch * math.prod(p.output[:-1]) * (-(-p.output[-1] // plan.tile.r) + 1)
    elif plan.kernel == "depthwise":
        tiles, depth = (Tile(1, 1),), plan.shape.taps * plan.shape.multiplier
    else:
        tiles, c = plan.tiles or (Tile(1, 1),), Correlation.of(p, plan.direction, unit=False)
        ends = [1] * (3 - len(tiles)) + [t.r for t in tiles]
        pieces = (-(-taps // r) for taps, r in zip(c.filter, ends, strict=True))
        depth = math.prod(pieces) * c.channels
    depth = 1 << max(0, depth - 1).bit_length()
    scaling = plan.scaling if plan.direction == "backward_filter" else None
    return _limits(tiles, plan.points, scaling, run, depth)


@lru_cache(maxsize=4096)
def _limits(
    tiles: tuple[Tile, ...], points: str, scaling: str | None, run: str, depth: int
) -> tuple[float, float, float]:
    """``limits`` of sums of ``depth`` pieces in the arithmetic ``run``; what nested tiles have is
    the product of what each has."""
    algorithm = tiled(tiles, points)
    if algorithm.tiles:
        algorithm = replace(algorithm, scaling=scaling)
    simulated = arithmetic(run).of_data(np.ones(1), np.ones(1))
    programs = [programs_of(algorithm)(t) for t in tiles]
    largest, of_w, of_x, uneven = 1.0, 1.0, 1.0, 1.0
    for its in programs:
        g, bt = ([float(sum(row)) for row in m.path_weights()[0]] for m in (its.G, its.BT))
        weights = its.AT.path_weights()[0]
        largest *= max(
            sum(float(w) * u * v for w, u, v in zip(row, g, bt, strict=True)) for row in weights
        )
        of_w, of_x = of_w * max(g), of_x * max(bt)
        at, g, bt = (np.array(m.exact(), float) for m in (its.AT, its.G, its.BT))
        gain = at**2 @ ((g**2).sum(axis=1) * (bt**2).sum(axis=1))  # metrics.noise_gain, by outputs
        uneven *= gain.max() / gain.mean()
    cost = Cost.of(tiles, depth, algorithm, simulated, None)
    scale = simulated.exponents(gains(programs))
    x, w = (math.ldexp(v, e) for v, e in zip((of_x, of_w), scale, strict=True))
    floor = math.ldexp(cost.underflow((x, w), stored=True), -sum(scale))
    proven = math.expm1(cost.growth) * depth * largest + math.exp(cost.growth) * floor
    outputs, taps = [4 * t.n + t.r - 1 for t in tiles], [t.r for t in tiles]
    layer = Problem.of((1, *outputs, depth), (1, *taps, depth))
    relative = predict(UNIFORM, UNIFORM, layer, algorithm, simulated).relative_rms
    relative += FORMATS["fp32"].unit_roundoff  # of the result, or of the last sum of parts
    deviation = relative * math.sqrt(depth * math.prod(taps) / 9)
    return proven, deviation, deviation * math.sqrt(uneven)


def again(family: str, algorithm: str, precision: str, mold: int, number: int) -> None:
    """Run the problem of this NUMBER of a mold."""
    print(run(Mold(family, algorithm, precision, mold), number))


if __name__ == "__main__":
    typer.run(again)
