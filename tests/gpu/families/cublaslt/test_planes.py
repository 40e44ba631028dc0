"""An image that lies channels first is a matrix as it is: products read and write it in place."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import winolab
from tests.gpu.families.cublaslt.cases import (
    BATCHES,
    DIRECTIONS,
    IMAGES,
    NAMED,
    PRECISIONS,
    called,
    offered,
    packed,
)
from tests.gpu.families.depthwise.cases import operands, too_far
from tests.gpu.support.pretended import Array
from winolab.gpu import driver
from winolab.gpu.families.cublaslt.launch import parameters
from winolab.gpu.families.cublaslt.plan import PLANE_STEP
from winolab.gpu.params import View
from winolab.problem import Problem, in_layout, shapes

GUARD = 16  # planes beside an image's


def planes(values: np.ndarray, among: Any = np) -> Any:
    """Axes as they are, memory of planes, one behind the other; an image's are between NaN."""
    n, *spatial, channels = values.shape
    around = among.full((n, channels + 2 * GUARD, *spatial), math.nan, values.dtype)
    inner = among.moveaxis(around[:, GUARD : GUARD + channels], 1, -1)
    inner[...] = among.asarray(values)
    return inner


def beside(inner: Any, among: Any = np) -> Any:
    """What lies around them."""
    around = inner.base
    while around.base is not None:
        around = around.base
    every = around.reshape(len(inner), -1, math.prod(inner.shape[1:-1]))
    return among.concatenate([every[:, :GUARD], every[:, -GUARD:]]).astype(np.float32)


def laid(direction: str, values: list[np.ndarray], among: Any = np) -> list[Any]:
    """The operands, maps as planes."""
    first, second = values
    filters = direction != "backward_filter"
    return [planes(first, among), among.asarray(second) if filters else planes(second, among)]


def in_steps(problem: Problem, precision: str) -> bool:
    """Whether planes are PLANE_STEP apart, which is asked of those for Tensor Cores; those of one
    pixel that lie side by side are rows, too."""
    pixels = math.prod(problem.input)
    return precision == "fp32" or pixels == 1 or 2 * pixels % PLANE_STEP == 0


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_nothing_is_copied_and_results_are_those_of_fp64(
    direction, precision, stand_in, library
) -> None:
    """Each by one launch, of operands and a result between guard planes, which stay NaN."""
    filters = direction != "backward_filter"
    problems = [*IMAGES.values(), *BATCHES.values()]
    for problem in problems:
        p = offered(problem, direction, precision)[0]
        a, b = laid(direction, operands(problem, direction, precision))
        result = np.full(shapes(direction, problem)[2], np.nan, a.dtype)
        result = planes(result) if filters else result
        got = called(direction, problem, Array(a), Array(b), out=Array(result))
        assert got.values is result
        assert too_far(p, a, b, result) == 0, problem
        for each in (a, *([result] if filters else [b])):
            assert np.isnan(beside(each)).all()
        copied = set(library.reordered())
        reads = offered(problem, direction, precision, planes=True)[0].plane_step
        if (reads or math.prod(problem.input) == 1) and in_steps(problem, precision):
            assert not copied - {"b" if filters else ""}, problem  # a filter that is unaligned
        else:
            assert copied & {"a", "out"}, problem
    assert len(stand_in.products) == len(problems)
    assert {each["images"] for each in stand_in.products} == {1, 3}


@pytest.mark.parametrize("layout", ["channels_first", "channels_last"])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_new_result_lies_as_before(direction, layout, stand_in, library) -> None:
    """In the first operand's order, whichever order of axes the caller has."""
    problem = BATCHES["map"]
    p = offered(problem, direction, "fp32")[0]
    values = operands(problem, direction, "fp32")
    a, b = laid(direction, values)
    first = layout == "channels_first"

    def seen(v: np.ndarray) -> Array:
        return Array(np.moveaxis(v, -1, 1) if first else v)

    third = () if direction == "forward" else (in_layout(shapes(direction, problem)[2], layout),)
    how = {"algorithm": str(NAMED), "dilation": problem.dilation, "layout": layout}
    got = getattr(winolab, f"conv_{direction}")(seen(a), seen(b), *third, **how)
    result = np.moveaxis(got.values, 1, -1) if first else got.values
    assert too_far(p, values[0], values[1], result) == 0
    assert not library.reordered()
    assert np.moveaxis(result, -1, 1).flags.c_contiguous


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_each_array_may_lie_otherwise(direction, stand_in, library) -> None:
    """Rows beside planes, in operands and in the result."""
    filters = direction != "backward_filter"
    cases = [(problems, first) for problems in (IMAGES, BATCHES) for first in (True, False)]
    for problems, first in cases:
        problem, second = problems["odd"], not first
        p = offered(problem, direction, "fp32")[0]
        values = operands(problem, direction, "fp32")
        shape = shapes(direction, problem)[2]
        a = planes(values[0]) if first else values[0]
        b = planes(values[1]) if second and not filters else values[1]
        result = np.full(shape, np.nan, np.float32)
        result = planes(result) if second and filters else result
        called(direction, problem, Array(a), Array(b), out=Array(result))
        assert too_far(p, a, b, result) == 0
        assert not {"a", "out", "" if filters else "b"} & set(library.reordered())
    assert len(stand_in.products) == 4


