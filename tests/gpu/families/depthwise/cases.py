"""Depthwise problems, and what a result may be off by."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from tests.gpu.support.halves import DTYPES as HALVES
from tests.gpu.support.halves import UNIT
from winolab.algorithm import Problem
from winolab.device import H100
from winolab.gpu.families.depthwise import plan as depthwise
from winolab.gpu.families.depthwise.plan import DepthwisePlan
from winolab.gpu.planner.request import DTYPES, Request
from winolab.problem import shapes
from winolab.ref.algorithms import convolution
from winolab.ref.error.bounds import bound

DIRECTIONS = ("forward", "backward_data", "backward_filter")
PRECISIONS = ("fp32", "fp16", "bf16")


def layer(x: tuple[int, ...], taps: tuple[int, ...], multiplier: int = 1, **how: Any) -> Problem:
    channels = x[-1]
    return Problem.of(x, (channels * multiplier, *taps, 1), groups=channels, **how)


# Maps of one to three dimensions; smaller than the filter; strides beyond it, by which inputs meet
# no tap; dilation; one-sided and causal padding; one channel, and some that 4 and 8 do not divide.
PROBLEMS = {
    "3x3": layer((2, 9, 13, 8), (3, 3), padding=1),
    "5x5": layer((1, 8, 17, 5), (5, 5), padding=2),
    "7x7": layer((1, 16, 9, 12), (7, 7), padding=3),
    "many channels": layer((3, 12, 21, 64), (5, 5), padding=((2, 1), (1, 3))),
    "7x7 of 32": layer((1, 15, 30, 32), (7, 7), padding=3),
    "stride 2 of 40": layer((2, 13, 17, 40), (5, 5), stride=2, padding=2),
    "depths of 32": layer((2, 4, 6, 18, 32), (3, 3, 3), padding=1),
    "row of 64": layer((2, 70, 64), (4,), padding=((3, 0),)),
    "small map": layer((2, 3, 2, 16), (7, 7), padding=3),
    "one channel": layer((1, 11, 6, 1), (3, 3), padding=(0, (2, 1))),
    "stride 2": layer((2, 11, 14, 24), (3, 3), stride=2, padding=1),
    "5x5 stride 2": layer((1, 12, 9, 8), (5, 5), stride=2, padding=((1, 2), (2, 2))),
    "stride 2, 1": layer((1, 9, 10, 4), (3, 3), stride=(2, 1), padding=1),
    "stride beyond the filter": layer((1, 9, 11, 3), (2, 1), stride=(3, 4), padding=(1, 0)),
    "dilation": layer((1, 13, 12, 8), (3, 3), dilation=(3, 2), padding=(3, 2)),
    "dilation and stride": layer((1, 13, 14, 6), (3, 3), dilation=2, stride=(2, 3), padding=2),
    "causal": layer((2, 37, 8), (4,), padding=((3, 0),)),
    "causal and dilated": layer((1, 40, 4), (3,), padding=((6, 0),), dilation=3),
    "long": layer((1, 90, 3), (31,), padding=((30, 0),)),
    "long of 32": layer((2, 70, 32), (15,), padding=((14, 0),)),
    "long and strided": layer((1, 61, 16), (9,), padding=4, stride=2),
    "longest": layer((1, 47, 4), (33,), padding=((32, 0),)),
    "column": layer((1, 19, 5, 8), (7, 1), padding=(3, 0)),
    "row": layer((1, 5, 33, 4), (1, 5), padding=(0, 2), stride=(1, 2)),
    "large": layer((1, 13, 12, 6), (11, 35), padding=(5, 17)),
    "three dimensions": layer((1, 5, 6, 9, 4), (3, 3, 3), padding=(1, 1, 1)),
    "stride in depth": layer((1, 7, 6, 9, 4), (3, 3, 3), padding=((2, 0), 1, 1), stride=(2, 1, 1)),
    "stride 2 in all": layer((1, 6, 7, 8, 2), (3, 3, 3), padding=1, stride=2),
    "multiplier": layer((1, 8, 9, 3), (3, 3), 2, padding=1),
    "multiplier and stride": layer((1, 8, 9, 3), (3, 3), 3, padding=1, stride=2),
    "cut": Problem(1, 4, 4, (9, 10), (3, 3), (1, 1), ((-1, 2), (1, -2)), (1, 1), 4),
}


def by_turns(names: Iterable[str]) -> list[tuple[str, str]]:
    """Problems in two directions: filter gradients, and correlations by turns, whose kernels are
    one."""
    turns = enumerate(names)
    return [(name, d) for i, name in turns for d in (DIRECTIONS[i % 2], DIRECTIONS[2])]


def offered(problem: Problem, direction: str, precision: str, **how: Any) -> list[DepthwisePlan]:
    """Every plan of the family."""
    return list(depthwise.plans(Request(problem, direction, H100, None, precision, **how)))


def operands(problem: Problem, direction: str, precision: str, seed: int = 0) -> list[np.ndarray]:
    shapes = {"x": problem.x_shape, "w": problem.w_shape, "y": problem.y_shape}
    names = {"forward": "xw", "backward_data": "yw", "backward_filter": "xy"}[direction]
    rng = np.random.default_rng(seed)
    dtype = dtype_of(DTYPES[precision])
    return [rng.uniform(-1, 1, shapes[n]).astype(dtype) for n in names]


def dtype_of(name: str) -> np.dtype:
    return {"float16": HALVES["fp16"], "bfloat16": HALVES["bf16"]}.get(name, np.dtype("float32"))


def too_far(p: Any, a: np.ndarray, b: np.ndarray, result: np.ndarray) -> float:
    """The largest error over its proven bound: of sums in any order, and of the result's rounding.
    NaN counts as infinite."""
    a64, b64 = a.astype(float), b.astype(float)
    exact = getattr(convolution, p.direction)(a64, b64, p.problem)
    limit = bound(a64, b64, p.problem, "direct", p.simulated, direction=p.direction)
    u, least = UNIT[p.out_dtype], {"float16": 2.0**-25}.get(p.out_dtype, 0.0)
    limit = limit + (u * (np.abs(exact) + limit) + least if p.out_dtype != "float32" else 0)
    off = np.abs(result.astype(float) - exact)
    return float(np.where(off <= limit, 0.0, np.where(limit > 0, off / limit, np.inf)).max())


def check_adjoint(
    problem: Problem,
    directions: Iterable[str],
    dtype: str,
    computed: Callable[[str, np.ndarray, np.ndarray], np.ndarray],
    most: int = 1,
) -> None:
    """⟨dy, x ⋆ w⟩ = ⟨dx, x⟩ = ⟨dw, w⟩, of whole numbers up to ``most`` whose sums FP32 holds: each
    result is exact. ``computed`` has that of a direction and its operands."""
    rng = np.random.default_rng(1)
    sizes = problem.x_shape, problem.w_shape, problem.y_shape
    x, w, dy = (rng.integers(-most, most + 1, shape).astype(dtype) for shape in sizes)
    given = {"forward": (x, w, dy), "backward_data": (dy, w, x), "backward_filter": (x, dy, w)}
    products = []
    for direction in directions:
        a, b, other = given[direction]
        found = computed(direction, a, b).astype(float)
        exact = getattr(convolution, direction)(a.astype(float), b.astype(float), problem)
        assert (found == exact).all()
        products.append((found * other).sum())
    assert len({*products}) == 1 != len(products)
    assert products[0] != 0


def on_gpu(p: Any, a: np.ndarray, b: np.ndarray, left: np.ndarray | None = None) -> np.ndarray:
    """The result of a plan's kernels on GPU 0, of memory of NaN between zones of NaN, which it
    leaves as they are. ``left`` receives the bytes that the workspace begins with in the end."""
    from winolab.bench.contenders import launched
    from winolab.gpu import driver
    from winolab.gpu.runtime import loader

    cp, zone = driver.cupy(), 4096
    shape = shapes(p.direction, p.problem)[2]
    size = math.prod(shape) * dtype_of(p.out_dtype).itemsize
    memory, space = (cp.full(n + 2 * zone, 0xFF, "uint8") for n in (size, p.workspace))
    given = [cp.asarray(v.view(np.uint8)) for v in (a, b)]
    kernels = loader.load(p.source(), str(p), p.shared(), 0)
    a_at, b_at = (v.data.ptr for v in given)
    launched(p, kernels, 0, a_at, b_at, memory.data.ptr + zone, space.data.ptr + zone)
    assert all((v[:zone] == 0xFF).all() and (v[-zone:] == 0xFF).all() for v in (memory, space))
    if left is not None:
        left[...] = cp.asnumpy(space[zone : zone + left.size])
    found = cp.asnumpy(memory[zone : zone + size])
    return found.view(dtype_of(p.out_dtype)).reshape(shape)
