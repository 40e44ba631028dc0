"""Simulations on a pretended GPU: NumPy's rows, and bit for bit its engine's whole tiles."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import winolab
from experiments.harness.published import published
from tests.gpu.support.simulated import pretend
from winolab.algorithm import Problem, direct, parse_algorithm
from winolab.api.gpu_case import CaseOnGpu
from winolab.cli import process, sweep
from winolab.cli.command import app
from winolab.gpu.codegen.simulated_tiles import FP64, OUTPUTS, STATES
from winolab.gpu.machine import MachineError
from winolab.gpu.runtime import simulation
from winolab.gpu.runtime.simulation import MagnitudeOnGpu, on_gpu, oracle_on_gpu
from winolab.measure import FULL, Case
from winolab.ref.algorithms import sample, winograd
from winolab.ref.arithmetic.simulated import arithmetic
from winolab.ref.error.bounds import Magnitude, bound


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kernels that a pretended GPU loaded."""
    return pretend(monkeypatch)


@pytest.mark.parametrize(
    ("precision", "algorithm"),
    [
        ("fp32", "winograd:2x2:3x3"),
        ("fp16@hopper", "gamma:4:2:3"),
        ("fp32_split", "direct"),
        ("fp32,accumulation=kahan", "direct"),
    ],
)
def test_gpu_has_numpys_row(pretended: list[str], precision: str, algorithm: str) -> None:
    how: dict[str, Any] = {"algorithm": algorithm, "precision": precision, "data": "u12"}
    same(
        *(
            winolab.accuracy((1, 9, 9, 12), (5, 3, 3, 12), gpu=gpu, sample=40, **how).to_dict()
            for gpu in (False, True)
        ),
        products=9 * 12,
    )


def same(here: dict[str, Any], there: dict[str, Any], products: int) -> None:
    """Rows of U[1, 2] without padding agree but for their oracles, two orders of K sums in FP64.

    These differ by at most 2 γ_K |y|, |y| at most 4 K; proven bounds are K² 2⁻²⁴ and more. Those of
    a GPU may be a thousandth larger: of operands they know a bound.
    """
    relative = 2 * products * 2.0**-53
    absolute = 4 * products * relative
    tolerances = {
        "max_abs": absolute,
        "bias": absolute,
        "mse": 2 * here["max_abs"] * absolute,
        "bound": 1e-3 * here["bound"],
        "bound_ratio": absolute / (products**2 * 2.0**-24) + 1e-3 * here["bound_ratio"],
    }
    quantiles = [name for name in here if name.startswith("q")]
    relatives = ["mare", "max_relative", "relative_rms", "relative_bias", *quantiles]
    tolerances |= dict.fromkeys(relatives, relative)
    assert here.keys() == there.keys()
    for name in here.keys() - {"seconds"}:
        if name in tolerances:
            assert abs(here[name] - there[name]) <= tolerances[name], name
        else:
            assert repr(here[name]) == repr(there[name]), name  # NaN too


def test_the_command_sums_on_a_gpu(pretended: list[str]) -> None:
    layer = ["--input", "1x7x7x8", "--filter", "4x3x3", "--sample", "full", "--json"]
    found = []
    for more in ([], ["--gpu"]):
        said = CliRunner().invoke(app, ["accuracy", "--algorithm", "direct", *layer, *more])
        (row,) = json.loads(said.stdout)
        found.append(row)
    same(*found, products=9 * 8)
    assert {STATES, FP64} <= set(pretended)


