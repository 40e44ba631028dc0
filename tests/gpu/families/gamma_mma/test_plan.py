"""Γ on Tensor Cores by mma.sync: plans for 8.x, the reference's bits, results against FP64."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from tests.gpu import hosted
from tests.gpu.families.depthwise.cases import on_gpu
from tests.gpu.support.adversaries import DATA, made
from tests.gpu.support.turns import turns
from winolab.algorithm import Problem, parse_algorithm
from winolab.bench.oracle import relative_rms
from winolab.device import DATASHEETS, H100, Device, datasheet
from winolab.gpu import driver
from winolab.gpu.families.gamma.config import KC
from winolab.gpu.families.gamma_ffma import plan as gamma_ffma
from winolab.gpu.families.gamma_mma import plan as gamma_mma
from winolab.gpu.families.gamma_mma.config import Config
from winolab.gpu.families.gamma_mma.plan import GammaMmaPlan
from winolab.gpu.families.gamma_wgmma import plan as gamma_wgmma
from winolab.gpu.params import View
from winolab.gpu.planner.correlation import CORRELATIONS, SCALING
from winolab.gpu.planner.fallback import PlanWithFallback
from winolab.gpu.planner.planner import candidates, plan
from winolab.gpu.planner.request import DTYPES, Request
from winolab.gpu.runtime import loader
from winolab.ref.algorithms import convolution, winograd
from winolab.ref.arithmetic.order import Order
from winolab.ref.arithmetic.simulated import arithmetic
from winolab.ref.arithmetic.split import Scale

DEVICES = [d for d in DATASHEETS.values() if d.compute_capability[0] == 8]
A100, ADA = datasheet("a100"), datasheet("rtx4090")
PRECISIONS = ("fp32_split", "fp16", "bf16")
# Relative RMS: FP32's with the noise gain of Γ8; of 16 bits, that of two operands and the result.
BOUND = {"fp32_split": 16 * 2**-24, "fp16": 5 * 2**-11, "bf16": 5 * 2**-8}


def _plan(
    problem: Problem,
    direction: str = "forward",
    text: str | None = None,
    precision: str = "fp32_split",
    config: Config | None = None,
    device: Device = A100,
    **options,
) -> GammaMmaPlan:
    algorithm = parse_algorithm(text) if text else None
    options = {"out_dtype": "float32", **options}
    found = gamma_mma.plans(
        Request(problem, direction, device, algorithm, precision, config=config, **options)
    )
    return min(found, key=lambda p: p.predicted)


def _arrays(problem: Problem, direction: str, precision: str) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    shape = problem.x_shape if direction == "forward" else problem.y_shape
    a, b = (rng.standard_normal(s).astype(DTYPES[precision]) for s in (shape, problem.w_shape))
    return a, b


def _exact(problem: Problem, direction: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return getattr(convolution, direction)(a.astype("float64"), b.astype("float64"), problem)


@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_every_plan_fits_the_gpu(device: Device, precision) -> None:
    """Every width fits its shared memory, and none is predicted above the peak."""
    products = 3 if precision == "fp32_split" else 1
    peak = device.matrix * device.multiprocessors * device.clock
    for width in range(2, 12):
        problem = Problem.of((32, 28, 28, 128), (128, 3, width, 128), padding=1)
        for direction in CORRELATIONS:
            found = candidates(Request(problem, direction, device, None, precision)).plans
            found = [p.primary if isinstance(p, PlanWithFallback) else p for p in found]
            assert found
            for p in found:
                assert isinstance(p, GammaMmaPlan)
                assert max(p.shared().values()) <= device.shared_memory
                if direction == "forward":
                    done = products * problem.macs * p.tile.alpha / (p.tile.n * p.tile.r)
                    assert done / p.predicted <= peak


def test_float32_may_be_split_products_behind_a_guard() -> None:
    problem = Problem.of((32, 28, 28, 256), (256, 3, 3, 256), padding=1)
    chosen = plan(Request(problem, "forward", A100))
    assert isinstance(chosen, PlanWithFallback)
    assert isinstance(chosen.primary, GammaMmaPlan)
    assert isinstance(chosen.fallback, gamma_ffma.GammaFfmaPlan)
    # On GeForce a Tensor Core makes three products in the time of FFMA's one.
    assert isinstance(plan(Request(problem, "forward", ADA)), gamma_ffma.GammaFfmaPlan)


def test_newer_gpus_without_wgmma_have_the_same_plans() -> None:
    problem = Problem.of((8, 12, 12, 64), (64, 3, 3, 64), padding=1)
    newer = replace(ADA, compute_capability=(12, 0))
    for precision in PRECISIONS:
        older, other = (plan(Request(problem, "forward", d, None, precision)) for d in (ADA, newer))
        assert other.source() == older.source()


def test_hopper_has_them_only_where_asked_for() -> None:
    problem = Problem.of((8, 12, 12, 64), (64, 3, 3, 64), padding=1)
    assert not list(gamma_mma.plans(Request(problem, "forward", H100, None, "fp16")))
    chosen = plan(Request(problem, "forward", H100, None, "fp16", config=Config()))
    assert isinstance(chosen, GammaMmaPlan)


def test_predictions_are_those_measured() -> None:
    """Times of an H100, with scales and the filter's transform."""
    measured = {(96, 64): (561, 341), (48, 128): (448, 276), (24, 256): (400, 245)}
    for (size, channels), times in measured.items():
        problem = Problem.of((128, size, size, channels), (channels, 3, 3, channels), padding=1)
        for precision, time in zip(("fp32_split", "fp16"), times, strict=True):
            p = _plan(problem, "forward", None, precision, Config(512, 8, 3), H100)
            assert p.predicted * 1e6 == pytest.approx(time, rel=0.12)