def test_what_is_no_matrix_is_copied_as_before(stand_in, library) -> None:
    """Planes with gaps between rows, of addresses that are not aligned, broadcast."""
    one = IMAGES["map"]
    x, w = operands(one, "forward", "fp32")
    wider = np.full((1, 64, 4, 8), np.nan, np.float32)
    cropped = np.moveaxis(wider[..., :6], 1, -1)
    cropped[...] = x
    memory = np.full(x.size + 1, np.nan, np.float32)
    later = np.moveaxis(memory[1:].reshape(1, 64, 4, 6), 1, -1)
    later[...] = x
    same = np.broadcast_to(x[:, :, :1], x.shape)
    for lies in (cropped, later, same):
        got = called("forward", one, Array(lies), Array(w))
        p = offered(one, "forward", "fp32")[0]
        assert too_far(p, lies, w, got.values) == 0
        assert "a" in library.reordered()


def test_an_epilogue_is_applied_where_the_result_lies(stand_in, library) -> None:
    problem = IMAGES["map"]
    x, w = laid("forward", operands(problem, "forward", "fp32"))
    bias = np.linspace(-1, 1, problem.out_channels).astype(np.float32)
    values = operands(problem, "forward", "fp32", seed=1)[0][..., : problem.out_channels]
    residual = np.moveaxis(np.moveaxis(values, -1, 1).copy(), 1, -1)
    plain = called("forward", problem, Array(x), Array(w)).values
    assert not library.reordered()
    added = {"bias": Array(bias), "residual": Array(residual), "activation": "relu"}
    got = called("forward", problem, Array(x), Array(w), **added).values
    assert library.reordered() == ["out"]
    assert (got == np.maximum(plain + bias + residual, np.float32(0))).all()


def test_structs_exchange_operands_of_planes() -> None:
    """Sizes, distances and what is turned, of y in both orders, written out."""
    (p, *_) = offered(IMAGES["odd"], "forward", "fp32")
    rows, lies = View(0, (637, 0, 91, 13)), View(0, (637, 0, 7, 1, 49))
    w = View(0, (13, 0, 0, 0, 1))
    y, first = View(0, (343, 0, 49, 7)), View(0, (343, 0, 7, 1, 50))

    def struct(x: View, out: View) -> tuple[int, ...]:
        """Rows, columns and depth, the pitches, and what is turned."""
        found = packed(parameters(p, x, w, out, 0))
        assert (found["images"], found["alignment"]) == (1, 16)
        names = ("rows", "columns", "depth", "pitch_a", "pitch_b", "pitch_out")
        return tuple(found[n] for n in (*names, "transposed_a", "transposed_b"))

    assert struct(rows, y) == (7, 49, 13, 13, 13, 7, 1, 0)
    assert struct(lies, y) == (7, 49, 13, 13, 49, 7, 1, 1)
    assert struct(rows, first) == (49, 7, 13, 13, 13, 50, 1, 0)
    assert struct(lies, first) == (49, 7, 13, 49, 13, 50, 0, 0)
    for strides in ((637, 0, 8, 1, 56), (637, 0, 7, 1, 48), (637, 0, 0, 0, 1)):
        with pytest.raises(ValueError, match="lie at no one distance"):
            parameters(p, View(0, strides), w, y, 0)


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_planes_on_a_gpu_give_what_fp64_does(direction, precision) -> None:
    """In place, the same bits again, between guard planes of NaN that stay."""
    cp: Any = driver.cupy()
    filters = direction != "backward_filter"
    late, early = ((1, 7, 7, 512), (2048, 1, 1, 512)), ((1, 56, 56, 64), (256, 1, 1, 64))
    several = [((32, *x[1:]), w) for x, w in (late, early)]
    every = *IMAGES.values(), *BATCHES.values()
    for problem in (*every, *(Problem.of(*each) for each in (late, early, *several))):
        p = offered(problem, direction, precision)[0]
        values = operands(problem, direction, precision)
        a, b = laid(direction, values, cp)
        bits = []
        for _ in range(3):
            result = np.full(shapes(direction, problem)[2], np.nan, values[0].dtype)
            result = planes(result, cp) if filters else cp.asarray(result)
            called(direction, problem, a, b, out=result)
            bits.append(cp.asnumpy(result))
            for each in (a, *([result] if filters else [b])):
                assert bool(cp.isnan(beside(each, cp)).all())
        assert too_far(p, values[0], values[1], bits[0]) == 0, problem
        assert all(np.array_equal(bits[0], other) for other in bits[1:])
