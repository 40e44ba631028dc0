"""Memory follows the arrays: padding, dilation and stride take none of their own."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from winolab import conv_backward_data, conv_backward_filter, conv_forward
from winolab.algorithm import direct
from winolab.problem import Problem, shapes
from winolab.ref.algorithms.convolution import ROWS
from winolab.ref.algorithms.engine import BLOCK
from winolab.ref.arithmetic.simulated import arithmetic
from winolab.ref.error.predict import predict
from winolab.ref.error.proven import proven

# Bytes of one gathered input in the tiled engine: two 64-bit indices and their product, two
# masks, the element in its own dtype and in the arithmetic's, before and after a transform.
GATHERED = 64


def peak(call: Callable[[], Any]) -> int:
    """Bytes that NumPy and Python took at most beside what there was."""
    call()  # caches and imports
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def arrays(x_shape: tuple[int, ...], w_shape: tuple[int, ...], **how: Any) -> tuple:
    rng = np.random.default_rng(42)
    x, w = (rng.integers(-3, 4, shape).astype(float) for shape in (x_shape, w_shape))
    return x, w, conv_forward(x, w, precision="exact", out_dtype=float, **how)


@pytest.mark.parametrize("precision", ["fp64", "fp32"])
def test_a_dilation_and_a_padding_of_512_take_no_memory(precision) -> None:
    """Issue 42, item 21: 744 MB where x has 2 MB."""
    how: dict[str, Any] = {"padding": 512, "dilation": 512}
    x, w, y = arrays((1, 64, 64, 64), (2, 3, 3, 64), **how)
    how |= {"precision": precision, "out_dtype": float}
    data, taps = x.nbytes + w.nbytes + y.nbytes, math.prod(w.shape[1:])
    rows = {"fp64": 2 * 8 * ROWS * taps, "fp32": GATHERED * BLOCK}[precision]
    assert peak(lambda: conv_forward(x, w, **how)) <= data + rows
    assert (conv_forward(x, w, **how) == y).all()
    assert peak(lambda: conv_backward_data(y, w, x.shape, **how)) <= data + rows
    assert peak(lambda: conv_backward_filter(x, y, w.shape, **how)) <= data + rows


@pytest.mark.parametrize("algorithm", ["direct", "dwm:3:2"])
@pytest.mark.parametrize("precision", ["fp64", "fp32", "exact"])
def test_a_stride_and_a_padding_of_4096_take_no_memory(precision, algorithm) -> None:
    """Issue 42, item 21: backward data took 8 GiB."""
    how: dict[str, Any] = {"padding": 4096, "stride": 4096}
    x, w, y = arrays((1, 24, 24, 4), (4, 3, 3, 4), **how)
    how |= {"precision": precision, "algorithm": algorithm, "out_dtype": float}
    data, gathered = x.nbytes + w.nbytes + y.nbytes, x.size * math.prod(w.shape[1:3])
    each = GATHERED if precision != "exact" else 4 * GATHERED  # objects
    most = data + each * gathered + (1 << 16)  # and Python's own
    dx = np.zeros(x.shape)
    dx[:, :3, :3] = np.tensordot(y[:, 1, 1], w, 1)  # the other windows lie in the padding
    assert (conv_backward_data(y, w, x.shape, **how) == dx).all()
    assert peak(lambda: conv_backward_data(y, w, x.shape, **how)) <= most
    assert peak(lambda: conv_forward(x, w, **how)) <= most
    assert peak(lambda: conv_backward_filter(x, y, w.shape, **how)) <= most


@pytest.mark.parametrize("direction", ["forward", "backward_data", "backward_filter"])
@pytest.mark.parametrize("of", [proven, predict])
def test_bounds_and_predictions_store_no_stride(of, direction) -> None:
    p = Problem.of((1, 24, 24, 4), (4, 3, 3, 4), padding=4096, stride=4096)
    a, b, _ = (np.ones(shape, np.float32) for shape in shapes(direction, p))
    gathered = math.prod(p.x_shape) * math.prod(p.filter)
    most = 4 * GATHERED * gathered + (1 << 18)  # means, deviations and magnitudes of each
    run = arithmetic("fp32")
    assert peak(lambda: of(a, b, p, direct(), run, direction=direction)) <= most


@pytest.mark.parametrize("direction", ["forward", "backward_data", "backward_filter"])
def test_values_far_apart_are_those_of_the_exact_engine(direction) -> None:
    """Strides, dilations and paddings that share no factor, in three dimensions."""
    how: dict[str, Any] = {
        "stride": (5, 1, 3),
        "dilation": (1, 7, 2),
        "padding": ((9, 4), (11, 8), (0, 13)),
    }
    x, w, y = arrays((2, 6, 9, 5, 4), (6, 3, 4, 5, 2), groups=2, **how)
    how |= {"groups": 2, "out_dtype": float}
    call = {
        "forward": lambda p: conv_forward(x, w, precision=p, **how),
        "backward_data": lambda p: conv_backward_data(y, w, x.shape, precision=p, **how),
        "backward_filter": lambda p: conv_backward_filter(x, y, w.shape, precision=p, **how),
    }[direction]
    assert (call("fp64") == call("exact")).all()
