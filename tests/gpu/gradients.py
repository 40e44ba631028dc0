"""Filter gradients of a plan on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from winolab.gpu import launch
from winolab.gpu.call import load
from winolab.gpu.places import Place


def gradient_on_gpu(plan: Any, x: np.ndarray, dy: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """dw, NaN before, and the workspace's bytes in the end, all ones before."""
    cp = launch.cupy()
    arrays = cp.asarray(x), cp.asarray(dy), cp.full(plan.problem.w_shape, cp.nan, "float32")
    a, b, out = (
        Place.fresh(array.shape).view(array.data.ptr, filter=i == 2)
        for i, array in enumerate(arrays)
    )
    workspace = cp.full(plan.workspace, 0xFF, "uint8")
    plan.launch(load(plan, 0), a, b, out, workspace.data.ptr, 0)
    return arrays[2].get(), workspace.get()
