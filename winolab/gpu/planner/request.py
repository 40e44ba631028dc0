"""What planner, families and callers agree on: a Request, and the Plan that answers it.

No family is imported here: families import this, the registry families, the planner the registry.
A plan has every member of ``Plan``; base_plan.py has those that most families do not care for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Protocol, TypeVar

from winolab.algorithm import Algorithm, Problem, Tile
from winolab.arguments.epilogue import Epilogue
from winolab.arguments.tolerance import Tolerance
from winolab.arguments.variants import CUBLASLT
from winolab.device import Device
from winolab.gpu.codegen.translation_unit import Launched
from winolab.gpu.params import Kernels, Params, View
from winolab.gpu.planner.correlation import CORRELATIONS, check
from winolab.options import KernelConfig
from winolab.ref.algorithms.winrs.plan import data_size
from winolab.ref.arithmetic.split import Scale
from winolab.ref.error.metrics import ADMISSIBLE, ADMISSIBLE_IN_16_BITS

C = TypeVar("C", bound=KernelConfig)
LEAST = (8, 0)  # compute capability: asynchronous copies, mbarriers, mma.sync of BF16 and TF32
DIRECTIONS = (*CORRELATIONS, "backward_filter")
TYPES = (Problem, Device, Algorithm)  # of a request's first fields and its algorithm
# What a caller may ask for -> precisions of families that deliver it.
PRECISIONS = {
    "fp32": ("fp32", "fp32_split"),
    "fp32_ffma": ("fp32",),
    "fp32_split": ("fp32_split",),
    "fp16": ("fp16",),
    "bf16": ("bf16",),
    "fp16_ffma": ("fp16_ffma",),  # 16-bit arrays, FP32 arithmetic
    "bf16_ffma": ("bf16_ffma",),
}
ITEMSIZE = {"float32": 4, "float16": 2, "bfloat16": 2}  # bytes, of all dtypes of arrays
OF_FORMATS = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
DTYPES = {name: OF_FORMATS[name.partition("_")[0]] for name in PRECISIONS}


@dataclass(frozen=True)
class Sum:
    """How a share of dw's elements is summed: so many products of a state one after the other, on
    average, and in FP32 the outputs of so many such sums; what other blocks have is compensated."""

    fraction: float
    products: float
    count: float = 1.0
    tile: Tile | None = None  # None: the plan's


class Plan(Launched, Protocol):
    """Everything about one call: what is computed, by which kernels, at what cost. A frozen value.

    The arrays ``a``, ``b`` and ``out`` are x, w, y forward; dy, w, dx for backward data; x, dy, dw
    for backward filter; all channels-last. Sizes are bytes, times are seconds.
    """

    flags: ClassVar[int]  # of fallback.cuh: by them ``primary`` says what it lost; else 0

    @property
    def direction(self) -> str: ...
    @property
    def problem(self) -> Problem: ...
    @property
    def solved(self) -> Problem: ...  # what kernels compute: the problem, or one that gives its
    @property
    def device(self) -> Device: ...
    @property
    def precision(self) -> str:
        """Precision of the products: "fp32" (FFMA), "fp32_split", "fp16", "bf16", or 16-bit
        numbers that FFMA units compute in FP32, "fp16_ffma" and "bf16_ffma"."""
        ...

    @property
    def out_dtype(self) -> str:
        """What kernels write: the operands' dtype, or "float32"."""
        ...

    @property
    def kernel(self) -> str:
        """The paper's name of the kernel: "Γ8(6,3)", "F(4×4,3×3)"."""
        ...

    @property
    def tiles(self) -> tuple[Tile, ...]:
        """The algorithm's, along the last dimensions; none of direct correlations. The tile of a
        filter gradient is along the last dimension, F(1, 1) where its products are direct."""
        ...

    @property
    def points(self) -> str: ...
    @property
    def scaling(self) -> str | None: ...  # of transforms
    @property
    def simulated(self) -> str:
        """What the reference calls the arithmetic."""
        ...

    @property
    def sums(self) -> tuple[Sum, ...]:
        """How a filter gradient is summed; of correlations, whose sums follow, empty."""
        ...

    @property
    def split_sums(self) -> tuple[tuple[float, int], ...]:
        """For a correlation: shares of the results, which add up to 1, and in how many parts blocks
        compute their sums, which are then added up."""
        ...

    @property
    def config(self) -> KernelConfig: ...  # of the family's kernels
    @property
    def workspace(self) -> int: ...  # bytes that a launch needs beside its arrays
    @property
    def prepared_size(self) -> int:
        """Bytes of the transformed filter, which ``prepare`` writes; 0 where w is read as it is."""
        ...

    @property
    def beside(self) -> int: ...  # bytes of workspace that ``run`` needs beside that filter
    @property
    def predicted(self) -> float: ...  # everything included
    @property
    def checks_accuracy(self) -> bool:
        """Whether the workspace begins with flags about the results (fallback.cuh)."""
        ...

    @property
    def accurate(self) -> bool: ...  # errs no more than kernels on FFMA units
    @property
    def sums_alone(self) -> bool: ...  # of FP32's parts, without a look at other sums

    @property
    def reads_filters_in_place(self) -> bool:
        """Whether a filter is read where it lies only if its pixels are 16-byte aligned."""
        ...

    @property
    def regular_rows(self) -> bool:
        """Whether an array's pixels, or a filter's output channels, have to lie at one distance."""
        ...

    @property
    def merges_pixels(self) -> bool:
        """Whether pixels of x's and dx's rows, and taps of a filter's, have to lie side by side;
        rows of dw begin at vectors then where a new one's do."""
        ...

    @property
    def neighbours(self) -> int:
        """The dimension along which kernels count from pixel to pixel in 32 bits."""
        ...

    @property
    def plane_step(self) -> int:
        """Bytes that have to divide the distances of an image's planes, and of images, for kernels
        to read and write maps channels-first, where they lie; 0: they are copied."""
        ...

    @property
    def in_planes(self) -> Plan | None:
        """The plan of a config that takes x and y to lie channels-first, which stands in this one's
        place where they do and it saves their copies; None where there is none."""
        ...

    @property
    def primary(self) -> Plan: ...  # what is tried first, of a plan that falls back; else itself
    @property
    def fallback(self) -> Plan | None: ...  # what computes again where results show a flag
    @property
    def checked_correlation(self) -> CheckedCorrelation | None:
        """The plan itself, if it is a correlation whose results a fallback can compute again."""
        ...

    @property
    def fallback_correlation(self) -> FallbackCorrelation | None:
        """The plan itself, where it can be a correlation's fallback."""
        ...

    @property
    def fallback_launches(self) -> FallbackLaunches | None:
        """The plan itself, where it can be the fallback of a filter gradient or of strides."""
        ...

    def scaled(self, scale: Scale | None) -> Plan:
        """The plan with the caller's scale where its products are split; others need none."""
        ...

    def with_epilogue(self, epilogue: Epilogue) -> Plan | None:
        """The plan whose kernels apply it as they store y; None where they cannot."""
        ...

    def source(self) -> str:
        """The text of all its kernels, in one, whose digest rows name; empty where a library has
        them."""
        ...

    def launch(
        self, kernels: Kernels, a: View, b: View, out: View, workspace: int, index: int
    ) -> None:
        """Compute all groups on CuPy's current stream.

        ``workspace`` is the address of as many bytes as the plan says, 256-byte aligned, with
        any content; ``index`` the device's, already current.
        """
        ...

    def prepare(self, kernels: Kernels, b: View, prepared: int, index: int) -> None:
        """Transform the filter ``b``, to the address ``prepared``."""
        ...

    def run(
        self, kernels: Kernels, a: View, prepared: int, out: View, workspace: int, index: int
    ) -> None:
        """As ``launch``, with the filter transformed; ``workspace`` has ``beside`` bytes."""
        ...


