"""Split products that stand by their results: where these may have lost accuracy, FFMA units redo.

The kernels of split products set flags at the start of the workspace (fallback.cuh) where a
result is not finite or so small that low parts may be missing in it. The fallback comes after them
on the same stream, a correlation's in one launch, and returns at once where no flag asks
for it: no host waits, and a CUDA graph can hold both.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Self

from winolab.algorithm import Algorithm, Problem
from winolab.gpu.codegen.translation_unit import TranslationUnit, Without
from winolab.gpu.params import Kernels, View
from winolab.gpu.planner.base_plan import ComputesAs, TakesFilters
from winolab.gpu.planner.device_model import MODEL
from winolab.gpu.planner.fallback_units import FallbackUnit, OneLaunchUnit, joined, renamed
from winolab.gpu.planner.request import (
    CheckedCorrelation,
    FallbackCorrelation,
    FallbackLaunches,
    Plan,
)
from winolab.ref.arithmetic.simulated import Float, arithmetic
from winolab.ref.arithmetic.split import Scale

FLAGS = 256  # bytes at the start of the workspace, for flags and what launches count
SCAN = "winolab_scan"
CHECKED_OUTPUTS = 4  # as accuracy_check.cuh has it
FEW_PRODUCTS = 24


@dataclass(frozen=True)
class PlanWithFallback(ComputesAs, TakesFilters):
    """Split products, and what computes everything again where their results show a flag."""

    primary: Plan
    fallback: Plan

    flags: ClassVar[int]  # of fallback.cuh, in order, that the kernels clear and set
    checks_accuracy = True
    sums_alone = False
    reads_filters_in_place = False
    regular_rows = False
    merges_pixels = False
    plane_step = 0
    neighbours = -1

    @staticmethod
    def of(primary: Plan, fallback: Plan) -> PlanWithFallback:
        """A plan of a problem and the one behind it; ValueError where these cannot be paired."""
        checked, correlation = primary.checked_correlation, fallback.fallback_correlation
        if repeated := fallback.fallback_launches:
            if checked:
                return StridedWithFallback(checked, repeated)
            return GradientWithFallback(primary, repeated)
        if not checked or not correlation:
            raise ValueError(f"{fallback.kernel} is no fallback of {primary.kernel}")
        return CorrelationWithFallback(checked, correlation)

    @property
    @abstractmethod
    def header(self) -> int:
        """Bytes that the workspace begins with and the fallback leaves alone."""

    @property
    @abstractmethod
    def predicted(self) -> float:
        """Seconds, of data that split products serve."""

    @property
    @abstractmethod
    def behind(self) -> FallbackUnit:
        """What has the fallback's kernels."""

    @abstractmethod
    def shared(self) -> dict[str, int]:
        """Bytes of dynamic shared memory, by kernel."""

    @abstractmethod
    def launch(
        self, kernels: Kernels, a: View, b: View, out: View, workspace: int, index: int
    ) -> None:
        """Compute all groups on the current stream."""

    @property
    def computing(self) -> Plan:
        """What is tried first."""
        return self.primary

    @property
    def direction(self) -> str:
        return self.primary.direction

    @property
    def problem(self) -> Problem:
        return self.primary.problem

    @property
    def kernel(self) -> str:
        """The paper's name of the kernel."""
        return self.primary.kernel

    @property
    def workspace(self) -> int:
        """Bytes: the fallback's launches come when only what is kept is needed any more."""
        return max(self.primary.workspace, self.header + self.fallback.workspace)

    def scaled(self, scale: Scale | None) -> Self:
        """The plan with the caller's scale of the split products."""
        return replace(self, primary=self.primary.scaled(scale)) if scale else self

    def __str__(self) -> str:
        f = self.fallback
        return (
            f"{self.primary}\n"
            f"fallback   {f.kernel} {f.precision}, {f.config}: idle unless ranges are too wide\n"
            f"together   {self.workspace} B workspace, predicted {self.predicted * 1e6:.1f} µs"
        )

    def translation_units(self) -> tuple[TranslationUnit, ...]:
        """The primary's, and the fallback's, which other plans may have, too."""
        return (*self.primary.translation_units(), self.behind)

    def source(self) -> str:
        """Both in one."""
        return joined(self.primary.source(), self.behind.text)


