"""Kernels' orders of summation against the loops that the kernels run."""

import numpy as np
import pytest

from winolab.algorithm import Problem, direct, gamma
from winolab.ref.algorithms import convolution, winograd
from winolab.ref.arithmetic.order import Order
from winolab.ref.arithmetic.simulated import arithmetic

FP32 = arithmetic("fp32")


def looped(order, pieces, channels):
    """(sum, part, fold, place) by the loops of the kernel, step by step."""
    depth, height, width = pieces
    steps = [
        (fd, group, fw, chunk)
        for fd in range(depth)
        for group in range(height // order.share)
        for fw in range(width)
        for chunk in range(-(-channels // order.chunk))
    ]
    sums = -(-len(steps) // (order.partial * order.split_k)) if order.partial else 1
    found = []
    for i in range(sums):
        found.append([])
        for rank in range(order.split_k):
            mine = steps[
                len(steps) * rank // order.split_k : len(steps) * (rank + 1) // order.split_k
            ]
            mine = mine[len(mine) * i // sums : len(mine) * (i + 1) // sums]
            folds = {}
            rows = [(*step, f) for step in mine for f in range(order.share)]
            for at, (fd, group, fw, chunk, f) in enumerate(rows):
                for c in range(chunk * order.chunk, min(channels, (chunk + 1) * order.chunk)):
                    fh = group * order.share + f
                    place = ((fd * height + fh) * width + fw) * channels + c
                    folds.setdefault(at // order.fold if order.fold else 0, []).append(place)
            found[-1].append([folds[key] for key in sorted(folds)])
    return found


ORDERS = [Order(8), Order(4, 3), Order(4, 1, 3), Order(2, 3, 5, 2), Order(2, 1, 2, 3, 2)]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("pieces", "channels"), [((1, 3, 2), 5), ((2, 3, 1), 16), ((1, 3, 1), 1)])
def test_parts_follow_the_loops(order, pieces, channels):
    parts = [
        [[list(fold) for fold in part] for part in parts] for parts in order.parts(pieces, channels)
    ]
    assert parts == looped(order, pieces, channels)


def test_parts_of_fewer_dimensions():
    assert [list(fold) for fold in Order(2).parts((2,), 3)[0][0]] == [[0, 1, 2, 3, 4, 5]]


def test_share_must_divide_the_height():
    with pytest.raises(ValueError, match="share=2 does not divide a filter 3 high"):
        Order(8, share=2).parts((3, 1), 4)


def test_the_tensor_core_multiplies_zeros_of_what_a_stage_lacks():
    """Two stages of 2 rows and 4 channels hold 3 and 3: a group of zeros, one half of zeros."""
    order = Order(4, share=2, padded=True)
    (((fold,),),) = order.parts((3, 1), 3)
    assert [list(row) for row in fold.reshape(-1, 4)] == [
        [0, 1, 2, -1], [3, 4, 5, -1], [6, 7, 8, -1], [-1] * 4,
    ]  # fmt: skip


def test_matmul_rounds_where_the_kernel_does():
    """Against one fused multiply-add after the other, in FP64 with one rounding each."""
    rng = np.random.default_rng(1)
    order, pieces, channels = Order(2, 3, 2, 2), (1, 3, 2), 3
    a, b = (rng.standard_normal(18).astype(np.float32) for _ in range(2))
    total = None
    (parts,) = order.parts(pieces, channels)
    for part in parts:
        outer = None
        for fold in part:
            inner = np.float32(0)
            for i in fold:
                inner = FP32.fma(a[i : i + 1], b[i : i + 1], inner)[0]
            outer = inner if outer is None else np.float32(outer + inner)
        assert outer is not None
        total = outer if total is None else np.float32(total + outer)
    (y,) = order.matmuls(a[None, None], b[None, :, None], pieces, channels, FP32)
    assert y[0, 0, 0] == total


@pytest.mark.parametrize("algorithm", [direct(), gamma(8, 6, 3)])
@pytest.mark.parametrize("direction", ["forward", "backward_data"])
@pytest.mark.parametrize(
    ("height", "order"), [(3, Order(2, 3, 2)), (4, Order(2, 3, 2, padded=True))]
)
def test_every_output_once(algorithm, direction, height, order):
    """Integers are exact in any order; a filter 6 wide runs in pieces of 3."""
    problem = Problem.of((2, 7, 11, 6), (4, height, 6, 3), padding=2, groups=2)
    rng = np.random.default_rng(2)
    shape = problem.x_shape if direction == "forward" else problem.y_shape
    a, w = (rng.integers(-3, 4, s).astype(np.float32) for s in (shape, problem.w_shape))
    compute = getattr(winograd, direction)
    y = compute(a, w, problem, algorithm, arithmetic("exact"), order=order)
    oracle = getattr(convolution, direction)(a, w, problem)
    assert np.array_equal(y.astype(np.float64), oracle)
