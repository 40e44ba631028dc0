"""What lies inside of a map, against going through its tiles one by one."""

import random

import numpy as np
import pytest

from winolab.algorithm import Problem, Tile
from winolab.ref.algorithms.engine import Region
from winolab.ref.algorithms.im2col import Segment
from winolab.ref.error.edges import ALIKE, kinds


def _drawn(rng: random.Random) -> tuple[Problem, Segment]:
    """A problem of one dimension and a segment of its outputs, of which some may lie beyond."""
    while True:
        stride, dilation = rng.choice([1, 1, 2, 3, 7, 50]), rng.choice([1, 1, 2, 3, 11, 60])
        padding = rng.choice([0, 0, 1, 2, 5, 30]), rng.choice([0, 1, 4, 40])
        sizes = (1, rng.randint(1, 40), 1), (1, rng.randint(1, 20), 1)
        try:
            problem = Problem.of(*sizes, stride=stride, dilation=dilation, padding=[padding])
        except ValueError:  # no output
            continue
        tile, start = Tile(rng.randint(1, 6), rng.randint(1, 6)), rng.randrange(problem.output[0])
        return problem, Segment(start, -(-(problem.output[0] - start) // tile.n), tile)


def _inside(problem: Problem, segment: Segment) -> list[list[tuple[bool, ...]]]:
    """Whether each input lies inside, by tile and piece."""
    tile, ((before, _),) = segment.tile, problem.padding
    return [
        [
            tuple(
                0 <= first * problem.stride[0] + tap * problem.dilation[0] - before < size
                for tap in range(piece, piece + tile.inputs)
            )
            for piece in range(0, problem.filter[0], tile.r)
        ]
        for size in problem.input
        for first in range(segment.start, segment.start + segment.outputs, tile.n)
    ]


@pytest.mark.parametrize("seed", range(200))
def test_kinds_are_those_of_the_tiles_one_by_one(seed) -> None:
    problem, segment = _drawn(random.Random(seed))
    tiles = _inside(problem, segment)
    parts = np.array([np.mean([any(piece) for piece in pieces]) for pieces in tiles])
    found = list(kinds(problem, Region((segment,))))
    if not parts.any():
        assert not found
        return
    groups = {float(part): parts == part for part in np.unique(parts[parts > 0])}
    if (parts**2).mean() <= ALIKE * parts.mean() ** 2:
        groups = {float(parts.mean()): np.ones(len(parts), bool)}
    assert len(found) == len(groups)
    outputs = segment.start + np.arange(segment.outputs).reshape(-1, segment.tile.n)
    kept = (outputs < problem.output[0]).sum(axis=0)
    for kind, (part, of) in zip(found, groups.items(), strict=True):
        assert kind.share == of.mean()
        assert abs(kind.inside - part) <= 1e-15  # of another order of summation
        (masks,) = ([p for t, some in zip(tiles, of, strict=True) if some for p in t],)
        some = sorted(mask for mask in masks if any(mask))
        edges = [(some.count(mask) / len(some), list(mask)) for mask in sorted(set(some))]
        assert [(share, list(mask)) for share, mask in kind.edges[0]] == edges
        assert (kind.kept[0] == kept / kept.sum()).all()


@pytest.mark.parametrize(("outputs", "taps"), [(1 << 45, 15), (15, 1 << 45)])
def test_kinds_of_a_large_map_are_found_without_going_through_it(outputs, taps) -> None:
    """No memory holds so many tiles, or pieces; a million took 20 s."""
    problem = Problem.of((1, outputs + taps - 15, 1), (1, taps, 1), padding=7)
    segment = Segment(0, -(-outputs // 2), Tile(2, 3))
    (kind,) = kinds(problem, Region((segment,)))
    assert kind.inside == pytest.approx(1, rel=1e-12)
    assert sum(share for share, _ in kind.edges[0]) == pytest.approx(1, rel=1e-12)
    assert len(kind.edges[0]) < 32
