import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.problems import integers, options, problems
from winolab import conv_backward_data, conv_backward_filter, conv_forward
from winolab.ref.algorithms import convolution


@settings(max_examples=80, deadline=None)
@given(problems(), st.integers(0, 2**32))
def test_the_oracle_is_exact_on_integers_in_all_directions(problem, seed):
    """Against the tiled engine in exact arithmetic, which shares no indexing with it."""
    x, w, dy = (
        integers(shape, seed + k)
        for k, shape in enumerate((problem.x_shape, problem.w_shape, problem.y_shape))
    )
    how = {"precision": "exact", **options(problem)}
    assert (convolution.forward(x, w, problem) == conv_forward(x, w, **how)).all()
    dx = convolution.backward_data(dy, w, problem)
    assert (dx == conv_backward_data(dy, w, x.shape, **how)).all()
    dw = convolution.backward_filter(x, dy, problem)
    assert (dw == conv_backward_filter(x, dy, w.shape, **how)).all()


def test_blocks_of_rows_join_without_a_seam():
    """More rows than one block holds, in one dimension and in two."""
    for x_shape, w_shape in [((1, 3000, 1), (1, 3, 1)), ((1, 70, 40, 1), (1, 5, 3, 1))]:
        x, w = integers(x_shape, 1), integers(w_shape, 2)
        exact = conv_forward(x, w, precision="exact", padding=1)
        assert (conv_forward(x, w, precision="fp64", padding=1, out_dtype=float) == exact).all()


def test_the_result_is_written_everywhere():
    x, w = integers((2, 9, 9, 2), 1).astype(float), integers((3, 3, 3, 2), 2).astype(float)
    out = np.full((2, 7, 7, 3), np.nan)
    conv_forward(x, w, out=out)
    assert np.isfinite(out).all()
