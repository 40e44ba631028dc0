"""Depthwise kernels on planes: arrays that lie channels-first are read and written in place."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import winolab
from tests.gpu import hosted
from tests.gpu.families.depthwise.cases import (
    DIRECTIONS,
    PRECISIONS,
    PROBLEMS,
    by_turns,
    check_adjoint,
    layer,
    offered,
    operands,
    too_far,
)
from tests.gpu.support.pretended import Array
from winolab import calls
from winolab.algorithm import Problem
from winolab.arguments.epilogue import Activation
from winolab.gpu import driver
from winolab.gpu.families.depthwise import config as depthwise_config
from winolab.gpu.families.depthwise.config import (
    MOST_CHUNK,
    MOST_OUTPUTS,
    REGISTERS,
    Config,
    Reach,
    plane_registers,
    planes,
)
from winolab.gpu.families.depthwise.launch import FILTER_PLANES, PLANES, divisor
from winolab.gpu.families.depthwise.plan import DepthwisePlan
from winolab.gpu.families.depthwise.shape import Depthwise
from winolab.gpu.planner.request import DTYPES, ITEMSIZE
from winolab.gpu.runtime.conv import convolve
from winolab.options import ConvOptions
from winolab.problem import shapes
from winolab.ref import epilogue
from winolab.ref.algorithms import convolution

CORRELATIONS = DIRECTIONS[:2]
EVERY, LAST = slice(None), slice(-1, None)
FLAT = {name: p for name, p in PROBLEMS.items() if p.ndim < 3} | {
    "one row": layer((2, 1, 24, 8), (3, 3), padding=1),
    "one column": layer((2, 17, 1, 8), (5, 5), padding=2, stride=2),
    "one pixel": layer((3, 1, 1, 4), (3, 3), padding=1),
    "padding beyond the map": layer((1, 3, 4, 8), (3, 3), padding=7),
    "far padding and stride": layer((1, 4, 3, 8), (5, 5), padding=9, stride=2),
    "vectors": layer((2, 12, 32, 3), (3, 3), padding=1),
    "vectors at stride 2": layer((1, 16, 32, 3), (5, 5), padding=2, stride=2),
    "11x11": layer((1, 13, 16, 2), (11, 11), padding=5),
    "11x11 at stride 2": layer((1, 12, 15, 2), (11, 11), padding=5, stride=2),
}
NAMES = list(FLAT)


def sizes(problem: Problem, direction: str, precision: str) -> list[Config]:
    """Every config of planes."""
    d, itemsize = Depthwise.of(problem, direction), ITEMSIZE[DTYPES[precision]]
    return [*planes(d, direction == "backward_filter", itemsize)]


def twins(
    problem: Problem, direction: str, precision: str, which: slice = EVERY, **how: Any
) -> list[DepthwisePlan]:
    """A plan of every config of planes, or of some."""
    some = sizes(problem, direction, precision)[which]
    found = [offered(problem, direction, precision, config=v, **how) for v in some]
    return [p for (p,) in found]


def on_cpu(p: DepthwisePlan, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return hosted.execute(p, a, b, dtype=p.out_dtype)


def first(v: np.ndarray) -> np.ndarray:
    """The same numbers, in memory channels-first, axes channels-last."""
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(v, -1, 1)), 1, -1)


@pytest.mark.parametrize(("name", "direction"), by_turns(NAMES))
def test_results_are_those_of_fp64(name: str, direction: str) -> None:
    """A config, another one of each problem and precision, between zones of NaN; of gradients,
    whose taps have to fit registers, in one share and in several."""
    at = NAMES.index(name) + DIRECTIONS.index(direction)
    precision = PRECISIONS[at % 3]
    count = len(sizes(FLAT[name], direction, precision))
    gradient = direction == "backward_filter"
    assert (count > 0) == (not gradient or math.prod(FLAT[name].filter) <= MOST_CHUNK)
    first = 43 * at % count if count else 0  # every size: see below
    some = twins(FLAT[name], direction, precision, slice(first, first + 1))
    for p in [*some, *(replace(p, shares=3) for p in some if gradient)]:
        a, b = operands(p.problem, direction, precision)
        assert too_far(p, a, b, on_cpu(p, a, b)) == 0, p


@pytest.mark.parametrize(
    ("direction", "stride", "precision"),
    [
        *(("forward", 1, "fp16"), ("backward_data", 2, "fp32"), ("forward", 2, "bf16")),
        *(("backward_filter", 1, "fp32"), ("backward_filter", 2, "fp16")),
    ],
)
def test_every_config(direction: str, stride: int, precision: str) -> None:
    """Threads that outputs fill and others, vectors of every size; results in FP32. Strides take
    turns."""
    problem = layer((1, 9, 16, 3), (3, 3), stride=stride, padding=1)
    half = slice(stride - 1, None, 2)
    for p in twins(problem, direction, precision, half, out_dtype="float32"):
        a, b = operands(problem, direction, precision)
        assert too_far(p, a, b, hosted.execute(p, a, b)) == 0, p


@pytest.mark.parametrize("name", ["3x3", "5x5 stride 2", "7x7", "dilation", "vectors"])
def test_the_bits_are_those_of_kernels_on_channels(name: str) -> None:
    """Sums are in their order."""
    problem = FLAT[name]
    for direction in CORRELATIONS:
        walking = [p for p in offered(problem, direction, "fp32") if p.config.kind != "any"]
        a, b = operands(problem, direction, "fp32")
        if walking:
            expected = on_cpu(walking[0], a, b)
            (p,) = twins(problem, direction, "fp32", LAST)
            assert (on_cpu(p, a, b) == expected).all()


def test_integers_are_exact_and_adjoint() -> None:
    for name in ("5x5 stride 2", "dilation", "multiplier and stride", "dilation and stride"):
        problem = FLAT[name]

        def computed(direction: str, a: Any, b: Any, problem: Problem = problem) -> Any:
            return on_cpu(twins(problem, direction, "fp32", LAST)[0], a, b)

        check_adjoint(problem, DIRECTIONS, "f", computed, most=4)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_infinities_and_nan_stay_with_their_plane_and_windows(precision: str) -> None:
    """Both directions and filters take turns, in each precision, and so do configs."""
    problems = (
        layer((2, 6, 16, 3), (3, 3), padding=1),
        layer((1, 12, 8, 2), (11, 11), padding=5),
    )
    for turn, problem in enumerate(problems, PRECISIONS.index(precision)):
        some = slice(-1 - turn, None, -7)
        direction = CORRELATIONS[turn % 2]
        a, b = operands(problem, direction, precision)
        a[0, 2, 4, 1], a[-1, 5, -1, 0] = np.inf, np.nan
        mark = np.where(np.isfinite(a.astype(float)), 0.0, 1.0)
        ones = np.ones(b.shape)
        expected = getattr(convolution, direction)(mark, ones, problem) > 0
        for p in twins(problem, direction, precision, some):
            y = on_cpu(p, a, b).astype(float)
            assert (~np.isfinite(y) == expected).all(), p


def test_threads_in_another_order_compute_the_same_bits() -> None:
    for direction in DIRECTIONS:
        (p,) = twins(FLAT["many channels"], direction, "fp32", LAST)
        a, b = operands(p.problem, direction, "fp32")
        assert (on_cpu(p, a, b) == hosted.execute(p, a, b, seed=3)).all()


LONG = {
    "a row of 512 taps": layer((2, 4096, 4), (512,)),
    "a row of 3,073 taps": layer((2, 4096, 4), (3073,)),
    "stride 100": layer((2, 800, 4), (100,), stride=100),
}


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("name", LONG)
def test_what_does_not_fit_registers_is_none_of_planes(name: str, direction: str) -> None:
    """Taps and outputs of a thread are unrolled: 512 of a row took the compiler 23 s."""
    for p in twins(LONG[name], direction, "fp32"):
        assert p.shape.filter[2] <= MOST_CHUNK or p.config.columns == 1, p.config
        assert p.config.columns * p.config.rows <= MOST_OUTPUTS[0]
        assert plane_registers(p.shape, p.config, 4) <= REGISTERS
    if "taps" in name:
        assert not twins(LONG[name], direction, "fp32")


def test_divisors_are_exact() -> None:
    """At the ends of every quotient, up to the most that is divided."""
    for n in (*range(1, 300), 12_345, 65_537, 2**30 - 1, 2**30 + 1, 2**31 - 1):
        number, bits = divisor(n)
        assert number < 1 << 32
        for q in {0, 1, (2**31 - 1) // n - 1, (2**31 - 1) // n}:
            for value in (q * n - 1, q * n, q * n + n - 1):
                if 0 <= value < 2**31:
                    assert value * number >> bits == value // n


def called(direction: str, problem: Problem, a: Any, b: Any, **how: Any) -> Any:
    """The public call."""
    third = () if direction == "forward" else (shapes(direction, problem)[2],)
    how = {"padding": problem.padding, "stride": problem.stride, "groups": problem.groups, **how}
    return getattr(winolab, f"conv_{direction}")(Array(a), Array(b), *third, **how)


def kept() -> DepthwisePlan:
    """The plan of the last new call."""
    call: Any = list(calls.kept.values())[-1]
    return call.plan


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("direction", CORRELATIONS)
def test_nothing_is_copied_of_planes(direction: str, precision: str, library) -> None:
    """Nor where images and channels lie apart; of rows, and of other strides, all is as before."""
    for name in ("vectors", "5x5 stride 2"):
        problem = FLAT[name]
        a, b = operands(problem, direction, precision)
        got = called(direction, problem, first(a), b)
        assert not library.reordered()
        assert kept().config.kind == "planes"
        assert np.moveaxis(got.values, -1, 1).flags.c_contiguous  # as its operand lies
        assert too_far(kept(), a, b, got.values) == 0
        wide = np.full((a.shape[0], a.shape[-1] + 2, a.shape[1] + 1, a.shape[2]), np.nan, a.dtype)
        apart = np.moveaxis(wide[:, 1:-1, 1:], 1, -1)
        apart[...] = a
        assert (called(direction, problem, apart, b).values == got.values).all()
        assert not library.reordered()
        last = called(direction, problem, a, b)
        assert not library.reordered()
        assert kept().config.kind != "planes"
        assert too_far(kept(), a, b, last.values) == 0


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_gradients_of_planes_copy_nothing(precision: str, library) -> None:
    """In one launch and in two; within a limit of workspace that planes exceed, by copies."""
    problem = FLAT["vectors"]
    for case in (problem, replace(problem, batch=120)):
        a, b = operands(case, "backward_filter", precision)
        got = called("backward_filter", case, first(a), Array(first(b)).values)
        assert not library.reordered()
        p = kept()
        assert (p.config.kind, p.workspace > 0) == ("planes", case is not problem)
        assert too_far(p, a, b, got.values) == 0
        last = called("backward_filter", case, a, b)
        assert not library.reordered()
        assert too_far(kept(), a, b, last.values) == 0
        mixed = called("backward_filter", case, first(a), b)
        assert library.reordered() == ["a"]
        assert too_far(kept(), a, b, mixed.values) == 0
    within = called("backward_filter", case, first(a), first(b), workspace_limit=0)
    assert kept().workspace == 0
    assert too_far(kept(), a, b, within.values) == 0


def test_rows_that_begin_anywhere_and_filters_with_gaps(library) -> None:
    """By the kernel of those; columns that are no neighbours are copied."""
    problem = FLAT["vectors"]
    a, b = operands(problem, "forward", "fp32")
    expected = called("forward", problem, first(a), b).values
    library.reordered()
    memory = np.full(a.size + 1, np.nan, a.dtype)
    n, h, w, c = a.shape
    late = np.moveaxis(memory[1:].reshape(n, c, h, w), 1, -1)
    late[...] = a
    gaps = np.repeat(b, 2, axis=2)[:, :, ::2]
    result = np.full((n, c, h, w), np.nan, a.dtype)
    for x, filters in ((late, b), (first(a), gaps)):
        out = np.moveaxis(result, 1, -1)
        called("forward", problem, x, filters, out=Array(out))
        assert not library.reordered()
        assert (out == expected).all()
    wide = np.moveaxis(np.repeat(np.moveaxis(a, -1, 1), 2, axis=3)[..., ::2], 1, -1)
    assert (called("forward", problem, wide, b).values == expected).all()
    assert "a" in library.reordered()


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_an_epilogue_is_applied_as_planes_are_stored(dtype: str, library) -> None:
    """With a residual that lies as y, and one that does not, which is copied."""
    problem = FLAT["vectors"]
    x, w = operands(problem, "forward", dtype)
    plain = called("forward", problem, first(x), w).values
    bias = operands(problem, "forward", dtype, seed=1)[0][0, 0, 0]
    residual = operands(problem, "forward", dtype, seed=2)[0]
    expected = plain.copy()
    epilogue.apply(expected, bias, residual, Activation.of("silu"), "channels_last")
    for lies, copies in ((first(residual), []), (residual, ["residual"])):
        library.reordered()
        added = {"bias": Array(bias), "residual": Array(lies), "activation": "silu"}
        got = called("forward", problem, first(x), w, **added).values
        assert library.reordered() == copies
        assert got.tobytes() == expected.tobytes()


def test_a_named_config_works_on_any_arrays(library) -> None:
    """It copies both ends of rows, and is offered for nothing else."""
    problem = FLAT["vectors"]
    a, b = operands(problem, "forward", "fp32")
    (p,) = twins(problem, "forward", "fp32", LAST)
    config = p.config
    got = convolve("forward", problem, Array(a), Array(b), ConvOptions(config=config))
    assert sorted(library.reordered()) == ["a", "out"]
    assert too_far(p, a, b, got.values) == 0
    assert (got.values == on_cpu(p, a, b)).all()
    assert str(config) in str(p)
    other = ConvOptions(config=offered(problem, "forward", "fp32")[0].config)
    got = convolve("forward", problem, Array(first(a)), Array(b), other)
    assert sorted(library.reordered()) == ["a", "out"]  # as it is named, whatever lies where
    assert too_far(p, a, b, got.values) == 0
    assert not offered(FLAT["11x11"], "backward_filter", "fp32", config=config)
    deep = layer((1, 4, 6, 8, 4), (3, 3, 3), padding=1)
    assert not offered(deep, "forward", "fp32", config=config)
    with pytest.raises(ValueError, match="lie channels-first"):
        p.launch({}, hosted.filter_view(a), hosted.filter_view(b), hosted.filter_view(a), 0, 0)


@pytest.mark.parametrize(
    ("direction", "x", "taps", "stride", "how", "registers"),
    [
        ("forward", (112, 112, 32), 3, 1, (4, 4, 4), 56),
        ("backward_data", (112, 112, 96), 3, 2, (4, 8, 4), 64),
        ("forward", (28, 28, 240), 5, 1, (4, 4, 4), 96),
        ("forward", (7, 7, 768), 7, 1, (1, 7, 1), 104),
        ("backward_filter", (56, 56, 144), 5, 2, (4, 2, 4), 104),
    ],
)
def test_planes_are_read_into_registers(
    direction: str, x: tuple[int, ...], taps: int, stride: int, how: Any, registers: int, compiled
) -> None:
    """Without spills, and few enough that blocks run side by side."""
    problem = layer((32, *x), (taps, taps), stride=stride, padding=taps // 2)
    vector, columns, rows = how
    config = Config("planes", 1, vector, columns, rows=rows)
    (p,) = offered(problem, direction, "fp32", config=config)
    gradient = direction == "backward_filter"
    name, size = ("Filter", FILTER_PLANES.size) if gradient else ("", PLANES.size)
    check = f"\nstatic_assert(sizeof(Depthwise{name}PlanesParams) == {size});"
    found = compiled(p.source() + check)[f"winolab_depthwise_{p.file}"]
    assert (found.spills, found.stack) == (0, 0)
    assert found.registers <= registers


@pytest.mark.gpu
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_planes_on_a_gpu_give_what_fp64_does(direction: str) -> None:
    """Two configs of every problem, in a precision of its own: the bound, the same bits again, and
    nothing beside."""
    from winolab.gpu.runtime import loader

    cp: Any = driver.cupy()
    zone, filter_at = 4096, 2 if direction == "backward_filter" else 1
    for at, problem in enumerate(FLAT.values()):
        precision = PRECISIONS[at % 3]
        a, b = operands(problem, direction, precision)
        made = [a, b, np.empty(shapes(direction, problem)[2], a.dtype)]
        made = [v if i == filter_at else first(v) for i, v in enumerate(made)]
        lie = [v if i == filter_at else np.moveaxis(v, -1, 1) for i, v in enumerate(made)]
        given = [cp.asarray(np.ascontiguousarray(v).view(np.uint8)) for v in lie[:2]]
        size = lie[2].nbytes
        every = twins(problem, direction, precision)
        for p in every[at % 4 :: max(4, len(every) // 2)]:
            kernels, bits = loader.load(p.source(), str(p), p.shared(), 0), []
            memory, space = (cp.empty(n + 2 * zone, "uint8") for n in (size, p.workspace))
            ends = *(v.data.ptr for v in given), memory.data.ptr + zone
            x, y, z = (
                replace(hosted.filter_view(v), address=to) for v, to in zip(made, ends, strict=True)
            )
            for _ in range(2):
                memory[...], space[...] = 0xFF, 0xFF
                p.launch(kernels, x, y, z, space.data.ptr + zone, 0)
                for v in (memory, space):
                    assert all((part == 0xFF).all() for part in (v[:zone], v[-zone:]))
                bits.append(cp.asnumpy(memory[zone : zone + size]))
            found = bits[0].view(a.dtype).reshape(lie[2].shape)
            found = found if filter_at == 2 else np.moveaxis(found, 1, -1)
            assert too_far(p, a, b, found) == 0, p
            assert (bits[0] == bits[1]).all()


def test_what_is_too_far_apart_is_not_counted_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns a dilation of 2^20 apart took planning minutes."""
    given = depthwise_config.accesses

    def accesses(d: Depthwise, v: Config) -> list[int]:
        assert Reach.of(d, 2, v.columns, d.filter[2]).size <= REGISTERS
        return given(d, v)

    monkeypatch.setattr(depthwise_config, "accesses", accesses)
    problem = layer((1, 5, 1 << 21, 4), (1, 2), dilation=(1, 1 << 20))
    assert not [*planes(Depthwise.of(problem, "forward"), False, 4)]
    assert [*planes(Depthwise.of(FLAT["vectors"], "forward"), False, 4)]
