"""What of strides and dilation kernels count, of all families of direct products."""

from __future__ import annotations

import pytest

from winolab.algorithm import Problem
from winolab.gpu.families.axes import MOST_SPAN, MOST_STRIDE, counted
from winolab.gpu.params import MOST


def test_outputs_of_phases_behind_a_block_s_last_one_are_counted() -> None:
    """Those of backward data lie a stride apart: past 2^31 one would lie before the first."""
    stride = 1 << 10
    for beyond in (0, 1):
        size = MOST - (MOST_SPAN + 2) * stride + beyond
        problem = Problem(1, 1, 1, (size,), (1,), (stride,), ((0, 0),), (1,), 1)
        assert counted(problem, "forward").output[2] == -(-size // stride)
        if not beyond:
            assert counted(problem, "backward_data").output[2] == size
            continue
        with pytest.raises(ValueError, match="blocks of strided outputs reach along a dimension"):
            counted(problem, "backward_data")
    with pytest.raises(ValueError, match=f"strides × dilation up to {MOST_STRIDE}"):
        counted(Problem(1, 1, 1, (9,), (1,), (MOST_STRIDE + 1,), ((0, 0),), (1,), 1), "forward")
