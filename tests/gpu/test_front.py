"""winolab.conv_* on CUDA arrays: the kernels behind the public calls."""

from __future__ import annotations

import numpy as np
import pytest

import winolab
from winolab.gpu import launch
from winolab.nouns import parse_algorithm
from winolab.ref.bounds import bound

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("algorithm", [None, "direct", "gamma:8:6:3", "gamma:4:2:3@paper"])
@pytest.mark.parametrize("layout", ["channels_last", "channels_first"])
def test_cupy_arrays_go_to_the_kernels_and_come_back(algorithm, layout):
    """Within the proven bound of FP32 summation in any order (the kernels' differs from ours)."""
    cp = launch.cupy()
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, (2, 11, 13, 17)).astype(np.float32)
    w = rng.uniform(-1, 1, (9, 3, 3, 17)).astype(np.float32)
    y = winolab.conv_forward(x, w, padding=1, precision="fp64", out_dtype=np.float64)
    dx = winolab.conv_backward_data(y, w, x.shape, padding=1, precision="fp64")
    problem = winolab.Problem.of(x.shape, w.shape, padding=1)
    chosen = parse_algorithm(algorithm or "gamma:8:6:3")
    run = winolab.arithmetic("fp32")

    def arrays(*values):
        first = layout == "channels_first"
        return [cp.asarray(np.moveaxis(v, -1, 1).copy() if first else v) for v in values]

    def host(value):
        value = cp.asnumpy(value)
        return np.moveaxis(value, 1, -1) if layout == "channels_first" else value

    how = {"padding": 1, "layout": layout, "algorithm": algorithm}
    gx, gw, gy = arrays(x, w, y.astype(np.float32))
    forward = winolab.conv_forward(gx, gw, **how)
    assert isinstance(forward, cp.ndarray)
    limit = bound(x, w, problem, chosen, run)
    assert (np.abs(host(forward) - y) <= limit).all()
    back = winolab.conv_backward_data(gy, gw, gx.shape, **how)
    dy = y.astype(np.float32)
    dx = winolab.conv_backward_data(dy, w, x.shape, padding=1, precision="fp64", out_dtype=float)
    limit = bound(dy, w, problem, chosen, run, direction="backward_data")
    assert (np.abs(host(back) - dx) <= limit).all()


def test_what_the_kernels_do_not_serve_is_refused():
    cp = launch.cupy()
    x, w = cp.ones((1, 8, 8, 4), "float32"), cp.ones((4, 3, 3, 4), "float32")
    with pytest.raises(ValueError, match="backward_filter has no CUDA kernel yet"):
        winolab.conv_backward_filter(x, cp.ones((1, 6, 6, 4), "float32"), w.shape)
    with pytest.raises(ValueError, match="out_dtype is not served by the CUDA kernels"):
        winolab.conv_forward(x, w, out_dtype="float16")
    with pytest.raises(ValueError, match="stride 1 and dilation 1"):
        winolab.conv_forward(x, w, stride=2)
