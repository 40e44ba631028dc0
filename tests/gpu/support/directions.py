"""Operands of small public calls in each direction, and which precisions have kernels for it."""

from __future__ import annotations

import numpy as np

from winolab.gpu.families.registry import FAMILIES

UNITS = {precision for family in FAMILIES for precision in family.precisions}
SHAPES = {"x": (2, 11, 13, 16), "w": (24, 3, 3, 16), "y": (2, 11, 13, 24)}


def arrays(seed: int = 0, **shapes) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = {**SHAPES, **shapes}
    return [rng.uniform(-1, 1, shapes[name]).astype(np.float32) for name in "xwy"]


def directions(precision: str) -> list[str]:
    return [d for f in FAMILIES if precision in f.precisions for d in f.directions]


def operands(direction: str) -> tuple[tuple[np.ndarray, np.ndarray], tuple]:
    """Both operands, and the shape that the call takes."""
    x, w, y = arrays()
    return {
        "forward": ((x, w), ()),
        "backward_data": ((y, w), (x.shape,)),
        "backward_filter": ((x, y), (w.shape,)),
    }[direction]
