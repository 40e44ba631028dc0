"""Kernels with faults are refused for these faults, right ones accepted."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Iterator
from ctypes.util import find_library
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from winolab.judge import around, judgement
from winolab.judge.claim import Claim
from winolab.judge.data import CHANGES
from winolab.judge.judgement import Judgement, cases, judge
from winolab.judge.loading import load
from winolab.judge.problems import text
from winolab.judge.trial import Case, Finding, Judge
from winolab.problem import Problem

KERNELS = str(Path(__file__).with_name("kernels.py"))
ONE = "batch=2 channels=4 out_channels=4 groups=1 filter=3 stride=1|2 dilation=1 padding=1"


def judged(name: str, precision: str = "fp32", count: int = 0, seconds: float = 0.1) -> Judgement:
    candidate = load(f"{KERNELS}:{name}")
    claim = Claim("direct", precision, candidate.direction)
    return judge(candidate, claim, count=count, first=True, seconds=seconds)


def every_fourth(*given: Any) -> Iterator[Case]:
    """Some cases, of what others show whole."""
    return islice(cases(*given), 0, None, 4)


# Issue 50, section 4: the ten faults, then others of their kinds; what each is refused for.
FAULTS = {
    "unwritten_tile": ("unwritten", "other numbers where new memory holds zeros"),
    "off_by_one_pad": ("values", "it is the result of padding"),
    "race": ("repeat", "equal call"),
    "unordered": ("repeat", "between equal calls"),
    "tf32": ("values", "is what TF32 products have"),
    "wrong_stream": ("stream", "written after the call returned"),
    "reads_outside": ("outside", "with what lies around the operands"),
    "reads_outside_plainly": ("outside", "right where zeros lie around the operands"),
    "stale_workspace": ("stale", "other numbers without another call before"),
    "transposed_filter": ("values", "a filter reversed along all dimensions"),
    "aligned_channels": ("values", ""),
    "wide_result": ("shape", "float64, expected float32"),
    "other_layout": ("shape", "shape"),
    "mutates": ("inputs", "operand b"),
    "cached_filter": ("stale", "right without another call before"),
    "needs_pixels": ("values", ""),
    "one_buffer": ("kept", "changes with the next call"),
    "writes_outside": ("writes", "beside out"),
    "raises": ("crash", "IndexError"),
    "slips": ("crash", "ValueError: operands could not be broadcast"),
    "one_workspace": ("threads", "where 4 threads call at once"),
    "leaks": ("leak", "KiB more are taken after 12 equal calls"),
    "seeds": ("state", "changes NumPy's random state"),
    "ring": ("kept", "changes with 9 more"),
    "flips_for_a_while": ("threads", "two with the same operands"),
    "first_is_wrong": ("repeat", "of the very first call"),
    "declines_later": ("repeat", "declined the next: ValueError: not again"),
}
DEEP = Problem.of((1, 14, 9, 6), (8, 5, 5, 6), padding=2)
# Faults that one kind of trial shows late, and it.
LATE = {
    "swallowed_nan": ("nan", Case(DEEP, "NaN")),
    "skips_zeros": ("nan", Case(DEEP, "NaN by zeros")),
    "flushes": ("subnormal", Case(DEEP, "subnormal")),
    "saturates": ("overflow", Case(DEEP, "beyond the range")),
    "overflow": (
        "values",
        Case(Problem.of((1, 5, 9, 256), (8, 3, 3, 256), padding=1), "sums that cancel"),
    ),
    "few_are_wrong": ("values", Case(Problem.of((1, 280, 240, 1), (2, 3, 3, 1), padding=1))),
    "contiguous_only": (
        "place",
        Case(Problem.of((2, 12, 10, 8), (16, 3, 3, 8), padding=1), place="padded"),
    ),
    "ignores_dilation": (
        "values",
        Case(Problem.of((1, 12, 9, 8), (8, 3, 3, 8), padding=2, dilation=2)),
    ),
    "by_batch": ("values", Case(DEEP, "one huge element")),
    "pruned_by_sum": ("values", Case(DEEP, "filters that sum to 0")),
    "small_offsets": (
        "values",
        Case(Problem.of((1, 66, 66, 16), (2, 3, 3, 16), dilation=32)),
    ),
}


@pytest.mark.parametrize("name", LATE)
def test_a_trial_shows_a_fault(name: str) -> None:
    claim = Claim("direct", "fp16" if name == "overflow" else "fp32")
    check, case = LATE[name]
    finding = Judge(load(f"{KERNELS}:{name}"), claim).run(case).finding
    assert finding
    assert finding.check == check, finding.said
    assert Judge(load(f"{KERNELS}:right"), claim).run(case).finding is None


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_and_named(name: str) -> None:
    found = judged(name)
    check, said = FAULTS[name]
    assert not found
    (fault,) = found.faults
    assert fault.finding.check == check, found.verdict
    assert said in fault.finding.said
    assert found.verdict.startswith(f"refused: {KERNELS}:{name}")


@pytest.mark.parametrize("named", ["FILE", "MODULE"])
def test_a_thread_stops_wherever_a_kernel_is_named(
    named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No thread runs as it likes here, which finds most races, and misses some."""
    monkeypatch.chdir(Path(KERNELS).parent)
    monkeypatch.syspath_prepend(str(Path(KERNELS).parent))
    monkeypatch.setattr(around, "TIMES", 0)
    monkeypatch.setattr(around, "TOGETHER", 0)
    candidate = load(f"{'kernels.py' if named == 'FILE' else 'kernels'}:one_workspace")
    finding = Judge(candidate, Claim()).run(Case(DEEP, around="threads")).finding
    assert finding
    assert finding.check == "threads"


