"""What the fused kernel computes on FFMA units: the reference's numbers, bit for bit."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np

import winolab
from winolab.algorithm import Problem, winograd
from winolab.gpu.families.fused2d import plan as fused2d
from winolab.ref.algorithms import winograd as reference
from winolab.ref.arithmetic.order import Order

ALGORITHM, GRADIENTS = winograd((2, 2), (3, 3)), winograd((3, 3), (2, 2))
DTYPES = {"float32": "f4", "float16": "f2", "bfloat16": ml_dtypes.bfloat16}
AXES = {"nhwc": (0, 1, 2, 3), "nchw": (0, 3, 1, 2), "chwn": (3, 1, 2, 0)}


def expected(p: fused2d.Fused2dPlan, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The reference's numbers in FP32: of each part of the sum, added up as split_k.cuh does."""
    parts = []
    for part in range(p.split_k):
        begin, end = (p.chunks * i // p.split_k * 8 for i in (part, part + 1))
        parts.append(gradient(p, a, b, begin, end) if p.gradient else some(p, a, b, begin, end))
    total, lost = np.zeros_like(parts[0]), np.zeros_like(parts[0])
    if p.split_k == 1:
        return parts[0]
    for each in [*parts, *[np.zeros_like(total)] * (-len(parts) % 8)]:  # eight are loaded at once
        term = each - lost
        new = total + term
        total, lost = new, (new - total) - term
    return total


def some(p: fused2d.Fused2dPlan, a: np.ndarray, b: np.ndarray, begin: int, end: int) -> np.ndarray:
    """A correlation over some of each group's channels."""
    c, problem = p.correlation, p.problem
    end = min(end, c.channels)
    kept = [g * c.channels + i for g in range(c.groups) for i in range(begin, end)]
    if p.direction == "forward":
        b = b[..., begin:end]
        problem = replace(problem, in_channels=len(kept))
    else:
        b = b[kept]
        problem = replace(problem, out_channels=len(kept))
    compute = getattr(reference, p.direction)
    run = winolab.arithmetic("fp32")
    return compute(a[..., kept], b, problem, ALGORITHM, run, None, Order(8))


def gradient(
    p: fused2d.Fused2dPlan, x: np.ndarray, dy: np.ndarray, begin: int, end: int
) -> np.ndarray:
    """A gradient over some tiles of dy, image after image.

    The images lie one below the other, two rows of zeros between those of dy, which add nothing:
    the reference sums over rows of pieces, columns and images, of which there is one.
    """
    (rows, columns), (high, wide) = p.image, p.problem.output
    batch, pads = p.problem.batch, p.problem.padding
    tall = np.zeros((batch, rows * 2 + 2, columns * 2, dy.shape[-1]), "f")
    tall[:, :high, :wide] = dy
    used = np.zeros((batch, rows, columns), bool)
    used.reshape(-1)[begin:end] = True
    tall[:, :-2] *= used.repeat(2, 1).repeat(2, 2)[..., None]
    wider = np.zeros((batch * tall.shape[1] + 2, tall.shape[2] + 2, x.shape[-1]), "f")
    (top, _), (left, _) = pads
    for image in range(batch):
        at = image * tall.shape[1]
        below = min(x.shape[1], tall.shape[1] - top)
        right = min(x.shape[2], wider.shape[1] - left)
        wider[at + top : at + top + below, left : left + right] = x[image, :below, :right]
    tall = tall.reshape(1, -1, *tall.shape[2:])
    shape = (x.shape[-1], dy.shape[-1], p.problem.groups)
    whole = Problem.of(
        (1, *wider.shape), (shape[1], 3, 3, shape[0] // shape[2]), groups=p.problem.groups
    )
    run = winolab.arithmetic("fp32")
    return reference.backward_filter(wider[None], tall, whole, GRADIENTS, run)
