"""Kernels with faults are refused for these faults, right ones accepted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from winolab.judge.claim import Claim
from winolab.judge.judgement import Judgement, judge
from winolab.judge.loading import load

KERNELS = str(Path(__file__).with_name("kernels.py"))


def judged(
    name: str, precision: str = "fp32", count: int = 0, skip: str = "", seconds: float = 0.2
) -> Judgement:
    candidate = load(f"{KERNELS}:{name}" if ":" not in name else name)
    claim = Claim("direct", precision, candidate.direction)
    return judge(
        candidate, claim, count=count, first=True, seconds=seconds, skip=frozenset(skip.split())
    )


# Issue 50, section 4: the ten faults, then others of their kinds; what each is refused for.
FAULTS = {
    "unwritten_tile": ("unwritten", "other numbers where new memory holds zeros"),
    "off_by_one_pad": ("values", "it is the result of padding"),
    "race": ("repeat", "equal call"),
    "unordered": ("repeat", "between equal calls"),
    "tf32": ("values", "is what TF32 products have"),
    "swallowed_nan": ("nan", "not the NaN or infinity"),
    "wrong_stream": ("stream", "written after the call returned"),
    "reads_outside": ("outside", "with what lies around the operands"),
    "reads_outside_plainly": ("outside", "right where zeros lie around the operands"),
    "stale_workspace": ("stale", "other numbers without another call before"),
    "transposed_filter": ("values", "a filter reversed along all dimensions"),
    "by_batch": ("values", ""),
    "aligned_channels": ("values", ""),
    "wide_result": ("shape", "float64, expected float32"),
    "other_layout": ("shape", "shape"),
    "mutates": ("inputs", "operand b"),
    "cached_filter": ("stale", "right without another call before"),
    "ignores_dilation": ("values", ""),
    "needs_pixels": ("values", ""),
    "flushes": ("subnormal", ""),
    "few_are_wrong": ("values", "1 of"),
    "one_buffer": ("kept", "changes with the next call"),
    "contiguous_only": ("place", "right of contiguous arrays"),
    "writes_outside": ("writes", "beside out"),
    "raises": ("crash", "IndexError"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_and_named(name: str) -> None:
    found = judged(name)
    check, said = FAULTS[name]
    assert not found
    (fault,) = found.faults
    assert fault.finding.check == check, found.verdict
    assert said in fault.finding.said
    assert found.verdict.startswith(f"refused: {KERNELS}:{name}")


@pytest.mark.parametrize("name", ["overflow", "half_sums"])
def test_sums_in_sixteen_bits_are_found(name: str) -> None:
    found = judged(name, "fp16")
    assert not found
    assert found.faults[0].finding.check == "values", found.verdict


def test_the_smallest_failing_problem_is_named() -> None:
    found = judged("transposed_filter", seconds=5)
    problem = found.faults[0].least.problem
    assert (problem.batch, problem.in_channels, problem.out_channels) == (1, 1, 1)
    assert sorted(problem.filter) == [1, 2]
    assert np.prod(problem.input) <= 4
    assert f"smallest failing problem 1x{problem.input[0]}x{problem.input[1]}x1>1x" in found.verdict


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("right", 80), ("winolab:conv_forward", 80),
        ("torch.nn.functional:conv2d", 75), ("torch.nn:Conv2d", 75), ("torch.nn:Conv1d", 70),
    ],
)  # fmt: skip
def test_kernels_that_are_right_are_accepted(name: str, least: int) -> None:
    """Three public ones that this project did not write, and our own."""
    found = judged(name, count=4)
    assert found, found.verdict
    assert found.served >= least, found.left


def test_public_kernels_are_told_what_they_lose() -> None:
    """XLA's convolution on the CPU flushes subnormal numbers; nothing else is wrong with it."""
    found = judged("jax_conv")
    assert [fault.finding.check for fault in found.faults] == ["subnormal"]
    assert "subnormal numbers flushed to 0" in found.verdict
    assert judged("jax_conv", skip="subnormal")
    assert (found := judged("scipy_conv")), found.verdict
    assert found.served > 40


def test_what_serves_nothing_is_refused() -> None:
    found = judged("accepts_nothing")
    assert not found
    assert "it served 0 of" in found.verdict
    assert "not on Tuesdays" in found.verdict
