"""Whether a third dimension would be worth transforming, by the time model: docs/notes/130.

``python -m tests.gpu.families.nested.test_depth`` prints what the note has.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import pytest
import typer

from experiments.measure.nested import VIDEO
from winolab.algorithm import Problem, Tile, parse_algorithm
from winolab.bench.contenders import unnamed
from winolab.device import datasheet
from winolab.gpu.families.boxes import Box, box
from winolab.gpu.families.nested.config import BN
from winolab.gpu.families.nested.cost import seconds
from winolab.gpu.families.nested.plan import NestedPlan, plans
from winolab.gpu.families.nested.tiling import Tiling

TILES = ("2x4x4", "4x4x4", "2x2x2")
TAP = Tile(1, 1)
PRECISIONS = ("fp16", "fp32_split")
WORTH = 0.98  # of the time without, at most, to be worth a kernel


@dataclass(frozen=True)
class Full(Tiling):
    """What a plan would be whose depth has a tile of its own: a filter in one piece, whose states
    are as many times more, and no sum over the depth's taps."""

    depth: Tile = TAP

    @property
    def states(self) -> int:
        return self.depth.alpha * super().states

    @property
    def lengths(self) -> int:
        """Tiles along the depth."""
        return -(-self.correlation.output[0] // self.depth.n)

    @property
    def steps(self) -> int:
        return self.chunks

    @property
    def mean_steps(self) -> float:
        return float(self.chunks)

    def box(self, images: int) -> Box:
        return box(1, 1, images * self.lengths * self.frame, BN)

    def moved(self, images: int) -> tuple[int, int]:
        tiles = self.states * images * self.lengths * self.frame
        return tiles * self.pitch * 4, tiles * self.outputs * self.sum_size


def summed(channels: int, size: tuple[int, ...], precision: str) -> NestedPlan:
    """The plan of F(4×4,3×3) that sums over three causal taps of the depth."""
    taps = channels, 3, 3, 3, channels
    problem = Problem.of((1, *size, channels), taps, padding=((2, 0), 1, 1))
    asked = unnamed("forward", problem, precision.partition("_")[0], datasheet("h200"))
    algorithm = parse_algorithm("winograd:1x4x4:1x3x3")
    asked = replace(asked, precision=precision, algorithm=algorithm)
    return min(plans(asked), key=lambda p: p.predicted)


def transformed(plan: NestedPlan, tiles: str) -> Full:
    """The same of a tile in each dimension."""
    depth, high, wide = (Tile(int(n), 3) for n in tiles.split("x"))
    same = {field.name: getattr(plan, field.name) for field in fields(Tiling)}
    return Full(**{**same, "pair": (high, wide)}, depth=depth)


CASES = [(*layer, precision) for layer in VIDEO for precision in PRECISIONS]


@pytest.mark.parametrize(("channels", "frames", "height", "width", "precision"), CASES)
def test_no_transform_of_the_depth_is_predicted_to_be_worth_it(
    channels: int, frames: int, height: int, width: int, precision: str
) -> None:
    """A state of V and M is moved per tile: α/n times as much as without, 2 of F(2,3)."""
    plan = summed(channels, (frames, height, width), precision)
    assert seconds(plan) == plan.predicted
    for tiles in TILES:
        full = transformed(plan, tiles)
        more = full.depth.alpha * full.lengths / frames  # tiles beyond the last frame, too
        if full.pair == plan.pair:
            assert sum(full.moved(1)) == pytest.approx(more * sum(plan.moved(1)))
            assert full.mean_steps * 3 == plan.mean_steps
        assert seconds(full) > WORTH * plan.predicted


def test_a_depth_of_one_frame_and_tap_is_what_is_planned() -> None:
    """The made plan is the real one where its tile is F(1, 1)."""
    problem = Problem.of((1, 4, 24, 24, 64), (64, 1, 3, 3, 64), padding=(0, 1, 1))
    asked = unnamed("forward", problem, "fp16", datasheet("h200"))
    asked = replace(asked, algorithm=parse_algorithm("winograd:1x4x4:1x3x3"))
    plan = min(plans(asked), key=lambda p: p.predicted)
    same = replace(transformed(plan, "1x4x4"), depth=TAP)
    assert (same.moved(1), same.work_tiles(1)) == (plan.moved(1), plan.work_tiles(1))
    assert seconds(same) == plan.predicted


def main() -> None:
    """Print what plans of each tile move, multiply and take, by the model."""
    for *layer, precision in CASES:
        channels, *size = layer
        plan = summed(channels, tuple(size), precision)
        every = {"1x4x4": plan, **{tiles: transformed(plan, tiles) for tiles in TILES}}
        for tiles, p in every.items():
            v, m = (1e-9 * size for size in p.moved(1))
            products = p.work_tiles(1) * p.mean_steps / (plan.work_tiles(1) * plan.mean_steps)
            print(*layer, precision, tiles, f"V {v:.2f} M {m:.2f} GB", f"{products:.2f} products",
                  f"{1e6 * seconds(p):.0f} µs")  # fmt: skip


if __name__ == "__main__":
    typer.run(main)
