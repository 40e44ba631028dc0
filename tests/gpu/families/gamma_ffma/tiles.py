"""The tiles that the tests of Γ on FFMA units run."""

from __future__ import annotations

from winolab.algorithm import Tile

# One tile an alpha: the block shapes are what the assembler may fail to fit into registers.
# Moduli beyond points, states first: 1-D algorithms of DESIGN's table and of the record table.
MODULI = {
    "gamma:9:6:3": "0,3/4,-3/4,4/3,-4/3,inf,x^2+1",
    "gamma:12:6:5": "0,3/4,-3/4,4/3,-4/3,inf,x^2+x+1,x^2-x+1",
    "gamma:12:8:3": "0,3/4,-3/4,4/3,-4/3,inf,x^2+6/7*x+1,x^2-6/7*x+1",
    "gamma:15:6:7": "0,3/4,-3/4,5/4,-5/4,inf,x^2+1,x^2+x+1,x^2-x+1",
    "gamma:19:8:9": "0,1/2,-1/2,3/4,-3/4,5/4,-5/4,2,-2,inf,x^2+1,x^2+x+1,x^2-x+1",
}
TILES = {1: Tile(1, 1), 4: Tile(2, 3), 6: Tile(4, 3), 8: Tile(6, 3), 16: Tile(8, 9)}
# (alpha, n, r) of every kernel
KERNELS = [(4, 3, 2), (4, 2, 3), (6, 4, 3), (6, 2, 5)]
KERNELS += [(8, 7, 2), (8, 6, 3), (8, 5, 4), (8, 4, 5), (8, 3, 6), (8, 2, 7)]
KERNELS += [(16, 10, 7), (16, 9, 8), (16, 8, 9), (1, 1, 1)]
