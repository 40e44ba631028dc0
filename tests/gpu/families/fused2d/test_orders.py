"""The memory orders of openCNN and of Lavin & Gray, by public calls: kernels of a named order work
where arrays lie in it, and what lies otherwise is copied."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import winolab
from tests.gpu.support.convolved import convolved
from tests.gpu.support.pretended import Array
from winolab.algorithm import Problem, parse_algorithm
from winolab.gpu.families.fused2d.config import Config, narrow
from winolab.gpu.runtime.conv import transform
from winolab.options import ConvOptions

AXES = {"nhwc": (0, 1, 2, 3), "nchw": (0, 3, 1, 2), "chwn": (3, 1, 2, 0)}
HOW: dict[str, Any] = {"algorithm": parse_algorithm("winograd:2x2:3x3"), "precision": "fp32_ffma"}


def lying(array: np.ndarray, order: str) -> np.ndarray:
    """A copy that lies in memory like that, its axes as they were."""
    axes = AXES[order]
    return np.ascontiguousarray(array.transpose(axes)).transpose([axes.index(a) for a in range(4)])


@pytest.mark.parametrize("kernel", AXES)
@pytest.mark.parametrize("memory", AXES)
def test_calls_in_every_order(library, kernel, memory) -> None:
    """Pairs of images are loaded at once in CHWN alone, where they are neighbours."""
    rng = np.random.default_rng(2)
    x, w = (rng.uniform(-1, 1, s).astype("f") for s in ((4, 6, 5, 12), (20, 3, 3, 12)))
    padding = [*AXES].index(memory)
    expected = winolab.conv_forward(x, w, padding=padding, **HOW)
    problem = Problem.of(x.shape, w.shape, padding=padding)
    layout = "channels" if kernel == "nhwc" else "sts64"
    how = {**HOW, "problem": problem, "config": narrow(order=kernel, layout=layout, split_k=1)}
    a, b = Array(lying(x, memory)), Array(w)
    y = Array(lying(np.full_like(expected, np.nan), memory))
    assert np.array_equal(convolved("forward", a, b, out=y, **how).values, expected)
    assert library.reordered() == ([] if kernel == memory else ["a", "out"])
    assert np.array_equal(convolved("forward", a, b, **how).values, expected)


def test_a_prepared_filter_keeps_the_order(library) -> None:
    rng = np.random.default_rng(3)
    x, w = (rng.uniform(-1, 1, s).astype("f") for s in ((2, 5, 6, 8), (9, 3, 3, 8)))
    problem = Problem.of(x.shape, w.shape, padding=2)
    config = Config(order="nchw", layout="sts64_final", split_k=1)
    prepared = transform("forward", problem, Array(w), ConvOptions(config=config, **HOW))
    library.reordered()
    a = Array(lying(x, "nchw"))
    got = convolved("forward", a, prepared, problem=problem)
    assert np.array_equal(got.values, winolab.conv_forward(x, w, padding=2, **HOW))
    assert library.reordered() == []