def test_sums_in_sixteen_bits_are_found() -> None:
    found = judged("half_sums", "fp16")
    assert [fault.finding.check for fault in found.faults] == ["values"], found.verdict


def test_the_smallest_failing_problem_is_named() -> None:
    found = judged("transposed_filter", seconds=5)
    problem = found.faults[0].least.problem
    assert (problem.batch, problem.in_channels, problem.out_channels) == (1, 1, 1)
    assert sorted(problem.filter) == [1, 2]
    assert np.prod(problem.input) <= 4
    assert f"smallest failing problem 1x{problem.input[0]}x{problem.input[1]}x1>1x" in found.verdict


def test_a_right_kernel_is_accepted_on_everything() -> None:
    found = judged("right", count=4)
    assert found, found.verdict
    assert found.served == len(found.rows) >= 90
    trials = {(row["problem"], row["data"], row["arrays"]) for row in found.rows}
    for _, case in LATE.values():
        assert (text(case.problem), case.data, f"numpy {case.place}") in trials
    assert {data for _, data, _ in trials} >= CHANGES.keys()
    assert {row["calls"] for row in found.rows} == {2, 10}
    assert 0 < max(row.get("over_tolerance", 0) for row in found.rows) < 1


@pytest.mark.parametrize(
    ("name", "direction"),
    [
        ("data_gradient", "backward_data"), ("filter_gradient", "backward_filter"),
        ("torch.nn:Conv1d", "forward"),
    ],
)  # fmt: skip
def test_gradients_modules_and_tensors_are_judged(
    name: str, direction: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judgement, "cases", every_fourth)
    named = name if ":" in name else f"{KERNELS}:{name}"
    candidate = load(named, direction=direction, serves=ONE)
    found = judge(candidate, Claim("direct", "fp32", direction), count=0)
    assert [fault.finding.check for fault in found.faults] in ([], ["declined"]), found.verdict
    assert found.served >= 12, found.left


def test_rounding_that_is_set_once_is_seen() -> None:
    """No later call changes it again."""
    libm = ctypes.CDLL(find_library("m"))
    upward = {"x86_64": 0x800, "AMD64": 0x800, "aarch64": 0x400000, "arm64": 0x400000}
    right = load(f"{KERNELS}:right")

    def called(*given: Any) -> Any:
        y = right.called(*given)
        libm.fesetround(upward[platform.machine()])
        return y

    try:
        finding = Judge(replace(right, called=called), Claim()).run(Case(DEEP)).finding
    finally:
        libm.fesetround(0)
    assert finding == Finding("state", "the kernel changes how numbers are rounded")


def test_what_serves_nothing_is_refused() -> None:
    found = judged("accepts_nothing")
    assert not found
    assert "it served 0 of" in found.verdict
    assert "not on Tuesdays" in found.verdict


def test_checks_are_left_out_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judgement, "cases", every_fourth)
    assert judged("seeds").faults
    candidate = load(f"{KERNELS}:seeds", serves=ONE)
    found = judge(candidate, Claim(), count=0, skip=frozenset({"state", "declined"}))
    assert found
    assert found.facts["skip"] == ["declined", "state"]
    with pytest.raises(ValueError, match="check 'weather'; expected values, nan"):
        judge(candidate, Claim(), skip=frozenset({"weather"}))


def test_no_trial_begins_after_the_time_that_is_given() -> None:
    found = judge(load(f"{KERNELS}:right"), Claim(), count=0, within=-1)
    assert not found.rows
    assert not found
