"""Problems for which plans of few others are likely, and which plans those are.

Layers as networks have them, of a shape that a plan is for, half of networks' sizes, which are
planned alone, half as small as the CPU runs. Small ones are computed as other problems by no plan
that is the fastest: ``recast`` has these plans, whatever else is faster.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from winolab.algorithm import Problem
from winolab.device import datasheet
from winolab.gpu.families.im2col.config import TF32_CONFIGS
from winolab.gpu.families.registry import FAMILIES
from winolab.gpu.families.wgrad_im2col.config import TF32_CONFIGS as GRADIENTS_TF32_CONFIGS
from winolab.gpu.params import VECTOR
from winolab.gpu.planner.correlation import CORRELATIONS
from winolab.gpu.planner.planner import candidates
from winolab.gpu.planner.recast.computing import ComputedByAnother
from winolab.gpu.planner.recast.dilated import PhasedPlan, phased
from winolab.gpu.planner.recast.folded import FoldedPlan, folded
from winolab.gpu.planner.recast.merged import MergedPlan, merged
from winolab.gpu.planner.recast.stacked import StackedPlan, stacked
from winolab.gpu.planner.recast.turned import TurnedPlan, turned
from winolab.gpu.planner.request import DIRECTIONS, DTYPES, ITEMSIZE, PRECISIONS, Plan, Request

RECAST = (PhasedPlan, StackedPlan, MergedPlan, TurnedPlan, FoldedPlan)
LONG = 1.0  # seconds that others take, who are to be beaten
DEVICES = ("h100", "h100", "h100", "h200", "a100", "rtx4090")
OWN = ("fp32", "fp16", "bf16")  # what the arrays' dtype means
PARTS = {
    "forward": TF32_CONFIGS,
    "backward_data": [v for v in TF32_CONFIGS if v.bm % 64 == 0],
    "backward_filter": GRADIENTS_TF32_CONFIGS,
}


def request(rng: Random) -> Request:
    """What plans are wanted for, of a layer that is drawn first."""
    change, large = rng.choice(LAYERS), rng.random() < 0.5
    direction = rng.choice(CORRELATIONS if change in CORRELATED else DIRECTIONS)
    direction = "backward_filter" if change is _gradient else direction
    change(layer := _Layer(rng, direction, large))
    problem = layer.problem()
    precision = rng.choice(OWN) if rng.random() < 0.8 else rng.choice(list(PRECISIONS))
    device, config = rng.choice(DEVICES), None
    if change is _parts:
        precision, device = rng.choice(["fp32", "fp32_split"]), "h200"
        config = rng.choice(PARTS[direction])
    row = problem.in_channels * problem.input[-1] * ITEMSIZE[DTYPES[precision]]
    aligned = bool(config) or rng.random() < 0.6
    return Request(
        problem, direction, datasheet(device), None, precision, aligned=aligned, config=config,
        aligned_outputs=aligned or rng.random() < 0.5,
        aligned_rows=row % VECTOR == 0 and (aligned or rng.random() < 0.7),
        out_dtype=rng.choice([None, None, "float32"]),
        workspace_limit=rng.choice([None] * 8 + [0, 1 << 20]),
    )  # fmt: skip


def recast(asked: Request) -> Iterator[Plan]:
    """All plans that compute another problem in its place, however slow they are predicted to be.
    Nothing of what no kernel computes."""
    if asked.problem.ndim > 3 or asked.problem.empty:
        return
    yield from phased(asked, LONG, candidates)
    yield from stacked(asked, LONG, candidates)
    yield from merged(asked, False, LONG, candidates)
    yield from turned(asked, False, LONG, candidates)
    yield from folded(asked, False, LONG, candidates)


def steps(p: Plan) -> Iterator[Any]:
    """The plan, what is tried first of it or computes it, and so on to a family's."""
    yield p
    if p.primary is not p:
        yield from steps(p.primary)
    elif isinstance(p, ComputedByAnother):
        yield from steps(p.computing)


def family(p: Plan) -> str:
    """The name of the family whose kernels compute it."""
    *_, last = steps(p)
    (found,) = [
        f.name for f in FAMILIES
        if isinstance(last.config, f.config) and last.precision in f.precisions
        and last.direction in f.directions
    ]  # fmt: skip
    return found


@dataclass
class _Layer:
    """A layer of stride 1, which what is drawn of it changes. ``large``: of a network's size;
    ``padded``: it may have padding."""

    rng: Random
    direction: str
    large: bool
    padded: bool = True
    groups: int = 1

    def __post_init__(self) -> None:
        self.ndim = self.rng.choice([1, 2, 2, 2, 3])
        self.batch = self.rng.choice([1, 2, 8, 32] if self.large else [1, 1, 2, 3])
        self.channels, self.outs = self._channels(), self._channels()
        self.sized()

    def sized(self) -> None:
        """Draw all that there is along dimensions."""
        self.longest = [0, 9, 5, 3][self.ndim]  # of a filter
        self.taps = self.each(*range(1, self.longest + 1))
        self.stride, self.dilation = [1] * self.ndim, [1] * self.ndim
        ends = [(2, 70), (2, 14), (2, 7)], [(64, 4000), (7, 112), (4, 40)]
        least, most = ends[self.large][self.ndim - 1]
        self.sizes = [self.rng.randint(least, most) for _ in self.taps]

    def each(self, *values: int) -> list[int]:
        """One of them for each dimension."""
        return [self.rng.choice(values) for _ in range(self.ndim)]

    def all(self, *values: int) -> list[int]:
        """One of them for all dimensions."""
        return [self.rng.choice(values)] * self.ndim

    def eights(self, large: int, small: int) -> int:
        """Channels by eights, at most so many of these."""
        return 8 * self.rng.randint(1, large if self.large else small)

    def problem(self) -> Problem:
        """What is drawn, padded as usual or anyhow; its map holds a filter."""
        padding, sizes = [], []
        for n, r, d in zip(self.sizes, self.taps, self.dilation, strict=True):
            reach = (r - 1) * d * self.padded
            ends = reach // 2, reach - reach // 2
            if self.rng.random() < 0.4:
                ends = self.rng.randint(0, reach), self.rng.randint(0, reach)
            padding.append(ends)
            sizes.append(max(n, (r - 1) * d + 1 - sum(ends)))
        return Problem(
            self.batch, self.channels, self.outs, tuple(sizes), tuple(self.taps),
            tuple(self.stride), tuple(padding), tuple(self.dilation), self.groups,
        )  # fmt: skip

    def _channels(self) -> int:
        if self.rng.random() < 0.3:
            return self.rng.randint(1, 300 if self.large else 20)
        usual = [16, 32, 64, 96, 128, 256, 512] if self.large else [1, 3, 4, 8, 8, 16, 24]
        return self.rng.choice(usual)


