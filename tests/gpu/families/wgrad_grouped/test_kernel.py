"""The kernel of grouped layers' filter gradients: its source on the CPU, and on a GPU, against FP64
within the proven bound."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from tests.gpu import hosted, random_plans
from tests.gpu.families.depthwise.cases import on_gpu, operands, too_far
from tests.gpu.families.wgrad_grouped.cases import PRECISIONS, PROBLEMS, layer, offered
from tests.gpu.support.gradients import sums_added_again
from winolab.device import H100, REGISTERS
from winolab.gpu.families.wgrad_grouped import launch
from winolab.gpu.families.wgrad_grouped import plan as wgrad_grouped
from winolab.gpu.families.wgrad_grouped.config import UNITS, WARP_ROWS, Config
from winolab.gpu.families.wgrad_grouped.plan import WgradGroupedPlan
from winolab.gpu.params import SHARED_LINE, View
from winolab.ref.algorithms import convolution

GRADIENT = "backward_filter"


def on_cpu(p: WgradGroupedPlan, a: np.ndarray, b: np.ndarray, **how) -> np.ndarray:
    return hosted.execute(p, a, b, dtype=p.out_dtype, **how)


@pytest.mark.parametrize("name", PROBLEMS)
def test_results_are_those_of_fp64(name: str) -> None:
    """By the first or the last block shape that is offered; precisions take turns, FP32 every
    other time."""
    turn = [*PROBLEMS].index(name)
    precision = "fp32_split" if turn % 2 else ("fp16", "bf16")[turn // 2 % 2]
    p = offered(PROBLEMS[name], precision)[-(turn // 4 % 2)]
    a, b = operands(p.problem, GRADIENT, precision)
    assert too_far(p, a, b, on_cpu(p, a, b)) == 0, p


@pytest.mark.gpu
@pytest.mark.parametrize("name", PROBLEMS)
def test_results_on_a_gpu_are_those_of_fp64(name: str) -> None:
    """Within zones of NaN, and of one share and of several, whose sums are the same every time."""
    for precision in PRECISIONS:
        for p in offered(PROBLEMS[name], precision):
            a, b = operands(p.problem, GRADIENT, precision)
            for shared in {p, replace(p, shares=1), replace(p, shares=min(3, p.work_tiles))}:
                first = on_gpu(shared, a, b)
                assert too_far(shared, a, b, first) == 0, shared
                assert (on_gpu(shared, a, b).view("u1") == first.view("u1")).all()


@pytest.mark.parametrize("units", UNITS)
def test_every_block_shape(units: int) -> None:
    """Units and warps without anything, work tiles that are not full, a result in FP32; precisions
    take turns."""
    for number, warp_rows in enumerate(WARP_ROWS):
        name = ("groups of 8", "groups of 4", "groups of 4 and 8", "groups of 2")[number]
        precision = PRECISIONS[(number + UNITS.index(units)) % 3]
        config = Config(1, 5, 6, min(warp_rows, 8 // units), units, (9, 4, 9, 6)[number])
        (p,) = offered(PROBLEMS[name], precision, config=config, out_dtype="float32")
        a, b = operands(p.problem, GRADIENT, precision)
        assert too_far(p, a, b, on_cpu(p, a, b)) == 0, p


@pytest.mark.parametrize("name", ["groups of 4", "groups of 4, stride 2", "three dimensions"])
def test_shares_are_added_up(name: str) -> None:
    """Work tiles that follow each other in all stages: of one share, of two, of as many as there
    are work tiles."""
    precision = "fp32_split" if name == "groups of 4" else "bf16"
    c = offered(PROBLEMS[name], precision)[0].config
    (p,) = offered(PROBLEMS[name], precision, config=replace(c, rows=2, columns=3))
    a, b = operands(p.problem, GRADIENT, precision)
    assert p.work_tiles > 8
    for shares in (1, 2, p.work_tiles):
        shared = replace(p, shares=shares)
        assert shared.workspace == (shares > 1) * shares * 4 * p.gradient.weights
        assert too_far(shared, a, b, on_cpu(shared, a, b)) == 0, shares


@pytest.mark.parametrize("precision", PRECISIONS)
def test_threads_in_any_order_have_the_same_bits(precision: str) -> None:
    c = Config(2, 2, 3, 4, 2, 9)
    (p,) = offered(PROBLEMS["groups of 4"], precision, config=c)
    p = replace(p, shares=2)
    a, b = operands(p.problem, GRADIENT, precision)
    due = on_cpu(p, a, b)
    for seed in (1, 2, 3):
        assert (on_cpu(p, a, b, seed=seed).view("u1") == due.view("u1")).all()


def test_addresses_of_what_is_not_there_are_aligned() -> None:
    """Beside a dimension's only element, whose distance to others may be any, too."""
    (p, *_) = offered(layer((1, 9, 1, 32), 32, (3, 3), padding=1, groups=8), "fp16")
    view = View(0, (1, 0, 64, 3))
    values = launch.parameters(p, view, view, View(0, (36, 36, 12, 4, 1)), 0).values
    at = {name: i for i, (name, _) in enumerate(launch.PARAMS.fields)}
    for side in ("x", "dy"):
        found = [values[at[f"{side}_{name}"]] for name in ("batch", "depth", "row", "pixel")]
        assert found == [0, 0, 64, 0]


