"""How long filter gradients wait for x and dy beside their sums."""

from __future__ import annotations

import math

from winolab.algorithm import Problem
from winolab.device import Device
from winolab.gpu.planner.device_model import MODEL, DeviceModel
from winolab.gpu.planner.rates import copying, overlapped
from winolab.gpu.planner.request import DTYPES, ITEMSIZE


def operands(problem: Problem, precision: str) -> int:
    """Bytes of x and dy."""
    return ITEMSIZE[DTYPES[precision]] * (math.prod(problem.x_shape) + math.prod(problem.y_shape))


def arrays(problem: Problem, precision: str, out_dtype: str) -> int:
    """Bytes of x, dy and dw, each read or written once."""
    return operands(problem, precision) + ITEMSIZE[out_dtype] * math.prod(problem.w_shape)


def read(problem: Problem, precision: str, device: Device, model: DeviceModel = MODEL) -> float:
    """Seconds that it takes to read dy, and what some tap meets of x, once."""
    sizes = zip(problem.x_shape[1:-1], problem.y_shape[1:-1], problem.filter, strict=True)
    met = math.prod(min(size, out * taps) for size, out, taps in sizes)
    x = problem.batch * met * problem.in_channels
    size = ITEMSIZE[DTYPES[precision]] * (x + math.prod(problem.y_shape))
    return copying(device, size, model)


def reading(
    problem: Problem, precision: str, device: Device, main: float, model: DeviceModel = MODEL
) -> float:
    """Seconds of launches that take ``main`` by themselves, and read x and dy."""
    return overlapped(model.overlap.reading, main, read(problem, precision, device, model))
