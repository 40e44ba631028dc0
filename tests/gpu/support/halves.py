"""Direct filter gradients of 16 bits: problems, launches, and how far results may be off."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import ml_dtypes
import numpy as np

from tests.gpu import hosted
from tests.gpu.support.gradients import gradient_on_gpu
from winolab.algorithm import Problem
from winolab.ref.algorithms import convolution

DTYPES = {"fp16": np.dtype("float16"), "bf16": np.dtype(ml_dtypes.bfloat16)}
UNIT = {"float32": 0.0, "float16": 2.0**-11, "bfloat16": 2.0**-8}  # of rounding the result
# x, dW, padding, precision: filters that taps divide and others, odd blocks, depths, groups
CASES = [
    ((3, 6, 9, 72), (72, 3, 3, 72), 1, "fp16"),
    ((2, 7, 11, 136), (40, 2, 4, 136), ((1, 0), (2, 1)), "bf16"),
    ((2, 3, 5, 7, 16), (32, 2, 2, 5, 8), 1, "fp16"),
    ((2, 1, 70, 8), (8, 1, 1, 8), 0, "bf16"),
    ((1, 2, 3, 8), (8, 9, 2, 8), ((6, 8), (1, 1)), "fp16"),  # rows that meet no input
    ((2, 1, 6, 7, 8), (8, 1, 3, 3, 8), ((0, 2), (1, 1), (1, 1)), "bf16"),  # depths of dy alone
]

# The same for taps that share no columns, with stride and dilation: ConvNeXt's and U-Nets' patches,
# rows in between that no tap meets, steps along each dimension, rows that meet no input.
APART = [
    ((2, 9, 11, 72), (72, 3, 3, 72), 1, "fp16", 2, 1),
    ((2, 8, 12, 136), (40, 2, 2, 136), 0, "bf16", 2, 1),
    ((2, 7, 7, 16), (8, 1, 1, 16), 0, "fp16", (2, 3), 1),
    ((2, 3, 9, 10, 16), (16, 2, 2, 3, 8), ((2, 0), (1, 2), (3, 1)), "bf16", (1, 2, 3), (2, 1, 2)),
    ((1, 6, 40, 8), (8, 3, 3, 8), (2, 12), "fp16", 1, (2, 12)),
    ((2, 50, 24), (16, 3, 24), ((1, 4),), "bf16", 2, 3),
    ((2, 1, 9, 9, 8), (8, 1, 3, 3, 8), ((0, 1), (1, 1), (1, 1)), "fp16", (1, 2, 2), 1),
    ((1, 2, 9, 8), (8, 7, 2, 8), ((6, 8), (1, 1)), "fp16", (3, 2), (2, 1)),
]


def on_cpu(p: Any, x: np.ndarray, dy: np.ndarray) -> np.ndarray:
    """dw of a plan, by the engine of host/."""
    return hosted.execute(p, x, dy, dtype=p.out_dtype)


def on_gpu(p: Any, x: np.ndarray, dy: np.ndarray) -> np.ndarray:
    """The same on a GPU; the workspace and dw are NaN before, bfloat16 by its bits."""
    poison = (0xFFFF, "uint16") if p.out_dtype == "bfloat16" else (np.nan, p.out_dtype)
    before = np.full(p.problem.w_shape, *poison)
    dw, _ = gradient_on_gpu(p, x.view(np.uint16), dy.view(np.uint16), before)
    return dw.view(ml_dtypes.bfloat16) if p.out_dtype == "bfloat16" else dw


def problems(
    cases: Iterable[tuple[Any, ...]] = CASES,
) -> Iterator[tuple[Problem, str, str, np.ndarray, np.ndarray]]:
    """A problem, its precision, the result's type, x and dy, of each of ``cases``, which may have
    a stride and a dilation behind them."""
    rng = np.random.default_rng(1)
    for i, (x_shape, w_shape, padding, precision, *steps) in enumerate(cases):
        groups = x_shape[-1] // w_shape[-1]
        apart: dict[str, Any] = dict(zip(("stride", "dilation"), steps, strict=False))
        problem = Problem.of(x_shape, w_shape, padding=padding, groups=groups, **apart)
        dtype = DTYPES[precision]
        x, dy = (rng.uniform(-1, 1, s).astype(dtype) for s in (problem.x_shape, problem.y_shape))
        yield problem, precision, dtype.name if i % 2 else "float32", x, dy


def too_far(p: Any, x: np.ndarray, dy: np.ndarray, dw: np.ndarray) -> float:
    """A result's RMS error over what it may be, of numbers in [-1, 1)."""
    exact = convolution.backward_filter(x.astype(float), dy.astype(float), p.problem)
    error = ((dw.astype(float) - exact) ** 2).mean() ** 0.5
    # sums of products in [-1, 1) truncated at 2^-24 of their largest, 64 products a chunk
    terms = p.problem.y_shape[0] * np.prod(p.problem.output)
    return error / ((2.0**-22 * terms**0.5 + UNIT[p.out_dtype]) * (exact**2).mean() ** 0.5)


def infinity_stays(planned: Callable[[Problem], Any]) -> None:
    """Infinity and NaN are in no tap where strides pass over them, else in those that meet them, by
    the plan for FP16 that is made of a problem."""
    problem = Problem.of((1, 6, 7, 16), (8, 1, 2, 16), stride=(2, 3))
    rng = np.random.default_rng(2)
    x, dy = (rng.uniform(-1, 1, s).astype("f2") for s in (problem.x_shape, problem.y_shape))
    x[:, 1::2], x[:, :, 2::3] = np.nan, np.inf  # which no tap meets
    p = planned(problem)
    assert np.isfinite(on_cpu(p, x, dy)).all()
    x[0, 2, 3, 5] = np.inf
    dw = on_cpu(p, x, dy)
    assert not np.isfinite(dw[:, 0, 0, 5]).any()
    dw[:, 0, 0, 5] = 0
    assert np.isfinite(dw).all()
