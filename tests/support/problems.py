"""Random problems and integer data for property tests: exact arithmetic tells every wrong index."""

import numpy as np
from hypothesis import strategies as st

from winolab import Problem


@st.composite
def problems(draw, *, ndim=None, filter_=None, unit=False, groups=True):
    """A small problem; ``filter_`` fixes the taps, ``unit`` stride and dilation 1."""
    ndim = ndim or draw(st.integers(1, 3))
    sizes = st.integers(1, 3)

    def per_dimension(strategy):
        return tuple(draw(strategy) for _ in range(ndim))

    taps = filter_ or per_dimension(sizes)
    stride, dilation = ((1,) * ndim,) * 2 if unit else (per_dimension(sizes), per_dimension(sizes))
    padding = tuple((draw(st.integers(0, 3)), draw(st.integers(0, 3))) for _ in range(ndim))
    spare = per_dimension(st.integers(0, 12 if ndim == 1 else 5))
    extent = [d * (r - 1) + 1 for d, r in zip(dilation, taps, strict=True)]
    input_ = [
        max(1, e - lo - hi) + more for e, (lo, hi), more in zip(extent, padding, spare, strict=True)
    ]
    g = draw(st.integers(1, 2)) if groups else 1
    x_shape = (draw(st.integers(0, 2)), *input_, g * draw(sizes))
    w_shape = (g * draw(sizes), *taps, x_shape[-1] // g)
    return Problem.of(x_shape, w_shape, stride=stride, padding=padding, dilation=dilation, groups=g)


def integers(shape, seed, low=-9, high=9):
    return np.random.default_rng(seed).integers(low, high + 1, shape)


def options(problem):
    """The keyword arguments with which conv_* state the problem."""
    return {
        "stride": problem.stride,
        "padding": problem.padding,
        "dilation": problem.dilation,
        "groups": problem.groups,
    }
