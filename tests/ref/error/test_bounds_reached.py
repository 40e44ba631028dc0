"""Data whose errors come near to the bound: without one of its terms they would exceed it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from winolab.algorithm import Problem, direct, parse_algorithm
from winolab.ref.algorithms import convolution, fft, winograd
from winolab.ref.algorithms.dwm import decompose
from winolab.ref.arithmetic.simulated import Float, arithmetic
from winolab.ref.error.bounds import bound
from winolab.ref.error.proven import proven
from winolab.ref.error.roundings import accumulation_unit

U = 2.0**-24


def _float(text: str) -> Float:
    run = arithmetic(text)
    assert isinstance(run, Float)
    return run


def test_every_addition_of_pieces_loses_its_unit() -> None:
    """1 and 255 pieces of one product each, just below half a unit of what they are added to."""
    taps = 256
    x, w = np.full((1, taps, 1), np.float32(U)), np.ones((1, taps, 1), np.float32)
    x[0, 0] = 1
    problem, algorithm = Problem.of(x.shape, w.shape), parse_algorithm("dwm:1:1")
    run = arithmetic("fp32")
    y = decompose.forward(x, w, problem, algorithm, run)
    error = np.abs(y - convolution.forward(x, w, problem))
    assert error >= 0.99 * (taps - 1) * U
    limit = proven(x, w, problem, algorithm, run)
    assert (error <= limit).all()
    assert (error >= 0.95 * limit).all()


def test_every_piece_may_lose_a_product_below_the_least_number() -> None:
    taps, half = 64, 2.0**-75
    x = np.full((1, taps, 1), np.float32(half * (1 - U)))
    w, run = np.full((1, taps, 1), np.float32(half)), arithmetic("fp32")
    problem, algorithm = Problem.of(x.shape, w.shape), parse_algorithm("dwm:1:1")
    assert not decompose.forward(x, w, problem, algorithm, run).any()
    lost, limit = convolution.forward(x, w, problem), proven(x, w, problem, algorithm, run)
    assert (lost <= limit).all()
    assert (lost >= 0.2 * limit).all()


def _tone(a: float, b: float) -> np.ndarray:
    """Eight real numbers whose spectrum is a + bi and its conjugate in states 1 and 7."""
    n = np.arange(8)
    return ((a * np.cos(math.pi / 4 * n) - b * np.sin(math.pi / 4 * n)) / 4).astype(np.float32)


def test_three_products_lose_more_than_four() -> None:
    """The two sums of a real part, each of (1 + √2)/2 |X||W| at most, lose all that is added.

    Terms of the first are just below half a unit of it and vanish, those of the other just above
    and count twice; an output of one window is the real part.
    """
    depth, eighth = 3000, math.pi / 8
    a, b = math.cos(3 * eighth), math.sin(3 * eighth)
    c, d = math.cos(eighth), math.sin(eighth)
    size = (1 + 1e-4) / ((a + b) * c)  # both sums begin just above 1
    x = np.tile(_tone(a, b), (depth, 1))
    first, second = U * (1 - 1e-3) / (a + b), U * (1 + 1e-3) / b  # c and c + d of a term
    w = np.tile(_tone(first, first - second), (depth, 1))  # filters are conjugated
    w[0] = _tone(c * size, -d * size)
    x, w = x.T[None], w.T[None]
    problem, algorithm = Problem.of(x.shape, w.shape), parse_algorithm("fft:8:3")
    run = arithmetic("fp32")
    y = fft.forward(x, w, problem, algorithm, run)
    error = np.abs(y - convolution.forward(x, w, problem))
    norms = np.sqrt((x[0].astype(float) ** 2).sum(0)) @ np.sqrt((w[0].astype(float) ** 2).sum(0))
    assert (error <= proven(x, w, problem, algorithm, run)).all()
    assert (error >= 2.3 * depth * U * norms).all()


@pytest.mark.parametrize(
    ("run", "depth", "aligned", "rounded", "chunks"),
    [
        ("fp32,accumulation=tensor_core:4:0:truncate", 4, 5 * 2 * U, 2 * U, 1),
        ("fp32,accumulation=tensor_core:4:1:nearest", 8, 5 * U, U, 2),
        ("fp32,accumulation=tensor_core:8:2:truncate", 3, 4 * U / 2, 2 * U, 1),
        ("tf32,accumulation=tensor_core:4:0:truncate", 4, 4 * 2 * U, 2 * U, 1),
        ("fp16,accumulation=tensor_core:16:2:truncate", 32, 16 * U / 2, 2 * U, 2),
    ],
)
def test_products_longer_than_what_is_kept_lose_by_alignment_too(
    run: str, depth: int, aligned: float, rounded: float, chunks: int
) -> None:
    """All but the largest of c products and the sum before are cut; it too where it is longer."""
    simulated = _float(run)
    unit = accumulation_unit(simulated, depth)
    expected = ((1 + aligned) * (1 + rounded)) ** chunks - 1
    assert math.isclose(unit.relative, expected, rel_tol=1e-6)
    order = simulated.accumulation
    addends, eta = min(order.block, depth) + 1, 2.0**-149  # the spacing is at least η 2^-extra bits
    tiny = 2.0**simulated.product.emin  # as which subnormal factors are aligned
    assert unit.aligned == chunks * addends * 2 * U * 2.0**-order.extra_bits * tiny
    rest = chunks * (addends * 2.0**-order.extra_bits + 1) * eta
    assert math.isclose(unit.absolute, rest + unit.aligned * tiny, rel_tol=1e-12)


def test_products_of_subnormal_factors_lose_what_their_fields_are_above_them() -> None:
    """One of 2⁻²⁴ and 1 is aligned as 2⁻¹⁴: 15 others lose nearly 2⁻³⁹ each, where relative terms
    allow 2⁻⁴³ in all."""
    run, e = _float("fp16,accumulation=tensor_core:16:2:truncate"), 2.0**-10
    x, w = np.full((1, 16, 1), np.float32((1 + e) * 2.0**-14)), np.ones((1, 16, 1), np.float32)
    x[0, 0], w[0, 1:] = 2.0**-24, (2 - e) * 2.0**-14
    problem = Problem.of(x.shape, w.shape)
    y = winograd.forward(x, w, problem, direct(), run)
    error = np.abs(y - convolution.forward(x, w, problem))
    limit = bound(x, w, problem, direct(), run)
    assert error >= 0.99 * 15 * 2.0**-39
    assert (error <= limit).all()
    assert (error >= 0.8 * limit).all()


def test_sums_that_leave_the_tensor_core_round_outside_too() -> None:
    """Pieces of two chunks and of one in turn: of the longest, then an addition for each other."""
    unit = accumulation_unit(_float("fp16,accumulation=tensor_core:4:0:truncate:8+4"), 24)
    inside, outside = ((1 + 4 * 2 * U) * (1 + 2 * U)) ** 2, (1 + U) ** 3
    assert math.isclose(unit.relative, inside * outside - 1, rel_tol=1e-6)


def test_compensated_sums_of_rounded_products_lose_a_unit_more() -> None:
    fused, apart = (
        accumulation_unit(_float(f"fp32,accumulation=kahan,fused={fused}"), 100).relative
        for fused in ("yes", "no")
    )
    assert math.isclose((1 + fused) * (1 + U) - 1, apart, rel_tol=1e-6)


@pytest.mark.parametrize("storage", ["tf32", "bf16"])
def test_storing_what_a_transform_takes_counts(storage: str) -> None:
    """A number just below halfway between two of the storage format, of FP32's transforms."""
    run = _float(f"fp32,storage={storage}")
    half = run.storage.unit_roundoff * (1 - 2.0**-10)
    x, w = np.zeros((1, 8, 1), np.float32), np.zeros((1, 4, 1), np.float32)
    x[0, 3], w[0, 0] = 1 + half, 1 + half
    problem, algorithm = Problem.of(x.shape, w.shape), parse_algorithm("fft:8:4")
    error = np.abs(fft.forward(x, w, problem, algorithm, run) - convolution.forward(x, w, problem))
    assert error.max() >= 1.99 * half
    assert (error <= proven(x, w, problem, algorithm, run)).all()


