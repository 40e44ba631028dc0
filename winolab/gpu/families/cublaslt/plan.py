"""Products of cuBLASLt in all directions, where filters have one tap: plans."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from winolab.algorithm import Algorithm, Tile, direct
from winolab.arguments.variants import CUBLASLT
from winolab.gpu.families.axes import check_pointwise, pointwise
from winolab.gpu.families.cublaslt import cost, launch
from winolab.gpu.families.cublaslt.config import Config, configs
from winolab.gpu.families.cublaslt.source import source
from winolab.gpu.families.cublaslt.tiling import Tiling
from winolab.gpu.machine import without_cublaslt
from winolab.gpu.params import MATMUL, MOST, MOST_BLOCKS, Kernels, View, uncounted
from winolab.gpu.planner.base_plan import BasePlan
from winolab.gpu.planner.request import ITEMSIZE, Request, Sum

NAMED = direct(variant=CUBLASLT)
PLANE_STEP = 8  # bytes between planes for Tensor Cores


@dataclass(frozen=True)
class CublasltPlan(Tiling, BasePlan):
    """One call: which product, at what cost."""

    predicted: float = 0.0  # seconds

    kernel = "cuBLASLt"
    tile = Tile(1, 1)
    points = "best"  # as of all plans; there is nothing to interpolate
    regular_rows = True

    @property
    def reads_filters_in_place(self) -> bool:
        """Whether a filter is an operand: its channels have to be contiguous."""
        return not self.gradient

    @property
    def plane_step(self) -> int:
        """One image's planes are a matrix, those of several one each; for Tensor Cores they have to
        be PLANE_STEP apart: of 14² pixels products take 0.6 to 0.9 of those between copies, of 7²
        up to 3.7 times as long (docs/notes/103)."""
        if self.problem.batch != 1 and not self.planes:
            return 0
        return ITEMSIZE[self.dtype] if self.precision == "fp32" else PLANE_STEP

    @property
    def predictable(self) -> bool:
        """Whether it is known what it takes: the library's first choice for FP32 gradients with a
        workspace took 4 to 40 times as long as without, of 1568 to 25,088 pixels (pointwise.jsonl).
        """
        return not (self.gradient and self.precision == "fp32" and self.config.workspace)

    @property
    def algorithm(self) -> Algorithm:
        """What the reference calls it."""
        return NAMED

    @property
    def tiles(self) -> tuple[Tile, ...]:
        """None of correlations; F(1, 1) of gradients."""
        return (self.tile,) if self.gradient else ()

    @property
    def simulated(self) -> str:
        """What the reference calls the arithmetic: its bounds hold in any order of the chunks that
        Tensor Cores sum, and of parts that are added up."""
        if self.precision == "fp32":
            return "fp32"
        return f"{self.precision},accumulation=tensor_core:16:2:truncate"

    @property
    def sums(self) -> tuple[Sum, ...]:
        """How dw is summed at worst: in one part, or one an image."""
        return (Sum(1.0, self.each[2], self.images),) if self.gradient else ()

    def __str__(self) -> str:
        p, (rows, columns, depth) = self.problem, self.sizes
        return "\n".join(
            [
                p.told(self.direction),
                f"kernel     {self.kernel} {self.precision}, nothing transformed",
                f"product    {rows} × {columns} results, sums of {depth}",
                f"policies   {self.config}",
                f"memory     {self.workspace} B workspace at most",
                f"predicted  {self.predicted * 1e6:.1f} µs on {self.device.name}",
            ]
        )

    def source(self) -> str:
        """The translation unit of what adds up parts; else none: the library has the function."""
        return source(self.out_dtype) if self.parts_size else ""

    def shared(self) -> dict[str, int]:
        """The function, and what adds up parts."""
        return {MATMUL: 0, **({launch.REDUCE: 0} if self.parts_size else {})}

    def launch(
        self, kernels: Kernels, a: View, b: View, out: View, workspace: int, index: int
    ) -> None:
        """Multiply, and add up parts, on the current stream."""
        launch.launch(self, kernels, a, b, out, workspace)


def plans(request: Request) -> Iterator[CublasltPlan]:
    """Products with a workspace, where sums may be cut, and without.

    Raises ValueError where the request has no such product, and says why.
    """
    problem, config = request.problem, request.config_of(Config)
    named = config is not None or request.library is not None
    if request.algorithm and request.algorithm.kind != "direct":
        return  # others say what computes it
    if not named and not pointwise(problem):
        return
    check_pointwise(problem, "cuBLASLt multiplies matrices: it serves")
    if not named and without_cublaslt():
        return
    made = CublasltPlan(
        request.direction, problem, request.precision, request.dtype, request.stored, Config(0),
        request.device, request.aligned, request.planes and 1 < problem.batch <= MOST_BLOCKS,
    )  # fmt: skip
    if made.parts_size > request.data_size:
        made = replace(made, planes=False)
    if 0 in made.sizes:
        raise ValueError("a product of matrices needs something to sum")
    if (most := max(made.sizes)) > MOST:
        raise uncounted("the number of rows of a matrix", most)
    for each in [config] if config else configs(request.workspace_limit):
        plan = replace(made, config=each)
        if not config and plan.of_library < each.workspace:
            continue  # as without
        if not plan.predictable and (not named or (request.planes and not config)):
            continue
        yield replace(plan, predicted=cost.seconds(plan))
