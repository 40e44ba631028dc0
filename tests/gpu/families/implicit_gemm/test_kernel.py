"""Implicit GEMM: the kernel's source on the CPU, and on a GPU, against FP64."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.gpu import hosted
from tests.gpu.families.depthwise.cases import check_adjoint, on_gpu, operands, too_far
from tests.gpu.families.direct.cases import layer
from tests.gpu.families.implicit_gemm.cases import DIRECTIONS, PRECISIONS, PROBLEMS, offered
from winolab.algorithm import Problem
from winolab.gpu.families.implicit_gemm import launch
from winolab.gpu.families.implicit_gemm.config import CONFIGS, GRADIENTS, WGMMA_CONFIGS, Config
from winolab.gpu.families.implicit_gemm.plan import ImplicitGemmPlan
from winolab.gpu.families.wgrad import REDUCE_THREADS, Gradient, parts_of
from winolab.gpu.params import View
from winolab.gpu.planner.accuracy import predicted_rms
from winolab.gpu.planner.fallback import needs_scale
from winolab.ref.algorithms import convolution
from winolab.ref.error.bounds import bound
from winolab.ref.tolerance.cheapest import U11


@cache
def served(direction: str, precision: str) -> list[str]:
    return [name for name in PROBLEMS if offered(PROBLEMS[name], direction, precision)]


def on_cpu(p: Any, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return hosted.execute(p, a, b, dtype=p.out_dtype)


CASES = [(d, p, name) for d in DIRECTIONS for p in PRECISIONS for name in served(d, p)]


def turns(direction: str, name: str) -> list[str]:
    """The precisions that a problem has in one direction: one of those that serve it, with the next
    direction and the next problem the next; one of 4 bytes and one of 2, where channels are such
    that vectors depend on it."""
    turn = DIRECTIONS.index(direction) + list(PROBLEMS).index(name)
    found = [p for p in ("fp32", "fp16", "fp32_split", "bf16") if name in served(direction, p)]
    if not any(n % 8 for n in (PROBLEMS[name].in_channels, PROBLEMS[name].out_channels)):
        return [found[turn % len(found)]]
    return [pair[turn % len(pair)] for pair in (found[::2], found[1::2]) if pair]


TURNS = [(d, p, name) for d in DIRECTIONS for name in PROBLEMS for p in turns(d, name)]


def test_every_problem_and_precision_has_its_turn() -> None:
    assert {(d, name) for d, _, name in TURNS} == {(d, name) for d, _, name in CASES}
    assert {(d, p) for d, p, _ in TURNS} == {(d, p) for d in DIRECTIONS for p in PRECISIONS}
    assert all(len({p for _, p, n in TURNS if n == name}) > 1 for _, _, name in TURNS)


@pytest.mark.parametrize(("direction", "precision", "name"), TURNS)
def test_results_are_those_of_fp64(direction: str, precision: str, name: str) -> None:
    """Without producers: with them, see below."""
    p = [p for p in offered(PROBLEMS[name], direction, precision) if not p.config.producers][-1]
    a, b = operands(p.problem, direction, "fp32" if p.dtype == "float32" else precision)
    assert too_far(p, a, b, on_cpu(p, a, b)) == 0, p


@pytest.mark.gpu
@pytest.mark.parametrize(("direction", "precision", "name"), CASES)
def test_results_on_a_gpu_are_those_of_fp64(direction: str, precision: str, name: str) -> None:
    for p in offered(PROBLEMS[name], direction, precision):
        a, b = operands(p.problem, direction, "fp32" if p.dtype == "float32" else precision)
        assert too_far(p, a, b, on_gpu(p, a, b)) == 0, p


def on_wgmma(name: str, direction: str, precision: str, *, narrow: bool = True) -> ImplicitGemmPlan:
    found = [p for p in offered(PROBLEMS[name], direction, precision) if p.config.producers]
    return min(found, key=lambda p: p.config.block_columns if narrow else -p.config.block_columns)


WGMMA = [
    (d, name)
    for d in DIRECTIONS
    for name in PROBLEMS
    if any(p.config.producers for p in offered(PROBLEMS[name], d, "bf16"))
    and (DIRECTIONS.index(d) + list(PROBLEMS).index(name)) % 3  # two directions each
]


@pytest.mark.parametrize(("direction", "name"), WGMMA)
def test_producers_and_warpgroups_have_the_results_of_fp64(direction: str, name: str) -> None:
    """Issue 45: strides, dilation, groups and even channels of 16 bits; segments of a gradient."""
    turn, groups = DIRECTIONS.index(direction), PROBLEMS[name].groups
    precision = ("fp16", "bf16")[(turn + (groups > 1)) % 2]
    p = on_wgmma(name, direction, precision, narrow=(turn + list(PROBLEMS).index(name)) % 2 > 0)
    p = replace(p, segments=2) if p.gradient else p
    a, b = operands(p.problem, direction, precision)
    assert too_far(p, a, b, on_cpu(p, a, b)) == 0, p


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_producers_copy_what_is_not_aligned(direction: str) -> None:
    """Elements one by one, where a launch finds that arrays begin two bytes further on."""
    p = on_wgmma("3x3 stride 2", direction, "fp16")
    a, b = operands(p.problem, direction, "fp16")
    due = on_cpu(p, a, b)
    spaces = [np.zeros(v.size + 1, v.dtype) for v in (a, b)]
    shifted = [s[1:].reshape(v.shape) for s, v in zip(spaces, (a, b), strict=True)]
    for to, v in zip(shifted, (a, b), strict=True):
        to[...] = v
    assert any(v.ctypes.data % 16 for v in shifted)
    assert (on_cpu(p, *shifted) == due).all()


def blocks_of(shape: Config, direction: str, turn: int) -> Problem:
    """Filters of 3 × 3 by stride 2: two blocks of rows or of columns, of which the last is not
    full, and more steps than stages, of a gradient's two segments each."""
    more = 8 if turn % 2 else -8
    rows, columns = shape.block_rows + more, shape.block_columns - more
    depth = shape.stages * shape.depth + 1
    positions, c, k = rows, -(-depth // 72) * 8, columns
    if direction == "backward_data":  # at most four taps of a phase
        c, k = columns, -(-depth // 32) * 8
    if direction == "backward_filter":
        positions, c, k = 2 * depth + 20, -(-(shape.block_columns + 1) // 72) * 8, rows
    return layer((2, 9, 2 * -(-positions // 10), c), k, (3, 3), stride=2, padding=1)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("precision", ["fp16", "fp32_split"])
def test_every_block_shape(direction: str, precision: str) -> None:
    """Several blocks of rows or columns, of which the last are not full; more steps than stages;
    segments of a gradient that are not alike."""
    size = 2 if precision == "fp16" else 4
    shapes = CONFIGS[size] + GRADIENTS[size] * (direction == "backward_filter")
    shapes += WGMMA_CONFIGS * (size == 2)
    met = set()
    for turn, shape in enumerate(shapes, DIRECTIONS.index(direction)):
        problem = blocks_of(shape, direction, turn)
        (p,) = offered(problem, direction, precision, config=shape)
        if p.gradient:
            p = replace(p, segments=2)
            assert p.steps > p.config.stages
            assert p.positions % (2 * p.config.depth)
        met.add((p.blocks_rows > 1, p.blocks_columns > 1))
        a, b = operands(problem, direction, "fp32" if p.dtype == "float32" else precision)
        assert too_far(p, a, b, on_cpu(p, a, b)) == 0, p
    assert {(True, direction == "backward_filter"), (False, True)} <= met


@pytest.mark.parametrize("direction", ["forward", "backward_filter"])
@pytest.mark.parametrize("name", ["stem", "five channels"])
def test_copies_have_channels_filled_up(name: str, direction: str) -> None:
    """They are of x, forward of the filter too; vectors have four channels or eight."""
    problem = PROBLEMS[name]
    for precision in ("fp16", "fp32_split"):
        found = [p for p in offered(problem, direction, precision) if p.config.fill]
        for p in found:
            assert p.vectors[0] in (4, 8)
            assert p.workspace >= p.patch_channels * math.prod(problem.x_shape[:-1])
            q = replace(p, segments=2) if p.gradient else p
            a, b = operands(problem, direction, "fp32" if p.dtype == "float32" else precision)
            assert too_far(q, a, b, on_cpu(q, a, b)) == 0, q
        assert found


def stored(p: ImplicitGemmPlan, x: View, dy: View, dw: View) -> int:
    """Channels of a store of a gradient."""
    names = (name for name, _ in launch.PARAMS.fields)
    return dict(zip(names, launch.parameters(p, x, dy, dw, 0).values, strict=False))["y_vector"]


@pytest.mark.parametrize("precision", ["fp16", "fp32_split"])
def test_gradients_of_any_strides_have_the_same_bits(precision: str) -> None:
    """Rows that lie side by side are stored in vectors of eight or two; those between vectors, odd
    elements apart or with taps behind channels are not, and what lies between is left alone."""
    problem = layer((1, 9, 10, 16), 24, (3, 3), stride=2, padding=1)
    m, _, _, c = problem.w_shape
    for p in offered(problem, "backward_filter", precision):
        a, b = operands(problem, "backward_filter", "fp32" if p.dtype == "float32" else precision)
        due, kernels = on_cpu(p, a, b), hosted.loaded(p)
        x, dy = (hosted.pixels_view(v) for v in (a, b))
        first, row = 16 // due.itemsize, 9 * c
        places = {  # first element, strides, channels of a store
            "dense": (first, (row, 0, 3 * c, c, 1), 8 if due.itemsize == 2 else 2),
            "pairs": (first + 2, (row, 0, 3 * c, c, 1), 2),
            "between": (first + 1, (row, 0, 3 * c, c, 1), 1),
            "odd": (first, (row + 1, 0, 3 * c, c, 1), 1),
            "channels first": (first, (row, 0, 3, 1, 9), 1),
        }
        for name, (at, strides, vector) in places.items():
            memory = np.full(first + m * (row + 1) + 64, np.nan, due.dtype)
            memory = memory[-memory.ctypes.data % 16 // due.itemsize :]
            out = View(memory.ctypes.data + at * due.itemsize, strides)
            assert stored(p, x, dy, out) == vector, name
            p.launch(kernels, x, dy, out, 0, 0)
            steps = tuple(due.itemsize * s for s in (strides[0], *strides[2:]))
            found = np.lib.stride_tricks.as_strided(memory[at:], due.shape, steps)
            assert (found == due).all(), (name, p)
            assert np.isfinite(memory).sum() == due.size, (name, p)


@pytest.mark.parametrize("segments", [8, 9, 17, 40])
def test_segments_of_few_weights_are_added_up_by_several_threads(segments: int) -> None:
    """By as many as ``parts_of`` says, and none of the elements beyond the last block's is met."""
    problem = layer((4, 12, 13, 8), 19, (3, 3), stride=2, padding=1)
    for precision in ("fp16", "fp32_split"):
        (p, *_) = offered(problem, "backward_filter", precision)
        blocks = -(-math.prod(problem.w_shape) // REDUCE_THREADS)
        parts = parts_of(segments, blocks, p.device.multiprocessors)
        assert parts == {8: 1, 9: 2, 17: 4, 40: 8}[segments]
        assert math.prod(problem.w_shape) % (REDUCE_THREADS // parts)
        a, b = operands(problem, "backward_filter", "fp16" if precision == "fp16" else "fp32")
        p = replace(p, segments=segments)
        assert too_far(p, a, b, on_cpu(p, a, b)) == 0, p


# Unit stride and one group, whose sums of split FP32 may be cut.
CUT = {
    "1x1": layer((2, 5, 7, 100), 36, (1, 1)),
    "1x1 of odd channels": layer((3, 41, 37), 21, (1,)),
    "five channels": layer((1, 5, 6, 5), 24, (3, 3), padding=1),
    "odd channels in depth": layer((2, 3, 4, 4, 33), 20, (2, 3, 1), padding=(1, 0, 0)),
}


def cut(name: str, direction: str, segments: int) -> ImplicitGemmPlan:
    p = offered(CUT[name], direction, "fp32_split")[-1]
    return replace(p, segments=segments)


@pytest.mark.parametrize("direction", ["forward", "backward_data"])
@pytest.mark.parametrize("name", CUT)
@pytest.mark.parametrize("segments", [2, 3, 40])
def test_sums_that_are_cut_are_those_of_fp64(name: str, direction: str, segments: int) -> None:
    """40: more segments than steps, of which some have nothing to sum."""
    p = cut(name, direction, segments)
    a, b = operands(p.problem, direction, "fp32")
    assert too_far(p, a, b, on_cpu(p, a, b)) == 0, p


@pytest.mark.gpu
@pytest.mark.parametrize("direction", ["forward", "backward_data"])
@pytest.mark.parametrize("name", CUT)
@pytest.mark.parametrize("segments", [1, 2, 3, 40])
def test_sums_that_are_cut_on_a_gpu(name: str, direction: str, segments: int) -> None:
    p = cut(name, direction, segments)
    a, b = operands(p.problem, direction, "fp32")
    assert too_far(p, a, b, on_gpu(p, a, b)) == 0, p


def test_infinities_of_sums_that_are_cut() -> None:
    """A segment's infinity stays one, and other results do not see it."""
    p = cut("1x1", "forward", 3)
    a, b = operands(p.problem, "forward", "fp32")
    a[0, 4, 4, 1], a[1, 2, 6, 99], a[1, 2, 2, 50] = np.inf, np.nan, -np.inf
    with np.errstate(all="ignore"):
        exact = convolution.forward(a.astype(float), b.astype(float), p.problem)
    y = on_cpu(p, a, b)
    for found in (np.isnan, np.isposinf, np.isneginf):
        assert (found(y) == found(exact)).all()
        assert found(y).any()


@pytest.mark.parametrize("direction", ["forward", "backward_data"])
def test_segments_take_no_more_workspace_than_there_is_data(direction: str) -> None:
    """Unless a limit says less."""
    problem = layer((1, 14, 14, 1024), 512, (1, 1))
    for p in offered(problem, direction, "fp32_split"):
        assert p.segments > 1
        assert p.workspace == 4 * p.segments * math.prod(p.result.filter) * p.result.channels
        assert p.workspace <= Gradient.of(problem).data
    for p in offered(problem, direction, "fp32_split", workspace_limit=0):
        assert p.segments == 1


@pytest.mark.parametrize("channels", [2, 4, 16])
def test_a_step_of_every_tap_of_groups_side_by_side_is_added(channels: int) -> None:
    """Beside 1 every other step's sum is lost: the bound had a step of 32 of a group's channels for
    several taps of fewer, and the prediction their truncations, 2.2 times the error."""
    problem = layer((1, 16, 16, 64), 64, (16, 16), groups=64 // channels)
    p = offered(problem, "forward", "fp32_split")[0]
    assert p.merged == 64 // channels
    a, b = (np.zeros(s, "float32") for s in (problem.x_shape, problem.w_shape))
    a[..., ::channels] = b[..., 0] = 2.0**-12 * (1 - 2.0**-10)
    a[0, 0, 0, ::channels] = b[:, 0, 0, 0] = 1
    found = hosted.execute(p, a, b)
    exact = convolution.forward(a.astype(float), b.astype(float), problem)
    assert (np.abs(found - exact) >= 0.99 * 255 * 2.0**-24).all()
    assert too_far(p, a, b, found) == 0
    x, w = operands(problem, "forward", "fp32")
    off = hosted.execute(p, x, w) - convolution.forward(x.astype(float), w.astype(float), problem)
    sums = math.sqrt(256 * channels) / 3
    assert 0.7 <= math.sqrt((off**2).mean()) / sums / predicted_rms(p, U11) <= 1.4


def test_the_bound_says_something() -> None:
    """Split products have one as near as that of sums in FP32."""
    problem = PROBLEMS["3x3 stride 2"]
    for direction in DIRECTIONS:
        (p, *_) = offered(problem, direction, "fp32_split")
        a, b = (v.astype(float) for v in operands(problem, direction, "fp32"))
        split, plain = (
            bound(a, b, problem, "direct", run, direction=direction)
            for run in (p.simulated, "fp32")
        )
        assert np.isfinite(split).all()
        assert split.max() < 2 * plain.max()


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_numbers_far_apart_need_no_fallback(direction: str) -> None:
    """TF32 parts have FP32's range: a channel of one image may lie far below the others."""
    p = offered(PROBLEMS["3x3 stride 2"], direction, "fp32_split")[-1]
    assert not needs_scale(p)
    assert not p.checks_accuracy
    a, b = operands(p.problem, direction, "fp32")
    a[0] *= np.float32(2.0**-60)
    b *= np.float32(2.0**40)
    assert too_far(p, a, b, on_cpu(p, a, b)) == 0


def test_infinities_and_nan_are_those_of_fp32() -> None:
    """A block whose sums are not finite sums again on FFMA units."""
    problem = PROBLEMS["stem"]
    for precision in ("fp32_split", "fp16"):
        p = offered(problem, "forward", precision)[-1]
        a, b = operands(problem, "forward", "fp32" if p.dtype == "float32" else precision)
        a[0, 4, 4, 1], a[1, 18, 17, 0], a[1, 2, 8, 2] = np.inf, np.nan, np.inf
        y = on_cpu(p, a, b)
        with np.errstate(all="ignore"):
            exact = convolution.forward(a.astype(float), b.astype(float), problem)
        assert (np.isnan(y) == np.isnan(exact)).all()
        assert (np.isposinf(y) == np.isposinf(exact)).all()
        assert np.isposinf(y).any()
        same = np.isfinite(exact)
        assert np.abs(y[same].astype(float) - exact[same]).max() < 0.05


def test_integers_are_exact_and_adjoint() -> None:
    for name in ("stem", "groups of 8 and 4", "dilation and stride"):
        problem = PROBLEMS[name]

        def computed(direction: str, a: Any, b: Any, problem: Problem = problem) -> Any:
            plans = offered(problem, direction, "fp16")
            first, last = (on_cpu(p, a, b) for p in (plans[0], plans[-1]))
            assert (first == last).all()  # of both kernels
            return first

        check_adjoint(problem, DIRECTIONS, "float16", computed)


FILLING = [
    ("stem", "fp16", WGMMA_CONFIGS[3]),
    ("stem of unit stride", "bf16", WGMMA_CONFIGS[4]),
    ("five channels", "fp16", WGMMA_CONFIGS[4]),
    ("one channel", "fp16", CONFIGS[2][-1]),
    ("stem", "fp32_split", CONFIGS[4][-1]),
]


@pytest.mark.parametrize(("name", "precision", "config"), FILLING, ids=str)
def test_gradients_of_few_channels_with_a_filter_filled_up(name, precision, config) -> None:
    """Issue 45: a stem's backward data on wgmma, by name; no GPU has timed it."""
    problem, filled = PROBLEMS[name], replace(config, fill=1)
    (p,) = offered(problem, "backward_data", precision, config=filled)
    assert p.filled[0] == 0 < p.filled[1]
    assert p.vectors[1] >= 4
    assert not any(q.config.fill for q in offered(problem, "backward_data", precision))
    a, b = operands(problem, "backward_data", "fp32" if p.dtype == "float32" else precision)
    assert too_far(p, a, b, on_cpu(p, a, b)) == 0, p
