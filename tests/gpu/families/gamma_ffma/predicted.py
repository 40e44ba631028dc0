"""What the reference says that a Γ plan's kernel computes, bit for bit."""

from __future__ import annotations

import math

import numpy as np

from winolab.algorithm import Algorithm, Tile
from winolab.gpu.families.gamma_ffma.plan import GammaFfmaPlan
from winolab.ref.algebra.transforms import Programs, transforms
from winolab.ref.algorithms import winograd
from winolab.ref.algorithms.winograd import programs_of
from winolab.ref.arithmetic.order import Order
from winolab.ref.arithmetic.simulated import arithmetic


def predicted(p: GammaFfmaPlan, algorithm: Algorithm, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The result of the plan's direction: work tiles that a cluster shares are summed in parts."""

    def of(tile: Tile) -> Programs:
        if tile == p.tile:
            return transforms(tile.n, tile.r, p.points).programs
        return programs_of(algorithm)(tile)

    def result(split_k: int) -> np.ndarray:
        order = Order(p.config.kc, p.config.share, split_k, p.config.fold, p.config.partial)
        compute = getattr(winograd, p.direction)
        return compute(a, b, p.problem, algorithm, arithmetic("fp32"), of, order)

    alone = result(1) if p.whole else np.zeros(())
    together = result(p.config.split_k) if p.whole < p.work_tiles else np.zeros(())
    return np.where(work_tiles(p) < p.whole, alone, together).astype(np.float32)


def work_tiles(p: GammaFfmaPlan) -> np.ndarray:
    """The number of the work tile that computes an output, for every output, channels last."""
    c, v = p.correlation, p.config
    depth, height, width = c.output
    batch, d, h, w, m = np.ogrid[: c.batch, :depth, :height, :width, : c.out_channels * c.groups]
    column = ((batch * depth + d) * p.tiles_width + w // p.tile.n) // (v.bt // v.rows)
    item = (column * p.blocks_row + h // v.rows) * p.blocks_m + m % c.out_channels // v.bm
    spatial = p.problem.output if p.direction == "forward" else p.problem.input
    return item.reshape(c.batch, *spatial, math.prod(item.shape[4:]))
