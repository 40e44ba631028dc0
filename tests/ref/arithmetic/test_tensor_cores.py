"""Tensor Cores by architecture: what their names mean, and the published models bit for bit."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

import winolab
from winolab.ref.arithmetic.simulated import arithmetic
from winolab.ref.arithmetic.tensor_cores import TENSOR_CORES

# MMA-Sim's table: bits behind the point that aligned significands keep, k of the widest mma.sync by
# format, and into how many steps it is cut.
PUBLISHED = {
    ("ampere", "fp16"): (24, 16, 2),
    ("ampere", "bf16"): (24, 16, 2),
    ("ampere", "tf32"): (24, 8, 2),
    ("ada", "fp16"): (24, 16, 2),
    ("ada", "bf16"): (24, 16, 2),
    ("ada", "tf32"): (24, 8, 2),
    ("hopper", "fp16"): (25, 16, 1),
    ("hopper", "bf16"): (25, 16, 1),
    ("hopper", "tf32"): (25, 8, 1),
    ("blackwell", "fp16"): (25, 16, 1),
    ("blackwell", "bf16"): (25, 16, 1),
    ("blackwell", "tf32"): (25, 8, 1),
}


def step(a, b, c, bits):
    """One step of a Tensor Core in integers: a float of FP32, its parts by frexp alone."""
    terms = [(1, math.frexp(c)[1] - 1 if c else -126, Fraction(c))]
    for x, y in zip(a, b, strict=True):
        if x and y:
            exponent = math.frexp(x)[1] + math.frexp(y)[1] - 2
            terms.append((1, exponent, Fraction(x) * Fraction(y)))
    top = max(max(exponent for _, exponent, _ in terms), -126)
    unit = Fraction(2) ** (top - bits)
    total = sum(math.trunc(value / unit) for *_, value in terms) * unit
    if not total:
        return 0.0
    exponent = math.frexp(float(abs(total)))[1] - 1
    last = Fraction(2) ** (max(exponent, -126) - 23)
    return float(math.trunc(total / last) * last)


@pytest.mark.parametrize(("architecture", "precision"), PUBLISHED, ids="@".join)
def test_architectures_sum_as_published(architecture: str, precision: str) -> None:
    """Rows of few bits and many exponents, halves that cancel, through five instructions."""
    bits, k, steps = PUBLISHED[architecture, precision]
    run = arithmetic(f"{precision}@{architecture}")
    rng = np.random.default_rng(50)
    a, b = (rng.standard_normal(s) * 2.0 ** rng.integers(-6, 7, s) for s in ((24, 80), (80, 9)))
    a[:12, 40:] = -a[:12, 39::-1]
    b[40:, :5] = b[39::-1, :5] * rng.choice([1, 1 + 2.0**-6], (40, 5))
    a, b = run.asarray(a), run.asarray(b)
    if precision == "tf32":
        a, b = (run.to_float64(run.product.round(v)).astype(np.float32) for v in (a, b))  # type: ignore[attr-defined]
    got = run.matmul(a, b)
    for i, row in enumerate(a.tolist()):
        for j, column in enumerate(b.T.tolist()):
            total = 0.0
            for first in range(0, 80, k // steps):
                part = slice(first, first + k // steps)
                total = step(row[part], column[part], total, bits)
            assert got[i, j] == total


def test_one_product_tells_architectures_apart() -> None:
    """Four products of 2⁻²⁵ beside 1, and one of 2⁻³⁰ in the half that does not see 1 − 1."""
    one = np.ones((16, 1), np.float32)
    small, late = np.zeros((2, 1, 16), np.float32)
    small[0, :5] = 1, *[2.0**-25] * 4
    late[0, [0, 1, 9]] = 1, -1, 2.0**-30
    for name in TENSOR_CORES:
        run = arithmetic(f"bf16@{name}")
        old = name in ("ampere", "ada")
        assert run.matmul(small, one)[0, 0] == (1.0 if old else 1 + 2.0**-23)
        assert run.matmul(late, one)[0, 0] == (2.0**-30 if old else 0.0)
    late[0, 9], late[0, 5] = 0, 2.0**-30  # halves of four, and eight at once, of TF32
    assert arithmetic("tf32@ampere").matmul(late, one)[0, 0] == 2.0**-30
    assert arithmetic("tf32").matmul(late, one)[0, 0] == 0


def test_bare_names_are_amperes() -> None:
    for precision in ("fp16", "bf16"):
        assert arithmetic(precision) == arithmetic(f"{precision}@ampere")
        assert arithmetic(precision) == arithmetic(f"{precision}@ada")
        assert arithmetic(precision) != arithmetic(f"{precision}@hopper")
    # eight products with Ampere's alignment: Im2col-Winograd's table 3
    assert arithmetic("tf32").name == "tf32"
    assert arithmetic("tf32@ampere").name == "tf32,accumulation=tensor_core:4:1:truncate"
    assert arithmetic("fp16@hopper").name == "fp16,accumulation=tensor_core:16:2:truncate"
    assert arithmetic("float16@hopper") == arithmetic("torch.float16@blackwell")
    mixed = arithmetic("fp16@hopper,transform=fp16")
    assert mixed.name == "fp16,transform=fp16,accumulation=tensor_core:16:2:truncate"


def test_unknown_architectures_are_refused_in_a_line() -> None:
    for text, message in {
        "fp16@hoper": "unknown architecture 'hoper' of Tensor Cores: did you mean 'hopper'.*ampere",
        "fp16@": "unknown architecture ''",
        "fp32@hopper": "fp32@hopper: expected fp16, bf16, tf32 before the @",
        "fp32_split@ampere": "fp32_split@ampere: expected fp16, bf16, tf32",
        "fp17@hopper": "unknown arithmetic 'fp17': did you mean 'fp16'",
    }.items():
        with pytest.raises(ValueError, match=message):
            arithmetic(text)


def test_architectures_are_named_wherever_a_precision_is() -> None:
    shapes = (1, 12, 12, 64), (8, 3, 3, 64)
    found = {
        name: (
            winolab.predict(*shapes, precision=f"fp16@{name}", data="u01").relative_rms,
            winolab.accuracy(*shapes, precision=f"fp16@{name}", data="u01").relative_rms,
            winolab.tolerance(*shapes, precision=f"fp16@{name}", data="u01").relative_rms,
        )
        for name in ("ampere", "hopper")
    }
    for old, new in zip(found["ampere"], found["hopper"], strict=True):
        assert 0 < new < old  # half of what alignment drops
    x = np.random.default_rng(0).random(shapes[0], np.float32)
    w = np.random.default_rng(1).random(shapes[1], np.float32)
    ours = winolab.conv_forward(x, w, precision="fp16@hopper", out_dtype=np.float32)
    by_hand = arithmetic("fp16@hopper")
    window = by_hand.asarray(x[0, :3, :3].reshape(1, -1))
    assert ours[0, 0, 0, 0] == by_hand.matmul(window, by_hand.asarray(w.reshape(8, -1)).T)[0, 0]
