"""Strided correlations on phases stacked as channels: results on the CPU against FP64 within the
bound of the stacked problem, copies alone, filters kept, and where the planner takes them."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest

import winolab
from tests.gpu import hosted
from tests.gpu.families.depthwise.cases import on_gpu, operands
from tests.gpu.guarded import limits
from tests.gpu.planner.recast.choices import LONG, of_kernel
from tests.gpu.support.pretended import Array
from tests.gpu.support.turns import turns
from winolab.algorithm import Direct, Problem, parse_algorithm
from winolab.device import H100, datasheet
from winolab.gpu.families.direct.config import SPLIT_BLOCKS
from winolab.gpu.planner.accuracy import incurred, predicted_rms
from winolab.gpu.planner.fallback import few_products
from winolab.gpu.planner.planner import candidates, plan
from winolab.gpu.planner.recast.images import images_at_once, in_one_launch
from winolab.gpu.planner.recast.stacked import StackedPlan, axes, stacked, stacked_problem
from winolab.gpu.planner.request import Request
from winolab.gpu.runtime import planned as runtime
from winolab.gpu.runtime.array_layout import ArrayLayout, dense
from winolab.gpu.runtime.cache import plans as kept
from winolab.gpu.runtime.planned import request_of
from winolab.gpu.runtime.resolve import resolve
from winolab.options import ConvOptions
from winolab.problem import shapes
from winolab.ref.algorithms import convolution
from winolab.ref.error.bounds import bound
from winolab.ref.tolerance.cheapest import U11

DIRECTIONS = ("forward", "backward_data")
OFF = 1.4  # times the prediction that an error is, or the other way round, of few sums
# Sizes and taps that strides do not divide, few channels, fewer taps than a stride, padding of
# whole pixels and more, cut maps, what no tap reads, one to three dimensions; pixels and rows that
# blocks share.
PROBLEMS = {
    "stem": Problem.of((2, 17, 19, 3), (16, 7, 7, 3), stride=2, padding=3),
    "wide": Problem.of((2, 14, 12, 8), (16, 5, 5, 8), stride=2, padding=2),
    "2, 3": Problem.of((1, 17, 14, 8), (16, 4, 5, 8), padding=((3, 1), (5, 4)), stride=(2, 3)),
    "pixels": Problem.of((2, 9, 12, 16), (24, 1, 1, 16), stride=2),
    "filled": Problem.of((2, 9, 8, 6), (8, 1, 1, 6), stride=2),
    "patches": Problem.of((1, 12, 16, 4), (16, 4, 4, 4), stride=4),
    "row": Problem.of((2, 45, 1), (16, 10, 1), stride=5),
    "cut": replace(Problem.of((1, 16, 15, 8), (8, 3, 3, 8), stride=2), padding=((-1, 1), (2, -3))),
    "unread": Problem.of((1, 16, 15, 8), (8, 2, 2, 8), stride=(5, 4)),
    "many": Problem.of((1, 5, 4, 264), (8, 1, 1, 264), stride=2),
    "many odd": Problem.of((1, 4, 5, 90), (8, 2, 2, 90), stride=2),
    "long": Problem.of((1, 2100, 2), (4, 3, 2), stride=2),
    "filled depths": Problem.of((1, 7, 5, 6, 3), (8, 4, 2, 2, 3), stride=(2, 1, 1)),
    "depths": Problem.of((1, 7, 10, 9, 8), (8, 3, 4, 3, 8), padding=(1, 1, 1), stride=(2, 2, 1)),
}
STEM = Problem.of((32, 224, 224, 3), (64, 7, 7, 3), stride=2, padding=3)


def planned(problem: Problem, direction: str, precision: str, kernel: str = "") -> StackedPlan:
    """The plan on phases by a kernel of such a name, where there is one."""
    asked = Request(problem, direction, H100, None, precision)
    return next(stacked(asked, LONG, of_kernel(kernel)))


def apart(v: np.ndarray, problem: Problem, sizes: tuple[int, ...], of_filter: bool) -> np.ndarray:
    """A map's or a filter's phases as channels, element by element, as the docstrings say."""
    every = axes(problem)
    counts = [axis.taps if of_filter else axis.stacked for axis in every]
    found = np.zeros((len(v), *counts, sizes[-1]), v.dtype)
    order = list(product(*(range(axis.phases) for axis in every)))
    for at in np.ndindex(*counts):
        for number, phase in enumerate(order):
            places = [a.step * i + q - (0 if of_filter else a.shift)
                      for a, i, q in zip(every, at, phase, strict=True)]  # fmt: skip
            if all(0 <= i < n for i, n in zip(places, v.shape[1:-1], strict=True)):
                c = v.shape[-1]
                found[:, *at, number * c : (number + 1) * c] = v[:, *places]
    return found


def too_far(p: StackedPlan, a: np.ndarray, b: np.ndarray, y: np.ndarray) -> float:
    """The largest error over the stacked problem's proven bound, NaN being infinite."""
    exact = getattr(convolution, p.direction)(a.astype(float), b.astype(float), p.problem)
    q: Any = p.stacked.primary
    w = apart(b.astype(float), p.problem, q.problem.w_shape, of_filter=True)
    forward = p.direction == "forward"
    x = apart(a.astype(float), p.problem, q.problem.x_shape, of_filter=False) if forward else a
    algorithm = getattr(q, "algorithm", Direct())
    limit = bound(x.astype(float), w, q.problem, algorithm, q.simulated, direction=p.direction)
    if not forward:  # as x is stacked, whose places say where dx has what
        numbers = np.arange(1, limit.size + 1).reshape(limit.shape)
        places = np.arange(1.0, exact.size + 1).reshape(exact.shape)
        stacked_places = apart(places, p.problem, q.problem.x_shape, of_filter=False)
        found = np.zeros(exact.size + 1)
        found[stacked_places.astype(int)] = limit.reshape(-1)[numbers - 1]
        limit = found[1:].reshape(exact.shape)  # 0 where no tap reads: these are 0
    if p.out_dtype != "float32":
        unit, least = {"float16": (2.0**-11, 2.0**-25), "bfloat16": (2.0**-8, 0)}[p.out_dtype]
        limit = limit + unit * (np.abs(exact) + limit) + least
    off = np.abs(y.astype(float) - exact)
    return float(np.where(off <= limit, 0.0, np.inf).max())