@dataclass(frozen=True)
class GradientWithFallback(PlanWithFallback):
    """Filter gradients in split products; each launch of the fallback looks for the flags."""

    primary: Plan
    fallback: FallbackLaunches

    flags: ClassVar[int] = 3  # nothing is suspect: it is lost or not

    @property
    def header(self) -> int:
        return FLAGS

    @property
    def predicted(self) -> float:
        return self.primary.predicted + len(self.fallback.shared()) * MODEL.device.idle

    @property
    def behind(self) -> FallbackUnit:
        return FallbackUnit(self.fallback)

    def shared(self) -> dict[str, int]:
        return self.primary.shared() | self.behind.shared()

    def launch(
        self, kernels: Kernels, a: View, b: View, out: View, workspace: int, index: int
    ) -> None:
        self.primary.launch(kernels, a, b, out, workspace, index)
        again = {name: kernels[renamed(name)] for name in self.fallback.shared()}
        self.fallback.launch(again, a, b, out, workspace + self.header, index, wanted=workspace)


@dataclass(frozen=True)
class _Correlation(PlanWithFallback, ABC):
    """Correlations, whose workspace begins with a header of the split products."""

    primary: CheckedCorrelation

    flags: ClassVar[int] = 4

    @property
    def algorithm(self) -> Algorithm:
        """What the reference calls the algorithm of the split products."""
        return self.primary.algorithm

    @property
    def header(self) -> int:
        return self.primary.header


@dataclass(frozen=True)
class StridedWithFallback(_Correlation, GradientWithFallback):
    """Correlations with strides or dilation, whose fallback's launch looks for the flags."""

    primary: CheckedCorrelation
    fallback: FallbackLaunches


@dataclass(frozen=True)
class CorrelationWithFallback(_Correlation):
    """Correlations: all that follows the split products is one launch, in the scan's place."""

    primary: CheckedCorrelation
    fallback: FallbackCorrelation

    @property
    def predicted(self) -> float:
        return self.primary.predicted

    @property
    def prepared_size(self) -> int:
        """Bytes of both transformed filters; 0 where one of them is not transformed apart."""
        split, fallback = self.primary.prepared_size, self.fallback.prepared_size
        return split + fallback if split and fallback else 0

    @property
    def beside(self) -> int:
        """Bytes of workspace beside the transformed filters."""
        return max(self.header, self.primary.workspace - self.primary.prepared_size)

    @property
    def behind(self) -> FallbackUnit:
        return OneLaunchUnit(self.fallback, self.primary)

    def translation_units(self) -> tuple[TranslationUnit, ...]:
        """The primary's, without the scan that the fallback's begins with."""
        *split, behind = super().translation_units()
        return *(Without(u, (SCAN,)) if SCAN in u.shared() else u for u in split), behind

    def shared(self) -> dict[str, int]:
        return Without(self.primary, (SCAN,)).shared() | self.behind.shared()

    def launch(
        self, kernels: Kernels, a: View, b: View, out: View, workspace: int, index: int
    ) -> None:
        self.primary.launch(kernels, a, b, out, workspace, index)
        rows = workspace + self.primary.workspace - self.primary.prepared_size
        scan = self.primary.scale_params(a, workspace, rows)
        self.fallback.fall_back(self._of(kernels), scan, a, b, workspace + self.header, out)

    def prepare(self, kernels: Kernels, b: View, prepared: int, index: int) -> None:
        """Transform the filter for both."""
        self.primary.prepare(kernels, b, prepared, index)
        self.fallback.prepare(self._of(kernels), b, prepared + self.primary.prepared_size, index)

    def run(
        self, kernels: Kernels, a: View, prepared: int, out: View, workspace: int, index: int
    ) -> None:
        """Convolve with the transformed filters; ``workspace`` begins with the flags."""
        self.primary.run(kernels, a, prepared, out, workspace, index)
        scan = self.primary.scale_params(a, workspace, prepared)
        behind = prepared + self.primary.prepared_size
        self.fallback.fall_back(self._of(kernels), scan, a, None, behind, out)

    def _of(self, kernels: Kernels) -> Kernels:
        """The fallback's kernels, by its own names."""
        return {name: kernels[renamed(name)] for name in self._again}

    @cached_property
    def _again(self) -> dict[str, int]:
        return self.fallback.fallback_shared()


