"""Strides and dilation of direct products: the kernel's source on the CPU, and on a GPU, against
FP64 within the proven bound, and which phases have which taps."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest

from tests.gpu import hosted
from tests.gpu.families.depthwise.cases import check_adjoint, on_gpu, operands, too_far
from tests.gpu.families.direct.cases import DIRECTIONS, PROBLEMS, layer, offered
from winolab.gpu.families.axes import MOST_STRIDE, Axis, axes
from winolab.gpu.families.direct import launch
from winolab.gpu.families.direct.config import Config, serves
from winolab.gpu.families.direct.plan import DirectPlan
from winolab.gpu.params import View
from winolab.gpu.planner.correlation import Correlation

# Without and with a copy for a filter row, split-K, wide results; blocks of 128 and 256 positions.
SHAPES = {"fp16": Config(128, 64, 3, 4), "bf16": Config(256, 64, 2, 4, 1, 2)}


def planned(name: str, direction: str, precision: str) -> DirectPlan:
    shape = SHAPES[precision]
    c = Correlation.of(PROBLEMS[name], direction, unit=False)
    if not serves(shape, c):
        shape = Config(256, 64, 2, 4, 0, 2)
    (p,) = offered(PROBLEMS[name], direction, precision, config=shape)
    return p


def parameters(p: DirectPlan) -> bytes:
    """As the kernel gets them, filled up as C does."""
    view, w = View(0, (16,) * 4), View(0, (16,) * 5)
    data = launch.main_params(p, 0, view, launch.filter_map(p, 0, w), view).data
    return data + bytes(-len(data) % 64)


def on_cpu(p: DirectPlan, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return hosted.execute(p, a, b, dtype=p.out_dtype)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("name", PROBLEMS)
def test_results_are_those_of_fp64(name: str, direction: str) -> None:
    for precision in SHAPES:
        p = planned(name, direction, precision)
        a, b = operands(p.problem, direction, precision)
        assert too_far(p, a, b, on_cpu(p, a, b)) == 0, p


@pytest.mark.gpu
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("name", PROBLEMS)
def test_results_on_a_gpu_are_those_of_fp64(name: str, direction: str) -> None:
    for precision in SHAPES:
        found = offered(PROBLEMS[name], direction, precision)
        for p in (planned(name, direction, precision), found[0], found[-1]):
            a, b = operands(p.problem, direction, precision)
            assert too_far(p, a, b, on_gpu(p, a, b)) == 0, p


def test_integers_are_exact_and_adjoint() -> None:
    for name in ("3x3 stride 2", "dilation and stride", "stride 3, 2"):

        def computed(direction: str, a: Any, b: Any, name: str = name) -> Any:
            return on_cpu(planned(name, direction, "fp16"), a, b)

        check_adjoint(PROBLEMS[name], DIRECTIONS, "float16", computed)


def test_infinities_and_nan_stay_in_their_windows() -> None:
    problem = PROBLEMS["3x3 stride 2"]
    p = planned("3x3 stride 2", "forward", "fp16")
    a, b = operands(problem, "forward", "fp16")
    a[0, 2, 4, 3], a[1, 8, 11, 0] = np.inf, np.nan
    expected = np.zeros(problem.y_shape, bool)
    expected[0, 1, 2], expected[1, 4, 5] = True, True
    assert (~np.isfinite(on_cpu(p, a, b)) == expected).all()


@pytest.mark.parametrize("stride", [1, 2, 3, 4, 6])
def test_phases_have_the_taps_that_meet_them(stride: int) -> None:
    """As many, and those of the most taps first, where the dilation is 1."""
    for taps, pad, dilation in product((1, 2, 3, 7), (-2, 0, 5), (1, 2, 3, 4)):
        axis = Axis(taps, pad, stride, dilation, 23, True)
        met = [[t for t in range(taps) if (o - pad + t * dilation) % stride == 0]
               for o in range(stride)]  # fmt: skip
        counts = [n for n, count in axis.of_phases for _ in range(count)]
        assert counts == sorted(map(len, met), reverse=True)
        assert axis.most == max(counts)
        gaps = {t[1] - t[0] for t in met if len(t) > 1}
        assert gaps <= {axis.tap_step}
        assert axis.tap_step * dilation == axis.step * stride


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_predicted_work_is_all_of_it(direction: str) -> None:
    """A block of the H100's that has one of the first items has a share of all products."""
    problem = layer((32, 56, 57, 64), 64, (3, 3), stride=2, padding=1)
    for p in offered(problem, direction, "fp16"):
        phases = math.prod(a.phases for a in axes(p.correlation))
        assert p.work_tiles % phases == 0
        assert 5e-6 < p.predicted < 1e-3
    assert phases == (4 if direction == "backward_data" else 1)


def test_strides_that_are_not_counted_are_refused() -> None:
    problem = layer((1, 5, 5, 8), 8, (3, 3), padding=1, stride=2 * MOST_STRIDE)
    with pytest.raises(ValueError, match="take strides × dilation up to 1048576, not stride"):
        offered(problem, "forward", "fp16")


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_the_kernel_spills_nothing(direction: str, compiled) -> None:
    p = planned("3x3 stride 2", direction, "bf16")
    check = f"\nstatic_assert(sizeof(DirectParams) == {len(parameters(p))});"
    found = compiled(p.source() + check)
    assert not any(kernel.spills for kernel in found.values())
