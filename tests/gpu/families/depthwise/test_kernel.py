"""Depthwise kernels' own source on the CPU, and on a GPU, against FP64 within the proven bound."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.gpu import hosted
from tests.gpu.families.depthwise.cases import (
    DIRECTIONS,
    PRECISIONS,
    PROBLEMS,
    by_turns,
    check_adjoint,
    layer,
    offered,
    on_gpu,
    operands,
    too_far,
)
from winolab.gpu.families.depthwise.config import KNOWN, Config
from winolab.gpu.families.depthwise.launch import PARAMS, PLAIN
from winolab.gpu.families.depthwise.plan import DepthwisePlan
from winolab.gpu.params import View

Execute = Callable[[DepthwisePlan, np.ndarray, np.ndarray], np.ndarray]
NAMES = list(PROBLEMS)


def on_cpu(p: DepthwisePlan, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return hosted.execute(p, a, b, dtype=p.out_dtype)


def kinds(name: str, direction: str, precision: str) -> list[DepthwisePlan]:
    """A plan of every kernel and vector: those with stages come last."""
    return kernels(offered(PROBLEMS[name], direction, precision))


def kernels(found: list[DepthwisePlan]) -> list[DepthwisePlan]:
    """The same of plans."""
    kinds = {(p.config.kind, p.config.vector, p.config.stages > 0): p for p in reversed(found)}
    return list(kinds.values())


@pytest.mark.parametrize(("name", "direction"), by_turns(NAMES))
def test_results_are_those_of_fp64(name: str, direction: str) -> None:
    """Each in a precision of its own, by the last kernel, with stages and vectors if there is one;
    those of one direction by the first, too."""
    number = NAMES.index(name) + DIRECTIONS.index(direction)
    precision = PRECISIONS[number % 3]
    plans = kinds(name, direction, precision)
    for p in (plans[-1],) if number % 6 or len(plans) == 1 else (plans[0], plans[-1]):
        a, b = operands(p.problem, direction, precision)
        assert too_far(p, a, b, on_cpu(p, a, b)) == 0, p


@pytest.mark.gpu
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("name", NAMES)
def test_results_on_a_gpu_are_those_of_fp64(name: str, direction: str) -> None:
    for precision in PRECISIONS:
        for p in kinds(name, direction, precision):
            a, b = operands(p.problem, direction, precision)
            assert too_far(p, a, b, on_gpu(p, a, b)) == 0, p


@pytest.mark.parametrize(
    ("direction", "stride", "precision"),
    [("forward", 1, "fp32"), ("backward_data", 2, "bf16"), ("backward_filter", 1, "fp16")],
)
def test_every_number_of_columns(direction: str, stride: int, precision: str) -> None:
    """Strips that rows fill and others, walks down all rows and few; results in FP32."""
    problem = layer((1, 7, 15, 8), (3, 3), stride=stride, padding=1)
    found = offered(problem, direction, precision, out_dtype="float32")
    for p in {p.config.columns: p for p in found}.values():
        a, b = operands(problem, direction, precision)
        assert too_far(p, a, b, hosted.execute(p, a, b)) == 0, p


def test_integers_are_exact_and_adjoint() -> None:
    for name in ("5x5 stride 2", "dilation", "multiplier and stride", "stride 2 in all"):
        problem = PROBLEMS[name]

        def computed(direction: str, a: Any, b: Any, problem: Any = problem) -> Any:
            return on_cpu(offered(problem, direction, "fp32")[0], a, b)

        check_adjoint(problem, DIRECTIONS, "f", computed, most=4)


def test_infinities_and_nan_stay_with_their_channel_and_windows() -> None:
    problem = layer((1, 6, 20, 8), (3, 3), padding=1)
    for precision in ("fp32", "fp16"):
        a, b = operands(problem, "forward", precision)
        a[0, 2, 4, 3], a[0, 4, 19, 0] = np.inf, np.nan
        expected = np.zeros(problem.y_shape, bool)
        expected[0, 1:4, 3:6, 3], expected[0, 3:6, 18:20, 0] = True, True
        for p in kernels(offered(problem, "forward", precision)):
            assert (~np.isfinite(on_cpu(p, a, b)) == expected).all(), p


def test_threads_in_another_order_compute_the_same_bits() -> None:
    for direction in DIRECTIONS:
        p = kinds("many channels", direction, "fp32")[-1]
        problem = p.problem
        a, b = operands(problem, direction, "fp32")
        assert (on_cpu(p, a, b) == hosted.execute(p, a, b, seed=3)).all()


@pytest.mark.parametrize("name", NAMES)
def test_plain_kernels_have_the_bits_of_those_that_walk(name: str) -> None:
    """One in three of a problem's configs, in a direction and a precision of its own: vectors and
    columns of every number meet both directions. All are within the bound, where no kernel walks,
    too."""
    at = NAMES.index(name)
    direction, precision = DIRECTIONS[at % 2], PRECISIONS[at // 2 % 3]
    found = offered(PROBLEMS[name], direction, precision)
    plain = [p for p in found if p.config.kind == "plain"]
    d = found[0].shape
    assert bool(plain) == (d.filter in KNOWN and d.multiplier == 1 and not d.gathered)
    walking = [p for p in found if p.config.kind == "rows"][:1]
    a, b = operands(PROBLEMS[name], direction, precision)
    expected = [on_cpu(p, a, b) for p in walking]
    for p in plain[(at + at // 6) % 3 :: 3] or plain:
        y = on_cpu(p, a, b)
        assert too_far(p, a, b, y) == 0, p
        assert all((y == walked).all() for walked in expected), p


@pytest.mark.parametrize("direction", DIRECTIONS[:2])
@pytest.mark.parametrize(("name", "precision"), [("stride 2 of 40", "fp16"), ("3x3", "fp32")])
def test_filters_lie_anywhere(name: str, direction: str, precision: str) -> None:
    """With all channels of a tap together, or an element behind where vectors begin: the same."""
    for p in kinds(name, direction, precision):
        a, w = operands(p.problem, direction, precision)
        expected, size = on_cpu(p, a, w), w.itemsize
        apart = np.moveaxis(np.moveaxis(w, 0, -1).copy(), -1, 0)
        behind = np.zeros(w.size + 1 + 16 // size, w.dtype)
        first = -behind.ctypes.data % 16 // size + 1
        moved = behind[first : first + w.size].reshape(w.shape)
        moved[...] = w
        for other in (apart, moved):
            out = hosted.Guarded(expected.shape, p.out_dtype)
            x, y = (View(v.ctypes.data, strides(v)) for v in (a, out.array))
            p.launch(hosted.loaded(p), x, hosted.filter_view(other), y, 0, 0)
            out.check("y")
            assert (out.array == expected).all(), p


def strides(v: np.ndarray) -> tuple[int, ...]:
    """From image to image, plane, row and column, in elements."""
    image, row, column, _ = (n // v.itemsize for n in v.strides)
    return image, 0, row, column


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_parameters_are_as_large_as_the_kernel_declares_them(direction: str, compiled) -> None:
    p = offered(layer((1, 9, 9, 8), (3, 3)), direction, "fp32")[0]
    check = f"\nstatic_assert(sizeof(DepthwiseParams) == {PARAMS.size});"
    found = compiled(p.source() + check)
    assert set(found) == set(p.shared())
    assert not any(kernel.spills for kernel in found.values())


@pytest.mark.parametrize(("taps", "columns", "registers"), [(3, 2, 64), (5, 4, 128), (7, 4, 168)])
def test_plain_kernels_read_into_registers(taps: int, columns: int, registers: int, compiled):
    """All at once, without spills, and as few that blocks of a small map run side by side."""
    problem = layer((1, 28, 28, 192), (taps, taps), padding=taps // 2)
    vector = 1 if taps == 7 else 2
    config = Config("plain", 32, vector, columns)
    (p,) = offered(problem, "forward", "fp32", config=config)
    check = f"\nstatic_assert(sizeof(DepthwisePlainParams) == {PLAIN.size});"
    found = compiled(p.source() + check)["winolab_depthwise_plain"]
    assert (found.spills, found.stack) == (0, 0)
    assert found.registers <= registers