class CheckedCorrelation(Plan, Protocol):
    """Split products of a correlation, with what a fallback behind them needs to know."""

    @property
    def algorithm(self) -> Algorithm:
        """What the reference calls it."""
        ...

    @property
    def header(self) -> int:
        """Bytes of a call's own, first in the workspace."""
        ...

    def found_source(self) -> str:
        """The text of what its kernels found, behind which a fallback's launch stands."""
        ...

    def scale_params(self, x: View, header: int, rows: int) -> Params:
        """Parameters of the launch that scans x: ``header`` and the filter's ``rows``."""
        ...


class FallbackCorrelation(Plan, Protocol):
    """A correlation whose kernels can run within one launch, which a scan of x begins."""

    def fallback_source(self) -> str:
        """The text of that launch, and of the filter's transform by itself."""
        ...

    def fallback_shared(self) -> dict[str, int]:
        """Bytes of dynamic shared memory of their kernels, by name."""
        ...

    def fall_back(
        self, kernels: Kernels, scan: Params, x: View, w: View | None, prepared: int, y: View
    ) -> None:
        """Compute all groups where the flags ask for it; ``scan``: parameters of the scan,
        ``prepared``: the address of the transformed filter, or where that of ``w`` will be."""
        ...


class FallbackLaunches(Plan, Protocol):
    """What has launches that return at once unless a flag wants them."""

    def launch(
        self, kernels: Kernels, a: View, b: View, out: View, workspace: int, index: int,
        wanted: int = 0,
    ) -> None:  # fmt: skip
        """Compute all groups; ``wanted``: the address of fallback.cuh's flags."""
        ...


