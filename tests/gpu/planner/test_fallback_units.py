"""Primary and fallback in translation units of their own: the same kernels, compiled once."""

from __future__ import annotations

import hashlib

import pytest

from tests.gpu.instructions import sections
from tests.gpu.support.picked import looked_at
from tests.gpu.support.pretended import one_by_one
from winolab.algorithm import Problem, parse_algorithm
from winolab.device import H100
from winolab.gpu.codegen.translation_unit import kernels_by_unit
from winolab.gpu.planner.fallback import PlanWithFallback
from winolab.gpu.planner.request import Request
from winolab.gpu.runtime import call, loader, nvrtc
from winolab.gpu.runtime.cache.source import Source
from winolab.gpu.runtime.nvrtc import Resources

PROBLEM = Problem.of((8, 28, 28, 64), (64, 3, 3, 64), padding=1)
CASES = {
    "Γ": (PROBLEM, "forward", "gamma:8:6:3"),
    "nested": (PROBLEM, "forward", "winograd:4x4:3x3"),
    "direct": (Problem.of((8, 28, 28, 64), (64, 1, 2, 64)), "backward_data", "direct"),
    "strided": (Problem.of((8, 28, 28, 64), (64, 3, 3, 64), stride=2), "forward", "direct"),
    "gradient": (PROBLEM, "backward_filter", "omega:4:3:2"),
}


def _paired(name: str) -> PlanWithFallback:
    problem, direction, algorithm = CASES[name]
    found = looked_at(
        Request(problem, direction, H100, parse_algorithm(algorithm), precision="fp32_split")
    )
    assert isinstance(found, PlanWithFallback)
    return found


@pytest.mark.parametrize("name", CASES)
def test_kernels_take_apart_what_they_take_in_one(name: str, compiled) -> None:
    plan, apart = _paired(name), dict[str, Resources]()
    for unit, launched in kernels_by_unit(plan):
        found = compiled(unit.source())
        assert launched == unit.shared()
        assert launched.keys() == found.keys()
        assert not apart.keys() & found.keys()
        apart |= found
    assert apart.keys() == plan.shared().keys()
    whole = compiled(plan.source())
    assert apart.items() <= whole.items()
    assert whole.keys() - apart.keys() <= {"winolab_scan"}  # with which the fallback begins


@pytest.mark.parametrize("name", ["direct", "Γ"])
def test_their_machine_code_is_the_same(name: str) -> None:
    plan = _paired(name)

    def code(source: str) -> dict[str, str]:
        made = sections(nvrtc.compile_cubin(source, "sm_90a").cubin)
        return {name: hashlib.sha256(text).hexdigest() for name, text in made.items()}

    whole, apart = code(plan.source()), dict[str, str]()
    for unit in plan.translation_units():
        apart |= code(unit.source())
    assert whole.keys() - {"winolab_scan"} == apart.keys() == plan.shared().keys()
    for kernel in apart.keys() - {"winolab_scale"}:  # of which NVRTC 12.9 makes one of two codes
        assert whole[kernel] == apart[kernel], kernel


def test_plans_share_a_fallback_of_the_same_scale() -> None:
    """How far x's scale leaves room for transforms is all that a fallback knows of the primary."""
    first, gamma = _paired("direct"), _paired("Γ")
    other = looked_at(
        Request(
            Problem.of((8, 28, 28, 64), (192, 1, 2, 64)),
            "backward_data",
            H100,
            parse_algorithm("direct"),
            precision="fp32_split",
        )
    )
    assert isinstance(other, PlanWithFallback)
    behind = [PlanWithFallback.of(p.primary, first.fallback).behind for p in (first, other, gamma)]
    texts = [unit.source() for unit in behind]
    assert first.primary.source() != gamma.primary.source()
    assert texts[0] == texts[1] != texts[2]
    differ = [
        (a, b) for a, b in zip(texts[0].split("\n"), texts[2].split("\n"), strict=True) if a != b
    ]
    assert len(differ) == 1
    assert all("SCALE_INPUT" in line for line in differ[0])


def test_a_call_has_the_kernels_of_all_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """And no scan of its own: a fallback's launch begins with that."""
    asked: dict[str, str] = {}

    def load(source: Source, title: str, shared: dict[str, int], index: int) -> dict[str, int]:
        assert source.digest not in asked
        asked[source.digest] = title
        return shared

    monkeypatch.setattr(loader, "load", load)
    monkeypatch.setattr(loader, "load_units", one_by_one)
    plan = _paired("direct")
    kernels = call.kernels_of(plan, 0)
    assert kernels == plan.shared()
    assert "winolab_scan" in plan.primary.shared()
    assert "winolab_scan" not in kernels
    assert list(asked.values()) == [plan.primary.title, f"{plan.fallback.title}, fallback"]
