"""What a plan that another computes may err."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.gpu.guarded import UNIT, limits
from winolab.ref.algorithms import convolution


def check_bound(p: Any, a: np.ndarray, b: np.ndarray, y: np.ndarray) -> None:
    """Within what is proven of the plan's ``computing`` one, and the result's rounding, of FP64."""
    exact = getattr(convolution, p.direction)(a.astype(float), b.astype(float), p.problem)
    proven, _, _ = limits(p.computing.primary)
    off = np.abs(y.astype(float) - exact)
    assert (off <= proven + UNIT[p.out_dtype] * (np.abs(exact) + proven)).all()
