"""What lies inside of a map: inputs of tiles, pieces of filters, outputs of a region.

Along a dimension, tiles are told apart by how many of their pieces meet inputs, where that differs
much: errors of sums grow faster than their length.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from winolab.algorithm import Problem
from winolab.ref.algorithms.engine import Region
from winolab.ref.algorithms.im2col import Segment
from winolab.ref.error.forms import Edge

# Mean square of the parts that meet inputs, over their squared mean, up to which they are averaged.
ALIKE = 1.1


@dataclass(frozen=True)
class Kind:
    """Tiles of a region: their share of the outputs, the part of their products whose inputs lie
    inside, and along each dimension their ``edges`` and the chance of each output to be kept."""

    share: float
    inside: float
    edges: tuple[list[Edge], ...]
    kept: tuple[np.ndarray, ...]


def kinds(problem: Problem, region: Region) -> Iterator[Kind]:
    """The kinds of a region's tiles, but those that meet no inputs at all."""
    ways = [_ways(problem, segment, d) for d, segment in enumerate(region.segments)]
    kept = tuple(
        _kept(segment, size) for segment, size in zip(region.segments, problem.output, strict=True)
    )
    for way in product(*ways):
        shares, parts, edges = zip(*way, strict=True)
        yield Kind(math.prod(shares), math.prod(parts), edges, kept)


def _ways(problem: Problem, segment: Segment, d: int) -> list[tuple[float, float, list[Edge]]]:
    """Along one dimension: share of the tiles, part of their pieces that are inside, and edges."""
    runs = runs_of(problem, segment, d)
    if not len(runs.masks):
        return []
    tiles, pieces = segment.tiles, -(-problem.filter[d] // segment.tile.r)
    at, met = runs.met(tiles)
    lengths = np.diff(at)
    mean = int(lengths @ met) / (tiles * pieces)
    if lengths @ (met / pieces) ** 2 <= ALIKE * mean**2 * tiles:
        return [(1.0, mean, _edges(runs.masks, runs.tiles * runs.pieces))]
    found = []
    ends = np.searchsorted(at, [runs.begin, runs.begin + runs.tiles])
    for n in np.unique(met[met > 0]):
        of = np.append(0, np.cumsum(lengths * (met == n)))
        begin, end = of[ends]
        counts = (end - begin) * runs.pieces
        found.append((int(of[-1]) / tiles, int(n) / pieces, _edges(runs.masks, counts)))
    return found


def _edges(masks: np.ndarray, counts: np.ndarray) -> list[Edge]:
    """The parts of tiles and pieces that have the same inputs inside; ``counts`` have a mask."""
    same, which = np.unique(masks[counts > 0], axis=0, return_inverse=True)
    each = np.zeros(len(same), np.int64)
    np.add.at(each, which.reshape(-1), counts[counts > 0])
    whole = int(each.sum())
    return [(int(n) / whole, mask.astype(float)) for n, mask in zip(each, same, strict=True)]


@dataclass(frozen=True)
class Runs:
    """Tiles and pieces whose inputs are alike inside, of those that have any there: the first tile
    and the first piece of each run, how many tiles and how many of their pieces it has, and which
    inputs are inside (runs, n + r − 1). There are as many runs as edges make, and as tiles or
    pieces, the fewer."""

    begin: np.ndarray
    piece: np.ndarray
    tiles: np.ndarray
    pieces: np.ndarray
    masks: np.ndarray

    def met(self, tiles: int) -> tuple[np.ndarray, np.ndarray]:
        """Places between 0 and ``tiles``, all of them, and how many pieces of a tile between two of
        them meet inputs."""
        ends = np.concatenate([[0, tiles], self.begin, self.begin + self.tiles])
        at, which = np.unique(ends, return_inverse=True)
        change = np.zeros(len(at), np.int64)
        np.add.at(change, which.reshape(-1)[2:], np.concatenate([self.pieces, -self.pieces]))
        return at, np.cumsum(change)[:-1]


def runs_of(problem: Problem, segment: Segment, d: int) -> Runs:
    """The runs, each of one piece or of one tile: an input is inside from a tile on, and before
    another one, as its place grows with the tile; so it does with the piece."""
    tile, stride, dilation = segment.tile, problem.stride[d], problem.dilation[d]
    sides = (segment.tiles, tile.n * stride), (-(-problem.filter[d] // tile.r), tile.r * dilation)
    many_pieces = sides[1][0] > sides[0][0]
    (few, apart), (count, step) = sides if many_pieces else sides[::-1]
    first = segment.start * stride - problem.padding[d][0]
    at = first + np.arange(few)[:, None] * apart + np.arange(tile.inputs) * dilation
    enters, leaves = (
        np.clip(-((at - edge) // step), 0, count) for edge in (0, problem.input[d])
    )  # (few, n + r − 1)
    ends = np.zeros((few, 1), np.int64), np.full((few, 1), count)
    cuts = np.sort(np.concatenate([*ends, enters, leaves], axis=1), axis=1)
    row, of = np.nonzero(cuts[:, 1:] > cuts[:, :-1])
    begin, end = cuts[row, of], cuts[row, of + 1]
    masks = (enters[row] <= begin[:, None]) & (begin[:, None] < leaves[row])
    once, length = np.ones_like(begin), end - begin
    sizes = (row, begin, once, length) if many_pieces else (begin, row, length, once)
    some = masks.any(axis=1)
    return Runs(*(v[some] for v in (*sizes, masks)))


def _kept(segment: Segment, size: int) -> np.ndarray:
    """(n,): each of a tile's outputs as a part of those that the map has."""
    first = segment.start + np.arange(segment.tile.n)
    inside = np.clip(-((first - size) // segment.tile.n), 0, segment.tiles)
    return inside / inside.sum()
