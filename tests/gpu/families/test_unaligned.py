"""Public calls of arrays that begin at no multiple of 16 bytes, by every family that serves them:
addresses are recorded before they are known, and no vector may be read where none lies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import winolab
from tests.gpu.support import host_compiler
from tests.gpu.support.pretended import Array, Library
from tests.gpu.support.turns import turns
from winolab.gpu import driver
from winolab.gpu.planner.request import DIRECTIONS
from winolab.problem import Problem, shapes

PROBLEMS = {  # cuBLASLt's are of its own tests
    "thin": Problem.of((1, 5, 9, 64), (8, 3, 3, 64), padding=1),
    "few": Problem.of((1, 5, 9, 8), (24, 3, 3, 8), padding=1),
    "strided": Problem.of((1, 9, 9, 32), (48, 3, 3, 32), padding=1, stride=2),
    "grouped": Problem.of((1, 5, 6, 32), (32, 3, 3, 16), padding=1, groups=2),
    "depthwise": Problem.of((1, 6, 7, 16), (16, 3, 3, 1), padding=1, groups=16),
    "dense": Problem.of((1, 6, 8, 32), (24, 3, 3, 32), padding=1),
}
TYPES = {"fp32": np.float32, "fp16": np.float16}
NAMED = None, "direct"


def moved(values: np.ndarray, elements: int = 1) -> np.ndarray:
    """A copy that begins so many elements behind a multiple of 16 bytes."""
    memory = np.zeros(values.size + 32, values.dtype)
    first = -memory.ctypes.data % 16 // values.itemsize + elements
    found = memory[first : first + values.size].reshape(values.shape)
    found[...] = values
    assert found.ctypes.data % 16 == elements * values.itemsize
    return found


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every source with UBSan's checks, of alignment too."""
    monkeypatch.setattr(host_compiler, "CHECKED_EVERY", 1)


@pytest.mark.parametrize(("name", "precision", "named"), turns(PROBLEMS, TYPES, NAMED))
def test_whatever_begins_between_vectors(
    name: str, precision: str, named: str | None, library: Library, checked: None
) -> None:
    for out, filled in results(name, precision, named, moved, Array):
        assert filled.values is out.values


@pytest.mark.gpu
@pytest.mark.parametrize("named", NAMED)
@pytest.mark.parametrize("precision", TYPES)
@pytest.mark.parametrize("name", PROBLEMS)
def test_whatever_begins_between_vectors_on_a_gpu(
    name: str, precision: str, named: str | None
) -> None:
    cupy = driver.cupy()
    for out, filled in results(name, precision, named, partial(moved_on_gpu, cupy), cupy.asarray):
        assert filled is out


def moved_on_gpu(cupy: Any, values: np.ndarray, elements: int = 1) -> Any:
    """The same on a GPU, where allocations begin at multiples of 256 bytes."""
    memory = cupy.zeros(values.size + elements, values.dtype)
    found = memory[elements:].reshape(values.shape)
    found[...] = cupy.asarray(values)
    assert found.data.ptr % 16 == elements * values.itemsize
    return found


def results(
    name: str, precision: str, named: str | None, move: Callable[..., Any], put: Callable[..., Any]
) -> Iterator[tuple[Any, Any]]:
    """The ``out`` that was given and what came back, of every direction with one array moved, once
    it is seen to be right."""
    problem, rng = PROBLEMS[name], np.random.default_rng(0)
    for direction in DIRECTIONS:
        *given, size = shapes(direction, problem)
        a, b = (rng.uniform(-1, 1, shape).astype(TYPES[precision]) for shape in given)
        third = () if direction == "forward" else (size,)
        how: dict[str, Any] = {
            "padding": problem.padding, "stride": problem.stride, "groups": problem.groups,
        }  # fmt: skip
        call = getattr(winolab, f"conv_{direction}")
        due = call(a.astype(float), b.astype(float), *third, **how, precision="fp64")
        how |= {"precision": precision, "algorithm": named}
        for which in ("a", "b", "out"):
            x, y = (put(move(v) if which == here else v) for v, here in ((a, "a"), (b, "b")))
            out = put(move(np.full(due.shape, np.nan, a.dtype), int(which == "out")))
            found = call(x, y, *third, out=out, **how)
            bound = (2e-5 if precision == "fp32" else 2e-2) * max(1.0, np.abs(due).max())
            values = found.get() if hasattr(found, "get") else found.values
            assert np.abs(values - due).max() <= bound, (direction, which)
            yield out, found


@pytest.mark.parametrize("precision", TYPES)
@pytest.mark.parametrize("name", PROBLEMS)
def test_an_epilogue_s_arrays_between_vectors(
    name: str, precision: str, library: Library, checked: None
) -> None:
    problem, rng = PROBLEMS[name], np.random.default_rng(0)
    kind = TYPES[precision]
    shapes_ = problem.x_shape, problem.w_shape, (problem.out_channels,), problem.y_shape
    x, w, bias, residual = (rng.uniform(-1, 1, shape).astype(kind) for shape in shapes_)
    how: dict[str, Any] = {
        "padding": problem.padding, "stride": problem.stride, "groups": problem.groups,
        "activation": "relu", "precision": precision,
    }  # fmt: skip
    due = winolab.conv_forward(
        Array(x), Array(w), bias=Array(bias), residual=Array(residual), **how
    )
    found = winolab.conv_forward(
        Array(x), Array(w), bias=Array(moved(bias)), residual=Array(moved(residual)), **how
    )
    assert np.array_equal(found.values, due.values)
    assert (due.values > 0).any()
