"""What segments that are ranges of the flat sum give, in the order that the kernels state.

Of every row of taps the sum runs over rows of dy that meet an input (images outermost), ``pitch``
positions each, in units of R; a segment has a range of the units; after ``fold`` units a sum is
transformed and added to what was stored. Nothing here is the kernels' own: positions are looked up
one by one.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from winolab.algorithm import Problem
from winolab.gpu.families.wgrad_ffma.plan import WgradFfmaPlan
from winolab.gpu.families.wgrad_ffma.source import programs
from winolab.ref.algorithms.winrs import gradient
from winolab.ref.arithmetic.simulated import Arithmetic, arithmetic

AHEAD = 8  # buckets that split_k.cuh loads at once; those that lack are zeros, which it adds, too
Places = list[tuple[int, ...] | None]  # of columns, where they exist


def simulated(p: WgradFfmaPlan, x: np.ndarray, dy: np.ndarray) -> np.ndarray:
    """dw of a plan, in FP32 and the kernels' order."""
    run, problem = arithmetic("fp32"), p.problem
    buckets = np.zeros((p.segments, *problem.w_shape), "f")
    ins, outs = problem.in_channels // problem.groups, problem.out_channels // problem.groups
    for group, taps, first in product(
        range(problem.groups),
        product(*map(range, problem.filter[:-1])),
        range(0, problem.filter[-1], p.tile.n),
    ):
        i, o = (slice(group * c, (group + 1) * c) for c in (ins, outs))
        units = list(_units(p, taps, first))
        for segment in range(p.segments):
            begin, end = (len(units) * (segment + k) // p.segments for k in (0, 1))
            y = _sum(p, units[begin:end], x[..., i], dy[..., o], run)[: problem.filter[-1] - first]
            at = (segment, o, *taps, slice(first, first + len(y)))
            buckets[at] = y.transpose(1, 0, 2)
    zero = np.zeros_like(buckets[0])
    ends = -(p.segments - 1) % AHEAD
    return gradient.reduce([*buckets, *[zero] * ends], run)


def _units(p: WgradFfmaPlan, taps: tuple[int, ...], first: int):
    """Where the columns of x and of dy lie that each unit of a row of taps has."""
    rows, width, tile = _rows(p.problem, taps), p.problem.output[-1], p.tile
    low, size = p.problem.padding[-1][0], p.problem.input[-1]

    def found(position: int, in_unit: int, count: int, shift: int, most: int) -> Places:
        places: Places = []
        for j in range(count):
            row, column = divmod(position, p.pitch)
            column += j
            if p.config.wrap and column >= p.pitch:  # of the next row
                row, column = row + 1, column - p.pitch
            inside = row < len(rows) and 0 <= column + shift < most
            places.append((*rows[row][in_unit], column + shift) if inside else None)
        return places

    for unit in range(-(-len(rows) * p.pitch // tile.r)):
        position = unit * tile.r
        x = found(position, 0, tile.inputs, first - low, size)
        yield x, found(position, 1, tile.r, 0, width)


def _rows(problem: Problem, taps: tuple[int, ...]) -> list[tuple[tuple[int, ...], ...]]:
    """Places of x's rows and dy's that meet for these taps, images outermost."""
    leading = problem.output[:-1]
    found = []
    for image, *at in product(range(problem.batch), *map(range, leading)):
        met = [o + t - low for o, t, (low, _) in zip(at, taps, problem.padding, strict=False)]
        if all(0 <= m < n for m, n in zip(met, problem.input, strict=False)):
            found.append(((image, *met), (image, *at)))
    return found


def _sum(
    p: WgradFfmaPlan, units: list, x: np.ndarray, dy: np.ndarray, run: Arithmetic
) -> np.ndarray:
    """N × output × input channels of these units, by FMAs and folds."""
    made = programs(p.tile, p.points, p.config.state_blocks, bool(p.config.paired))
    parts = range(p.config.state_blocks)
    names = [f"_{part}" if part else "" for part in parts]
    step = p.fold // p.config.kc * p.config.kc
    total = None
    for start in range(0, max(1, len(units)), step):
        acc = np.zeros((p.config.states(p.tile), dy.shape[-1], x.shape[-1]), "f")
        for places in units[start : start + step]:
            states = []
            for array, of, kind in zip((x, dy), places, ("input", "filter"), strict=True):
                zero = np.zeros(array.shape[-1], "f")
                columns = np.stack([zero if at is None else array[at] for at in of])
                transformed = [
                    made[f"transform_{kind}{n}"].evaluate(columns, run, 0) for n in names
                ]
                states.append(np.concatenate(transformed))
            u, v = states
            acc = run.fma(v[:, :, None], u[:, None, :], acc)
        y = made["transform_output"].evaluate(acc, run, 0)
        total = y if total is None else run.add(y, total)
    assert total is not None
    return total
