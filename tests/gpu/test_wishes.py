"""What callers ask for is looked at on a GPU as it is on the CPU, for empty problems too."""

from __future__ import annotations

import numpy as np
import pytest

import winolab
from tests.gpu.pretended import Array

FILTER = np.ones((4, 3, 3, 4), "f")


@pytest.mark.parametrize("wrap", [Array, np.asarray], ids=["cuda", "numpy"])
@pytest.mark.parametrize("batch", [0, 2])
@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"algorithm": ""}, ValueError, "unknown algorithm ''; accepted are forms like"),
        ({"algorithm": 0}, TypeError, "algorithm is a int; expected an Algorithm or its text"),
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