def _usual(v: _Layer) -> None:
    v.taps, v.stride = v.all(1, 3), v.all(1, 1, 1, 2)
    v.padded = v.taps[0] > 1
    if v.rng.random() < 0.8:
        v.channels, v.outs = (-(-c // 16) * 16 for c in (v.channels, v.outs))


def _strided(v: _Layer) -> None:
    v.stride = v.each(1, 2, 2, 3, 4)
    v.stride[v.rng.randrange(v.ndim)] = 2
    v.taps = [v.rng.choice([s, s, r]) for s, r in zip(v.stride, v.taps, strict=True)]


def _side_by_side(v: _Layer) -> None:
    s = v.rng.choice([2, 2, 3, 4] + [7, 14, 16] * v.large)
    v.stride = v.each(s, s, 1, 2)
    v.taps = [v.rng.choice([n, n, n, r]) for n, r in zip(v.stride, v.taps, strict=True)]
    v.stride[-1] = v.taps[-1] = s
    v.channels = v.rng.choice([1, 3, 4, v.channels])
    v.sizes[-1] = s * max(1, v.sizes[-1] // s) + v.rng.choice([0, 0, 0, 1])
    v.padded = False


def _few_results(v: _Layer) -> None:
    v.taps = v.each(*range(2 + (v.ndim == 1), v.longest + 1))
    v.channels, v.outs = v.eights(64, 3), v.rng.choice([1, 2, 3, 3, 4, 8])
    v.dilation = v.each(1, 1, 1, 2)
    if v.direction != "forward":
        v.channels, v.outs, v.stride = v.outs, v.channels, v.each(1, 1, 2)


def _dilated(v: _Layer) -> None:
    v.taps, v.dilation = v.each(*range(2, max(3, v.longest))), v.each(1, 2, 2, 3)
    v.dilation[v.rng.randrange(v.ndim)] = 2
    v.groups = v.rng.choice([1, 1, 1, 2])
    if v.rng.random() < 0.5:
        v.taps, v.dilation = [3] * v.ndim, [2] * v.ndim
        v.channels, v.outs = v.eights(64, 4), v.eights(64, 4)
    v.channels, v.outs = v.channels * v.groups, v.outs * v.groups


def _columns(v: _Layer) -> None:
    v.ndim = max(2, v.ndim)
    v.sized()
    v.taps = [1] * v.ndim
    v.taps[v.rng.randrange(v.ndim - 1)] = v.rng.randint(2, 7)
    if v.rng.random() < 0.3:
        v.channels, v.outs = v.eights(32, 3), v.rng.randint(1, 8)


def _few_positions(v: _Layer) -> None:
    v.taps, v.batch, v.sizes = [1] * v.ndim, v.rng.choice([1, 1, 2, 8]), v.each(1, 1, 2, 3, 7)
    v.channels, v.outs = v.eights(256, 12), v.eights(256, 12)
    if v.rng.random() < 0.3:
        v.channels, v.outs = (v.rng.randint(1, c) for c in (v.channels, v.outs))


def _parts(v: _Layer) -> None:
    v.channels, v.outs, v.dilation = v.eights(40, 5), v.eights(40, 5), v.each(1, 1, 2, 3)
    if v.direction != "backward_data":
        v.stride = v.each(1, 1, 2, 3)


def _gradient(v: _Layer) -> None:
    v.taps, v.channels, v.outs = v.each(1, 2, 3), v.eights(40, 8), v.eights(40, 8)


def _depthwise(v: _Layer) -> None:
    v.stride, v.dilation = v.all(1, 1, 2), v.all(1, 1, 2)
    v.groups, v.outs = v.channels, v.channels * v.rng.choice([1, 1, 1, 2])


def _grouped(v: _Layer) -> None:
    v.stride, v.groups = v.all(1, 1, 2), v.rng.choice([2, 4, 8, 32] if v.large else [2, 4])
    v.channels, v.outs = (v.groups * v.rng.choice([2, 4, 8, 16, 32]) for _ in range(2))


def _thin(v: _Layer) -> None:
    v.stride = v.all(1, 1, 2)
    v.channels, v.outs = v.rng.choice([1, 3, 4, 8]), v.eights(16, 4)
    if v.rng.random() < 0.4:
        v.channels, v.outs = v.outs, v.channels


CORRELATED = (_strided, _few_results, _dilated)  # which gradients have no plans of
OTHERS = (_parts, _side_by_side, _columns, _few_positions, _depthwise, _grouped, _thin)
# Twice what most layers of which have other plans.
LAYERS = (*CORRELATED, *OTHERS, _strided, _dilated, *(_gradient, _usual) * 2)
