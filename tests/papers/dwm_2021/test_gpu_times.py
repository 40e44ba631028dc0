"""DWM's layers on a GPU: all that the calls load is known before."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest

import winolab
from papers.dwm_2021 import gpu_times
from papers.dwm_2021.measure import ranges
from papers.dwm_2021.strategies import KERNELS
from tests.gpu.support.pretended import Array, Library, on_the_cpu
from winolab.algorithm import Problem
from winolab.device import H100
from winolab.gpu import driver
from winolab.gpu.planner.request import DTYPES
from winolab.gpu.runtime import conv
from winolab.gpu.runtime.cache.source import Source


class Nothing:
    """A kernel that does nothing."""

    def __init__(self, *_: Any) -> None:
        pass

    def on(self, stream: int) -> None:
        pass

    def start(self) -> int:
        return 0


@pytest.mark.parametrize("unit", ["fp32", "fp16"])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("methods", [gpu_times.named, ranges.named])
def test_calls_load_what_was_said_and_nothing_else(
    stride: int, unit: str, methods: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a call, a kernel would be compiled on one core: half of a sitting's time went there."""
    sources: set[str] = set()

    def load(source: str | Source, title: str, shared: Mapping[str, int], index: int) -> Any:
        sources.add(Source.of(source).digest)
        return {name: driver.Kernel(name, 1, size, None) for name, size in shared.items()}

    on_the_cpu(monkeypatch, load, Nothing)
    monkeypatch.setattr(conv, "library_of", lambda array: Library())
    problem = Problem.of((2, 14, 14, 32), (32, 5, 5, 32), stride=stride, padding=2)
    x, w = (Array(np.zeros(shape, DTYPES[unit])) for shape in (problem.x_shape, problem.w_shape))
    how = {"stride": problem.stride, "padding": problem.padding}
    calls = [partial(winolab.conv_forward, x, w, algorithm=algorithm, **how)
             for _, algorithm in gpu_times.ours(problem, unit, methods=methods)]  # fmt: skip
    phased = methods is gpu_times.named
    if stride > 1 and phased:
        calls.append(partial(gpu_times.phases, x, w, problem))
    for call in calls:
        call()
    assert sources
    said = gpu_times.loaded(problem, unit, H100, methods, phased)
    assert sources == {Source.of(s).digest for s in said if s}


def test_the_first_cases_are_of_both_tables_and_all_kernels() -> None:
    first = [problem for *_, problem in gpu_times.layers()][:9]
    assert {(p.ndim, p.filter[-1]) for p in first} == {
        (ndim, kernel) for ndim, kernels in KERNELS.items() for kernel in kernels
    }


def test_the_first_cases_of_networks_are_whole_ones() -> None:
    names = [label for _, label, _ in gpu_times.layers_of_networks()]
    first = gpu_times.FIRST["networks"]
    assert not set(names[:first]) & set(names[first:])
    steps = [step for step, *_ in gpu_times.cases("layers,networks,grid")]
    assert steps[: gpu_times.FIRST["layers"]] == ["layers"] * gpu_times.FIRST["layers"]
    assert steps.count("networks") == len(names)