def test_random_problems() -> None:
    """Any plan of the one generator's; NaN and infinity reach what may depend on them alone."""
    ran = 0
    for number in range(400):
        if not (one := random_plans.drawn("grouped", number)):
            continue
        request = replace(one.request, algorithm=None, device=H100, aligned=True)
        request = replace(request, direction=GRADIENT, precision=PRECISIONS[number % 3])
        request = replace(request, out_dtype=None)
        problem = request.problem
        if problem.macs > 5e5 or problem.ndim > 3 or not problem.batch or min(problem.output) < 1:
            continue
        if found := [*wgrad_grouped.plans(request)]:
            p = found[number % len(found)]
            random_plans.run(problem, p, np.random.default_rng(number), spoilt=True)
            ran += 1
        if ran == 12:
            break
    assert ran == 12


@pytest.mark.parametrize("precision", ["fp16", "fp32_split"])
def test_integers_are_exact(precision: str) -> None:
    """Sums that FP32 holds, whatever their order, are those of the definition."""
    for name in ("groups of 4, stride 2", "groups of 24", "dilation and stride", "causal"):
        problem = PROBLEMS[name]
        rng = np.random.default_rng(1)
        dtype = "float32" if precision == "fp32_split" else "float16"
        x, dy = (
            rng.integers(-2, 3, shape).astype(dtype) for shape in (problem.x_shape, problem.y_shape)
        )
        exact = convolution.backward_filter(x.astype(float), dy.astype(float), problem)
        assert (on_cpu(offered(problem, precision)[-1], x, dy).astype(float) == exact).all()


def test_infinity_where_strides_pass_over_it_is_in_no_tap_and_else_in_those_that_meet_it() -> None:
    """By both precisions; a group's channel of x is in its own outputs alone."""
    problem = layer((1, 6, 7, 16), 8, (1, 2), stride=(2, 3), groups=2)
    for precision in ("fp16", "fp32_split"):
        x, dy = operands(problem, GRADIENT, precision)
        x[:, 1::2], x[:, :, 2::3] = np.nan, np.inf  # which no tap meets
        p = offered(problem, precision)[0]
        assert np.isfinite(on_cpu(p, x, dy)).all()
        x[0, 2, 3, 5] = np.inf
        dw = on_cpu(p, x, dy)
        assert not np.isfinite(dw[:4, 0, 0, 5]).any()
        dw[:4, 0, 0, 5] = 0
        assert np.isfinite(dw).all()