def test_scaling_back_loses_below_fp32s_normal_numbers() -> None:
    rng = np.random.default_rng(5)
    x, w = (rng.uniform(-1, 1, s).astype("f") for s in ((1, 40, 2), (3, 3, 2)))
    x, w = x * np.float32(2.0**-70), w * np.float32(2.0**-70)
    problem, run = Problem.of(x.shape, w.shape), arithmetic("fp32_split")
    for algorithm in (direct(), parse_algorithm("gamma:8:6:3")):
        y = run.to_float64(winograd.forward(x, w, problem, algorithm, run))
        error = np.abs(y - convolution.forward(x, w, problem))
        limit = bound(x, w, problem, algorithm, run)
        assert (error <= limit).all()
        assert error.max() >= 0.4 * 2.0**-149
        assert limit.max() <= 3 * 2.0**-149


@pytest.mark.parametrize("text", ["direct", "dwm:3:1"])
def test_the_oracles_own_error_counts(text: str) -> None:
    """What is exact but for 200 bits differs from FP64's sums by these sums' roundings."""
    rng = np.random.default_rng(7)
    x, w = rng.uniform(-1, 1, (1, 20, 40)), rng.uniform(-1, 1, (2, 3, 40))
    problem, algorithm = Problem.of(x.shape, w.shape), parse_algorithm(text)
    run: Any = arithmetic("mp:200")
    engine = winograd if text == "direct" else decompose
    y = run.to_float64(engine.forward(x, w, problem, algorithm, run))
    error = np.abs(y - convolution.forward(x, w, problem))
    assert error.max() > 0
    assert (error <= proven(x, w, problem, algorithm, run)).all()