def test_refusals_say_what_to_do() -> None:
    problem = Problem.of((1, 9, 9, 8), (8, 3, 3, 8))
    for precision in PRECISIONS:
        with pytest.raises(ValueError, match=r"capability 7\.5; the CUDA kernels need 8\.0"):
            plan(Request(problem, "forward", datasheet("rtx2080ti"), None, precision))
    with pytest.raises(ValueError, match="does not fit a filter 3 high"):
        _plan(problem, config=Config(512, 4, 3), device=ADA)  # 149 KB
    for text in ("direct", "gamma:16:8:9", "gamma:8:5:4"):
        with pytest.raises(ValueError, match=r"fp32_split|taps"):
            _plan(problem, text=text)


# Every number of states and of rows that share a stage.
SHAPES = [
    ("gamma:8:6:3", Config(512, 4, 1)),
    ("gamma:8:6:3", Config(512, 4, 3)),
    ("gamma:8:6:3", Config(384, 6, 3)),
    ("gamma:8:6:3", Config(384, 3, 2)),
    ("gamma:8:6:3", Config(256, 2, 3)),
    ("gamma:8:2:7", Config(512, 8, 2)),
    ("gamma:8:4:5", Config(256, 1, 1)),
    ("gamma:4:2:3", Config(512, 8, 3)),
    ("gamma:4:3:2", Config(384, 4, 2)),
    ("gamma:4:2:3", Config(256, 4, 1)),
]


