"""Which kernel runs a problem: pure Python, no GPU needed.

Every family of kernels (FAMILIES) offers the plans that it has for a problem, each with a predicted
time; the chooser takes the fastest, or one that is nearly as fast and more accurate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib import import_module
from types import NoneType
from typing import TYPE_CHECKING, Any, Protocol

from winolab.device import Device
from winolab.gpu.correlation import CORRELATIONS, Correlation, check
from winolab.gpu.guard import guarded
from winolab.nouns import Algorithm, Problem
from winolab.ref.errors import error_ratio
from winolab.ref.winrs_plan import data_size

if TYPE_CHECKING:
    from winolab.gpu.launch import Kernels, View

DIRECTIONS = (*CORRELATIONS, "backward_filter")
# What a caller may ask for -> precisions of families that deliver it.
PRECISIONS = {
    "fp32": ("fp32", "fp32_split"),
    "fp32_ffma": ("fp32",),
    "fp32_split": ("fp32_split",),
    "fp16": ("fp16",),
    "bf16": ("bf16",),
}
# Times the least predicted time (which is off by 5 %) that fewer states are worth, and products of
# split parts that lose no more than FP32's sums do.
CLOSE, AS_EXACT = 1.01, 1.15
# States of split products that are taken whatever they lose; more where they lose less than that
# share of what FP32's sums in order do, by ``loss``: of nested tiles that lose 0.85 and more,
# errors over cuDNN's GEMM's were up to 1.13 times that (an H200's rows).
MOST_STATES, LOSES_LESS = 8, 0.89
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

    def check(self) -> None:
        """Raise ValueError for what no CUDA kernel computes."""
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
        module = import_module(f"winolab.gpu.{self.module}")
        if not isinstance(request.variant, (NoneType, module.Variant)):
            return iter(())
        return module.plans(request)


# Without a limit, filter gradients take at most so much of x, w and y as workspace, by their dtype,
# or so many bytes, where that costs no more than so many times the time: on average over WinRS's
# grid 0.13 on an H100 and 0.17 on an H200 in FP32, 0.16 in 16 bits, the paper's being 0.18. (FP32
# with 0.45: 3 % faster, and 0.20 on an H200, whose memory makes transforms worth more.)
USUAL_SHARE = {"float32": 0.41, "float16": 0.45, "bfloat16": 0.45}
USUAL_LEAST, SLOWER = 16 << 20, 2.5
# Within it transforms of parts of the batch are worth their error and workspace where they take at
# most so much of the time of products without transforms. Of a correlation, a workspace larger than
# its data is worth it where it takes at most so much of the time without one.
WORTH = 0.9

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
            if request.algorithm or request.variant or not found:
                ffma = replace(request, algorithm=None, precision="fp32", variant=None)
                fallbacks, _ = _offered(ffma)
            named = request.precision == unit
            offered = list(guarded(offered, fallbacks, named, alone=bool(request.variant)))
        found += offered
    if not found and not reasons:
        reasons.append(f"no CUDA kernel computes {request.direction} in {request.precision}")
    plans, why = _sorted([p for p in found if p.variant == request.variant] or found, request)
    return Choice(tuple(plans), tuple(dict.fromkeys(reasons)), why)


def _sorted(plans: list[Plan], request: Request) -> tuple[list[Plan], str]:
    """The fastest first, of more than MOST_STATES what LOSES_LESS, others last; but of correlations
    that are as CLOSE to it that of the fewest states, or, if its split products lose more than
    FP32's sums, what does not for AS_EXACT times the time; and which of these it is. Where nobody
    says how, a workspace larger than the data has to be WORTH it."""
    plans = sorted(plans, key=lambda p: p.predicted)
    if not plans or plans[0].direction not in CORRELATIONS:
        return plans, ""
    kept, lossy = [], []
    for p in plans:
        (lossy if loses(p) else kept).append(p)
    if not kept:
        return plans, ""
    costly: list[Plan] = []  # in workspace, for too little
    if not request.named:
        kept, costly = _worth(kept, request.data_size)
    fastest = kept[0]
    alike = [p for p in kept if p.precision == fastest.precision]
    close, dear = (
        [p for p in alike if p.predicted <= times * fastest.predicted]
        for times in (CLOSE, AS_EXACT)
    )
    first = min(close, key=_states)
    why = f"the fewest states within {CLOSE - 1:.0%} of the fastest" if first != fastest else ""
    if first.precision == "fp32_split" and (lost := loss(first)) > 1:
        exact = next((p for p in dear if loss(p) <= 1), None)
        if exact:
            why = f"errs no more than sums in FP32; what is faster, {lost:.2f} times as much"
            first = exact
    if not why and costly and costly[0].predicted < first.predicted:
        why = f"what is faster by less than {1 - WORTH:.0%} takes {costly[0].workspace >> 20} MiB"
    if not why and lossy and lossy[0].predicted < first.predicted:
        lost, most = loss(lossy[0]), f"more than {MOST_STATES} states may {LOSES_LESS}"
        why = f"what is faster errs {lost:.2f} times as much as sums in FP32, {most}"
    return [first, *(p for p in kept if p is not first), *costly, *lossy], why


def _worth(plans: list[Plan], data: int) -> tuple[list[Plan], list[Plan]]:
    """Plans, the fastest first: those whose workspace is no larger than the data or is WORTH it,
    and the others."""
    large = [beside_filter(p) > data for p in plans]
    lean = (p.predicted for p, is_large in zip(plans, large, strict=True) if not is_large)
    most = WORTH * min(lean, default=math.inf)
    worth: list[Plan] = []
    costly: list[Plan] = []
    for p, is_large in zip(plans, large, strict=True):
        (costly if is_large and p.predicted > most else worth).append(p)
    return worth, costly


def loss(p: Any) -> float:
    """Predicted error of a correlation over that of direct sums in FP32.

    Taps of zeros that fill up pieces are part of what the tiles sum, not of what direct does.
    """
    c, tiles = Correlation.of(p.problem, p.direction), p.algorithm.tiles
    alone = len(c.filter) - len(tiles)  # dimensions that are summed directly
    filled = [-(-taps // t.r) for taps, t in zip(c.filter[alone:], tiles, strict=True)]
    sums = math.prod(c.filter[:alone]) * c.channels * math.prod(filled)
    taps = math.prod(n * t.r for n, t in zip(filled, tiles, strict=True))
    nested = tiles if len(tiles) > 1 else tiles[0]
    ratio = error_ratio(nested, p.points, p.simulated, max(1, sums))
    return ratio * math.sqrt(taps / math.prod(c.filter[alone:]))


def loses(p: Any) -> bool:
    """Whether split products of that many states err too much for the planner to pick them."""
    many = p.precision == "fp32_split" and _states(p) > MOST_STATES
    return many and loss(p) > LOSES_LESS


def beside_filter(p: Any) -> int:
    """Bytes of a correlation's workspace beside its transformed filter."""
    return getattr(p, "beside", p.workspace - getattr(p, "prepared", 0))


def _states(p: Any) -> int:
    """Of all dimensions of a correlation's algorithm."""
    return math.prod(t.alpha for t in p.algorithm.tiles)


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
