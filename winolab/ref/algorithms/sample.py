"""Some outputs of a large layer, so that its error is measured in seconds."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from winolab.algorithm import Algorithm, Problem, direct
from winolab.ref.algorithms.engine import Engine, Region
from winolab.ref.algorithms.winograd import ProgramsOf, programs_of, regions
from winolab.ref.arithmetic.simulated import Arithmetic


@dataclass(frozen=True)
class Sample:
    """Whole tiles (of a region, flat in its N × tiles) and output channels of a problem."""

    tiles: tuple[tuple[Region, np.ndarray], ...]
    channels: np.ndarray


def draw(problem: Problem, algorithm: Algorithm, outputs: int, seed: int) -> Sample:
    """A random sample with about ``outputs`` outputs, of every region in proportion to its size."""
    rng = np.random.default_rng(seed)
    boxes = regions(problem, algorithm)
    channels = min(problem.out_channels, 64, max(1, math.isqrt(outputs)))
    sizes = [problem.batch * math.prod(box.tiles) for box in boxes]
    each = [math.prod(s.tile.n for s in box.segments) for box in boxes]
    total = sum(size * n for size, n in zip(sizes, each, strict=True))
    outputs = min(outputs, channels * total)
    tiles = []
    for box, size in zip(boxes, sizes, strict=True):
        if size:
            wanted = min(size, max(1, round(outputs / channels * size / total)))
            tiles.append((box, np.sort(rng.choice(size, wanted, replace=False, shuffle=False))))
    chosen = np.sort(rng.choice(problem.out_channels, channels, replace=False))
    return Sample(tuple(tiles), chosen)


def forward(
    x: np.ndarray,
    w: np.ndarray,
    problem: Problem,
    algorithm: Algorithm,
    arithmetic: Arithmetic,
    sample: Sample,
    programs: ProgramsOf | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The sample's outputs (Q, channels) and their positions (Q,), flat in (N, *output).

    Raises ValueError for grouped problems: sample one group.
    """
    if problem.groups != 1:
        raise ValueError(f"a sample needs groups = 1, not {problem.groups}; sample one group")
    of = programs or programs_of(algorithm)
    arithmetic = arithmetic.of_data(x, w)
    positions, values = [], []
    for region, ids in sample.tiles:
        engine = Engine(problem, region, tuple(of(s.tile) for s in region.segments), arithmetic)
        for where, y in engine.blocks(x, w[sample.channels], ids):
            positions.append(where)
            values.append(y)
    return np.concatenate(values), np.concatenate(positions)


def at_positions(
    x: np.ndarray,
    w: np.ndarray,
    problem: Problem,
    positions: np.ndarray,
    channels: np.ndarray,
    arithmetic: Arithmetic,
) -> np.ndarray:
    """Direct convolution at these positions and output channels; in FP64 it is their oracle."""
    (everything,) = regions(problem, direct())
    sample = Sample(((everything, positions),), channels)
    return forward(x, w, problem, direct(), arithmetic, sample)[0]