CASES = [
    *((name, "fp32", "") for name in PROBLEMS),
    ("stem", "fp32_split", "Γ"), ("wide", "fp32_split", "F("), ("2, 3", "fp32_split", "Γ"),
    ("depths", "fp32_split", ""), ("cut", "fp32_split", "Γ"), ("pixels", "fp32_split", "implicit"),
    ("stem", "fp16", ""), ("wide", "bf16", ""), ("row", "fp16", ""), ("depths", "fp16", ""),
    ("patches", "fp16", ""),
]  # fmt: skip


@pytest.mark.parametrize(("case", "direction"), turns(CASES, DIRECTIONS), ids=str)
def test_results_are_those_of_fp64(case, direction) -> None:
    name, precision, kernel = case
    p = planned(PROBLEMS[name], direction, precision, kernel)
    assert {*p.stacked.problem.stride} == {1}
    a, b = operands(p.problem, direction, precision)
    assert too_far(p, a, b, hosted.execute(p, a, b, dtype=p.out_dtype)) == 0


@pytest.mark.parametrize("seed", range(6))
def test_random_problems(seed) -> None:
    """Any stride, taps and padding; a map without a pixel has no plan."""
    rng = Random(seed)
    while True:
        ndim = rng.choice((1, 2, 2, 3))
        sizes = [rng.randint(1, 13 if ndim < 3 else 7) for _ in range(ndim)]
        taps = [rng.randint(1, 6 if ndim < 3 else 4) for _ in range(ndim)]
        ends = [(rng.randint(0, 4), rng.randint(0, 4)) for _ in range(ndim)]
        stride = [rng.randint(1, 4) for _ in range(ndim)]
        wide = all(n + sum(e) >= r for n, e, r in zip(sizes, ends, taps, strict=True))
        if max(stride) > 1 and wide:
            break
    channels, outputs = rng.choice((1, 3, 4, 6, 8)), rng.choice((4, 8, 12))
    problem = Problem.of(
        (rng.randint(1, 3), *sizes, channels), (outputs, *taps, channels),
        stride=stride, padding=ends,
    )  # fmt: skip
    assert (stacked_problem(problem, 4) is None) == any(axis.stacked < 1 for axis in axes(problem))
    if stacked_problem(problem, 4) is None:
        return
    for direction in DIRECTIONS:
        p = planned(problem, direction, "fp32_ffma")
        a, b = operands(problem, direction, "fp32")
        exact = getattr(convolution, direction)(a.astype(float), b.astype(float), problem)
        proven, _, _ = limits(p)  # of tiles that are masked, as kernels have them at an edge
        off = np.abs(hosted.execute(p, a, b) - exact)
        assert (off <= proven + 2.0**-24 * (np.abs(exact) + proven)).all(), problem


