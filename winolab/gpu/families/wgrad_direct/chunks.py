"""How direct filter gradients sum by columns (column_sweep.cuh): chunks, stages, shares."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import heappop, heappush
from itertools import product
from typing import NamedTuple

import numpy as np

from winolab.arguments.words import plural
from winolab.device import H100, Device
from winolab.gpu.families.wgrad import NEAR_FASTEST, Gradient
from winolab.gpu.families.wgrad_direct.config import KC, PRODUCERS, DirectConfig
from winolab.gpu.planner.device_model import MODEL, DeviceModel
from winolab.gpu.planner.rates import copying

RUN = 8  # sums that a thread adds up at once
# What a launch brings along, 4 KB at most: work tiles in an order, and blocks that share work
# tiles.
ORDERED = 1024
STARTS = 144  # multiprocessors of a whole H100
NONE = 0xFFFF  # in place of a work tile
# The constants of column_sweep.cuh.
CONSTANTS = {
    "KC": KC,
    "PRODUCERS": PRODUCERS,
    "RUN": RUN,
    "ORDERED": ORDERED,
    "STARTS": STARTS,
    "NONE": NONE,
}
MOST_SPLITS = 64  # parts of a work tile


@dataclass(frozen=True)
class Columns:
    """How a gradient is walked through: whole rows are positions, or ``chunks`` of each."""

    chunks: int
    pitch: int  # columns of a chunk
    useful: tuple[int, ...]  # columns of a chunk that meet x, by the tiles of a filter's row
    blocks: tuple[int, ...]  # of positions, by the filter's rows

    @property
    def longest(self) -> int:
        """Stages of the longest work tile."""
        return max(self.blocks) * max(self.useful)

    @property
    def shortest(self) -> int:
        """Stages of the shortest."""
        return min(self.blocks) * min(self.useful)

    def stages(self, work_tiles: int) -> np.ndarray:
        """Stages of each work tile, by the kernel's order: filter rows, tiles, channels."""
        of_row = np.repeat(self.useful, work_tiles // (len(self.blocks) * len(self.useful)))
        return np.concatenate([n * of_row for n in self.blocks])


@lru_cache(maxsize=4096)
def columns(g: Gradient, n: int, brought: float) -> Columns:
    """The fewest stages for blocks of ``n`` taps; whole rows where equal.

    ``brought``: what a column of x takes that comes before a sweep's first product, of a stage.
    """
    rows = [
        g.batch * math.prod(last - first for first, last in (g.rows(0, d), g.rows(1, h)))
        for d, h in product(range(g.filter[0]), range(g.filter[1]))
    ]
    width, taps = g.output[2], range(0, g.filter[2], n)

    def made(chunks: int) -> tuple[float, Columns]:
        pitch = -(-width // chunks)
        blocks = [max(1, -(-r * chunks // KC)) for r in rows]
        useful = [pitch] * len(taps)
        if chunks == 1:  # from where a tile's last tap meets x's first column to its first's last
            ends = ((g.rows(2, tap + n - 1)[0], g.rows(2, tap)[1]) for tap in taps)
            useful = [max(1, min(width, last) - min(width - 1, first)) for first, last in ends]
        found = Columns(chunks, pitch, tuple(useful), tuple(blocks))
        return sum(blocks) * (sum(useful) + len(useful) * brought * (n - 1)), found

    return min((made(1 << i) for i in range(width.bit_length())), key=lambda m: m[0])[1]


class Start(NamedTuple):
    """Where a block begins with the work tiles that blocks share, as column_sweep.cuh has it."""

    work_tile: int
    at: int  # the first of its stages that is the block's
    left: int  # the block's stages, of this work tile and of those behind it


@dataclass(frozen=True)
class LptOrder:
    """Which work tiles blocks compute alone, one after another."""

    order: tuple[int, ...]  # [round][block], NONE where a block has no more; empty: dealt in order
    loads: tuple[float, ...]  # seconds of each block, the least first; of the longest, where dealt


@dataclass(frozen=True)
class Shares:
    """Who computes what: ``alone`` work tiles by a block each, the others by ``sharing`` blocks.

    A stage at least falls to each of these.
    """

    multiprocessors: int
    work_tiles: int
    alone: int
    sharing: int
    splits: int  # blocks of a work tile that is shared; 0: ``starts`` says what blocks have
    workspace: int  # bytes: parts of sums
    seconds: float
    order: tuple[int, ...] = ()  # LptOrder's
    starts: tuple[Start, ...] = ()  # of the ``sharing`` blocks

    @property
    def shared(self) -> int:
        """Work tiles that blocks share."""
        return self.work_tiles - self.alone

    @property
    def grid(self) -> int:
        """Blocks that run."""
        return min(self.multiprocessors, self.work_tiles) if self.alone else self.sharing


@dataclass(frozen=True)
class Cost:
    """What a kernel takes on a device: seconds of a ``stage``, and around a ``part``."""

    stage: float
    part: float
    sums: int  # bytes of a work tile's sums
    device: Device = H100
    model: DeviceModel = MODEL

    def workspace(self, shared: int, sharing: int) -> int:
        """Bytes of the parts of so many work tiles by so many blocks."""
        return self.sums * (sharing + shared)

    def alone(self, longest: float) -> float:
        """Seconds of a call whose work tiles no blocks share; ``longest``: of the longest block."""
        return longest + self.model.device.launch

    def gathered(self, longest: float, shared: int, sharing: int) -> float:
        """The same where parts are written, and read by a launch of its own."""
        read = copying(self.device, self.workspace(shared, sharing), self.model)
        return longest + self.model.device.launch + self.model.wgrad_direct.gather + read


def lpt_order(stages: np.ndarray, slots: int, cost: Cost) -> LptOrder:
    """Work tiles of so many stages: the longest first, to whoever is done first (Graham 1969)."""
    seconds = stages * cost.stage + cost.part
    if slots < len(stages) <= ORDERED:
        of: list[list[int]] = [[] for _ in range(slots)]
        done = [(0.0, block) for block in range(slots)]
        for work_tile in np.argsort(-stages, kind="stable"):
            load, block = heappop(done)
            of[block].append(int(work_tile))
            heappush(done, (load + float(seconds[work_tile]), block))
        done.sort()
        if (depth := max(map(len, of))) * slots <= ORDERED:
            rows = [of[block] + [NONE] * (depth - len(of[block])) for _, block in done]
            order = tuple(row[turn] for turn in range(depth) for row in rows)
            return LptOrder(order, tuple(load for load, _ in done))
    dealt = np.zeros(-(-len(stages) // slots) * slots)
    dealt[: len(stages)] = seconds
    longest = float(dealt.reshape(-1, slots).sum(axis=0).max(initial=0.0))
    return LptOrder((), (longest,) * slots)


def leveled(
    stages: np.ndarray, first: int, loads: Sequence[float], cost: Cost
) -> tuple[tuple[Start, ...], float] | None:
    """Who shares work tiles from ``first`` on, and the seconds of the longest block.

    The blocks have ``loads`` before; None where one of them would have no stage.
    """
    all_of = int(stages.sum())
    level = (all_of * cost.stage + sum(loads)) / len(loads)
    ends = np.rint(np.cumsum([(level - load) / cost.stage for load in loads])).astype(int)
    ends[-1] = all_of
    begins = np.concatenate([[0], ends[:-1]])
    if (ends <= begins).any():
        return None
    work_tiles = np.cumsum(stages)
    at = np.searchsorted(work_tiles, begins, side="right")
    before = begins - work_tiles[at] + stages[at]
    starts = tuple(map(Start, *(v.tolist() for v in (first + at, before, ends - begins))))
    return starts, level + (1 + len(stages) / len(loads)) * cost.part


@lru_cache(maxsize=4096)
def ways(
    found: Columns, of_row: int, device: Device, cost: Cost, cached: bool
) -> tuple[Shares, ...]:
    """Every way to share the work, of whatever workspace.

    ``of_row``: work tiles of a row of the filter; ``cached``: x and dy stay in L2, so that blocks
    may be at different places of them."""
    slots = device.multiprocessors
    work_tiles = of_row * len(found.blocks)
    rest, longest = work_tiles % slots, found.longest
    stages = found.stages(work_tiles)
    alone = lpt_order(stages, slots, cost)
    seconds = cost.alone(alone.loads[-1])
    every = [Shares(slots, work_tiles, work_tiles, 0, 0, 0, seconds, alone.order)]

    def made(
        shared: int,
        sharing: int,
        splits: int,
        seconds: float,
        order: tuple[int, ...] = (),
        starts: tuple[Start, ...] = (),
    ) -> Shares:
        workspace = cost.workspace(shared, sharing)
        seconds = cost.gathered(seconds, shared, sharing)
        of = slots, work_tiles, work_tiles - shared, sharing, splits, workspace, seconds
        return Shares(*of, order, starts)

    # All work tiles in as many parts each.
    for splits in range(2, min(MOST_SPLITS, found.shortest) + 1):
        around = -(-work_tiles * splits // slots)
        each = -(-longest // splits) * cost.stage + cost.part
        every.append(made(work_tiles, work_tiles * splits, splits, around * each))
    # What whole waves leave, so that blocks have as much each in the end.
    if cached and rest and slots <= STARTS:
        waves, left = (
            lpt_order(stages[: work_tiles - rest], slots, cost),
            stages[work_tiles - rest :],
        )
        most = min(slots, int(left.sum()))
        for sharing in {n for n in (most, *range(2 * rest, most, rest)) if n > rest}:
            if level := leveled(left, work_tiles - rest, waves.loads[:sharing], cost):
                starts, seconds = level
                seconds = max(seconds, waves.loads[-1])
                every.append(made(rest, sharing, 0, seconds, waves.order, starts))
    return tuple(every)


def taken(found: Columns, shares: Shares, cost: Cost) -> float:
    """Seconds that a way to share the work takes, by whatever costs."""
    stages = found.stages(shares.work_tiles)
    if not shares.sharing:
        return cost.alone(lpt_order(stages, shares.multiprocessors, cost).loads[-1])
    if shares.splits:
        around = -(-shares.work_tiles * shares.splits // shares.multiprocessors)
        longest = around * (-(-found.longest // shares.splits) * cost.stage + cost.part)
    else:
        waves = lpt_order(stages[: shares.alone], shares.multiprocessors, cost)
        level = leveled(stages[shares.alone :], shares.alone, waves.loads[: shares.sharing], cost)
        longest = max(level[1] if level else 0.0, waves.loads[-1])
    return cost.gathered(longest, shares.shared, shares.sharing)


def share(every: Sequence[Shares], limit: int | None) -> Shares:
    """The smallest workspace within NEAR_FASTEST of the least predicted time, within ``limit``."""
    fitting = [s for s in every if limit is None or s.workspace <= limit]
    enough = NEAR_FASTEST * min(s.seconds for s in fitting)
    return min((s for s in fitting if s.seconds <= enough), key=lambda s: s.workspace)


def cut(
    g: Gradient,
    v: DirectConfig,
    device: Device,
    cost: Callable[[Columns], Cost],
    limit: int | None,
    cached: bool,
) -> tuple[Columns, Shares]:
    """A gradient's columns, and how blocks share them: of a workspace within ``limit``.

    ``cost`` says what they take; ``cached``: whether blocks may be at different places of x and dy.
    """
    found = columns(g, v.n, MODEL.wgrad_direct.brought)
    every = ways(found, blocks_of_row(g, v), device, cost(found), cached)
    return found, share(every, limit)


def told(found: Columns, shares: Shares) -> list[str]:
    """What positions are and who computes what, in lines."""
    rows = "rows of dy"
    if found.chunks > 1:
        rows += f" in {found.chunks} chunks of {found.pitch} columns"
    first = ", the longest first" if shares.order else ""
    lines = [f"{plural(shares.alone, 'work tile')} by a block each{first}"] if shares.alone else []
    if shares.shared:
        equal = f", {shares.splits} each" if shares.splits else ""
        lines.append(f"{shares.shared} shared by {plural(shares.sharing, 'block')}{equal}")
    return [
        f"positions  {rows}",
        f"grid       {', '.join(lines)}",
    ]


def blocks_of_row(g: Gradient, v: DirectConfig) -> int:
    """Blocks of channels and taps for one row of the filter."""
    tiles = -(-g.channels // v.bi) * -(-g.out_channels // v.bo) * g.groups
    return tiles * -(-g.filter[2] // v.n)
