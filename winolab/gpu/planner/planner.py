"""Which kernel runs a problem: pure Python, no GPU needed.

Every family of kernels (FAMILIES) offers the plans that it has for a problem, each with a predicted
time; the chooser takes the fastest, or one that is nearly as fast and more accurate.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib import import_module
from types import NoneType
from typing import TYPE_CHECKING, Any, Protocol

from winolab.algorithm import Algorithm, Problem, Tile
from winolab.device import Device
from winolab.gpu.planner.correlation import CORRELATIONS, check
from winolab.gpu.planner.fallback import FLAGS, guarded
from winolab.gpu.planner.ranking import WORTH, beside_filter, ordered
from winolab.ref.algorithms.winrs.plan import data_size

if TYPE_CHECKING:
    from winolab.gpu.params import Kernels, View

DIRECTIONS = (*CORRELATIONS, "backward_filter")
# What a caller may ask for -> precisions of families that deliver it.
PRECISIONS = {
    "fp32": ("fp32", "fp32_split"),
    "fp32_ffma": ("fp32",),
    "fp32_split": ("fp32_split",),
    "fp16": ("fp16",),
    "bf16": ("bf16",),
}
ITEMSIZE = {"float32": 4, "float16": 2, "bfloat16": 2}  # bytes, of all dtypes of arrays
DTYPES = {"fp16": "float16", "bf16": "bfloat16"} | dict.fromkeys(
    ("fp32", "fp32_ffma", "fp32_split"), "float32"
)


class Plan(Protocol):
    """Everything about one call: what is computed, by which kernels, at what cost. A frozen value.

    The arrays ``a``, ``b`` and ``out`` are x, w, y forward; dy, w, dx for backward data; x, dy, dw
    for backward filter; all channels-last. Plans of the first two have an ``algorithm``, too: what
    the reference calls it, with tiles along the last dimensions. The others have a ``tile`` along
    the last dimension and ``sums``, which say how dw is summed.
    """

    @property
    def direction(self) -> str: ...
    @property
    def problem(self) -> Problem: ...
    @property
    def device(self) -> Device: ...
    @property
    def precision(self) -> str:
        """Of the products: "fp32" (FFMA), "fp32_split", "fp16" or "bf16"."""
        ...

    @property
    def kernel(self) -> str:
        """The paper's name of the kernel: "Γ8(6,3)", "F(4×4,3×3)"."""
        ...

    @property
    def points(self) -> str: ...
    @property
    def simulated(self) -> str:
        """What the reference calls the arithmetic."""
        ...

    @property
    def variant(self) -> Any:
        """The policies of the family's kernels, a value of its own kind."""
        ...

    @property
    def workspace(self) -> int:
        """Bytes that the launch needs beside its arrays."""
        ...

    @property
    def predicted(self) -> float:
        """Seconds, everything included."""
        ...

    def source(self) -> str:
        """The translation unit of its kernels."""
        ...

    def shared(self) -> dict[str, int]:
        """Its kernels by name, with the bytes of dynamic shared memory of each."""
        ...

    def launch(
        self, kernels: Kernels, a: View, b: View, out: View, workspace: int, index: int
    ) -> None:
        """Compute all groups on CuPy's current stream.

        ``workspace`` is the address of as many bytes as the plan says, 256-byte aligned, with
        any content; ``index`` the device's, already current.
        """
        ...


