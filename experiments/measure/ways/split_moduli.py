"""On paper: what Γ with moduli beyond points could take in split FP32, beside what runs. No GPU.

``python -m experiments.measure.ways.split_moduli`` prints, for square layers of 3 to 9 taps, the
least time of such a kernel by the timing model of Γ on Tensor Cores
(``winolab/gpu/families/gamma_wgmma/cost.py``): one block, whose registers hold 64 tiles of all
states for as few output channels as that leaves, or a cluster of two with half of the states each,
which add their outputs up. Boxes of x are charged as if they had no rests. Beside it stand minimal
Γ by the same model, by the planner's, nested tiles with moduli, direct products and the pick.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import typer

from winolab.algorithm import Problem, Tile, parse_algorithm
from winolab.device import H100
from winolab.gpu.families.gamma.config import KC
from winolab.gpu.families.gamma.cost import of_call
from winolab.gpu.families.gamma.tiles import TILE_STATES, WGMMA_TILES
from winolab.gpu.families.gamma_wgmma.boxes import PIXEL
from winolab.gpu.families.gamma_wgmma.config import Waiting
from winolab.gpu.families.gamma_wgmma.cost import HALF, Fetched, stage
from winolab.gpu.families.gamma_wgmma.plan import plans as gamma_plans
from winolab.gpu.families.nested.plan import plans as nested_plans
from winolab.gpu.families.nested.tiles import MODULI
from winolab.gpu.planner import planner
from winolab.gpu.planner.device_model import MODEL
from winolab.gpu.planner.rates import copying, overlapped
from winolab.gpu.planner.request import Plan, Request

PARTS, SIZE = 2, 4  # FP16 parts of a number; bytes of an element of x
SUMS = TILE_STATES * 64  # of a block's registers, FP32
CONSUMERS = 256  # threads that hold them
UNIT = 8  # output channels come in so many
ROWS, SHARES = (8, 4, 2), (1, 2, 3, 4)
LAYERS = {
    3: ((64, 56), (128, 28), (256, 28), (512, 14)),
    5: ((64, 56), (128, 28), (256, 28)),
    7: ((64, 56), (128, 56), (256, 28)),
    9: ((64, 128), (128, 64), (256, 32)),
}
TILES = {3: Tile(6, 3, 9), 5: Tile(6, 5, 12), 7: Tile(6, 7, 15), 9: Tile(8, 9, 19)}
MINIMAL = {3: Tile(6, 3), 5: Tile(4, 5), 7: Tile(4, 7), 9: Tile(8, 9)}
POINTS = MODULI | {Tile(6, 7, 15): "0,3/4,-3/4,5/4,-5/4,inf,x^2+1,x^2+x+1,x^2-x+1"}


@dataclass(frozen=True)
class Block:
    """64 tiles in ``states`` of a tile's states for ``channels`` outputs; ``cluster`` blocks have
    all states together. ``rows`` of the tiles' 64 are rows of outputs, a stage serves ``share``
    filter rows."""

    tile: Tile
    cluster: int
    rows: int
    share: int
    waiting: Waiting

    @property
    def states(self) -> int:
        return -(-self.tile.alpha // self.cluster)

    @property
    def channels(self) -> int:
        """As many as registers hold, at most the 64 of today's blocks."""
        return min(64, SUMS // (WGMMA_TILES * self.states) // UNIT * UNIT)

    @property
    def accumulators(self) -> int:
        """Sums that a consumer thread has."""
        return WGMMA_TILES * self.states * self.channels // CONSUMERS

    @property
    def columns(self) -> int:
        return WGMMA_TILES // self.rows

    def cycles(self, filters: float, outputs: int) -> float:
        """The time of a stage of KC channels, all of whose filters are ``filters`` bytes."""
        high = self.rows + self.share - 1
        numbers = self.columns * high * self.states * KC
        box = high * (self.columns * self.tile.n + self.tile.r - 1) * KC * SIZE
        x = Fetched(self.columns, self.columns, numbers, box, KC * SIZE / PIXEL)
        own = Tile(self.tile.n, self.tile.r, max(self.tile.inputs, self.states))
        # stage() asks for a tile's states alone; a block of a cluster has fewer than inputs
        made = stage(x, self.waiting, own, PARTS, SIZE, self.share, outputs)
        part = self.states / own.alpha
        made = made._replace(
            products=made.products * part,
            filters=made.filters * part,
            shared=made.shared * part + box * (1 - part),
        )
        return made.cycles(H100, MODEL, int(filters))

    def seconds(self, problem: Problem) -> float:
        """What a whole call takes at least."""
        m, taps = MODEL.gamma_wgmma, problem.filter
        (high, wide), steps = problem.output, -(-problem.in_channels // KC)
        wide_blocks = -(-problem.batch * -(-wide // self.tile.n) // self.columns)
        pixels = wide_blocks * -(-high // self.rows)
        outputs = min(self.channels, problem.out_channels)
        blocks = pixels * -(-problem.out_channels // self.channels) * self.cluster
        filters = self.tile.alpha * PARTS * HALF * taps[0] * problem.in_channels
        filters *= problem.out_channels * -(-taps[1] // self.tile.r)
        rounds = -(-blocks // (H100.multiprocessors // self.cluster * self.cluster))
        stages = steps * -(-taps[0] // self.share) * -(-taps[1] // self.tile.r)
        store = m.store + (m.cluster * self.cluster if self.cluster > 1 else 0)
        stored = WGMMA_TILES * self.tile.n * outputs * store
        computed = rounds * (stages * self.cycles(filters, outputs) + stored) / H100.clock
        moved = SIZE * (math.prod(problem.x_shape) + math.prod(problem.y_shape))
        main = overlapped(MODEL.overlap.stage, computed, copying(H100, moved))
        return of_call(H100, 1, main, int(filters), PARTS, 0)


WAYS = (Waiting(), Waiting(u_ahead=1), Waiting(u_ring=1, multicast=2))


def blocks(tile: Tile, taps: int, clusters: tuple[int, ...] = (1, 2)) -> Iterator[Block]:
    """Every shape of a tile's blocks."""
    for cluster in clusters:
        for rows in ROWS:
            for share in (s for s in SHARES if s <= taps):
                for way in WAYS if cluster == 1 else WAYS[:2]:
                    yield Block(tile, cluster, rows, share, way)


def fastest(
    tile: Tile, problem: Problem, clusters: tuple[int, ...] = (1, 2)
) -> tuple[float, Block]:
    """The least time of a tile's blocks, and the block."""
    every = blocks(tile, problem.filter[1], clusters)
    return min(((b.seconds(problem), b) for b in every), key=lambda found: found[0])


def problem_of(channels: int, size: int, taps: int) -> Problem:
    """A square layer that keeps its size, of 32 images."""
    shapes = (32, size, size, channels), (channels, taps, taps, channels)
    return Problem.of(*shapes, padding=taps // 2)


def planned(kind, problem: Problem, text: str) -> float:
    """Seconds of a family's fastest plan of an algorithm; NaN where it has none."""
    request = Request(problem, "forward", H100, parse_algorithm(text), "fp32_split")
    found: list[Plan] = []
    with suppress(ValueError):
        found = list(kind(request))
    return min((p.predicted for p in found), default=math.nan)


def main() -> None:
    """Print a line a layer: µs of each."""
    print(
        "layer; one block; cluster of two; minimal Γ by this model, by the planner's; nested with"
    )
    print("moduli; direct; pick")
    for taps, shapes in LAYERS.items():
        tile, least = TILES[taps], MINIMAL[taps]
        for channels, size in shapes:
            p = problem_of(channels, size, taps)
            (one, a), (two, b) = (fastest(tile, p, (c,)) for c in (1, 2))
            bare = fastest(least, p, (1,))[0]
            known = planned(gamma_plans, p, f"gamma:{least.alpha}:{least.n}:{least.r}")
            name = f"winograd:{tile.n}x{tile.n}:{taps}x{taps}@{POINTS[tile]}"
            nested = planned(nested_plans, p, name)
            pick = planner.plan(Request(p, "forward", H100, None, "fp32_split")).primary
            asked = Request(p, "forward", H100, parse_algorithm("direct"), "fp32_split")
            direct = planner.plan(asked).primary.predicted
            times = (one, two, bare, known, nested, direct, pick.predicted)
            said = " ".join(f"{1e6 * t:6.0f}" for t in times)
            print(
                f"{taps}×{taps} {channels:3}×{size}² {said} {pick.kernel}; {a.channels} channels "
                f"{a.accumulators} sums, {b.channels} channels {b.accumulators} sums a thread"
            )


if __name__ == "__main__":
    typer.run(main)
