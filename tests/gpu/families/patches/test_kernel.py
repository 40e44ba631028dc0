"""The kernel of patches: its source on the CPU, and on a GPU, against FP64 within the proven
bound."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import numpy as np
import pytest

from tests.gpu import hosted, random_plans
from tests.gpu.families.depthwise.cases import on_gpu, operands, too_far
from tests.gpu.families.patches.cases import (
    DIRECTIONS,
    PRECISIONS,
    PROBLEMS,
    layer,
    offered,
    served,
)
from winolab.algorithm import Problem
from winolab.device import H100
from winolab.gpu.families.patches import launch
from winolab.gpu.families.patches import plan as patches
from winolab.gpu.families.patches.config import SHAPES, WIDTHS, Config
from winolab.gpu.families.patches.plan import PatchesPlan
from winolab.gpu.params import Params, View
from winolab.ref.algorithms import convolution

CASES = [(d, name) for d in DIRECTIONS for name in served(d)]


def on_cpu(p: PatchesPlan, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return hosted.execute(p, a, b, dtype=p.out_dtype)


@pytest.mark.parametrize(("direction", "name"), CASES)
def test_results_are_those_of_fp64(direction: str, name: str) -> None:
    """By the shortest blocks or by the longest, which take turns."""
    precision = PRECISIONS[len(name) % 2]
    found = offered(PROBLEMS[name], direction, precision)
    last = (DIRECTIONS.index(direction) + [*PROBLEMS].index(name) // 2) % 2
    p = found[-last]
    a, b = operands(p.problem, direction, precision)
    assert too_far(p, a, b, on_cpu(p, a, b)) == 0, p


@pytest.mark.gpu
@pytest.mark.parametrize(("direction", "name"), CASES)
def test_results_on_a_gpu_are_those_of_fp64(direction: str, name: str) -> None:
    for precision in PRECISIONS:
        for p in offered(PROBLEMS[name], direction, precision):
            a, b = operands(p.problem, direction, precision)
            assert too_far(p, a, b, on_gpu(p, a, b)) == 0, p


@pytest.mark.parametrize("turn", [0, 1, 2])
def test_every_block_shape(turn: int) -> None:
    """FP32 results, too; blocks of more channels and positions than there are. The last
    problem takes turns with the others: each shape has one of them or two."""
    name = ("rows of 8", "rows of 8, stride 2", "48, 1x1")[turn]
    problem = PROBLEMS[name]
    a, b = operands(problem, "forward", "bf16")
    for number, (rows, columns, tiles) in enumerate(SHAPES):
        if (number + turn // 2) % 2:
            continue
        if columns > 64 and name == "rows of 8, stride 2":
            continue  # shared memory does not hold what seven taps meet
        config = Config(rows, columns, WIDTHS[number % (2 if tiles > 1 else 4)], tiles)
        (p,) = offered(problem, "forward", "bf16", config=config, out_dtype="float32")
        assert too_far(p, a, b, on_cpu(p, a, b)) == 0, p


@pytest.mark.parametrize("name", ["rows of 8", "rows of 8, stride 2", "6", "8 of 72", "48, 1x1"])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_arrays_that_are_not_aligned_or_not_dense_have_the_same_bits(
    direction: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pixels and channels one by one, and rows one by one, where a launch finds arrays so."""
    for p in offered(PROBLEMS[name], direction, "fp16")[-1:]:
        a, b = operands(p.problem, direction, "fp16")
        due = on_cpu(p, a, b)
        for where, found in ((View, "in_vectors"), (View, "even")):
            assert getattr(where, found)
            monkeypatch.setattr(where, found, lambda *given: False)
            assert (on_cpu(p, a, b) == due).all()


def test_how_rows_are_copied() -> None:
    """In the widest vectors that lie in rows as in x; pixel by pixel where pairs would begin with
    an odd number for one of the two."""

    def vectors(name: str, pixel: int | None = None) -> tuple[int, int, int]:
        p = offered(PROBLEMS[name], "forward", "fp16", config=Config(8, 8, 32))[0]
        c = p.correlation
        steps, step = [], pixel or c.channels
        for size in (*reversed(c.input), c.batch):
            steps.append(step)
            step *= size
        view = View(0, (*reversed(steps[1:4]), steps[0]))
        return launch._vectors(p.patches, view, 2)

    assert vectors("rows of 8") == (8, 5, 5)  # three numbers before x, of ten pixels
    assert vectors("rows of 8", pixel=4) == (0, 0, 10)
    assert vectors("rows of 4") == (4, 3, 4)
    assert vectors("rows of 8, stride 2") == (8, 7, 9)
    assert vectors("no lead") == (0, 0, 32)
    assert vectors("stem") == (0, 1, 17)  # 39 numbers of a row
    assert vectors("48, 1x1") == (8, 0, 48)