@dataclass(frozen=True)
class Request:
    """What plans are wanted for.

    ``algorithm`` fixes the tile and the points ("gamma:8:6:3@paper", "direct"); None lets the
    planner choose among the kernels whose predicted error is at most ADMISSIBLE times direct's.
    ``precision`` is a key of PRECISIONS. ``aligned`` says whether the arrays allow vector loads,
    ``aligned_maps`` whether all but the filter, or its gradient, do (None: as ``aligned``),
    ``config`` fixes a family's block shape, and all of a plan's where one is exactly that;
    ``workspace_limit`` is in bytes, ``out_dtype`` is what the result is wanted in, by default the
    operands', ``tolerance`` what a plan may err, in the algorithm's place; ``finished``, that bias,
    residual or activation follow, in a pass behind where a plan's kernels have none; ``planes``,
    that maps lie channels-first; ``in_phases``, that passes may each have flags (recast);
    ``batch_invariant``, that every batch is to give an image the same bits (recast/images.py);
    ``aligned_outputs``, whether y, or dy, allows vector loads, ``aligned_rows``, whether rows of x,
    or dx, without gaps begin at vectors (None: as ``aligned``).
    """

    problem: Problem
    direction: str
    device: Device
    algorithm: Algorithm | None = None
    precision: str = "fp32"
    aligned: bool = field(default=True, kw_only=True)
    aligned_maps: bool | None = field(default=None, kw_only=True)
    aligned_outputs: bool | None = field(default=None, kw_only=True)
    aligned_rows: bool | None = field(default=None, kw_only=True)
    config: KernelConfig | None = field(default=None, kw_only=True)
    workspace_limit: int | None = field(default=None, kw_only=True)
    out_dtype: str | None = field(default=None, kw_only=True)
    tolerance: Tolerance | None = field(default=None, kw_only=True)
    finished: bool = field(default=False, kw_only=True)
    planes: bool = field(default=False, kw_only=True)
    in_phases: bool = field(default=True, kw_only=True)
    batch_invariant: bool = field(default=False, kw_only=True)

    def config_of(self, kind: type[C]) -> C | None:
        """The config asked for, where there is one. Raises TypeError for another family's."""
        if self.config is None or isinstance(self.config, kind):
            return self.config
        expected = f"{kind.__module__}.{kind.__name__}"
        raise TypeError(f"config is {self.config!r}; these kernels take a {expected}")

    @property
    def library(self) -> str | None:
        """The library whose products are asked for."""
        variant = self.algorithm.variant if self.algorithm else None
        return variant if variant == CUBLASLT else None

    @property
    def points(self) -> str:
        """Points of the algorithm."""
        return self.algorithm.points if self.algorithm else "best"

    def points_of(self, tile: Tile) -> str:
        """Those of a gradient's tile: direct products have none to name."""
        return self.algorithm.points_of(tile) if self.algorithm and tile.alpha > 1 else "best"

    @property
    def maps_aligned(self) -> bool:
        """Whether x and y, or their gradients, allow vector loads."""
        return self.aligned if self.aligned_maps is None else self.aligned_maps

    @property
    def dtype(self) -> str:
        """Dtype of the operands."""
        return DTYPES[self.precision]

    @property
    def data_size(self) -> int:
        """Bytes of x, w and y."""
        return ITEMSIZE[self.dtype] * data_size(self.problem) // ITEMSIZE["float32"]

    @property
    def named(self) -> bool:
        """Whether the caller says how, how exactly, or how much workspace there is."""
        asks = self.tolerance and not self.tolerance.relative
        return bool(self.algorithm or self.config or asks) or self.workspace_limit is not None

    @property
    def admissible(self) -> float:
        """Times direct's error, as ``error_ratio`` has it, that tiles err at most which nobody
        names; a tolerance asks for every problem."""
        few = DTYPES[self.precision] != "float32" and not self.tolerance
        return ADMISSIBLE_IN_16_BITS if few else ADMISSIBLE

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
        left = not (self.algorithm or self.config)
        return left and self.written == "float32" != self.dtype

    def check(self) -> None:
        """Raise ValueError for what no CUDA kernel computes, TypeError for other fields' types."""
        named = self.algorithm or Algorithm("direct")
        for value, kind in zip((self.problem, self.device, named), TYPES, strict=True):
            if not isinstance(value, kind):
                raise TypeError(f"a request has {value!r}; expected one of type {kind.__name__}")
        for name, known in (("direction", DIRECTIONS), ("precision", PRECISIONS)):
            if (value := getattr(self, name)) not in [*known]:  # a list has no hash
                raise ValueError(f"{name} {value!r}; expected one of {', '.join(known)}")
        check(self.problem, self.algorithm)
        self.need(
            self.device.compute_capability >= LEAST,
            f"the CUDA kernels need {LEAST[0]}.{LEAST[1]} or later; NumPy arrays run on the "
            "reference",
        )

    def need(self, fits: bool, needed: str) -> None:
        """Raise ValueError where the device does not fit; ``needed`` says what is needed."""
        if not fits:
            major, minor = self.device.compute_capability
            raise ValueError(f"{self.device.name} has compute capability {major}.{minor}; {needed}")