@dataclass(frozen=True)
class Request:
    """What plans are wanted for.

    ``algorithm`` fixes the tile and the points ("gamma:8:6:3@paper", "direct"); None lets the
    planner choose among the kernels whose predicted error is at most ADMISSIBLE times direct's.
    ``precision`` is a key of PRECISIONS. ``aligned`` says whether the arrays allow vector loads,
    ``variant`` fixes a family's block shape, and all of a plan's where one is exactly that;
    ``workspace_limit`` is in bytes, ``out_dtype`` is what the result is wanted in, by default the
    operands'.
    """

    problem: Problem
    direction: str
    device: Device
    algorithm: Algorithm | None = None
    precision: str = "fp32"
    aligned: bool = field(default=True, kw_only=True)
    variant: Any = field(default=None, kw_only=True)
    workspace_limit: int | None = field(default=None, kw_only=True)
    out_dtype: str | None = field(default=None, kw_only=True)

    @property
    def points(self) -> str:
        """Of the algorithm."""
        return self.algorithm.points if self.algorithm else "best"

    def points_of(self, tile: Tile) -> str:
        """Those of a gradient's tile: direct products have none to name."""
        return self.algorithm.points_of(tile) if self.algorithm and tile.alpha > 1 else "best"

    @property
    def dtype(self) -> str:
        """Of the operands."""
        return DTYPES[self.precision]

    @property
    def data_size(self) -> int:
        """Bytes of x, w and y."""
        return ITEMSIZE[self.dtype] * data_size(self.problem) // ITEMSIZE["float32"]

    @property
    def named(self) -> bool:
        """Whether the caller says how, or how much workspace there is."""
        return bool(self.algorithm or self.variant) or self.workspace_limit is not None

    @property
    def written(self) -> str:
        """The result's dtype."""
        return self.out_dtype or self.dtype

    @property
    def stored(self) -> str:
        """The dtype that kernels store which have the operands' and float32: another is converted
        from float32, so that it is rounded once and overflows only by its own range."""
        return self.dtype if self.written == self.dtype else "float32"

    @property
    def shows_transforms(self) -> bool:
        """Whether a result in float32 of 16-bit operands is left to the planner: direct products
        lose FP32's roundings there, transforms 16 bits', 70 times as much and more."""
        left = not (self.algorithm or self.variant)
        return left and self.written == "float32" != self.dtype

    def check(self) -> None:
        """Raise ValueError for what no CUDA kernel computes, TypeError for other fields' types."""
        for value, kind in (
            *((self.problem, Problem), (self.device, Device)),
            (self.algorithm or Algorithm("direct"), Algorithm),
        ):
            if not isinstance(value, kind):
                raise TypeError(f"a request has {value!r}; expected one of type {kind.__name__}")
        if self.direction not in DIRECTIONS:
            expected = ", ".join(DIRECTIONS)
            raise ValueError(f"direction {self.direction!r}; expected one of {expected}")
        if self.precision not in PRECISIONS:
            expected = ", ".join(PRECISIONS)
            raise ValueError(f"precision {self.precision!r}; expected one of {expected}")
        check(self.problem)

    def unfit(self, needs: str) -> ValueError:
        """What to raise for a device on which a family's kernels cannot run."""
        major, minor = self.device.compute_capability
        return ValueError(f"{self.device.name} has compute capability {major}.{minor}; {needs}")


@dataclass(frozen=True)
class Family:
    """Kernels of one kind: a module of winolab.gpu whose ``plans`` enumerates what they can run."""

    module: str
    directions: tuple[str, ...]
    precisions: tuple[str, ...]

    def plans(self, request: Request) -> Iterator[Plan]:
        """Plans of the family, products being in the request's precision itself; ValueError where
        it has none, and why.

        A ``variant`` that is another family's asks for none.
        """
        module = import_module(f"winolab.gpu.families.{MODULES[self.module]}")
        if not isinstance(request.variant, (NoneType, module.Variant)):
            return iter(())
        return module.plans(request)


# Without a limit, filter gradients take at most so much of x, w and y as workspace, by their dtype,
# or so many bytes, where products without transforms cost no more than so many times the time: over
# the sample of WinRS's grid 0.13 on an H100 and 0.17 on an H200 in FP32, 0.16 in 16 bits, the
# paper's being 0.18; over all 1,117 layers of it 0.19 and 0.26 are predicted in FP32. (FP32 with
# 0.45: 3 % faster, and 0.20 on an H200, whose memory makes transforms worth more.)
USUAL_SHARE = {"float32": 0.41, "float16": 0.45, "bfloat16": 0.45}
USUAL_LEAST, SLOWER = 16 << 20, 2.5

MODULES = {
    "gamma": "gamma_ffma.plan",
    "gamma_tensor": "gamma_wgmma.plan",
    "gamma_mma": "gamma_mma.plan",
    "nested": "nested.plan",
    "direct_tensor": "direct.plan",
    "omega": "wgrad_ffma.plan",
    "omega_tensor": "wgrad_winograd.plan",
    "omega_columns": "wgrad_direct.columns",
    "omega_direct": "wgrad_direct.narrow",
    "omega_split": "wgrad_direct.split",
}
FAMILIES = (
    Family("gamma", CORRELATIONS, ("fp32",)),
    Family("gamma_tensor", CORRELATIONS, ("fp32_split", "fp16", "bf16")),
    Family("gamma_mma", CORRELATIONS, ("fp32_split", "fp16", "bf16")),
    Family("nested", CORRELATIONS, ("fp32_split",)),
    Family("direct_tensor", CORRELATIONS, ("fp16", "bf16")),
    Family("omega", ("backward_filter",), ("fp32",)),
    Family("omega_tensor", ("backward_filter",), ("fp32_split", "fp16", "bf16")),
    Family("omega_columns", ("backward_filter",), ("fp16", "bf16")),
    Family("omega_direct", ("backward_filter",), ("fp16", "bf16")),
    Family("omega_split", ("backward_filter",), ("fp32_split",)),
)


