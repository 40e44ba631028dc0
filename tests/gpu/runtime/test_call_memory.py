"""What calls keep, what they tell an array library, and what they copy, on the CPU."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import winolab
from tests.gpu.support.pretended import Array, Library
from winolab.algorithm import Problem
from winolab.arguments.arrays import contiguous
from winolab.conv import shape_of
from winolab.gpu.runtime import call
from winolab.gpu.runtime.arrays import CUPY, Described
from winolab.options import ConvOptions

SHAPE, FILTER = (2, 5, 8, 12), (16, 3, 3, 12)
PROBLEM = Problem.of(SHAPE, FILTER, padding=1)
HOW: dict[str, Any] = {"padding": 1, "algorithm": "gamma:4:2:3", "precision": "fp32_ffma"}


def operands() -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    x, w = (Array(rng.uniform(-1, 1, shape).astype(np.float32)) for shape in (SHAPE, FILTER))
    return x, w


def test_prepared_filters_are_freed_with_their_owner(library: Library) -> None:
    x, w = operands()
    memory = []
    for _ in range(3):
        prepared = winolab.prepare_filter(w, SHAPE, **HOW)
        winolab.conv_forward(x, prepared, **HOW)
        winolab.conv_forward(x, prepared, out=Array(np.empty(PROBLEM.y_shape, "f")), **HOW)
        memory.append(weakref.ref(prepared.held.memory))  # pyright: ignore[reportAttributeAccessIssue]
        del prepared
    gc.collect()
    assert [at() for at in memory] == [None] * 3


@pytest.mark.parametrize("x_shape", [(0, 5, 8, 12), (2, 0, 8, 12), (2, 5, 8, 0)])
def test_filters_of_empty_problems_are_prepared_too(library: Library, x_shape) -> None:
    x, w = (Array(np.ones(shape, "f")) for shape in (x_shape, (16, 3, 3, x_shape[-1])))
    prepared = winolab.prepare_filter(w, x_shape, **HOW)
    assert prepared.nbytes == 0
    y = winolab.conv_forward(x, prepared, **HOW)
    assert y.shape == Problem.of(x.shape, w.shape, padding=1).y_shape
    assert (y.values == 0).all()


def test_a_library_is_told_of_what_it_did_not_see_written(library: Library) -> None:
    x, w = operands()
    winolab.conv_forward(x, w, **HOW)
    winolab.conv_forward(x, w, out_dtype="float16", **HOW)
    assert library.written_to == []
    out = Array(np.empty(PROBLEM.y_shape, "f"))
    winolab.conv_forward(x, w, out=out, **HOW)
    assert library.written_to == [out]


def test_operands_of_gradients_with_steps_beyond_32_bits_are_copied(library: Library) -> None:
    def described(shape: tuple[int, ...], image: int) -> Described:
        return Described(shape, (image, *contiguous(shape)[1:]), "float32", 0, True)

    far, dy = 1 << 31, described(PROBLEM.y_shape, 5 * 8 * 16)
    ffma = ConvOptions(precision="fp32_ffma")
    for image, copied in ((480, False), (far - 481, False), (far - 480, True)):
        x = described(SHAPE, image)
        made = call.prepare_call("backward_filter", PROBLEM, library, ffma, x, dy, None)
        assert made.copies == (("a",) if copied else ())
        w = described(FILTER, 3 * 3 * 12)
        made = call.prepare_call("forward", PROBLEM, library, ffma, x, w, None)
        assert made.copies == ()


def test_shapes_of_arrays_that_only_other_libraries_understand(monkeypatch) -> None:
    class Foreign:
        __cuda_array_interface__ = None

    monkeypatch.setattr(CUPY, "array", lambda name, value: np.empty((2, 3)))
    assert shape_of("x", Foreign()) == (2, 3)
    assert shape_of("x", [[1.0], [2.0]]) == (2, 1)
    assert shape_of("x", np.empty((4, 0))) == (4, 0)
