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
    masks = _masks(problem, segment, d)
    parts = masks.any(axis=2).mean(axis=1)
    if not parts.any():
        return []
    if (parts**2).mean() <= ALIKE * parts.mean() ** 2:
        return [(1.0, float(parts.mean()), _edges(masks))]
    found = []
    for part in np.unique(parts[parts > 0]):
        of = parts == part
        found.append((float(of.mean()), float(part), _edges(masks[of])))
    return found


def _edges(masks: np.ndarray) -> list[Edge]:
    """The parts of tiles and pieces that have the same inputs inside, of those that have any."""
    flat = masks.reshape(-1, masks.shape[-1])
    flat = flat[flat.any(axis=1)]
    same, counts = np.unique(flat, axis=0, return_counts=True)
    return [(n / len(flat), mask.astype(float)) for n, mask in zip(counts, same, strict=True)]


def _masks(problem: Problem, segment: Segment, d: int) -> np.ndarray:
    """(tiles, pieces, n + r − 1): whether an input of a tile lies inside."""
    tile = segment.tile
    first = (segment.start + tile.n * np.arange(segment.tiles)) * problem.stride[d]
    pieces = -(-problem.filter[d] // tile.r)
    taps = np.arange(pieces)[:, None] * tile.r + np.arange(tile.inputs)
    at = first[:, None, None] + taps * problem.dilation[d] - problem.padding[d][0]
    return (at >= 0) & (at < problem.input[d])


def _kept(segment: Segment, size: int) -> np.ndarray:
    """(n,): each of a tile's outputs as a part of those that the map has."""
    tile = segment.tile
    at = segment.start + tile.n * np.arange(segment.tiles)[:, None] + np.arange(tile.n)
    inside = (at < size).sum(axis=0)
    return inside / inside.sum()
