"""What the tests of fused Ω in 16 bits multiply."""

from __future__ import annotations

import numpy as np

from tests.gpu.support.halves import DTYPES
from winolab.algorithm import Problem


def operands(problem: Problem, precision: str) -> tuple[np.ndarray, np.ndarray]:
    """x and dy, uniform on [-1, 1)."""
    rng = np.random.default_rng(0)
    shapes = problem.x_shape, problem.y_shape
    x, dy = (rng.uniform(-1, 1, s).astype(DTYPES[precision]) for s in shapes)
    return x, dy