def _bits(text: str, config: Config) -> tuple[GammaMmaPlan, np.ndarray, np.ndarray, np.ndarray]:
    """A plan of given scales, its operands and what the simulation says of them; 5 rows and 48
    channels fill no block."""
    direction = CORRELATIONS[config.share % 2]
    r = parse_algorithm(text).tiles[0].r
    height = 2 if config.share == 2 else 3
    problem = Problem.of((1, 5, 12, 32), (48, height, r, 32), padding=(1, r // 2))
    p = replace(_plan(problem, direction, text, config=config), given=Scale.of_caller((8, 9)))
    rng = np.random.default_rng(0)
    shape = problem.x_shape if direction == "forward" else problem.y_shape
    a, b = (rng.uniform(-7, 7, s).astype("f") for s in (shape, problem.w_shape))
    algorithm = parse_algorithm(f"{text};scaling={SCALING}")
    expected = getattr(winograd, direction)(
        a,
        b,
        problem,
        algorithm,
        arithmetic(p.simulated),
        order=Order(KC, config.share, padded=True),
    )
    return p, a, b, expected


@pytest.mark.parametrize(("text", "config"), SHAPES, ids=str)
def test_the_reference_repeats_every_bit(text, config) -> None:
    p, a, b, expected = _bits(text, config)
    np.testing.assert_array_equal(hosted.execute(p, a, b, seed=3), expected)


@pytest.mark.gpu
@pytest.mark.parametrize(("text", "config"), SHAPES, ids=str)
def test_the_reference_repeats_every_bit_of_the_device(text, config) -> None:
    p, a, b, expected = _bits(text, config)
    np.testing.assert_array_equal(on_gpu(p, a, b), expected)


def test_hopper_s_bits() -> None:
    """One filter row a stage, where no order of products is a matter of registers."""
    problem = Problem.of((1, 6, 13, 36), (68, 3, 3, 36), padding=1)
    a, b = _arrays(problem, "forward", "fp32_split")
    hopper, filled_up = gamma_wgmma.plans(
        Request(
            problem, "forward", H100, parse_algorithm("gamma:8:6:3"), "fp32_split",
            config=gamma_wgmma.Config(4),
        )
    )  # fmt: skip
    assert (hopper.tiles_width, filled_up.tiles_width) == (3, 4)
    own = _plan(problem, "forward", "gamma:8:6:3", config=Config(256, 4))
    expected = hosted.execute(hopper, a, b)
    np.testing.assert_array_equal(hosted.execute(own, a, b, seed=1), expected)


PROBLEMS = [
    ("forward", (3, 5, 13, 20), (68, 3, 3, 20), {"padding": 1}, None),
    ("backward_data", (1, 5, 13, 20), (36, 3, 3, 20), {"padding": 1}, None),
    ("forward", (1, 2, 9, 16), (8, 2, 5, 8), {"groups": 2}, "gamma:8:4:5"),
    ("forward", (1, 23, 12), (8, 6, 12), {"padding": 2}, "gamma:8:6:3"),
    ("backward_data", (1, 3, 3, 9, 4), (4, 2, 1, 7, 4), {}, "gamma:8:2:7"),
    # channels that no vector divides, filters in pieces, whole and filled up with zeros
    ("forward", (2, 5, 9, 7), (5, 3, 3, 7), {"padding": 1}, None),
    ("backward_data", (1, 6, 11, 6), (9, 2, 9, 6), {"padding": (1, 4)}, None),
    ("forward", (1, 14, 5), (3, 8, 5), {"padding": 3}, None),
    ("forward", (2, 3, 5, 17, 10), (10, 2, 5, 3, 5), {"padding": (1, 0, 2), "groups": 2}, None),
    ("forward", (2, 9, 7, 8), (8, 3, 3, 8), {"padding": 1}, "gamma:4:2:3"),
    ("backward_data", (1, 9, 7, 20), (8, 3, 2, 20), {"padding": 1}, "gamma:4:3:2"),
]


@pytest.mark.parametrize(
    ("case", "precision", "device"), turns(PROBLEMS, PRECISIONS, [A100, ADA], of=3), ids=str
)
def test_every_kind_of_problem(case, precision, device) -> None:
    direction, x, w, options, text = case
    problem = Problem.of(x, w, **options)
    aligned = problem.in_channels % 4 == problem.out_channels % 4 == 0
    a, b = _arrays(problem, direction, precision)
    p = _plan(problem, direction, text, precision, device=device, aligned=aligned)
    got = hosted.execute(p, a, b)
    assert relative_rms(got, _exact(problem, direction, a, b)) <= BOUND[precision]


def test_blocks_walk_over_work_tiles() -> None:
    """Three blocks, 12 work tiles: copies run ahead from one to the next, in any order of warps."""
    problem = Problem.of((3, 9, 25, 36), (68, 3, 3, 36), padding=1)
    few = replace(A100, multiprocessors=3)
    a, b = _arrays(problem, "forward", "fp32_split")
    config = Config(256, 4, 3)
    text = "gamma:8:6:3"
    whole = hosted.execute(_plan(problem, "forward", text, config=config), a, b)
    assert relative_rms(whole, _exact(problem, "forward", a, b)) <= BOUND["fp32_split"]
    for seed in range(3):
        p = _plan(problem, "forward", text, config=config, device=few)
        assert p.work_tiles == 4 * p.grid
        np.testing.assert_array_equal(hosted.execute(p, a, b, seed=seed), whole)


@pytest.mark.parametrize(("shape", "precision"), turns(SHAPES, ["fp32_split", "fp16"]), ids=str)
def test_shared_memory_has_no_bank_conflicts(shape, precision) -> None:
    """Transformed input, accumulators written and read, and where pixels are."""
    text, config = shape
    r = parse_algorithm(text).tiles[0].r
    problem = Problem.of((1, 4, 12, 16), (64, config.share, r, 16), padding=(1, r // 2))
    a, b = _arrays(problem, "forward", precision)
    plan = _plan(problem, "forward", text, precision, config)
    lost, seen = Counter(), Counter()
    for q in hosted.requests(plan, a, b)["winolab_gamma_mma"]:
        seen[q.member, q.bytes, q.write] += q.requests
        lost[q.member] += q.wavefronts - q.phases
    # matrices and staged accumulators read; transformed input and accumulators written
    assert min(seen[key] for key in (("v", 16, False), ("v", 8, True), ("v", 4, True))) > 0
    assert lost["v"] == lost["source"] == 0


@pytest.mark.parametrize("name", ["normal", "wide exponents", "NaN", "one huge element"])
def test_no_accuracy_is_lost(name) -> None:
    """FFMA's very bits where data are too wide."""
    problem = Problem.of((2, 4, 9, 64), (64, 3, 3, 64), padding=1)
    chosen = plan(Request(problem, "forward", A100, None, "fp32_split"))
    assert isinstance(chosen, PlanWithFallback)
    a, b = made(name, problem.x_shape, problem.w_shape)
    got = hosted.execute(chosen, a, b)
    again = hosted.execute(chosen.fallback, a, b)
    assert np.array_equal(got, again, equal_nan=True) == DATA[name][1]
    if not DATA[name][1]:
        assert relative_rms(got, _exact(problem, "forward", a, b)) <= BOUND["fp32_split"]


@pytest.mark.gpu
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", ["a100", "rtx4090"])
def test_on_any_gpu(precision, name) -> None:
    """Kernels planned for 8.x, compiled for the GPU that is there; over and over."""
    cp = driver.cupy()
    driver.make_current(0)
    dtype = "uint16" if precision == "bf16" else DTYPES[precision]
    for direction, x, w, options, text in PROBLEMS:
        problem = Problem.of(x, w, **options)
        aligned = problem.in_channels % 4 == problem.out_channels % 4 == 0
        found = gamma_mma.plans(
            Request(
                problem, direction, datasheet(name), parse_algorithm(text) if text else None,
                precision, aligned=aligned, out_dtype="float32",
            )
        )  # fmt: skip
        p = sorted(found, key=lambda p: p.predicted)[0]
        a, b = _arrays(problem, direction, precision)
        exact = _exact(problem, direction, a, b)
        on_gpu = [cp.asarray(v.view(dtype)) for v in (a, b)]
        out = cp.empty(exact.shape, "float32")
        x_view, w_view, y_view = (
            View(v.data.ptr, hosted._strides(v, kept))
            for v, kept in zip((*on_gpu, out), (4, 5, 4), strict=True)
        )
        workspace = cp.full(p.workspace, 255, "uint8")
        kernels = loader.load(p.source(), f"{p.kernel} {p.config}", p.shared(), 0)
        first = None
        for _ in range(20):
            out.fill(cp.nan)
            p.launch(kernels, x_view, w_view, y_view, workspace.data.ptr, 0)
            got = out.get()
            first = got if first is None else first
            np.testing.assert_array_equal(got.view("uint32"), first.view("uint32"))
        assert first is not None
        assert relative_rms(first, exact) <= BOUND[precision], p
