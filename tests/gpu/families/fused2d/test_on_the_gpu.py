"""The fused kernel on a GPU: the reference's bits, whatever policy, type and direction."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.gpu.families.fused2d.expected import ALGORITHM, AXES, DTYPES, GRADIENTS, expected
from winolab.algorithm import Problem
from winolab.gpu import driver
from winolab.gpu.families.fused2d import plan as fused2d
from winolab.gpu.families.fused2d.config import GRADIENT, Config, narrow
from winolab.gpu.families.fused2d.layouts import layouts
from winolab.gpu.params import View
from winolab.gpu.planner.correlation import CORRELATIONS
from winolab.gpu.planner.request import Request
from winolab.gpu.runtime.call import kernels_of
from winolab.problem import shapes

pytestmark = pytest.mark.gpu
# Two rounds of blocks, so that their stages are filled again; sizes that no tile divides.
LAYER = Problem.of((64, 13, 12, 44), (130, 3, 3, 44), padding=1)
SMALL = Problem.of((5, 13, 11, 44), (70, 3, 3, 44), padding=((1, 2), (0, 1)))

# Operands and the reference's results, which configs share: by problem, direction, type, parts.
KNOWN: dict[tuple[Problem, str, str, int], tuple[np.ndarray, np.ndarray, np.ndarray]] = {}


def bits(array: np.ndarray) -> np.ndarray:
    """The same memory of a type that CuPy has."""
    return array.view("u2") if array.itemsize == 2 else array


def placed(array: np.ndarray, order: str) -> Any:
    """A copy on the GPU that lies as ``order`` says, indexed channels last."""
    axes = AXES[order]
    copy = driver.cupy().asarray(np.ascontiguousarray(bits(array).transpose(axes)))
    return copy.transpose([axes.index(axis) for axis in range(4)])


def view(array: Any) -> View:
    """An array, as a plan takes it."""
    n, height, width, c = (array.strides[axis] // array.itemsize for axis in range(4))
    return View(array.data.ptr, (n, 0, height, width, c))


def check(problem: Problem, direction: str, config: Config, precision: str = "fp32",
          **options: Any) -> None:  # fmt: skip
    """Three calls, from memory of NaN, have the reference's bits."""
    algorithm = GRADIENTS if direction == "backward_filter" else ALGORITHM
    asked = {"config": config, **options}
    request = Request(problem, direction, driver.device(0), algorithm, precision, **asked)
    (p,) = fused2d.plans(request)
    written, results = DTYPES[p.out_dtype], shapes(direction, problem)[2]
    key = problem, direction, p.dtype, p.split_k
    if key not in KNOWN:
        rng = np.random.default_rng(5)
        dtype = DTYPES[p.dtype]
        a, b = (rng.uniform(-1, 1, s).astype(dtype) for s in shapes(direction, problem)[:2])
        KNOWN[key] = a, b, expected(p, a.astype("f"), b.astype("f"))
    a, b, exact = KNOWN[key]
    wanted = exact.astype(written)
    cp, order = driver.cupy(), p.config.order
    x, second = placed(a, order), placed(b, "nhwc")
    for _ in range(3):
        y = placed(np.full(results, np.nan, written), order)
        workspace = cp.full(max(1, p.workspace), 255, "uint8")
        p.launch(kernels_of(p, 0), view(x), view(second), view(y), workspace.data.ptr, 0)
        assert np.array_equal(cp.asnumpy(y), bits(wanted)), p


@pytest.mark.parametrize("direction", CORRELATIONS)
@pytest.mark.parametrize("make", [Config, narrow])
@pytest.mark.parametrize("order", AXES)
def test_every_layout(order, make, direction) -> None:
    """Filters transformed apart and not."""
    for made in layouts(64):
        for fused in (False, True):
            check(LAYER, direction, make(layout=made.name, order=order, fused=fused, split_k=1))


@pytest.mark.parametrize("make", [Config, narrow])
@pytest.mark.parametrize("order", AXES)
def test_boxes_groups_and_two_buffers(order, make) -> None:
    for images, rows, columns in ((1, 4, 8), (2, 4, 4), (32, 1, 1)):
        box = {"images": images, "rows": rows, "columns": columns}
        check(LAYER, "forward", make(order=order, **box))
        check(SMALL, "backward_data", make(order=order, **box))
    for made in layouts(64):
        check(LAYER, "forward", make(layout=made.name, order=order, buffers=2))
    check(LAYER, "forward", make(order=order, group=2))


@pytest.mark.parametrize("direction", CORRELATIONS)
@pytest.mark.parametrize("parts", [2, 3, 5])
def test_sums_in_parts(parts, direction) -> None:
    chwn = Config(order="chwn", layout="sts64", buffers=2)
    own = Config(), Config(ahead=True), Config(ahead=True, fused=True), narrow(), narrow(fused=True)
    for config in (*own, chwn):
        check(SMALL, direction, replace(config, split_k=parts))


@pytest.mark.parametrize("direction", [*CORRELATIONS, "backward_filter"])
@pytest.mark.parametrize("out_dtype", [None, "float32"])
@pytest.mark.parametrize("precision", ["fp16_ffma", "bf16_ffma"])
def test_numbers_of_16_bits(precision, out_dtype, direction) -> None:
    configs = (Config(), Config(ahead=True), narrow(fused=True), narrow(order="chwn", layout="yan"))
    if direction == "backward_filter":
        configs = GRADIENT, replace(GRADIENT, teams=1)
    for config in configs:
        for parts in (1, 2):
            asked = replace(config, split_k=parts)
            check(SMALL, direction, asked, precision, out_dtype=out_dtype)


@pytest.mark.parametrize("parts", [1, 3, 16])
@pytest.mark.parametrize("padding", [0, 1, 2])
def test_filter_gradients(padding, parts) -> None:
    single = replace(GRADIENT, teams=1)
    problem = Problem.of((3, 17, 19, 44), (70, 3, 3, 44), padding=padding)
    for config in (GRADIENT, single, replace(single, ahead=True), Config(fused=True)):
        check(problem, "backward_filter", replace(config, split_k=parts))
