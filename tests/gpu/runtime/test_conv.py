"""Calls of winolab.gpu.runtime.conv on a GPU; what kernels compute is tested in every_kernel."""

from __future__ import annotations

import importlib
from importlib.util import find_spec

import numpy as np
import pytest

from tests.gpu.support.convolved import convolved
from winolab.algorithm import Problem
from winolab.gpu import driver

pytestmark = pytest.mark.gpu
LIBRARIES = ["cupy", *(["torch"] if find_spec("torch") else [])]


@pytest.mark.parametrize("library", LIBRARIES)
def test_arrays_come_back_as_they_were_given(library) -> None:
    module = importlib.import_module(library)
    rng = np.random.default_rng(0)
    first = rng.random((2, 24, 9, 11), dtype="float32")
    weights = rng.random((16, 24, 3, 3), dtype="float32")
    if library == "torch":
        x, w = (module.from_numpy(a).cuda() for a in (first, weights))
        last = x.to(memory_format=module.channels_last)
    else:
        x, w = module.asarray(first), module.asarray(weights)
        last = module.ascontiguousarray(module.moveaxis(x, 1, -1))
        last = module.moveaxis(last, -1, 1)
    problem = Problem.of((2, 9, 11, 24), (16, 3, 3, 24), padding=1)
    results = [
        convolved("forward", a, w, problem=problem, layout="channels_first") for a in (x, last)
    ]
    for given_, y in zip((x, last), results, strict=True):
        assert type(y) is type(given_)
        assert tuple(y.shape) == (2, 16, 9, 11)
    contiguous = [
        y.is_contiguous() if library == "torch" else y.flags.c_contiguous for y in results
    ]
    assert contiguous == [True, False]
    assert bool((results[0] == results[1]).all())


def test_runs_are_equal_bit_for_bit() -> None:
    cp = driver.cupy()
    problem = Problem.of((4, 7, 7, 256), (256, 3, 3, 256), padding=1)
    x, w = cp.random.rand(*problem.x_shape, dtype="f"), cp.random.rand(*problem.w_shape, dtype="f")
    first = convolved("forward", x, w, problem=problem)
    assert all(bool((convolved("forward", x, w, problem=problem) == first).all()) for _ in range(5))


def test_a_graph_captures_the_call() -> None:
    cp = driver.cupy()
    problem = Problem.of((2, 12, 12, 32), (32, 3, 3, 32), padding=1)
    x, w = cp.random.rand(*problem.x_shape, dtype="f"), cp.random.rand(*problem.w_shape, dtype="f")
    expected = convolved("forward", x, w, problem=problem)
    out = cp.empty_like(expected)
    stream = cp.cuda.Stream(non_blocking=True)
    cp.cuda.Device().synchronize()
    with stream:
        convolved("forward", x, w, problem=problem, out=out)  # memory for the capture to reuse
        stream.begin_capture()
        convolved("forward", x, w, problem=problem, out=out)
        graph = stream.end_capture()
        out.fill(cp.nan)
        graph.launch(stream)
        stream.synchronize()
    assert bool((out == expected).all())


def test_wrong_arrays_are_refused() -> None:
    cp = driver.cupy()
    problem = Problem.of((2, 9, 9, 8), (8, 3, 3, 8))
    x, w = cp.zeros(problem.x_shape, "f"), cp.zeros(problem.w_shape, "f")
    with pytest.raises(TypeError, match="float64"):
        convolved("forward", x.astype("d"), w, problem=problem)
    with pytest.raises(TypeError, match="CUDA array"):
        convolved("forward", x, np.zeros(problem.w_shape, "f"), problem=problem)
    with pytest.raises(ValueError, match="shape"):
        convolved("forward", x[:1], w, problem=problem)
    with pytest.raises(ValueError, match="takes float16 arrays"):
        convolved("forward", x, w, problem=problem, precision="fp16")
