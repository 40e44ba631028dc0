"""What callers ask for is looked at on a GPU as it is on the CPU, for empty problems too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import winolab
from tests.gpu.support.convolved import convolved
from tests.gpu.support.pretended import Array
from winolab.algorithm import Problem
from winolab.gpu.families.direct import config as direct
from winolab.gpu.families.im2col import config as im2col

FILTER = np.ones((4, 3, 3, 4), "f")


@pytest.mark.parametrize("wrap", [Array, np.asarray], ids=["cuda", "numpy"])
@pytest.mark.parametrize("batch", [0, 2])
@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"algorithm": ""}, ValueError, "unknown algorithm ''; accepted are forms like"),
        ({"algorithm": 0}, TypeError, "algorithm is of type int; expected an Algorithm or a text"),
        ({"algorithm": "foo"}, ValueError, "unknown algorithm 'foo'"),
        ({"algorithm": "DIRECT"}, ValueError, "did you mean 'direct'"),
        ({"precision": "foo"}, ValueError, "foo"),
        ({"precision": "FP32"}, ValueError, "did you mean 'fp32'"),
    ],
)
def test_algorithms_and_precisions_that_are_none_are_refused(
    library, wrap, batch, wrong, error, message
) -> None:
    x, w = wrap(np.ones((batch, 5, 6, 4), "f")), wrap(FILTER)
    with pytest.raises(error, match=message):
        winolab.conv_forward(x, w, **wrong)
    with pytest.raises(error, match=message):
        winolab.prepare_filter(w, x.shape, **wrong)


SIZES: dict[str, Any] = {"stride": 1, "padding": (1, 1), "dilation": (1, 1), "groups": 1}


@pytest.mark.parametrize("wrap", [Array, np.asarray], ids=["cuda", "numpy"])
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"stride": 1.0}, "stride in spatial dimension 0 is 1.0"),
        ({"padding": (1.0, 1.0)}, "padding in spatial dimension 0 is 1.0"),
        ({"padding": ((1, 1), (1, 1.0))}, "padding in spatial dimension 1 is 1.0"),
        ({"dilation": (1, 1.0)}, "dilation in spatial dimension 1 is 1.0"),
        ({"groups": 1.0}, "groups is 1.0"),
        ({"workspace_limit": 1e6}, "workspace_limit is 1000000.0"),
    ],
)
def test_what_equals_an_integer_is_none_after_it_either(library, wrap, wrong, message) -> None:
    x, w = wrap(np.ones((2, 5, 6, 4), "f")), wrap(FILTER)
    for pairs in ((1, 1), ((1, 1), (1, 1))):
        how = {**SIZES, "padding": pairs, "workspace_limit": 1_000_000}
        for _ in range(2):
            y = winolab.conv_forward(x, w, **how)
        with pytest.raises(TypeError, match=f"{message}; expected an integer"):
            winolab.conv_forward(x, w, **{**how, **wrong})
    shape: Any = (2, 5.0, 6, 4)
    winolab.conv_backward_data(y, w, (2, 5, 6, 4), **SIZES)
    with pytest.raises(TypeError, match=r"a size of x is 5\.0; expected an integer"):
        winolab.conv_backward_data(y, w, shape, **SIZES)


@pytest.mark.parametrize("x_shape", [(0, 5, 8, 12), (2, 0, 8, 12), (2, 5, 8, 0)])
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"algorithm": "fft:16:3"}, "the CUDA kernels run gamma and direct"),
        ({"algorithm": "gamma:8:2:7"}, "7"),
        ({"precision": "tf32"}, "precision 'tf32'; the CUDA kernels have fp32"),
    ],
)
def test_empty_calls_are_checked_as_others(library, x_shape, wrong, message) -> None:
    x, w = np.ones(x_shape, "f"), np.ones((16, 3, 3, x_shape[-1]), "f")
    with pytest.raises(ValueError, match=message):
        winolab.conv_forward(Array(x), Array(w), padding=1, **wrong)


@pytest.mark.parametrize(
    "config", [im2col.Config(64, 64, 4), direct.Config(128, 64, 3, 4)], ids=str
)
def test_an_empty_call_may_name_its_blocks(library, config) -> None:
    """There is no pixel that could lie at an odd address."""
    x, w = np.ones((0, 5, 5, 64), "f2"), np.ones((64, 3, 3, 64), "f2")
    problem = Problem.of(x.shape, w.shape, padding=1)
    y = convolved("forward", Array(x), Array(w), problem=problem, config=config)
    assert y.shape == (0, 5, 5, 64)


def test_a_result_with_elements_of_one_address_is_refused(library) -> None:
    x = Array(np.ones((2, 5, 8, 4), "f"))
    for strides in ((0, 128, 16, 4), (640, 128, 12, 4)):
        memory = np.zeros(400, np.float32)
        out = np.lib.stride_tricks.as_strided(memory, (2, 5, 8, 4), strides)
        with pytest.raises(ValueError, match="out has elements that share memory"):
            winolab.conv_forward(x, Array(FILTER), padding=1, out=Array(out))
        assert not memory.any()
