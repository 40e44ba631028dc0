"""The fused kernel's own source on the CPU: the reference's bits, whatever the policy."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import winolab
from tests.gpu import hosted
from tests.gpu.families.fused2d.expected import ALGORITHM, AXES, DTYPES, GRADIENTS, expected
from tests.gpu.support.turns import turns
from winolab.algorithm import Problem
from winolab.device import H100
from winolab.gpu.families.fused2d import plan as fused2d
from winolab.gpu.families.fused2d.config import GRADIENT, Config, narrow
from winolab.gpu.families.fused2d.layouts import layout, layouts
from winolab.gpu.params import View
from winolab.gpu.planner.accuracy import U11, UNITS, predicted_rms
from winolab.gpu.planner.correlation import CORRELATIONS
from winolab.gpu.planner.request import Request
from winolab.problem import shapes
from winolab.ref.algorithms import convolution
from winolab.ref.error.proven import proven


def ordered(array: np.ndarray, order: str) -> tuple[hosted.Guarded, np.ndarray]:
    """A copy of a channels-last array, lying in memory as ``order`` says, and it as a view."""
    axes = AXES[order]
    guarded = hosted.Guarded(tuple(array.shape[a] for a in axes), array.dtype.name)
    view = guarded.array.transpose([axes.index(a) for a in range(4)])
    view[...] = array
    return guarded, view


def view(array: np.ndarray) -> View:
    n, h, w, c = (s // array.itemsize for s in array.strides)
    return View(array.ctypes.data, (n, 0, h, w, c))


def check(
    problem: Problem,
    direction: str,
    config: Config,
    device=H100,
    precision: str = "fp32",
    out_dtype: str | None = None,
    **options,
) -> fused2d.Fused2dPlan:
    """The kernel's bits are the reference's, and within the proven bound of exact results."""
    asked = {"config": config, "out_dtype": out_dtype, **options}
    algorithm = GRADIENTS if direction == "backward_filter" else ALGORITHM
    (p,) = fused2d.plans(Request(problem, direction, device, algorithm, precision, **asked))
    rng = np.random.default_rng(3)
    shapes_ = shapes(direction, problem)
    dtype, written = (DTYPES[name] for name in (p.dtype, p.out_dtype))
    a, b = (rng.uniform(-1, 1, s).astype(dtype) for s in shapes_[:2])
    (x, x_view), (y, y_view) = (
        ordered(v, config.order) for v in (a, np.full(shapes_[2], math.nan, written))
    )
    workspace = hosted.Guarded((p.workspace,), "uint8")
    kernels = hosted.load(p.source(), p.shared(), seed=2)
    second = view(b) if p.gradient else hosted.filter_view(b)
    out = hosted.filter_view(y_view) if p.gradient else view(y_view)
    p.launch(kernels, view(x_view), second, out, workspace.array.ctypes.data, 0)
    for guarded in (x, y, workspace):
        guarded.check("an array")
    wide_a, wide_b = a.astype("f"), b.astype("f")
    assert np.array_equal(y_view, expected(p, wide_a, wide_b).astype(written))
    if p.gradient:
        exact = convolution.backward_filter(a.astype(float), b.astype(float), problem)
        error = np.sqrt(np.mean((y_view.astype(float) - exact) ** 2) / np.mean(exact**2))
        assert error <= 1.5 * predicted_rms(p, U11)
        return p
    exact = getattr(winolab, f"conv_{direction}")(
        *(v.astype(float) for v in (a, b)),
        *([problem.x_shape] if direction == "backward_data" else []),
        padding=problem.padding,
        groups=problem.groups,
    )
    run = winolab.arithmetic("fp32")
    bound = proven(wide_a, wide_b, problem, ALGORITHM, run, direction=direction)
    unit = UNITS[p.out_dtype] if p.out_dtype != "float32" else 0.0
    bound += unit * (np.abs(exact) + bound) + 2.0**-24
    assert (np.abs(y_view.astype(float) - exact) <= bound).all()
    return p


@pytest.mark.parametrize("direction", CORRELATIONS)
@pytest.mark.parametrize("padding", [0, 1, 2])
def test_odd_sizes_batches_and_channels(direction, padding) -> None:
    problem = Problem.of((3, 7, 9, 13), (21, 3, 3, 13), padding=padding)
    check(problem, direction, Config())
    problem = Problem.of((1, 8, 6, 20), (70, 3, 3, 20), padding=((padding, 1), (0, padding)))
    check(problem, direction, narrow())


@pytest.mark.parametrize(("name", "bm"), turns([found.name for found in layouts(64)], [64, 32]))
def test_every_layout(name, bm) -> None:
    """In CHWN and NHWC, with whole blocks of images and with a rest; with two buffers where the
    paper has them, and one."""
    make = Config if bm == 64 else narrow
    problem = Problem.of((34, 4, 3, 9), (bm + 3, 3, 3, 9), padding=1)
    two = layout(name, bm).buffers
    config = make(layout=name, order="chwn", images=32, rows=1, columns=1, buffers=two)
    p = check(problem, "forward", config)
    assert p.config.yvec == (2 if p.config.staged.along == "tiles" else 1)
    problem = Problem.of((2, 6, 11, 8), (bm, 3, 3, 8), padding=1)
    p = check(problem, "forward", make(layout=name, buffers=1))
    assert p.config.yvec == (2 if name == "channels" else 1)


@pytest.mark.parametrize("direction", CORRELATIONS)
@pytest.mark.parametrize("make", [Config, narrow])
def test_filters_transformed_in_the_block(make, direction) -> None:
    problem = Problem.of((2, 5, 6, 21), (37, 3, 3, 21), padding=0 if make is Config else 2)
    p = check(problem, direction, make(fused=True), workspace_limit=0)
    assert p.workspace == 0


@pytest.mark.parametrize("order", AXES)
def test_memory_orders_and_boxes(order) -> None:
    problem = Problem.of((5, 9, 10, 18), (34, 3, 3, 18), padding=1)
    check(problem, "forward", Config(order=order))
    check(problem, "backward_data", narrow(order=order))
    images, rows, columns = ((2, 4, 4), (1, 4, 8), (8, 2, 2))[list(AXES).index(order)]
    check(problem, "forward", Config(order=order, images=images, rows=rows, columns=columns))


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
    problem = replace(problem, padding=((0, 2), (2, 0)))
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


@pytest.mark.parametrize("direction", CORRELATIONS)
@pytest.mark.parametrize(
    ("config", "parts"),
    [
        (Config(split_k=2), 2),
        (Config(ahead=True, split_k=3), 3),
        (narrow(split_k=5), 5),
        (narrow(fused=True, split_k=99), 5),
        (Config(order="chwn", layout="sts64", buffers=2), 5),
    ],
)
def test_sums_in_parts(config, parts, direction) -> None:
    """One small image has few work tiles, which starve a GPU; the model takes a part a stage."""
    problem = Problem.of((1, 7, 5, 36), (38, 3, 3, 36), padding=1)
    p = check(problem, direction, config)
    assert p.split_k == parts
    assert p.workspace == p.prepared_size + 4 * parts * math.prod(shapes(direction, problem)[2])
    two = Problem.of((2, 5, 4, 40), (24, 3, 3, 20), padding=1, groups=2)
    check(two, direction, config)


@pytest.mark.parametrize("precision", ["fp16_ffma", "bf16_ffma"])
@pytest.mark.parametrize("out_dtype", [None, "float32"])
def test_numbers_of_16_bits(precision, out_dtype) -> None:
    """Loads and stores convert; all arithmetic is FP32's, so that results are rounded once."""
    problem = Problem.of((2, 7, 6, 20), (70, 3, 3, 20), padding=1)
    asked = {"precision": precision, "out_dtype": out_dtype}
    for config in (Config(split_k=1), Config(split_k=2), narrow(fused=True, split_k=1)):
        p = check(problem, "forward", config, **asked)
        assert p.out_dtype == (out_dtype or p.dtype)
    problem = Problem.of((2, 5, 4, 13), (19, 3, 3, 13), padding=1)
    check(problem, "backward_data", Config(ahead=True, split_k=1), **asked)
    check(problem, "backward_data", narrow(order="chwn", layout="yan"), **asked)
    check(problem, "backward_filter", GRADIENT, **asked)