def test_what_fills_up_a_work_tile_is_in_no_tap() -> None:
    """Infinity beside the last outputs of a map whose last work tiles are not full stays in the
    taps that meet it."""
    problem = layer((1, 7, 7, 16), 16, (3, 3), groups=2, padding=1)
    for precision in ("fp16", "fp32_split"):
        (p,) = offered(problem, precision, config=Config(1, 4, 5, 1, 1, 9))
        x, dy = operands(problem, GRADIENT, precision)
        x[0, 6, 6, 3] = np.inf
        met = np.isfinite(on_cpu(p, x, dy)[:8, :, :, 3]).all(axis=0)
        assert met.tolist() == [[True] * 3, [True, False, False], [True, False, False]]


def test_sums_that_are_not_finite_are_added_up_again() -> None:
    """Also without what lies in the padding."""
    (p,) = offered(PROBLEMS["groups of 4"], "fp32_split", config=Config(1, 4, 4, 2, 2, 9))
    p = replace(p, shares=3)
    x, dy = operands(p.problem, GRADIENT, "fp32_split")
    compute = partial(on_cpu, p)
    sums_added_again(compute, p.problem, x, dy, nan=(1, 7, 9, 11), large=(1, 4, 4, 60))
    dy[:] = 1
    dy[0, 0, 0, 33] = np.inf  # whose first row and column of taps lie outside
    finite = np.isfinite(on_cpu(p, x, dy)[33]).all(axis=-1)
    assert finite.tolist() == [[True] * 3, [True, False, False], [True, False, False]]


@pytest.mark.parametrize(
    ("name", "precision", "config"),
    [
        ("groups of 4", "fp16", Config(1, 8, 8, 4, 2, 9)),
        ("groups of 4", "fp32_split", Config(1, 8, 8, 4, 2, 9)),
        ("groups of 32", "bf16", Config(1, 4, 8, 2, 1, 9)),
        ("groups of 4 and 8", "fp16", Config(1, 8, 8, 4, 2, 18)),
        ("groups of 24", "fp32_split", Config(1, 3, 8, 1, 1, 6)),
    ],
)
def test_the_kernels_spill_nothing(name: str, precision: str, config: Config, compiled) -> None:
    """And a multiprocessor holds as many blocks as the model has."""
    (p,) = offered(PROBLEMS[name], precision, config=config)
    view, w = View(0, (16,) * 4), View(0, (16,) * 5)
    size = len(launch.parameters(p, view, view, w, 0).data)
    found = compiled(p.source() + f"\nstatic_assert(sizeof(WgradGroupedParams) == {size});")
    used = found["winolab_wgrad_grouped"]
    assert not used.spills
    granted = -(-used.registers // 8) * 8
    assert REGISTERS // (p.threads * granted) >= p.held


@pytest.mark.parametrize("name", PROBLEMS)
def test_shared_memory_has_no_conflicts(name: str) -> None:
    """What products read lies in all banks, where outputs of two rows of a patch meet, too, and
    where there are no more of them; precisions take turns."""
    precision = PRECISIONS[[*PROBLEMS].index(name) % 2]
    for p in offered(PROBLEMS[name], precision)[-1:]:
        a, b = operands(p.problem, GRADIENT, precision)
        made = hosted.requests(p, a, b)["winolab_wgrad_grouped"]
        if precision == "fp16":
            made = [r for r in made if r.bytes == 16 and not r.write]
        v, pixel = p.config, p.pixels_apart[0]
        down = p.gradient.stride[1] * p.row_pitch - v.columns * pixel
        across = p.gradient.filter[0] * p.level_pitch - v.rows * v.columns * pixel
        most = 1 if (down % SHARED_LINE, across % SHARED_LINE) == (0, 0) else 1.5
        assert most == 1 or 1 in (v.columns % 2, p.gradient.stride[1] % 2)
        assert made
        assert all(r.phases <= most * r.wavefronts for r in made), p
