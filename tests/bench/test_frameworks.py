"""PyTorch's convolutions of the problems of this package, on its CPU."""

from __future__ import annotations

import numpy as np
import pytest

from winolab import conv_backward_data, conv_backward_filter, conv_forward
from winolab.algorithm import Problem
from winolab.bench import frameworks
from winolab.bench.frameworks import convolution
from winolab.gpu.planner.request import DIRECTIONS
from winolab.problem import shapes

PROBLEMS = {
    "even": Problem.of((2, 9, 8, 6), (6, 3, 3, 1), padding=1, groups=6),
    "causal": Problem.of((2, 17, 6), (6, 4, 1), padding=((3, 0),), groups=6),
    "strided": Problem.of((2, 18, 6), (4, 5, 6), padding=((4, 0),), stride=2),
    "dilated": Problem.of((1, 20, 5), (5, 3, 1), padding=((9, 1),), dilation=4, groups=5),
    "video": Problem.of((1, 5, 6, 7, 4), (8, 3, 3, 2, 4), padding=((2, 0), 1, (1, 0))),
}


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("name", PROBLEMS)
def test_they_are_the_definition_s(name: str, direction: str) -> None:
    """With equal bits: FP64 holds the sums of small integers exactly."""
    torch = pytest.importorskip("torch")
    p, rng = PROBLEMS[name], np.random.default_rng(0)
    first, second, _ = shapes(direction, p)
    a, b = (rng.integers(-4, 5, shape).astype("float64") for shape in (first, second))
    how = {"stride": p.stride, "padding": p.padding, "dilation": p.dilation, "groups": p.groups}
    exact = {
        "forward": lambda: conv_forward(a, b, **how),
        "backward_data": lambda: conv_backward_data(a, b, p.x_shape, **how),
        "backward_filter": lambda: conv_backward_filter(a, b, p.w_shape, **how),
    }[direction]()
    found = convolution(direction, p)(*(torch.from_numpy(v).movedim(-1, 1) for v in (a, b)))
    np.testing.assert_array_equal(found.movedim(1, -1).numpy(), exact)


def test_what_is_padded_more_behind_has_no_contender(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frameworks, "_usable", lambda: None)
    monkeypatch.setattr(frameworks, "_framework", lambda *_: None)
    behind = Problem.of((2, 17, 6), (6, 4, 1), padding=((0, 3),), groups=6)
    for p, count in ((PROBLEMS["causal"], 2), (behind, 0)):
        assert len(list(frameworks.frameworks("forward", p, "fp16"))) == count
