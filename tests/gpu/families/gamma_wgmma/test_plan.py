"""Γ on Tensor Cores in split FP32: plans, and the kernels' results against FP64."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import winolab
from tests.gpu import hosted
from tests.gpu.families.gamma_wgmma.policies import BOUND, has
from tests.gpu.support.turns import turns
from winolab.algorithm import Problem, parse_algorithm
from winolab.bench.oracle import relative_rms
from winolab.device import H100, datasheet
from winolab.gpu import driver
from winolab.gpu.families.gamma_wgmma.config import Config
from winolab.gpu.families.gamma_wgmma.plan import plans
from winolab.gpu.params import View
from winolab.gpu.planner.planner import plan as choose
from winolab.gpu.planner.request import DTYPES, Request
from winolab.gpu.runtime import loader
from winolab.ref.algorithms import convolution


def _plan(
    problem: Problem,
    direction: str,
    text: str | None = None,
    *,
    precision: str = "fp32_split",
    aligned: bool = True,
    config: Config | None = None,
    out_dtype: str = "float32",
):
    algorithm = parse_algorithm(text) if text else None
    found = plans(
        Request(
            problem, direction, H100, algorithm, precision,
            aligned=aligned, config=config, out_dtype=out_dtype,
        )
    )  # fmt: skip
    return min(found, key=lambda plan: plan.predicted)


def _exact(direction: str, a: np.ndarray, b: np.ndarray, problem: Problem) -> np.ndarray:
    compute = convolution.forward if direction == "forward" else convolution.backward_data
    return compute(a.astype("float64"), b.astype("float64"), problem)


@pytest.mark.parametrize(
    ("direction", "x_shape", "w_shape", "options", "text", "scales"),
    [
        # batch odd, the last tile, row and channel block masked
        ("forward", (3, 5, 13, 20), (68, 3, 3, 20), {"padding": 1}, None, (1e-20, 1e15)),
        ("backward_data", (1, 5, 13, 20), (36, 3, 3, 20), {"padding": 1}, None, (1e15, 1e-20)),
        # boxes of four and two images, of one and two tiles of a row
        ("forward", (4, 5, 13, 20), (20, 3, 3, 20), {"padding": 1}, "gamma:8:6:3", (1, 1)),
        ("backward_data", (6, 4, 12, 12), (8, 3, 3, 12), {"padding": 1}, "gamma:8:6:3", (1, 1)),
        ("forward", (1, 2, 9, 16), (8, 2, 5, 8), {"groups": 2}, "gamma:8:4:5", (1e30, 1e-38)),
        ("forward", (1, 23, 12), (8, 6, 12), {"padding": 2}, "gamma:8:6:3", (1, 0)),
        ("backward_data", (1, 3, 3, 9, 4), (4, 2, 1, 7, 4), {}, "gamma:8:2:7", (1e-38, 1)),
        # channels that no vector divides, filters in pieces, whole and filled up with zeros
        ("forward", (2, 5, 9, 7), (5, 3, 3, 7), {"padding": 1}, None, (1, 1)),
        ("backward_data", (1, 6, 11, 6), (9, 2, 9, 6), {"padding": (1, 4)}, None, (1, 1)),
        ("forward", (1, 14, 5), (3, 8, 5), {"padding": 3}, None, (1, 1)),
        ("backward_data", (1, 25, 4), (4, 11, 4), {"padding": 5}, None, (1, 1)),
        ("forward", (2, 9, 7, 8), (8, 3, 3, 8), {"padding": 1}, "gamma:4:2:3", (1, 1)),
        ("forward", (1, 3, 9, 12), (8, 2, 2, 12), {}, "gamma:4:3:2", (1, 1)),
        ("forward", (1, 9, 7, 20), (8, 3, 2, 20), {"padding": 1}, "gamma:4:3:2", (1, 1)),
        # six states
        ("forward", (4, 5, 13, 20), (20, 3, 3, 20), {"padding": 1}, "gamma:6:4:3", (1, 1)),
        ("backward_data", (1, 9, 11, 20), (8, 2, 2, 20), {"padding": 1}, "gamma:6:5:2", (1, 1)),
        ("forward", (4, 9, 10, 36), (8, 4, 4, 36), {"padding": 2}, "gamma:6:3:4", (1e30, 1e-38)),
    ],
)
def test_on_the_cpu(direction, x_shape, w_shape, options, text, scales) -> None:
    problem = Problem.of(x_shape, w_shape, **options)
    plan = _plan(problem, direction, text)
    rng = np.random.default_rng(0)
    shape = problem.x_shape if direction == "forward" else problem.y_shape
    a = rng.standard_normal(shape) * scales[0]
    b = rng.standard_normal(problem.w_shape) * scales[1]
    a, b = a.astype("float32"), b.astype("float32")
    got, exact = hosted.execute(plan, a, b), _exact(direction, a, b, problem)
    if scales[1]:
        assert relative_rms(got, exact) <= BOUND
    else:
        assert not got.any()


@pytest.mark.parametrize(
    ("precision", "out_dtype", "channels", "text"),
    turns(
        ["fp16", "bf16"],
        ["same", "float32"],
        [(24, 72), (20, 36), (7, 5)],
        ["gamma:8:6:3", "gamma:6:4:3", "gamma:4:2:3"],
    ),
)
def test_sixteen_bits_on_the_cpu(precision, out_dtype, channels, text) -> None:
    c, oc = channels
    dtype = np.dtype(DTYPES[precision])
    problem = Problem.of((2, 5, 13, c), (oc, 3, 3, c), padding=1)
    out = DTYPES[precision] if out_dtype == "same" else out_dtype
    aligned = c % 8 == 0
    plan = _plan(problem, "forward", text, precision=precision, aligned=aligned, out_dtype=out)
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype(dtype) for s in (problem.x_shape, problem.w_shape))
    got = hosted.execute(plan, a, b, dtype=out).astype("float64")
    unit = 2**-8 if precision == "bf16" else 2**-11
    assert relative_rms(got, _exact("forward", a, b, problem)) <= 5 * unit


SHAPES = [
    Config(1),
    Config(4),
    Config(4, 3),
    Config(8, 3, 2),
    Config(4, 1, 4),
    Config(2, 2, 8),
    Config(8, 5),
]


@pytest.mark.parametrize(("config", "seed"), turns(SHAPES, [0, 1]), ids=str)
def test_block_shapes_agree(config: Config, seed: int) -> None:
    problem = Problem.of((1, 3, 7, 132), (4, 3, 3, 132), padding=1)
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(s).astype("float32") for s in (problem.x_shape, problem.w_shape))
    got = hosted.execute(_plan(problem, "forward", config=config), a, b, seed=seed)
    assert relative_rms(got, _exact("forward", a, b, problem)) <= BOUND


def _run(
    problem: Problem, direction: str, text: str, aligned: bool = True, **policies: int
) -> float:
    """The error of the fastest plan that has these policies; of what it wrote, all of it."""
    request = Request(
        problem, direction, H100, parse_algorithm(text), "fp32_split", aligned=aligned
    )
    found = [p for p in plans(request) if has(p, **policies)]
    plan = min(found, key=lambda p: p.predicted)
    shape = problem.x_shape if direction == "forward" else problem.y_shape
    rng = np.random.default_rng(2)
    a, b = (rng.standard_normal(s).astype("float32") for s in (shape, problem.w_shape))
    return relative_rms(hosted.execute(plan, a, b), _exact(direction, a, b, problem))


LAST = [
    # seven rows as 4 + 3 and 5 + 2, eight as 5 + 3, three as 2 + 1; clusters begin in between
    ((1, 9, 11, 36), (68, 7, 7, 36), 3, "gamma:8:2:7", {"share": 4, "rest": 3, "u_ahead": 4}),
    ((1, 9, 11, 36), (68, 7, 7, 36), 3, "gamma:8:2:7", {"share": 4, "rest": 3, "u_ahead": 0}),
    ((1, 9, 11, 36), (36, 7, 7, 36), 3, "gamma:8:2:7", {"share": 5, "rest": 2, "split_k": 4}),
    ((1, 9, 11, 68), (68, 3, 4, 68), 1, "gamma:8:5:4", {"share": 2, "rest": 1, "split_k": 8}),
    # two filter depths, two pieces of a row
    (
        (1, 3, 9, 11, 20),
        (8, 2, 8, 8, 20),
        (0, 3, 3),
        "gamma:8:5:4",
        {"share": 5, "rest": 3, "u_ahead": 4},
    ),
    # all rows, two filters in registers
    ((1, 7, 9, 36), (8, 5, 5, 36), 2, "gamma:8:4:5", {"share": 5, "rest": 0, "u_ahead": 4}),
    # sums that leave the Tensor Core twice, of five rows and of four
    ((1, 7, 9, 36), (8, 5, 5, 36), 2, "gamma:8:4:5", {"share": 5, "fold": 3, "u_ahead": 4}),
    ((1, 9, 9, 20), (8, 9, 5, 20), 4, "gamma:8:4:5", {"share": 5, "fold": 3, "u_ahead": 0}),
    ((1, 7, 9, 36), (8, 4, 4, 36), 2, "gamma:8:5:4", {"share": 4, "rest": 0, "u_ahead": 4}),
]


@pytest.mark.parametrize(("case", "direction"), turns(LAST, ["forward", "backward_data"]), ids=str)
def test_last_rows_and_filters_on_their_way(case, direction) -> None:
    x_shape, w_shape, padding, text, policies = case
    problem = Problem.of(x_shape, w_shape, padding=padding)
    assert _run(problem, direction, text, **policies) <= BOUND


def test_rows_that_are_not_there_take_no_workspace() -> None:
    problem = Problem.of((32, 64, 64, 128), (128, 7, 7, 128), padding=3)
    request = Request(problem, "forward", H100, parse_algorithm("gamma:8:2:7"), "fp32_split")
    for plan in plans(request):
        rows = 7 if plan.config.rest else plan.outer[1]
        assert plan.transformed == 128 * rows * 128 * 8 * 4
        assert plan.workspace <= plan.header + plan.layout.rows + plan.transformed


ODD = [
    ((2, 5, 13, 7), (5, 3, 3, 7), {"padding": 1}),
    ((2, 2, 5, 13, 14), (10, 1, 3, 3, 7), {"padding": (0, 1, 1), "groups": 2}),
    ((1, 9, 11, 3), (66, 2, 3, 3), {}),
]


@pytest.mark.parametrize(
    ("direction", "case", "policies"),
    turns(["forward", "backward_data"], ODD, [{"padded": 1}, {"run": 0}]),
    ids=str,
)
def test_channels_that_no_vector_divides(direction, case, policies) -> None:
    """By a copy whose channels are filled up, and element by element."""
    x_shape, w_shape, options = case
    problem = Problem.of(x_shape, w_shape, **options)
    assert _run(problem, direction, "gamma:8:6:3", aligned=False, **policies) <= BOUND


@pytest.mark.parametrize(
    ("text", "rows", "dtype"),
    [
        ("gamma:8:6:3", 4, "e"),
        ("gamma:8:6:3", 8, "f"),  # whose stage ends in half a slot
        ("gamma:8:6:3", 8, "e"),
        ("gamma:6:4:3", 4, "f"),
        ("gamma:6:4:3", 8, "e"),
        ("gamma:4:2:3", 8, "f"),
    ],
)
def test_shared_memory_has_no_bank_conflicts(text: str, rows: int, dtype: str) -> None:
    """None at all in FP32; in 16 bits, reads of fetched input may conflict twofold."""
    precision = {"f": "fp32_split", "e": "fp16"}[dtype]
    problem = Problem.of((1, 8, 20, 16), (64, 3, 3, 16), padding=1)
    rng = np.random.default_rng(0)
    a, b = (rng.uniform(-1, 1, s).astype(dtype) for s in (problem.x_shape, problem.w_shape))
    plan = _plan(problem, "forward", text, precision=precision, config=Config(rows, 3))
    lost, asked = Counter(), Counter()
    for q in hosted.requests(plan, a, b)["winolab_gamma_wgmma"]:
        lost[q.member, "write" if q.write else "read"] += q.wavefronts - q.phases
        asked[q.member, "write" if q.write else "read"] += q.phases
    known = {("v", "write"), ("staging", "write"), ("staging", "read"), ("raw", "read")}
    assert asked.keys() >= known
    assert lost.pop(("raw", "read")) <= (asked["raw", "read"] if dtype == "e" else 0)
    assert not any(lost.values())


@pytest.mark.parametrize("precision", ["fp32_split", "fp16"])
@pytest.mark.parametrize(("channels", "copies"), [(64, 0), (63, 1)])
def test_no_first_launch_begins_early(precision: str, channels: int, copies: int) -> None:
    """The filter's transform reads w before it waits: what wrote it has to be done."""
    problem = Problem.of((32, 47, 47, channels), (64, 3, 3, channels), padding=1)
    plan = _plan(problem, "forward", "gamma:8:6:3", precision=precision, aligned=not copies)
    assert plan.config.padded == copies
    begun: list[bool] = []

    def record(grid, threads, params, early=False) -> None:
        begun.append(early)

    kernels = dict.fromkeys(plan.shared(), record)
    x, w = View(1 << 20, (64,) * 4), View(1 << 20, (64,) * 5)
    split = 2 * (plan.parts == 2)  # the sample's launch and the scan's
    for call, launches in (
        (lambda: plan.launch(kernels, x, w, x, 1 << 40, 0), 2 + copies + split),
        (lambda: plan.prepare(kernels, w, 1 << 40, 0), 1),
        (lambda: plan.run(kernels, x, 1 << 30, x, 1 << 40, 0), 1 + copies + split),
    ):
        begun.clear()
        call()
        assert not begun[0]
        assert len(begun) == launches