def checkable(outputs: int) -> bool:
    """Whether so many outputs of a channel tell what it lost: fewer may be near 0 by chance."""
    return outputs >= CHECKED_OUTPUTS


def unchecked(sizes: Sequence[int]) -> ValueError:
    """The error for split products whose tiles have fewer outputs in maps of these sizes."""
    return ValueError(
        f"split products check {CHECKED_OUTPUTS} outputs of a channel or more, and tiles of maps "
        f"of {'×'.join(map(str, sizes))} have fewer; precision 'fp32_ffma' serves them"
    )


def verify(flags: Sequence[int]) -> None:
    """Raise ValueError where the flags, the first integers of the workspace, say so."""
    lost, zero, tiny, *right = flags
    if lost or any(right) or (zero and tiny):
        raise ValueError(
            "split products cannot serve these data: within a tensor, magnitudes are too far apart "
            "for two FP16 parts, few products cancel, a scale that was given is not theirs, or a "
            "result is not finite; "
            "use on_range='fallback', or precision 'fp32_ffma'"
        )


def few_products(problem: Problem, direction: str) -> bool:
    """Whether one of a filter's numbers is likely to be half of all in its row's squares, whose
    results are always computed again (scale.cuh): of 64 rows of normal numbers one has such a
    number in 79 % of filters of 16 products a sum, in 15 % of 23, in 4 % of 27."""
    if direction == "backward_filter":  # sums pixels
        return False
    channels = problem.in_channels if direction == "forward" else problem.out_channels
    return channels // problem.groups * math.prod(problem.filter) < FEW_PRODUCTS


def needs_scale(plan: Plan) -> bool:
    """Whether the parts of its products have fewer exponents than FP32: others lose nothing that
    a check could find."""
    run = arithmetic(plan.simulated)
    return isinstance(run, Float) and run.scale is not None


def with_fallback(
    split: list[Plan], fallbacks: list[Plan], named: bool, alone: bool = False, others: bool = True
) -> Iterator[Plan]:
    """Split products that check their accuracy, each with what computes again what they lost.

    That is the fastest plan that fits into the same workspace, or else the smallest. Kernels that
    lose more than FFMA's, or are likely to where there are ``others``, are kept where split
    products were ``named``, and those that check nothing only to be looked at by themselves,
    ``alone``.
    """
    fallbacks = [f for f in fallbacks if f.fallback_correlation or f.fallback_launches]
    fastest = [(f.workspace, f) for f in sorted(fallbacks, key=lambda f: f.predicted)]
    least = min(fastest, key=lambda sized: sized[0], default=None)
    for p in split:
        few = p.checks_accuracy and few_products(p.problem, p.direction)
        if not named and ((few and others) or not p.accurate):
            continue
        if least and p.checks_accuracy:
            found = PlanWithFallback.of(p, least[1])
            room = p.workspace - found.header
            fit = next((f for size, f in fastest if size <= room), None)
            yield replace(found, fallback=fit) if fit else found
        elif alone or not needs_scale(p):
            yield p