@pytest.mark.gpu
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(("name", "precision", "kernel"), CASES)
def test_results_on_a_gpu_are_those_of_fp64(name, precision, kernel, direction) -> None:
    p = planned(PROBLEMS[name], direction, precision, kernel)
    a, b = operands(p.problem, direction, precision)
    assert too_far(p, a, b, on_gpu(p, a, b)) == 0


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(
    ("name", "precision", "kernel"),
    [("wide", "fp32_split", "F("), ("stem", "fp32_split", "Γ"), ("patches", "fp32", "")],
)
def test_a_filter_is_kept(name, precision, kernel, direction) -> None:
    """A call has the bits of a call with the filter stacked, and transformed, beforehand."""
    p = planned(PROBLEMS[name], direction, precision, kernel)
    a, b = operands(p.problem, direction, "fp32")
    assert p.prepared_size >= b.nbytes
    assert p.workspace >= p.beside + p.prepared_size
    y = hosted.execute(p, a, b)
    assert (hosted.execute(p, a, b, apart=True) == y).all()


def test_filters_whose_taps_are_phases_are_read_where_they_lie() -> None:
    """No copy is launched; of a view of a larger filter one is."""
    p = planned(PROBLEMS["patches"], "forward", "fp32")
    a, b = operands(p.problem, "forward", "fp32")
    wider = np.full((*b.shape[:2], b.shape[2] + 2, b.shape[3]), np.nan, b.dtype)
    wider[:, :, : b.shape[2]] = b
    counts = []
    for w in (b, wider[:, :, : b.shape[2]]):
        launched = []
        kernels = hosted.loaded(p)

        def counted(kernel: Any, to: list) -> Any:
            return lambda *args, **how: (to.append(args), kernel(*args, **how))

        y = hosted.Guarded((*p.problem.y_shape,), "float32")
        workspace = hosted.Guarded((p.workspace,), "uint8")
        views = hosted.pixels_view(a), hosted.filter_view(w), hosted.pixels_view(y.array)
        at = workspace.array.ctypes.data
        stack = counted(kernels["winolab_stack"], launched)
        p.launch({**kernels, "winolab_stack": stack}, *views, at, 0)
        assert too_far(p, a, b, y.array) == 0
        counts.append(len(launched))
    assert counts == [1, 2]


def gaps(shape: tuple[int, ...], gap: int) -> tuple[ArrayLayout, int]:
    """Where an array lies whose pixels and rows have gaps of so many elements, and of twice."""
    strides = [shape[-1] + gap]
    for n in reversed(shape[1:-1]):
        strides.append(strides[-1] * n + 2 * gap)
    return ArrayLayout(shape, (*reversed(strides), 1), gap % 4 == 0), 0


@pytest.mark.parametrize("gap", [3, 4])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("name", ["stem", "wide"])
def test_arrays_with_gaps_are_copied_by_elements_or_vectors(name, direction, gap) -> None:
    """What is copied need not allow vectors; y and dy do."""
    p = planned(PROBLEMS[name], direction, "fp32")
    a, b = operands(p.problem, direction, "fp32")
    every = a.shape, b.shape, shapes(direction, p.problem)[2]
    places = [gaps(v, gap if v != p.problem.y_shape else 4) for v in every]
    y = hosted.execute(p, a, b)
    assert (hosted.execute(p, a, b, places=places) == y).all()