@pytest.mark.parametrize("padding", [0, 1, 2])
@pytest.mark.parametrize("parts", [1, 3])
def test_filter_gradients(padding, parts) -> None:
    """F(3×3, 2×2) of odd sizes and channels, of blocks that are full, and of groups."""
    config = replace(GRADIENT, split_k=parts)
    for x, w, groups in (
        ((3, 7, 9, 13), (21, 3, 3, 13), 1),
        ((2, 9, 8, 64), (64, 3, 3, 64), 1),
        ((3, 6, 7, 20), (12, 3, 3, 10), 2),
    ):
        problem = Problem.of(x, w, padding=padding, groups=groups)
        p = check(problem, "backward_filter", config)
        assert p.kernel == "F(3×3,2×2)"
        assert p.split_k == parts
    problem = Problem.of((1, 8, 6, 34), (70, 3, 3, 34), padding=((padding, 1), (0, padding)))
    check(problem, "backward_filter", narrow(fused=True, layout="compact", split_k=parts))


@pytest.mark.parametrize("ahead", [False, True])
def test_filter_gradients_by_one_team(ahead: bool) -> None:
    problem = Problem.of((3, 7, 9, 13), (21, 3, 3, 13), padding=1)
    check(problem, "backward_filter", replace(GRADIENT, teams=1, ahead=ahead, split_k=3))


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