@pytest.mark.parametrize("channels", [4, 12, 2, 8])
def test_what_lies_behind_a_row_s_only_pixel_is_not_asked(
    channels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The distance of pixels that are not there may be any, as behind PyTorch's ``unsqueeze``."""
    p = offered(layer((2, 9, 1, channels), 8, (3, 3), padding=1), "forward", "fp16")[0]
    a, b = operands(p.problem, "forward", "fp16")
    due, given = on_cpu(p, a, b), launch.parameters
    for stride in (0, 1, 7, 1000):

        def parameters(call: PatchesPlan, x: View, *others: View, stride: int = stride) -> Params:
            return given(call, replace(x, strides=(*x.strides[:3], stride)), *others)

        monkeypatch.setattr(launch, "parameters", parameters)
        assert (on_cpu(p, a, b) == due).all()


def test_what_32_bits_do_not_count_is_copied_by_pixels() -> None:
    """A kernel counts elements of rows in vectors: of all positions as one row, and of padding."""
    sides = (1, 1 << 14, 1 << 14)
    padded = Problem(1, 4, 8, (1 << 20,), (3,), (32,), ((1 << 30, 0),), (1,), 1)
    for problem, due in (
        (layer((*sides, 4), 8, (1, 1)), 8),
        (layer((*sides, 12), 8, (1, 1)), 0),
        (padded, 0),
        (replace(padded, padding=((1 << 28, 0),)), 8),
    ):
        (p,) = offered(problem, "forward", "fp16", config=Config(8, 8, 32))
        step = problem.in_channels << 14
        view = View(0, (step << 14, step << 14, step, problem.in_channels))
        assert launch._vectors(p.patches, view, 2)[0] == due


def test_more_positions_than_32_bits_count_are_no_row() -> None:
    """They stay rows: a launch has all of its numbers."""
    for side, rows in ((47_000, False), (40_000, True)):
        problem = layer((1, side, side, 1), 8, (1, 1))
        p = min(offered(problem, "forward", "fp16"), key=lambda p: p.predicted)
        strides = (0, side * side, side, 1)
        x, y = View(0, strides), View(0, tuple(8 * s for s in strides))
        values = launch.parameters(p, x, View(0, (1,) * 5), y).values
        at = {name: i for i, (name, _) in enumerate(launch.PARAMS.fields)}
        assert values[at["width"]] == (side * side if rows else side)


def test_work_tiles_are_shared_by_blocks_that_stay() -> None:
    """Fewer blocks than work tiles, the last of which are not full."""
    for name in ("stem", "rows of 8", "48, 1x1"):
        p = offered(PROBLEMS[name], "forward", "fp16", config=Config(8, 8, 32))[0]
        few = replace(p, device=replace(p.device, multiprocessors=1, shared_memory=0))
        assert few.resident == 1
        assert few.patches.work_tiles > few.workers
        a, b = operands(p.problem, "forward", "fp16")
        assert (on_cpu(few, a, b) == on_cpu(p, a, b)).all()


def test_random_problems() -> None:
    """Any plan of the one generator's; NaN and infinity reach what depends on them alone."""
    ran = 0
    for number in range(300):
        if not (one := random_plans.drawn("patches", number)):
            continue
        request = replace(one.request, algorithm=None, device=H100, out_dtype=None)
        request = replace(request, precision=PRECISIONS[number % 2])
        problem = replace(request.problem, groups=1)
        channels = max(1, problem.in_channels % 12), 8 * max(1, problem.out_channels % 6)
        problem = replace(problem, in_channels=channels[0], out_channels=channels[1])
        request = replace(request, problem=problem)
        if problem.macs > 3e5 or problem.ndim > 3 or request.direction not in DIRECTIONS:
            continue
        if not problem.batch or min(problem.output) <= 0 or min(problem.input) <= 0:
            continue
        found = []
        with contextlib.suppress(ValueError):  # shared memory does not hold what taps meet
            found = [*patches.plans(request)]
        if found:
            p = found[number % len(found)]
            random_plans.run(problem, p, np.random.default_rng(number), spoilt=True)
            ran += 1
        if ran == 16:
            break
    assert ran == 16


def test_integers_are_exact_and_adjoint() -> None:
    """⟨dy, x ⋆ w⟩ = ⟨dx, x⟩, of numbers whose sums FP32 holds."""
    problem = PROBLEMS["8 of 72"]
    rng = np.random.default_rng(1)
    shapes = problem.x_shape, problem.w_shape, problem.y_shape
    x, w, dy = (rng.integers(-1, 2, shape).astype("float16") for shape in shapes)
    dx = on_cpu(offered(problem, "backward_data", "fp16")[-1], dy, w).astype(float)
    assert (dx == convolution.backward_data(dy.astype(float), w.astype(float), problem)).all()
    y = convolution.forward(x.astype(float), w.astype(float), problem)
    assert (y * dy).sum() == (dx * x).sum() != 0


@pytest.mark.parametrize("name", ["stem", "rows of 8", "rows of 8, stride 2", "5"])
def test_infinities_and_nan_stay_in_their_windows(name: str) -> None:
    """Numbers beside a pair's, which lie in the same word, are none."""
    problem = PROBLEMS[name]
    p = offered(problem, "forward", "fp16")[0]
    a, b = operands(problem, "forward", "fp16")
    mark = np.zeros(problem.x_shape)
    for at, value in (((0, 2, 4, 2), np.inf), ((0, 7, 6, 0), np.nan)):
        a[at], mark[at] = value, 1
    expected = convolution.forward(mark, np.ones(problem.w_shape), problem) > 0
    assert (~np.isfinite(on_cpu(p, a, b)) == expected).all()


@pytest.mark.parametrize("config", [Config(16, 16, 64, 2), Config(8, 8, 128), Config(8, 16, 96)])
@pytest.mark.parametrize("name", ["rows of 8, stride 2", "rows of 8", "48, 1x1"])
def test_the_kernels_spill_nothing(name: str, config: Config, compiled) -> None:
    """And a multiprocessor holds as many blocks as the model has."""
    (p,) = offered(PROBLEMS[name], "forward", "fp16", config=config)
    view, w = View(0, (16,) * 4), View(0, (16,) * 5)
    size = len(launch.parameters(p, view, w, view).data)
    found = compiled(p.source() + f"\nstatic_assert(sizeof(PatchParams) == {size});")
    (used,) = found.values()
    assert not used.spills
