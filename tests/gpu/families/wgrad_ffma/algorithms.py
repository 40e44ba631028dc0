"""The algorithm of a tile, for the tests of filter gradients on FFMA units."""

from __future__ import annotations

from winolab.algorithm import Algorithm, Tile, direct, omega


def algorithm(tile: Tile, segments: int | None = None) -> Algorithm:
    return omega(tile.alpha, tile.n, tile.r, segments=segments) if tile.alpha > 1 else direct()