@pytest.mark.parametrize("precision", ["fp32", "fp32_split", "fp16"])
@pytest.mark.parametrize("name", ["stem", "wide"])
def test_the_error_is_predicted(name, precision) -> None:
    """Zeros that fill up phases change no relative error: sums and their errors shrink alike."""
    problem = replace(PROBLEMS[name], batch=4, out_channels=32)
    p = planned(problem, "forward", precision, "Γ")
    a, b = operands(problem, "forward", precision)
    y = hosted.execute(p, a, b, dtype=p.out_dtype).astype(float)
    exact = convolution.forward(a.astype(float), b.astype(float), problem)
    rms = math.sqrt(np.mean((y - exact) ** 2) / np.mean(exact**2))
    ratio = rms / predicted_rms(p, U11)
    assert max(ratio, 1 / ratio) <= OFF
    assert rms <= incurred("proven", p) * p.problem.in_channels * math.prod(p.problem.filter)
    whole = predicted_rms(p.stacked, U11)
    assert predicted_rms(p, U11) == whole


def test_what_is_proven_is_relative_to_the_products_that_there_are() -> None:
    """36 stacked taps are the filter's 25 and zeros."""
    p = planned(PROBLEMS["wide"], "forward", "fp32_ffma", "Γ")
    share = math.prod(p.solved.w_shape) / math.prod(p.problem.w_shape)
    assert share == 36 / 25
    assert incurred("proven", p) == pytest.approx(share * incurred("proven", p.stacked))


@pytest.mark.parametrize("device", ["h100", "h200"])
def test_the_planner_takes_them_where_they_pay(device) -> None:
    """ResNet's first layer, of 32 images in FP32, and its backward data in 16 bits as well; not a
    named algorithm, a dilated layer, groups, nor where a call waits for flags or has no room."""
    request = Request(STEM, "forward", datasheet(device), aligned=False, aligned_outputs=True)
    found = plan(request)
    assert isinstance(found, StackedPlan)
    assert "on 4 phases" in found.kernel
    assert "4 phases of the stride as channels" in str(found)
    assert found.predicted <= 0.5 * plan(replace(request, in_phases=False)).predicted
    assert kept._unpacked(kept.packed(found)) == found
    back = replace(request, direction="backward_data", precision="fp16")
    assert isinstance(plan(back), StackedPlan)
    raising = ConvOptions(on_range="raise")
    a, b = (dense(shape, "float32") for shape in shapes("forward", STEM)[:2])
    asked = resolve("forward", STEM, raising, a, b, None, meant=request.device)
    dilated = replace(STEM, dilation=(2, 2), padding=((6, 6), (6, 6)))
    for other in (
        replace(request, algorithm=Direct()),
        replace(request, problem=dilated),
        replace(request, problem=replace(STEM, groups=3, in_channels=9, out_channels=63)),
        replace(request, problem=replace(STEM, stride=(1, 1))),
        replace(request, workspace_limit=1 << 20),
        replace(back, out_dtype="float32"),
        request_of(asked, aligned=True),
    ):
        assert not isinstance(plan(other), StackedPlan)
    less = plan(replace(request, workspace_limit=found.workspace))
    assert isinstance(less, StackedPlan)
    assert less.workspace <= found.workspace


def test_products_so_few_that_all_are_likely_to_be_lost_are_left_to_others() -> None:
    """wav2vec's first layer: ten taps of one channel, a row of which has a number that outweighs
    the others in nearly every filter. Named, they are there."""
    problem = Problem.of((1, 160000, 1), (512, 10, 1), stride=5)
    request = Request(problem, "forward", datasheet("h200"))
    found = plan(request)
    assert isinstance(found, StackedPlan)
    assert not found.checks_accuracy
    checked = [p for p in candidates(request).plans if p.checks_accuracy]
    assert not checked
    unit = Problem.of((1, 160000, 8), (512, 2, 8))
    assert few_products(unit, "forward")
    assert not few_products(unit, "backward_data")
    for precision, some in (("fp32", False), ("fp32_split", True)):
        plans = candidates(replace(request, problem=unit, precision=precision)).plans
        assert any(p.checks_accuracy for p in plans) == some


