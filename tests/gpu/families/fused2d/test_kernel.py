"""The fused kernel's own source on the CPU: the reference's bits, whatever the policy."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import winolab
from tests.gpu import hosted
from winolab.algorithm import Problem, winograd
from winolab.device import H100
from winolab.gpu.families.fused2d import plan as fused2d
from winolab.gpu.families.fused2d.config import Config, narrow
from winolab.gpu.families.fused2d.layouts import layouts
from winolab.gpu.params import View
from winolab.gpu.planner.correlation import CORRELATIONS
from winolab.gpu.planner.request import Request
from winolab.ref.algorithms import winograd as reference
from winolab.ref.arithmetic.order import Order
from winolab.ref.error.proven import proven

ALGORITHM = winograd((2, 2), (3, 3))
AXES = {"nhwc": (0, 1, 2, 3), "nchw": (0, 3, 1, 2), "chwn": (3, 1, 2, 0)}


def ordered(array: np.ndarray, order: str) -> tuple[hosted.Guarded, np.ndarray]:
    """A copy of a channels-last array, lying in memory as ``order`` says, and it as a view."""
    axes = AXES[order]
    guarded = hosted.Guarded(tuple(array.shape[a] for a in axes), "float32")
    view = guarded.array.transpose([axes.index(a) for a in range(4)])
    view[...] = array
    return guarded, view


def view(array: np.ndarray) -> View:
    n, h, w, c = (s // array.itemsize for s in array.strides)
    return View(array.ctypes.data, (n, 0, h, w, c))


def check(
    problem: Problem, direction: str, config: Config, device=H100, **options
) -> fused2d.Fused2dPlan:
    """The kernel's bits are the reference's, and within the proven bound of exact results."""
    asked = {"config": config, **options}
    (p,) = fused2d.plans(Request(problem, direction, device, ALGORITHM, "fp32", **asked))
    rng = np.random.default_rng(3)
    a_shape, y_shape = problem.x_shape, problem.y_shape
    if direction == "backward_data":
        a_shape, y_shape = y_shape, a_shape
    a, b = (rng.uniform(-1, 1, s).astype("f") for s in (a_shape, problem.w_shape))
    (x, x_view), (y, y_view) = (
        ordered(v, config.order) for v in (a, np.full(y_shape, math.nan, "f"))
    )
    workspace = hosted.Guarded((p.workspace,), "uint8")
    kernels = hosted.load(p.source(), p.shared(), seed=2)
    filters = hosted.filter_view(b)
    p.launch(kernels, view(x_view), filters, view(y_view), workspace.array.ctypes.data, 0)
    for guarded in (x, y, workspace):
        guarded.check("an array")
    run = winolab.arithmetic("fp32")
    compute = getattr(reference, direction)
    expected = compute(a, b, problem, ALGORITHM, run, None, Order(8))
    assert np.array_equal(y_view, expected)
    exact = getattr(winolab, f"conv_{direction}")(
        *(v.astype(float) for v in (a, b)),
        *([problem.x_shape] if direction == "backward_data" else []),
        padding=problem.padding,
        groups=problem.groups,
    )
    bound = proven(a, b, problem, ALGORITHM, run, direction=direction)
    assert (np.abs(y_view - exact) <= bound).all()
    return p


@pytest.mark.parametrize("direction", CORRELATIONS)
@pytest.mark.parametrize("padding", [0, 1, 2])
def test_odd_sizes_batches_and_channels(direction, padding) -> None:
    problem = Problem.of((3, 7, 9, 13), (21, 3, 3, 13), padding=padding)
    check(problem, direction, Config())
    problem = Problem.of((1, 8, 6, 20), (70, 3, 3, 20), padding=((padding, 1), (0, padding)))
    check(problem, direction, narrow())


@pytest.mark.parametrize("bm", [64, 32])
@pytest.mark.parametrize("name", [found.name for found in layouts(64)])
def test_every_layout(name, bm) -> None:
    """In CHWN and NHWC, with whole blocks of images and with a rest."""
    make = Config if bm == 64 else narrow
    problem = Problem.of((34, 4, 3, 9), (bm + 3, 3, 3, 9), padding=1)
    config = make(layout=name, order="chwn", images=32, rows=1, columns=1)
    p = check(problem, "forward", config)
    assert p.config.yvec == (2 if p.config.staged.along == "tiles" else 1)
    problem = Problem.of((2, 6, 11, 8), (bm, 3, 3, 8), padding=1)
    p = check(problem, "forward", make(layout=name, buffers=1))
    assert p.config.yvec == (2 if name == "channels" else 1)


@pytest.mark.parametrize("direction", CORRELATIONS)
@pytest.mark.parametrize("make", [Config, narrow])
def test_filters_transformed_in_the_block(make, direction) -> None:
    problem = Problem.of((2, 5, 6, 21), (37, 3, 3, 21), padding=1)
    p = check(problem, direction, make(fused=True), workspace_limit=0)
    assert p.workspace == 0


@pytest.mark.parametrize("order", AXES)
def test_memory_orders_and_boxes(order) -> None:
    problem = Problem.of((5, 9, 10, 18), (34, 3, 3, 18), padding=1)
    check(problem, "forward", Config(order=order))
    check(problem, "backward_data", narrow(order=order))
    for images, rows, columns in ((2, 4, 4), (1, 4, 8), (8, 2, 2)):
        config = Config(order=order, images=images, rows=rows, columns=columns)
        check(problem, "forward", config)


@pytest.mark.parametrize("group", [1, 2, 3])
def test_groups_of_filters_go_over_all_tiles(group) -> None:
    """Five blocks of filters on three multiprocessors, whose blocks refill their stages."""
    few = replace(H100, multiprocessors=3)
    problem = Problem.of((2, 8, 9, 17), (140, 3, 3, 17), padding=1)
    p = check(problem, "forward", narrow(group=group, teams=1), few)
    assert (p.blocks_m, p.tile_blocks, p.grid) == (5, 2, 3)


@pytest.mark.parametrize("config", [Config(), Config(ahead=True), narrow(), narrow(fused=True)])
def test_work_tiles_of_one_stage(config) -> None:
    """Producers fill the stages of several work tiles while consumers finish one."""
    few = replace(H100, multiprocessors=2)
    problem = Problem.of((4, 20, 18, 8), (64, 3, 3, 8), padding=1)
    p = check(problem, "forward", config, few)
    assert p.chunks == 1
    assert p.work_tiles >= 5 * p.grid


@pytest.mark.parametrize("direction", CORRELATIONS)
def test_pixels_loaded_ahead(direction) -> None:
    problem = Problem.of((4, 7, 6, 36), (70, 3, 3, 36), padding=1)
    check(problem, direction, Config(ahead=True))
    check(problem, direction, Config(ahead=True, order="chwn", layout="sts64"))


def test_groups_of_channels() -> None:
    problem = Problem.of((2, 5, 6, 26), (22, 3, 3, 13), padding=1, groups=2)
    for direction in CORRELATIONS:
        check(problem, direction, Config())
        check(problem, direction, Config(fused=True))


@pytest.mark.parametrize("aligned", [True, False])
def test_arrays_that_are_not_aligned(aligned) -> None:
    problem = Problem.of((2, 6, 6, 16), (64, 3, 3, 16), padding=1)
    p = check(problem, "forward", Config(), aligned=aligned)
    assert (p.config.xvec, p.config.yvec) == ((2, 2) if aligned else (1, 1))


def test_a_filter_that_is_prepared() -> None:
    problem = Problem.of((1, 6, 6, 12), (33, 3, 3, 12), padding=1)
    p = next(fused2d.plans(Request(problem, "forward", H100, ALGORITHM, "fp32")))
    rng = np.random.default_rng(1)
    x, w = (rng.uniform(-1, 1, s).astype("f") for s in (problem.x_shape, problem.w_shape))
    kernels = hosted.loaded(p)
    u = hosted.prepared(p, w, kernels)
    y = hosted.Guarded(problem.y_shape, "float32")
    p.run(kernels, view(x), u.ctypes.data, view(y.array), 0, 0)
    assert np.array_equal(y.array, hosted.execute(p, x, w, kernels=kernels))


def on_the_gpu(p: fused2d.Fused2dPlan, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The result of a plan's kernels, of arrays that lie as its config says, from memory of NaN."""
    from winolab.gpu import driver
    from winolab.gpu.runtime.call import kernels_of

    cp, axes = driver.cupy(), AXES[p.config.order]
    back = [axes.index(axis) for axis in range(4)]
    x = cp.asarray(np.ascontiguousarray(a.transpose(axes))).transpose(back)
    shape = p.problem.y_shape if p.direction == "forward" else p.problem.x_shape
    y = cp.full([shape[axis] for axis in axes], cp.nan, "float32").transpose(back)
    w, workspace = cp.asarray(b), cp.full(max(1, p.workspace), 255, "uint8")
    views = []
    for array in (x, w, y):
        n, height, width, c = (s // 4 for s in array.strides)
        views.append(View(array.data.ptr, (n, 0, height, width, c)))
    a_view, b_view, out = views
    p.launch(kernels_of(p, 0), a_view, b_view, out, workspace.data.ptr, 0)
    return cp.asnumpy(y)


@pytest.mark.gpu
@pytest.mark.parametrize("direction", CORRELATIONS)
@pytest.mark.parametrize("make", [Config, narrow])
@pytest.mark.parametrize("order", AXES)
def test_policies_on_the_gpu(order, make, direction) -> None:
    """The reference's bits from every layout, filters apart and not; blocks refill their stages."""
    from winolab.gpu import driver

    problem = Problem.of((64, 13, 12, 44), (130, 3, 3, 44), padding=1)
    rng = np.random.default_rng(5)
    shape = problem.x_shape if direction == "forward" else problem.y_shape
    a, b = (rng.uniform(-1, 1, s).astype("f") for s in (shape, problem.w_shape))
    run = winolab.arithmetic("fp32")
    expected = getattr(reference, direction)(a, b, problem, ALGORITHM, run, None, Order(8))
    for made in layouts(64):
        for fused in (False, True):
            config = make(layout=made.name, order=order, fused=fused)
            asked = Request(problem, direction, driver.device(0), ALGORITHM, "fp32", config=config)
            (p,) = fused2d.plans(asked)
            for _ in range(3):
                assert np.array_equal(on_the_gpu(p, a, b), expected), p
