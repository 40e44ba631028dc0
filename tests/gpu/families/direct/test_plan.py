"""Direct products of 16-bit data on wgmma: results against FP64, and where they are planned."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import winolab
from tests.gpu import hosted
from tests.gpu.guarded import UNIFORM
from tests.gpu.support.halves import DTYPES, UNIT
from tests.gpu.support.pretended import Array
from winolab.algorithm import Problem
from winolab.bench.layers import parse_layer
from winolab.device import H100, datasheet
from winolab.gpu.families.direct import launch
from winolab.gpu.families.direct import plan as direct
from winolab.gpu.families.direct.config import BLOCKS, LEAST, Config
from winolab.gpu.families.direct.plan import DirectPlan
from winolab.gpu.families.im2col.plan import plans as by_position
from winolab.gpu.params import Params, View
from winolab.gpu.planner.planner import plan
from winolab.gpu.planner.request import Request
from winolab.ref.algorithms import convolution
from winolab.ref.arithmetic.simulated import arithmetic
from winolab.ref.error.metrics import predict

FORTH, BACK = "forward", "backward_data"
# x, w, options: blocks of channels, pixels and images that are not full, one and three dimensions,
# groups, negative padding of the rotated filter, taps that no output meets
PROBLEMS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((3, 9, 10, 72), (136, 3, 3, 72), {"padding": 1}),
    ((2, 3, 5, 7, 16), (32, 2, 2, 3, 8), {"padding": (1, 0, 2), "groups": 2}),
    ((2, 40, 24), (16, 5, 24), {"padding": 4}),
    ((1, 12, 3, 8), (8, 2, 3, 8), {"padding": ((0, 2), (3, 1))}),
    ((5, 4, 4, 64), (64, 1, 1, 64), {}),
]


def planned(
    problem: Problem, direction: str, config: Config, precision: str, out_dtype: str | None = None
) -> DirectPlan:
    asked = Request(problem, direction, H100, None, precision, config=config, out_dtype=out_dtype)
    (found,) = direct.plans(asked)
    return found


def operands(problem: Problem, direction: str, precision: str) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    shape = problem.x_shape if direction == FORTH else problem.y_shape
    a, b = (rng.uniform(-1, 1, s).astype(DTYPES[precision]) for s in (shape, problem.w_shape))
    return a, b


def too_far(p: DirectPlan, a: np.ndarray, b: np.ndarray, y: np.ndarray) -> float:
    """A result's RMS error over what it may be: 1.2 times the predicted one, which
    is right within 20 %, and the rounding of the result."""
    exact = getattr(convolution, p.direction)(a.astype(float), b.astype(float), p.problem)
    c = p.correlation
    layer = Problem.of((1, *(r + 1 for r in c.filter), c.channels), (1, *c.filter, c.channels))
    relative = predict(UNIFORM, UNIFORM, layer, p.algorithm, arithmetic(p.simulated)).relative_rms
    error = np.sqrt(((y.astype(float) - exact) ** 2).mean())
    return error / ((1.2 * relative + UNIT[y.dtype.name]) * np.sqrt((exact**2).mean()))


@pytest.mark.parametrize("direction", [FORTH, BACK])
@pytest.mark.parametrize(("x", "w", "options"), PROBLEMS)
def test_results_are_those_of_fp64(x, w, options, direction) -> None:
    """One precision has a copy of x for a filter row, in the other direction the other one."""
    problem = Problem.of(x, w, **options)
    for i, precision in enumerate(DTYPES):
        along = (i + (direction == BACK) + PROBLEMS.index((x, w, options))) % 2
        shape = Config(128 << i, 64, 3, 4, along, split_k=2 if i else 1)
        a, b = operands(problem, direction, precision)
        p = planned(problem, direction, shape, precision)
        y = hosted.execute(p, a, b, dtype=DTYPES[precision].name, seed=i)
        assert too_far(p, a, b, y) <= 1


@pytest.mark.parametrize("split_k", [1, 4])
def test_results_in_fp32_are_not_rounded(split_k) -> None:
    problem = Problem.of((2, 9, 10, 72), (72, 3, 3, 72), padding=1)
    shape = Config(128, 64, 3, 6, 1, split_k)
    for precision in DTYPES:
        a, b = operands(problem, BACK, precision)
        p = planned(problem, BACK, shape, precision, "float32")
        assert too_far(p, a, b, hosted.execute(p, a, b)) <= 1
    assert planned(problem, BACK, shape, "fp16", "bfloat16").out_dtype == "float32"


# Blocks of as many positions and channels come in twos, whose splits take turns: those of a copy
# of x for a tap have 1 and 4, those of one for a filter row 2 and 8, of the next two the reverse.
SPLITS = [
    (shape, split_k)
    for i, shape in enumerate(BLOCKS)
    for split_k in (1, *shape.splits)[(i // 2 + shape.along) % 2 :: 2]
]


def test_every_block_has_its_turn_with_every_split() -> None:
    met = {(v.bn, v.bm, split_k) for v, split_k in SPLITS}
    assert met == {(v.bn, v.bm, split_k) for v in BLOCKS for split_k in (1, *v.splits)}
    assert {shape for shape, split_k in SPLITS if split_k < 4} == set(BLOCKS)
    assert len({(v.along, split_k) for v, split_k in SPLITS}) == 8


@pytest.mark.parametrize(("shape", "split_k"), SPLITS, ids=str)
def test_every_block_of_every_cluster(shape, split_k) -> None:
    """Blocks have as many outputs as fit, but for the last ones; stages are used more than once
    where a cluster is small, and there are several blocks of channels where there is none."""
    channels = 200 if split_k == 2 and shape.x_stages > 4 else 136
    outputs = shape.bm + 40 if split_k == 1 else shape.bm - 24
    problem = Problem.of((2, 10, 11, channels), (outputs, 3, 3, channels), padding=1)
    a, b = operands(problem, FORTH, "fp16")
    p = planned(problem, FORTH, replace(shape, split_k=split_k), "fp16")
    copies = p.steps // 3 if shape.along else p.steps
    assert (p.work_tiles > p.box.blocks) == (split_k == 1)
    if split_k < 4:
        assert p.steps > split_k * shape.w_stages
        assert copies > split_k * shape.x_stages
    assert too_far(p, a, b, hosted.execute(p, a, b, dtype="float16")) <= 1


@pytest.mark.parametrize("direction", [FORTH, BACK])
def test_single_taps_of_dense_arrays_are_one_row(direction) -> None:
    """Its blocks run on from image to image; of arrays with gaps they do not. The same bits."""
    problem = Problem.of((5, 7, 7, 144), (80, 1, 1, 72), groups=2)
    a, b = operands(problem, direction, "fp16")
    p = planned(problem, direction, Config(128, 64, 3, 4, split_k=2), "fp16")
    assert p.flat
    assert "dense arrays as one row" in str(p)
    assert (p.box.width, p.box.blocks) == (123, 2)  # 245 positions
    y = hosted.execute(p, a, b, dtype="float16")
    assert too_far(p, a, b, y) <= 1
    rows = replace(p, flat=False)
    assert rows.box.blocks == 3
    zeros = {name: np.zeros((5, 7, 8, v.shape[-1]), "float16") for name, v in (("a", a), ("y", y))}
    zeros["a"][:, :, :7] = a
    ran = []
    (name, run), *_ = hosted.loaded(p).items()

    def counted(grid: Any, threads: int, params: Params, early: bool = False) -> None:
        ran.append(grid[0])
        run(grid, threads, params, early)

    ends, out = (
        View(v.ctypes.data, (56 * v.shape[-1], 0, 8 * v.shape[-1], v.shape[-1]))
        for v in zeros.values()
    )
    p.launch({name: counted}, ends, hosted.filter_view(b), out, 0, 0)
    assert ran == [rows.grid, rows.grid]
    assert (zeros["y"][:, :, :7] == y).all()
    assert (zeros["y"][:, :, 7] == 0).all()
    padded = Problem.of((5, 7, 7, 8), (8, 1, 1, 8), padding=1)
    assert not planned(padded, direction, Config(128, 64, 3, 4), "fp16").flat


def test_blocks_walk_over_work_tiles() -> None:
    problem = Problem.of((4, 9, 9, 72), (200, 3, 3, 72), padding=1)
    a, b = operands(problem, FORTH, "fp16")
    whole = planned(problem, FORTH, Config(128, 64, 3, 4, 1), "fp16")
    few = replace(whole, device=replace(H100, multiprocessors=3))
    assert whole.grid == whole.work_tiles > few.grid == 3
    y = [hosted.execute(p, a, b, dtype="float16") for p in (whole, few)]
    assert (y[0] == y[1]).all()


def test_infinities_and_nan_stay_where_they_are() -> None:
    """A pixel's neighbours in a copy of x are no output's."""
    problem = Problem.of((1, 6, 20, 8), (8, 3, 3, 8), padding=1)
    a, b = operands(problem, FORTH, "fp16")
    a[0, 2, 4, 3], a[0, 4, 19, 0] = np.inf, np.nan
    y = hosted.execute(
        planned(problem, FORTH, Config(128, 64, 2, 4, 1), "fp16"), a, b, dtype="float16"
    )
    expected = np.zeros((1, 6, 20, 8), bool)
    expected[0, 1:4, 3:6], expected[0, 3:6, 18:20] = True, True
    assert (~np.isfinite(y) == expected).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"device": datasheet("a100")},
            r"compute capability 8\.0; direct products by wgmma need 9\.0",
        ),
        ({"aligned": False}, "need pixels that lie 16-byte aligned"),
        (
            {"problem": Problem.of((1, 5, 5, 12), (8, 3, 3, 12))},
            "multiples of 8 channels, not 12 and 8",
        ),
        ({"problem": Problem.of((0, 5, 5, 8), (8, 3, 3, 8))}, "need something to sum"),
    ],
)
def test_what_cannot_run_is_refused(change, message) -> None:
    request = Request(Problem.of((1, 5, 5, 8), (8, 3, 3, 8)), FORTH, H100, None, "fp16")
    with pytest.raises(ValueError, match=message):
        list(direct.plans(replace(request, **change)))


@pytest.mark.parametrize(
    ("layer", "kernel"),
    [
        ("1x14x14x256:256x3x3", "Γ1(1,1)"),  # few images
        ("32x7x7x512:512x3x3", "Γ1(1,1)"),  # a transformed filter as large as the data
        ("32x56x56x64:256x1x1", "Γ1(1,1)"),  # what Γ has no kernel for
        ("64x128x128x64:64x5x5", "Γ8(4,5)"),  # transforms pay
    ],
)
def test_the_planner_takes_them_where_transforms_take_longer(layer, kernel) -> None:
    for precision in ("fp16", "bf16"):
        for direction in (FORTH, BACK):
            request = Request(parse_layer(layer).problem, direction, H100, None, precision)
            assert plan(request).kernel == kernel


@pytest.mark.parametrize("groups", [1, 2, 8])
@pytest.mark.parametrize("direction", [FORTH, BACK])
def test_the_smallest_blocks_are_left_to_who_offers_them(direction, groups) -> None:
    """100 of a group: of eight, copies that walk positions have none, of two both have."""
    problem = Problem.of(
        (8, 40, 40, 64 * groups), (64 * groups, 3, 3, 64), padding=1, groups=groups
    )
    request = Request(problem, direction, H100, None, "fp16")
    own = [p.config for p in direct.plans(request) if not p.config.along]  # which stay
    mine = any(v.bn * v.bm == LEAST for v in own)
    others = any(p.config.bn * p.config.bm == LEAST for p in by_position(request))
    assert (mine, others) == (groups > 1, groups < 8)


def test_a_plan_says_what_it_does() -> None:
    problem = parse_layer("32x14x14x256:256x3x3").problem
    p = planned(problem, FORTH, Config(128, 128, 4, 8, 1), "fp16")
    text = str(p)
    assert "Γ1(1,1) fp16, nothing transformed" in text
    assert "policies   128x128x64 stages=4+8 along=1" in text
    assert "no workspace" in text
    assert (p.work_tiles, p.steps, p.chunks) == (p.box.blocks * 2, 36, 4)


def test_filters_that_lie_otherwise_are_copied(library) -> None:
    """Kernels read filters where they lie; channels first, or at odd addresses, they cannot."""
    rng = np.random.default_rng(0)
    x, w = (rng.uniform(-1, 1, s).astype("float16") for s in ((1, 6, 6, 16), (8, 3, 3, 16)))
    y = winolab.conv_forward(x.astype(float), w.astype(float), padding=1)
    first = np.ascontiguousarray(np.moveaxis(w, -1, 1))
    odd = np.zeros((8, 3, 3, 17), "float16")[..., 1:]
    odd[...] = w
    for filters, copies in ((w, []), (np.moveaxis(first, 1, -1), ["b"]), (odd, ["b"])):
        got = winolab.conv_forward(Array(x), Array(filters), padding=1, algorithm="direct")
        assert np.abs(got.values - y).max() <= 2**-11 * np.abs(y).max()
        assert library.reordered() == copies


def test_configs_that_no_kernel_has_are_refused() -> None:
    problem = Problem.of((1, 5, 9, 64), (64, 3, 3, 64), padding=1)
    usual = Config(128, 64, 8, 8)

    def offered(config: Config, precision: str) -> list[Any]:
        family = direct.plans if precision == "fp16" else direct.split_plans
        return list(family(Request(problem, "forward", H100, None, precision, config=config)))

    for precision in ("fp16", "fp32_split"):
        assert offered(usual, precision)
        for wrong in ({"bn": 129}, {"bm": 65}, {"bm": 288}, {"x_stages": 0}, {"w_stages": 0}):
            with pytest.raises(ValueError, match="have no blocks"):
                offered(replace(usual, **wrong), precision)
        with pytest.raises(ValueError, match="B of 232448 B of shared memory"):
            offered(replace(usual, w_stages=27), precision)
    with pytest.raises(ValueError, match="have no blocks"):
        offered(replace(usual, bn=192, bm=64), "fp16")


@pytest.mark.parametrize("precision", ["fp16", "fp32_split"])
def test_more_positions_than_32_bits_count_are_no_row(precision: str) -> None:
    """They stay rows: a launch has all of its numbers."""
    family = direct.plans if precision == "fp16" else direct.split_plans
    for images, flat in ((1 << 30, False), (1 << 28, True)):
        problem = Problem.of((images, 2, 2, 64), (64, 1, 1, 64))
        for p in family(Request(problem, "forward", H100, None, precision)):
            assert p.flat == flat
            x, w = View(0, (256, 256, 128, 64)), View(0, (64, 64, 64, 64, 1))
            launch.main_params(p, 0, x, launch.filter_map(p, 0, w), x)