def test_sums_of_few_products_that_nothing_else_computes_are_split() -> None:
    """By a config, and by a tile that Tensor Cores alone have."""
    pixels = Problem.of((8, 56, 56, 8), (64, 1, 1, 8))
    taps = Problem.of((2, 32, 32, 1), (16, 3, 3, 1), padding=1)
    by_tile = parse_algorithm("winograd:4x4:3x3")
    for request in (
        Request(pixels, "forward", H100, config=SPLIT_BLOCKS[0]),
        Request(taps, "forward", H100, by_tile),
    ):
        assert few_products(request.problem, "forward")
        found = plan(request)
        assert found.checks_accuracy
        assert request.config in (None, found.config)


def test_maps_without_a_pixel_are_left_to_others() -> None:
    """All outputs lie in the padding."""
    p = replace(Problem.of((1, 1, 9, 8), (8, 1, 3, 8), stride=2), padding=((-1, 2), (0, 0)))
    assert stacked_problem(p, 4) is None
    assert not list(stacked(Request(p, "forward", H100), LONG, candidates))


def test_pixels_of_more_blocks_than_a_grid_is_wide_are_left_to_others() -> None:
    """A phase of 2²⁴ channels and a few has a block more."""
    found = []
    for channels in (1 << 24, (1 << 24) - 256):
        p = Problem.of((1, 3, channels), (8, 1, channels), stride=2)
        found.append(list(stacked(Request(p, "forward", H100), LONG, candidates)))
    assert not found[0]
    assert found[1]


@pytest.mark.parametrize("precision", ["fp32_ffma", "fp32_split", "fp16"])
def test_whole_calls_are_those_of_the_reference(library, precision, monkeypatch) -> None:
    """Bias and activation, in the kernels or behind them; the filter kept; channels first."""
    problem = PROBLEMS["wide"]
    p = planned(problem, "forward", precision, "Γ")
    monkeypatch.setattr(runtime, "planned", lambda request, apart=False: p)
    x, w = operands(problem, "forward", precision)
    bias = np.linspace(-1, 1, problem.out_channels, dtype=x.dtype)
    how: dict[str, Any] = {"padding": 2, "stride": 2, "precision": precision}
    y = hosted.execute(p, x, w, dtype=p.out_dtype)
    assert (winolab.conv_forward(Array(x), Array(w), **how).values == y).all()
    first = [Array(np.ascontiguousarray(np.moveaxis(v, -1, 1))) for v in (x, w)]
    got = winolab.conv_forward(*first, layout="channels_first", **how).values
    assert (np.moveaxis(got, 1, -1) == y).all()
    more = {"bias": Array(bias), "activation": "relu"}
    got = winolab.conv_forward(Array(x), Array(w), **how, **more).values
    assert (got >= 0).all()
    exact = np.maximum(convolution.forward(x.astype(float), w.astype(float), problem) + bias, 0)
    unit = 2.0**-11 if precision == "fp16" else 2.0**-16
    assert np.abs(got - exact).max() <= unit * (1 + np.abs(exact).max())
    kept_filter = winolab.prepare_filter(Array(w), x.shape, **how)
    assert (winolab.conv_forward(Array(x), kept_filter, **how).values == y).all()


def test_images_of_any_batch_are_computed_alone() -> None:
    """A name for an algorithm and a config would be another plan's."""
    p = planned(PROBLEMS["wide"], "forward", "fp32_ffma", "Γ")
    assert in_one_launch(p.stacked)
    assert not in_one_launch(p)
    asked = Request(STEM, "backward_data", H100, precision="fp16")
    assert isinstance(plan(asked), StackedPlan)
    count, _ = images_at_once(asked, lambda request: plan(replace(request, batch_invariant=False)))
    assert count == 0
