"""Expected errors of sums against simulated sums of random products."""

import math

import numpy as np
import pytest

from winolab.ref.arithmetic.simulated import Float, arithmetic
from winolab.ref.error.partial_sums import Products, last_places, places, rounding, sum_errors


@pytest.mark.parametrize("k", [200, 700])
@pytest.mark.parametrize(
    "order",
    ["sequential", "two_level:16", "pairwise", "kahan", "tensor_core:8:1:truncate",
     "tensor_core:4:0:truncate", "tensor_core:16:2:nearest"],
)  # fmt: skip
def test_sums_of_tf32_products(order, k):
    """Mean and deviation of simulated sums; operands are TF32 numbers."""
    rng = np.random.default_rng(0)
    run = arithmetic(f"tf32,accumulation={order}")
    assert isinstance(run, Float)
    for low in (-1, 1):
        mean, variance = (1.5, 1 / 12) if low == 1 else (0.0, 1 / 3)
        a, b = (
            run.product.round(rng.uniform(low, 2 + (low == -1) * -1, s)) for s in ((96, k), (k, 96))
        )
        error = run.to_float64(run.matmul(a, b)) - a @ b
        one, spread, sign = np.array([mean]), np.array([variance]), np.array([float(low == 1)])
        second = (variance + mean**2) ** 2 - mean**4
        operands = (one, spread), (one, spread), run.product.precision
        shown = last_places(*operands), places(*operands[:2]), 2.0 ** (2 - 2 * operands[2])
        terms = Products(one**2, np.array([second]), sign, np.ones(1), *shown)
        noise, bias, shrinkage = sum_errors(run, k, terms)
        expected = math.sqrt(noise[0] + shrinkage[0] * k * second + bias[0] ** 2)
        assert 0.8 <= expected / np.sqrt(np.mean(error**2)) <= 1.25
        if low == 1 and "truncate" in order:
            assert bias[0] == pytest.approx(error.mean(), rel=0.1)


def test_a_rounding_depends_on_the_place_in_its_binade():
    zero = np.zeros(2)
    found = rounding(2.0**-24, 1.0, np.array([1.0, 1.99]), zero)
    assert found == pytest.approx([(2.0**-23) ** 2 / 12] * 2)
    assert rounding(2.0**-24, 2.0, np.array([1.0]), zero[:1]) == pytest.approx(4 * found[:1])
    assert rounding(2.0**-24, 2.0, zero, zero).sum() == 0