@dataclass(frozen=True)
class Choice:
    """What the planner chose from: plans, its choice first, and why some families have none.

    ``why`` says what the choice has where another plan is the fastest predicted.
    """

    plans: tuple[Plan, ...]
    reasons: tuple[str, ...]
    why: str = ""


def candidates(request: Request) -> Choice:
    """Every plan that can run, whatever its workspace."""
    request.check()
    found: list[Plan] = []
    reasons: list[str] = []
    for unit in PRECISIONS[request.precision]:
        offered, why = _offered(replace(request, precision=unit))
        reasons += why
        if unit == "fp32_split" and offered:
            fallbacks = found
            ffma = replace(request, algorithm=None, precision="fp32", variant=None)
            if request.algorithm or request.variant or not found:
                fallbacks, _ = _offered(ffma)
            limit = request.workspace_limit
            if limit is not None and all(FLAGS + f.workspace > limit for f in fallbacks):
                fallbacks = fallbacks + _offered(replace(ffma, workspace_limit=0))[0]
            named = request.precision == unit
            offered = list(guarded(offered, fallbacks, named, alone=bool(request.variant)))
        found += offered
    if not found and not reasons:
        reasons.append(f"no CUDA kernel computes {request.direction} in {request.precision}")
    plans, why = ordered([p for p in found if p.variant == request.variant] or found, request)
    return Choice(tuple(plans), tuple(dict.fromkeys(reasons)), why)


def _offered(request: Request) -> tuple[list[Plan], list[str]]:
    """Plans of all families for products of that precision, and why some have none."""
    found: list[Plan] = []
    reasons: list[str] = []
    for family in FAMILIES:
        if request.direction in family.directions and request.precision in family.precisions:
            try:
                found += family.plans(request)
            except ValueError as error:
                reasons.append(str(error))
    return found, reasons


def usual_limit(request: Request) -> int:
    """Bytes of workspace that a filter gradient takes where nobody says how many it may."""
    return max(USUAL_LEAST, int(USUAL_SHARE[request.dtype] * request.data_size))


def _frugal(request: Request, fastest: Plan) -> Plan:
    """What computes a filter gradient within the usual limit, or the fastest if that is slow."""
    if fastest.workspace <= (limit := usual_limit(request)):
        return fastest
    within = replace(request, workspace_limit=limit)
    direct, parts = (
        next((p for p in candidates(asked).plans if p.workspace <= limit), None)
        for asked in (replace(within, algorithm=Algorithm("direct")), within)
    )
    if not direct or direct.predicted > SLOWER * fastest.predicted:
        return fastest
    return parts if parts and parts.predicted <= WORTH * direct.predicted else direct


@lru_cache(maxsize=4096)
def plan(request: Request, prepared: bool = False) -> Plan:
    """The fastest predicted Plan; with ``prepared`` of those whose filter can be transformed apart.

    A filter gradient for which neither a limit nor an algorithm is named keeps to the usual limit,
    if products without transforms take at most SLOWER times as long as the fastest plan. Raises
    ValueError where nothing can run, and says why.
    """
    choice = candidates(request)
    found = [p for p in choice.plans if not prepared or getattr(p, "prepared", 0)]
    if not found:
        nothing = (
            f"no kernel of {request.direction} in {request.precision} transforms its filter apart"
        )
        raise ValueError("; ".join(choice.reasons) or nothing)
    limit = request.workspace_limit
    if prepared and limit is not None:
        # Nested Winograd cuts the batch by the limit, of which a fallback's filter takes some.
        kept = max(getattr(getattr(p, "fallback", None), "prepared", 0) for p in found)
        less = candidates(replace(request, workspace_limit=max(0, limit - kept)))
        found = [p for p in less.plans if getattr(p, "prepared", 0)] + found
    if request.direction == "backward_filter" and not request.named:
        return _frugal(request, found[0])

    def size(p: Any) -> int:  # with a filter that is kept, and what calls take beside it
        return p.prepared + beside_filter(p) if prepared else p.workspace

    for p in found:
        if limit is None or size(p) <= limit:
            return p
    least = min(found, key=size)
    raise ValueError(
        f"no plan stays within a workspace of {limit} B; the smallest needs {size(least)} B, "
        f"{least.kernel} in {least.precision}, {least.variant}: raise the limit"
    )