def test_a_limit_leaves_no_copy_of_the_input() -> None:
    problem = Problem.of((32, 47, 47, 127), (129, 3, 3, 127), padding=1)
    request = Request(problem, "forward", H100, None, "fp16", aligned=False, out_dtype="float16")
    free = choose(request)
    few = choose(replace(request, workspace_limit=free.workspace // 4))
    assert "padded" in str(free.config)
    assert "padded" not in str(few.config)
    assert few.workspace <= free.workspace // 4


def test_infinity_does_not_spread() -> None:
    problem = Problem.of((1, 3, 25, 4), (4, 3, 3, 4), padding=1)
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(s).astype("float32") for s in (problem.x_shape, problem.w_shape))
    a[0, 1, 0, 0] = np.inf
    got = hosted.execute(_plan(problem, "forward"), a, b)
    exact = _exact("forward", np.where(np.isinf(a), 0, a), b, problem)
    assert not np.isfinite(got[0, :, 0]).any()
    assert relative_rms(got[:, :, 12:], exact[:, :, 12:]) <= 2**-12  # unscaled: few exponents


def test_refusals_say_what_to_do() -> None:
    problem = Problem.of((1, 9, 9, 8), (8, 3, 3, 8))
    for text in ("direct", "gamma:16:8:9", "gamma:8:5:4"):
        with pytest.raises(ValueError, match=r"fp32_split|taps"):
            _plan(problem, "forward", text)
    with pytest.raises(ValueError, match="wide; use precision"):
        _plan(Problem.of((1, 9, 9, 8), (8, 3, 1, 8)), "forward")
    with pytest.raises(ValueError, match=r"compute capability 8\.6"):
        list(plans(Request(problem, "forward", datasheet("a5000"), None, "fp32_split")))


def test_compiles_without_spills(compiled) -> None:
    plan = _plan(Problem.of((128, 24, 24, 256), (256, 3, 3, 256), padding=1), "forward")
    assert (plan.config.run, plan.config.split_k) == (4, 1)
    resources = compiled(plan.source())
    names = ("scale", "gamma_filter_scaled", "gamma_filter_cluster", "gamma_wgmma", "scan")
    assert set(resources) == {f"winolab_{name}" for name in names}
    assert not any(used.spills for used in resources.values()), resources


@pytest.mark.gpu
def test_on_the_device() -> None:
    cupy = driver.cupy()
    rng = np.random.default_rng(3)
    for number in range(12):
        r = int(rng.integers(2, 8)) * (1 + number % 2 * (number % 4 == 1))
        taps = (*(int(v) for v in rng.integers(1, 5, number % 3)), r)
        sizes = tuple(int(v) for v in rng.integers(5, 30, len(taps)) + np.array(taps))
        groups = 1 + number % 5 // 4
        c, oc = (4 * int(v) for v in rng.integers(1, 40, 2))
        problem = Problem.of(
            (int(rng.integers(1, 5)), *sizes, c * groups),
            (oc * groups, *taps, c),
            padding=tuple(int(rng.integers(0, t)) for t in taps),
            groups=groups,
        )
        for direction in ("forward", "backward_data"):
            shape, made = problem.x_shape, problem.y_shape
            if direction == "backward_data":
                shape, made = made, shape
            a, b = (rng.standard_normal(s).astype("float32") for s in (shape, problem.w_shape))
            a *= 10.0 ** int(rng.integers(-18, 18))
            exact = _exact(direction, a, b, problem)
            found = list(plans(Request(problem, direction, H100, None, "fp32_split")))
            plan = found[int(rng.integers(len(found)))]
            x, w, out = cupy.asarray(a), cupy.asarray(b), cupy.full(made, np.nan, "float32")
            space = cupy.full(plan.workspace, 255, "uint8")
            plan.launch(
                loader.load(plan.source(), plan.kernel, plan.shared(), 0),
                View(x.data.ptr, hosted._strides(x, 4)),
                View(w.data.ptr, hosted._strides(w, 5)),
                View(out.data.ptr, hosted._strides(out, 4)),
                space.data.ptr,
                0,
            )
            terms = math.prod(taps) * (c if direction == "forward" else oc)
            direct = 0.30 * 2**-24 * math.sqrt(terms)  # FP32's error in order, predicted
            assert relative_rms(out.get(), exact) <= max(BOUND, 2 * direct), plan


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32_split", "fp16"])
@pytest.mark.parametrize("channels", [(64, 72), (7, 5)])
def test_called_by_name(precision: str, channels: tuple[int, int]) -> None:
    cupy, (c, oc) = driver.cupy(), channels
    problem = Problem.of((3, 14, 23, c), (oc, 5, 3, c), padding=1)
    rng = np.random.default_rng(4)
    dtype = DTYPES[precision]
    a, b = (rng.standard_normal(s).astype(dtype) for s in (problem.x_shape, problem.w_shape))
    dy = rng.standard_normal(problem.y_shape).astype(dtype)
    bound = BOUND if precision == "fp32_split" else 5 * 2**-11
    x, w, g = map(cupy.asarray, (a, b, dy))
    y = winolab.conv_forward(x, w, padding=1, precision=precision)
    assert relative_rms(y.get().astype("float64"), _exact("forward", a, b, problem)) <= bound
    dx = winolab.conv_backward_data(g, w, x.shape, padding=1, precision=precision)
    error = relative_rms(dx.get().astype("float64"), _exact("backward_data", dy, b, problem))
    assert error <= bound


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32_split", "fp16"])
def test_views_have_the_bits_of_copies(precision: str) -> None:
    """Tensor maps of every second image, row or pixel, of some channels, of one image repeated."""
    cupy, dtype = driver.cupy(), DTYPES[precision]
    rng = np.random.default_rng(5)
    large = cupy.asarray(rng.standard_normal((6, 23, 41, 56)).astype(dtype))
    w = cupy.asarray(rng.standard_normal((40, 3, 3, 32)).astype(dtype))
    views = {
        "images": large[::2, :, :, 8:40],
        "rows": large[:, 1::2, :, 16:48],
        "pixels": large[:, :, 2::3, :32],
        "one image": cupy.broadcast_to(large[3, :, :, 8:40], (5, 23, 41, 32)),
    }
    for name, x in views.items():
        got, copied = (
            winolab.conv_forward(v, w, padding=1, precision=precision)
            for v in (x, cupy.ascontiguousarray(x))
        )
        assert bool((got == copied).all()), name
