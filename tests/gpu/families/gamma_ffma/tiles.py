"""The tiles that the tests of Γ on FFMA units run."""

from __future__ import annotations

from winolab.algorithm import Tile

# One tile an alpha: the block shapes are what the assembler may fail to fit into registers.
TILES = {1: Tile(1, 1), 4: Tile(2, 3), 6: Tile(4, 3), 8: Tile(6, 3), 16: Tile(8, 9)}
# (alpha, n, r) of every kernel
KERNELS = [(4, 3, 2), (4, 2, 3), (6, 4, 3), (6, 2, 5)]
KERNELS += [(8, 7, 2), (8, 6, 3), (8, 5, 4), (8, 4, 5), (8, 3, 6), (8, 2, 7)]
KERNELS += [(16, 10, 7), (16, 9, 8), (16, 8, 9), (1, 1, 1)]