def test_a_long_sweep_says_how_long_a_gpu_takes(
    pretended: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And one that is short says nothing; Dask's workers have no part in it."""
    layer = ["accuracy", "--algorithm", "direct", "--input", "1x7x7x8", "--filter", "4x3x3"]
    assert "about" not in CliRunner().invoke(app, [*layer, "--gpu"]).stderr
    monkeypatch.setattr(sweep, "RATE_ON_GPU", 100.0)
    said = CliRunner().invoke(app, [*layer, "--gpu"]).stderr
    seconds = 25 * 4 * 9 * 8 / 100
    assert f"winolab: 1 cases, about {process.duration(seconds)} on a GPU" in said
    refused = CliRunner().invoke(app, [*layer, "--gpu", "--dask", "local"])
    assert "give one of the two" in str(refused.exception)


def test_what_stays_on_the_cpu_is_refused_in_a_line(pretended: list[str]) -> None:
    for precision in ("exact", "mp:200", "fp64"):
        with pytest.raises(ValueError, match=f"precision {precision} is computed on the CPU alone"):
            winolab.accuracy((1, 7, 7, 8), (4, 3, 3, 8), precision=precision, gpu=True)


def test_without_a_gpu_it_says_what_is_missing() -> None:
    with pytest.raises(MachineError, match="CuPy"):
        winolab.accuracy((1, 7, 7, 8), (4, 3, 3, 8), gpu=True)


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kernels that a pretended GPU loaded; several pieces of tiles are to be run."""
    monkeypatch.setattr(simulation, "MOST", 1 << 12)
    return pretend(monkeypatch)


def drawn(problem: Problem, first: str = "x_shape") -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(66)
    shapes = getattr(problem, first), problem.w_shape
    return tuple(rng.standard_normal(s, np.float32) for s in shapes)  # type: ignore[return-value]


BF16 = "bf16,accumulation=tensor_core:4:1:nearest"
CASES = [
    ("gamma:4:2:3", (11,), (3,), {"padding": 1}, "fp32"),
    ("winograd:2x2:3x3", (9, 7), (3, 3), {"padding": 1}, "fp16@hopper"),
    ("gamma:8:4:5", (6, 13), (3, 5), {"padding": (1, 2)}, "fp32,storage=fp16"),
    ("winograd:4x4:3x3", (8, 9), (3, 3), {}, "tf32"),
    ("winograd:2x2:3x3", (7, 8), (5, 4), {"padding": 2}, BF16),
    ("direct", (7, 9), (3, 2), {"stride": 2, "padding": 1, "dilation": 2}, "fp32"),
    ("direct", (5, 4, 6), (2, 3, 2), {"padding": 1}, "fp16,product=fp8_e4m3"),
    ("gamma:4:2:3", (4, 5, 6), (2, 2, 3), {"padding": 1}, "fp32,accumulation=kahan"),
]  # fmt: skip


def compared(text: str, spatial: tuple, taps: tuple, how: dict[str, Any], precision: str) -> None:
    """All bits of a layer whose first image has an infinite element, and its last tiny ones."""
    problem = Problem.of((2, *spatial, 5), (6, *taps, 5), **how)
    algorithm, run = parse_algorithm(text), arithmetic(precision)
    x, w = drawn(problem)
    x[0].flat[3] = np.inf
    x[1] *= np.float32(2.0**-13)
    got = winograd.forward(x, w, problem, algorithm, on_gpu(run))
    expected = winograd.forward(x, w, problem, algorithm, run)
    assert np.array_equal(got, expected, equal_nan=True)
    there = ~np.isnan(expected)
    assert np.array_equal(np.signbit(got)[there], np.signbit(expected)[there])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_tiles_have_numpys_bits(kernels: list[str], case: tuple) -> None:
    compared(*case)
    assert {STATES, OUTPUTS} <= set(kernels)


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES, ids=str)
def test_tiles_on_a_gpu_have_numpys_bits(case: tuple) -> None:
    compared(*case)


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "fp16@hopper", "tf32@hopper"])
def test_a_gpus_case_is_the_cpus(precision: str) -> None:
    """All outputs of a layer of several blocks; oracles in two orders, bounds that are no less."""
    case = Case("gamma:8:6:3", "4x40x40x48", "40x3x3", "1", precision, "u12", sample=FULL)
    here, there = case.measure(), CaseOnGpu.of(case).measure()
    products = 9 * 48
    for name in ("mare", "max_relative", "relative_rms", "relative_bias", "q50", "q99"):
        assert abs(here[name] - there[name]) <= 2 * products * 2.0**-53
    assert 1 - 1e-9 <= there["bound"] / here["bound"] <= 1.01
    assert there["bound_ratio"] <= 1


def test_inputs_between_zeros_and_groups(kernels: list[str]) -> None:
    """Backward data of a stride, of two groups."""
    problem = Problem.of((2, 9, 8, 6), (4, 3, 3, 3), stride=2, padding=1, groups=2)
    dy, w = drawn(problem, "y_shape")
    run = arithmetic("fp32")
    got = winograd.backward_data(dy, w, problem, direct(), on_gpu(run))
    assert STATES in kernels
    assert np.array_equal(got, winograd.backward_data(dy, w, problem, direct(), run))


def test_samples_in_a_published_order(kernels: list[str]) -> None:
    problem = Problem.of((2, 12, 21, 5), (7, 7, 7, 5), padding=3)
    algorithm, programs = parse_algorithm("gamma:16:10:7@paper"), published("paper", 7)
    x, w = drawn(problem)
    part = sample.draw(problem, algorithm, 900, 1)
    args = (x, w, problem, algorithm)
    run = arithmetic("fp32")
    expected, at = sample.forward(*args, run, part, programs)
    got, positions = sample.forward(*args, on_gpu(run), part, programs)
    order, other = np.argsort(positions), np.argsort(at)  # blocks are of other sizes
    assert np.array_equal(positions[order], at[other])
    assert np.array_equal(got[order], expected[other])
    exact = sample.at_positions(x, w, problem, at, part.channels, arithmetic("fp64"))
    truth = sample.at_positions(x, w, problem, at, part.channels, oracle_on_gpu())
    assert FP64 in kernels
    depth = w[0].size
    size = sample.at_positions(abs(x), abs(w), problem, at, part.channels, arithmetic("fp64"))
    assert (abs(truth - exact) <= 2 * depth * 2.0**-53 * size).all()  # γ_K of either order
    assert not np.array_equal(truth.astype(np.float32)[other], got[order])


BOUNDED = [
    ("winograd:4x4:3x3", (8, 9), (3, 3), {"padding": 1}, "fp32"),
    ("gamma:8:4:5", (6, 13), (3, 5), {"padding": (1, 2)}, "fp16@hopper"),
    ("direct", (7, 9), (3, 2), {"stride": 2, "padding": 1}, "tf32"),
    ("gamma:4:2:3", (11,), (3,), {}, "fp32_split"),
]


@pytest.mark.parametrize(("text", "spatial", "taps", "how", "precision"), BOUNDED)
def test_bounds_by_a_gpu_are_the_cpus(
    kernels: list[str], text: str, spatial: tuple, taps: tuple, how: dict[str, Any], precision: str
) -> None:
    """But for the order of sums in FP64, and largest magnitudes that are bounded, not met: those
    of operands are in the term of subnormal ones, of which FP16's alignment cuts 2⁻³⁸."""
    problem = Problem.of((2, *spatial, 5), (6, *taps, 5), **how)
    x, w = drawn(problem)
    args = (x, w, problem, text, precision)
    here, there = bound(*args), bound(*args, magnitude=MagnitudeOnGpu())
    assert {STATES, FP64, OUTPUTS} <= set(kernels)
    assert np.isfinite(here).all()
    assert (there / here >= 1 - problem.macs * 2.0**-53).all()
    more = 1e-9 if precision in ("fp32", "tf32") else 1e-2
    assert (there - here <= more * here.max()).all()


def test_largest_magnitudes_are_those_met_at_least(kernels: list[str]) -> None:
    problem, algorithm = Problem.of((1, 8, 9, 5), (6, 3, 3, 5)), parse_algorithm("winograd:4x4:3x3")
    x, w = map(np.abs, drawn(problem))
    met, bounded = Magnitude(), MagnitudeOnGpu()
    for magnitude in (met, bounded):
        winograd.forward(x, w, problem, algorithm, magnitude)
    assert bounded.stored == met.stored
    assert bounded.of_filters == met.of_filters or vars(bounded.of_filters) == vars(met.of_filters)
    for name in ("transformed", "summed", "results"):
        assert getattr(met, name) <= getattr(bounded, name) < 1e6 * getattr(met, name)
    assert met.operands[0] <= bounded.operands[0]
    assert met.operands[1] == bounded.operands[1]


@pytest.mark.parametrize("precision", ["fp32_split", "fp32,fused=no", "fp16,transform=fp16"])
def test_what_kernels_do_not_transform_is_transformed_here(
    kernels: list[str], precision: str
) -> None:
    problem = Problem.of((1, 9, 9, 5), (4, 3, 3, 5))
    algorithm, run = parse_algorithm("winograd:2x2:3x3"), arithmetic(precision)
    x, w = drawn(problem)
    got = winograd.forward(x, w, problem, algorithm, on_gpu(run))
    assert STATES not in kernels
    assert np.array_equal(got, winograd.forward(x, w, problem, algorithm, run))


def test_arrays_that_nobody_writes_to_are_copied_once(
    kernels: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = Problem.of((1, 6, 7, 4), (3, 3, 3, 4))
    x, w = drawn(problem)
    part = sample.draw(problem, direct(), 60, 0)
    sizes: list[int] = []
    cupy = simulation.driver.cupy()
    copy = cupy.asarray
    monkeypatch.setattr(cupy, "asarray", lambda a: sizes.append(a.size) or copy(a))
    for writable, copies in ((True, 2), (False, 1)):
        x.flags.writeable = writable
        sizes.clear()
        for factor in (1, 2):
            args = (x, w * factor, problem, direct())
            y, _ = sample.forward(*args, on_gpu(arithmetic("fp32")), part)
            assert np.array_equal(y, sample.forward(*args, arithmetic("fp32"), part)[0])
        assert sizes.count(x.size) == copies
