"""Tensor Cores by architecture: what their names mean, and the published models bit for bit."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import winolab
from winolab.ref.arithmetic import accumulate
from winolab.ref.arithmetic.accumulate import multiply_accumulate
from winolab.ref.arithmetic.formats import FORMATS
from winolab.ref.arithmetic.loops import installed
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


def step(a, b, c, bits, lowest=-126):
    """One step of a Tensor Core in integers: a float of FP32, its parts by frexp alone; ``lowest``
    is the exponent of subnormal factors. 0 has none."""

    def field(v, least):
        return max(math.frexp(v)[1] - 1, least)

    terms = [(1, field(c, -126), Fraction(c))] if c else []
    for x, y in zip(a, b, strict=True):
        if x and y:
            terms.append((1, field(x, lowest) + field(y, lowest), Fraction(x) * Fraction(y)))
    if not terms:
        return 0.0
    top = max(exponent for _, exponent, _ in terms)
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


@pytest.mark.parametrize("architecture", TENSOR_CORES)
def test_split_products_are_summed_as_instructions_do(architecture: str) -> None:
    """lo·hi, hi·lo, hi·hi of 16 numbers from zero, then added outside: issue 50, section 5."""
    bits, k, steps = PUBLISHED[architecture, "fp16"]
    run = arithmetic(f"fp32_split@{architecture}")
    rng = np.random.default_rng(5)
    a, b = (
        (rng.standard_normal(s) * 2.0 ** rng.integers(-3, 4, s)).astype(np.float32)
        for s in ((7, 40), (40, 6))
    )
    got = run.matmul(a, b)

    def parts(x: np.ndarray) -> dict[str, np.ndarray]:
        high = x.astype(np.float16).astype(np.float32)
        return {"hi": high, "lo": (x - high).astype(np.float16).astype(np.float32)}

    left, right = parts(a), parts(b)
    for i in range(7):
        for j in range(6):
            total = np.float32(0)
            for first in range(0, 40, k):
                inside = 0.0
                for one, other in (("lo", "hi"), ("hi", "lo"), ("hi", "hi")):
                    for start in range(first, first + k, k // steps):
                        part = slice(start, start + k // steps)
                        row, column = left[one][i, part], right[other][part, j]
                        inside = step(row.tolist(), column.tolist(), inside, bits)
                total += np.float32(inside)
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
    assert arithmetic("fp32_split") == arithmetic("fp32_split@hopper")
    assert arithmetic("fp32_split") != arithmetic("fp32_split@ada")
    assert arithmetic("fp16@hopper").name == "fp16,accumulation=tensor_core:16:2:truncate"
    assert arithmetic("float16@hopper") == arithmetic("torch.float16@blackwell")
    mixed = arithmetic("fp16@hopper,transform=fp16")
    assert mixed.name == "fp16,transform=fp16,accumulation=tensor_core:16:2:truncate"


def test_unknown_architectures_are_refused_in_a_line() -> None:
    for text, message in {
        "fp16@hoper": "unknown architecture 'hoper' of Tensor Cores; .*; did you mean 'hopper'",
        "fp16@": "unknown architecture ''",
        "fp32@hopper": "precision 'fp32@hopper'; expected fp16, bf16, tf32, fp32_split before",
        "fp64@ampere": "precision 'fp64@ampere'; expected fp16, bf16, tf32, fp32_split before",
        "fp17@hopper": "unknown precision 'fp17'; .*; did you mean 'fp16'",
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
    for name in found:
        split: dict[str, Any] = {"precision": f"fp32_split@{name}", "data": "u11"}
        error = winolab.accuracy(*shapes, **split).relative_rms
        assert 0.8 < error / winolab.predict(*shapes, **split).relative_rms < 1.25
        assert error < winolab.bound(*shapes, **split).relative
    x = np.random.default_rng(0).random(shapes[0], np.float32)
    w = np.random.default_rng(1).random(shapes[1], np.float32)
    ours = winolab.conv_forward(x, w, precision="fp16@hopper", out_dtype=np.float32)
    by_hand = arithmetic("fp16@hopper")
    window = by_hand.asarray(x[0, :3, :3].reshape(1, -1))
    assert ours[0, 0, 0, 0] == by_hand.matmul(window, by_hand.asarray(w.reshape(8, -1)).T)[0, 0]


# What mma.sync and wgmma of an H200 gave (experiments/results/tensor_cores.jsonl): c, a and b by
# their place along k, the sum, and the sum where subnormal operands are normalised.
MEASURED = [
    (
        *("fp16", 16, "-0x1.db6faep-26"),
        {
            0: ("0x1.588p-15", "0x1.8dp-16"), 4: ("-0x1.ap-18", "-0x1.dp-15"),
            5: ("-0x1.108p+1", "-0x1.708p-15"), 6: ("-0x1.17p-1", "0x1.778p-15"),
            9: ("0x1.fcp-16", "-0x1.d8p-18"), 11: ("-0x1.f84p-1", "-0x1.dcp-16"),
            15: ("0x1.ccp-18", "-0x1.57cp-2"), 17: ("-0x1.53p-15", "0x1.fp-18"),
            20: ("-0x1.1acp+0", "-0x1.23p-16"), 25: ("-0x1.448p+1", "0x1.738p-15"),
            29: ("-0x1.b38p-15", "-0x1.058p-6"), 30: ("0x1.81cp+0", "0x1.d4p-18"),
        },
        *("0x1.b2fd4p-17", "0x1.b2fd44p-17"),
    ),
    (
        *("tf32", 8, "0x0p+0"),
        {
            0: ("-0x1.34p-129", "-0x1.75cp-2"), 2: ("0x1.18p-128", "-0x1.b9cp-1"),
            4: ("0x1.2p-133", "0x1.75p-127"), 6: ("0x1.13cp-7", "0x1.2fp-127"),
            7: ("0x1.788p-127", "0x1.a9p-127"), 9: ("0x1.b78p-127", "0x1.7ccp-5"),
            10: ("0x1.5e8p-127", "-0x1.bacp-2"), 11: ("0x1.fep-128", "0x1.378p-127"),
            12: ("-0x1.f48p-127", "0x1.1ap-127"), 13: ("0x1.b08p-127", "-0x1.cp-130"),
            14: ("-0x1.cp-127", "0x1.4d8p-1"), 15: ("-0x1.0f4p+0", "-0x1.ep-127"),
        },
        *("-0x1.1e69p-133", None),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("precision", "k", "c", "at", "measured", "normalised"), MEASURED)
def test_subnormal_operands_are_aligned_by_their_fields(
    precision: str, k: int, c: str, at: dict, measured: str, normalised: str | None
) -> None:
    a, b = np.zeros((2, 2 * k))
    for place, pair in at.items():
        a[place], b[place] = map(float.fromhex, pair)
    order = TENSOR_CORES["hopper"].accumulation(precision)
    chain = (a[None], b[:, None], np.full((1, 1), float.fromhex(c)), order, FORMATS["fp32"])
    got = multiply_accumulate(*chain, 2.0 ** FORMATS[precision].emin)
    assert got[0, 0] == float.fromhex(measured)
    if normalised:
        assert multiply_accumulate(*chain)[0, 0] == float.fromhex(normalised)


@pytest.mark.parametrize("loops", [True, False])
@pytest.mark.parametrize("precision", ["fp16", "tf32", "bf16"])
def test_simulations_align_subnormal_operands_by_their_fields(
    precision: str, loops: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As integers have it, and as the chain that an H200 repeats; by NumPy, and Numba's loops."""
    monkeypatch.setattr(accumulate, "compiled", (lambda size: installed()) if loops else no_loops)
    run, fmt = arithmetic(f"{precision}@hopper"), FORMATS[precision]
    rng = np.random.default_rng(67)
    a, b = (rng.standard_normal(s) for s in ((24, 40), (40, 9)))
    for v in (a, b):
        tiny = rng.integers(-1023, 1024, v.shape) * fmt.smallest_subnormal
        v[...] = np.where(rng.random(v.shape) < 0.7, tiny, v * (rng.random(v.shape) < 0.5))
    a, b = (run.asarray(fmt.round(v)) for v in (a, b))
    got = run.matmul(a, b)
    order = TENSOR_CORES["hopper"].accumulation(precision)
    chain = (a.astype(float), b.astype(float), np.zeros(got.shape), order, FORMATS["fp32"])
    assert np.array_equal(got, multiply_accumulate(*chain, 2.0**fmt.emin))
    if precision == "fp16":  # normalised, some sums differ; others' are too small to show it
        assert not np.array_equal(got, multiply_accumulate(*chain))
    bits, k, _ = PUBLISHED["hopper", precision]
    for i, row in enumerate(a.tolist()):
        for j, column in enumerate(b.T.tolist()):
            total = 0.0
            for first in range(0, 40, k):
                part = slice(first, first + k)
                total = step(row[part], column[part], total, bits, fmt.emin)
            assert got[i, j] == total


def no_loops(size: int) -> None:
    """NumPy's own."""


def test_a_chain_that_begins_at_zero_is_the_simulation() -> None:
    run = arithmetic("fp16@hopper")
    rng = np.random.default_rng(3)
    a, b = (run.asarray(rng.standard_normal(s)).astype(float) for s in ((5, 40), (40, 3)))
    chain = multiply_accumulate(a, b, np.zeros((5, 3)), run.accumulation, FORMATS["fp32"])  # type: ignore[attr-defined]
    assert np.array_equal(chain, run.matmul(a, b))
