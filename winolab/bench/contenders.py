"""Who takes part in a comparison: this package's kernels, cuDNN's algorithms.

All compute the same problem from the same data. A group of precisions shares its arrays' type:
"fp32" (FFMA and split products, TF32 beside them), "fp16" and "bf16".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from winolab.algorithm import Algorithm, Problem, omega
from winolab.bench import cudnn
from winolab.device import Device
from winolab.gpu import driver
from winolab.gpu.codegen.emit import fingerprint
from winolab.gpu.driver import Launchable
from winolab.gpu.params import Kernels, View
from winolab.gpu.planner.correlation import CORRELATIONS, three
from winolab.gpu.planner.planner import candidates as choices
from winolab.gpu.planner.planner import plan
from winolab.gpu.planner.ranking import AS_EXACT, loses, loss
from winolab.gpu.planner.request import Plan, Request
from winolab.gpu.planner.rivals import what
from winolab.gpu.runtime.call import kernels_of
from winolab.gpu.runtime.replay import Recording, address_of
from winolab.problem import shapes

GROUPS = {"fp32": ("fp32_ffma", "fp32_split"), "fp16": ("fp16",), "bf16": ("bf16",)}
ORDERS = ("NHWC", "NCHW")
# Where kernels that transform and those that do not are both of interest, and the fastest whose
# workspace is at most so much of the data: WinRS's average.
APART = {("backward_filter", unit) for unit in ("fp16", "bf16", "fp32", "fp32_split")}
FRUGAL = 0.18


class Arrays:
    """Operands and result of one case on the current device, in both memory orders or in some.

    BF16 numbers are kept as their bits, int16. The orders share the result's memory.
    """

    def __init__(
        self, direction: str, problem: Problem, group: str, orders: tuple[str, ...] = ORDERS
    ) -> None:
        cp = driver.cupy()
        self.shapes, self.group = shapes(direction, problem), group
        self.filled = 0  # how often: a filter that was transformed before is out of date
        dtype = {"fp32": "float32", "fp16": "float16", "bf16": "int16"}[group]
        *operands, result = self.shapes
        self.operands = {
            order: [cp.empty(_ordered(shape, order), dtype) for shape in operands]
            for order in orders
        }
        buffer = cp.empty(result, dtype)
        self.results = {order: buffer.reshape(_ordered(result, order)) for order in orders}

    def fill(self, low: float, high: float, seed: int = 0, scale: float = 1.0) -> None:
        """Operands uniform on [low, high), the second times ``scale``, rounded to their type."""
        rng = driver.cupy().random.default_rng(seed)
        drawn = []
        for i, shape in enumerate(self.shapes[:2]):
            values = rng.random(shape, dtype="float32")
            values *= high - low
            values += low
            values *= scale if i else 1.0
            drawn.append(values)
        self.assign(*drawn)

    def assign(self, *operands: Any) -> None:
        """Channels-last operands in FP32, rounded to their type."""
        self.filled += 1
        for i, values in enumerate(operands):
            last = _bits(values) if self.group == "bf16" else values
            for order, mine in self.operands.items():
                mine[i][...] = last if order == "NHWC" else driver.cupy().moveaxis(last, -1, 1)

    def addresses(self) -> tuple[int, int, int]:
        """Addresses of both operands and the result, channels last."""
        a, b = self.operands["NHWC"]
        return a.data.ptr, b.data.ptr, self.results["NHWC"].data.ptr

    def poison(self) -> None:
        """Fill the result with NaN, whatever its type."""
        self.results["NHWC"].view("uint8").fill(255)

    def values(self, array: Any) -> Any:
        """An array of this type as numbers."""
        return _wide(array) if self.group == "bf16" else array

    def result(self, order: str) -> Any:
        """The result's numbers, channels last."""
        found = self.results[order]
        return self.values(found if order == "NHWC" else driver.cupy().moveaxis(found, 1, -1))


@dataclass(frozen=True)
class Contender:
    """A way to compute the case: ``run`` writes the arrays' result of ``order``, or returns it.

    ``name`` is no other contender's of the case; ``labels`` are what a row says of it;
    ``workspace`` is None where nobody knows it.
    """

    name: str
    order: str
    workspace: int | None
    labels: dict[str, Any] = field(compare=False)
    run: Callable[[Arrays, int], Any] = field(compare=False)

    def call(self, arrays: Arrays, workspace: int) -> Callable[[], Any]:
        """The call with its arrays and the address of its workspace."""
        return lambda: self.run(arrays, workspace)


def unnamed(direction: str, problem: Problem, group: str, device: Device | None = None) -> Request:
    """For contiguous channels-last arrays, of any algorithm; ``device``: by default GPU 0."""
    vector = 4 if group == "fp32" else 8
    whole = {name: size % vector == 0 for name, size in _channels(problem).items()}
    maps = whole["x"] and whole["y"]
    return Request(
        problem, direction, device or driver.device(0), None, group,
        aligned=maps and whole["w"], aligned_maps=maps, aligned_outputs=whole["y"],
        aligned_rows=problem.in_channels * problem.input[-1] % vector == 0,
    )  # fmt: skip


def _channels(problem: Problem) -> dict[str, int]:
    """The last size of each array."""
    shapes = {"x": problem.x_shape, "w": problem.w_shape, "y": problem.y_shape}
    return {name: shape[-1] for name, shape in shapes.items()}


def offered(request: Request, named: Algorithm | None) -> Iterator[tuple[str, list[Plan]]]:
    """Plans in each precision of its group: as ``named``, as the planner likes, and of gradients by
    every Ω16 too, whose error the planner does not admit."""
    asked, width = [*dict.fromkeys((named, None))], request.problem.filter[-1]
    if request.direction == "backward_filter":
        asked += [omega(16, n, 17 - n) for n in range(5, 10) if width % n == 0]
    for algorithm in asked:
        for unit in GROUPS[request.precision]:
            with suppress(ValueError):  # no kernel runs this problem
                plans = choices(replace(request, algorithm=algorithm, precision=unit)).plans
                yield unit, [p for p in plans if p.out_dtype == request.dtype]


def entered(
    direction: str,
    problem: Problem,
    group: str,
    algorithm: Algorithm | None,
    device: Device | None = None,
) -> dict[Plan, bool]:
    """The fastest predicted plan of each list ``offered``, of gradients on Tensor Cores of each
    family and of a workspace of FRUGAL, of correlations both the fastest whose workspace is at most
    the data and what is faster by more, and of another kernel the split products that err least for
    AS_EXACT times the time of the fastest. True stands at what ``conv_*`` itself would run."""
    request = unnamed(direction, problem, group, device)
    found: dict[Plan, bool] = {}
    exact: list[Plan] = []
    for unit, plans in offered(request, algorithm):
        families: dict[Any, Plan] = {}
        for p in plans:
            kind = type(p.primary)
            families.setdefault(kind if (direction, unit) in APART else None, p)
            if direction not in CORRELATIONS:
                continue
            if p.beside <= request.data_size:
                families.setdefault("lean", p)
            elif p.predicted < families.get("lean", p).predicted and not loses(p):
                families.setdefault("large", p)
        found |= dict.fromkeys(families.values(), False)
        if direction in CORRELATIONS and unit == "fp32_split":
            exact += _exact(plans)
    if (direction, group) in APART:
        limit = int(FRUGAL * request.data_size)
        with suppress(ValueError):
            found.setdefault(plan(replace(request, workspace_limit=limit)), False)
    with suppress(ValueError):
        if (preferred := plan(request)).out_dtype == request.dtype:
            found[preferred] = True
    kernels = {(p.kernel, p.precision) for p in found}
    found |= {p: False for p in exact if (p.kernel, p.precision) not in kernels}
    # Plans may differ in their fallbacks alone: the one that is picked stays, or the first.
    shown = {_name(p): p for p in reversed(found)}
    shown |= {_name(p): p for p, chosen in found.items() if chosen}
    return {p: chosen for p, chosen in found.items() if shown[_name(p)] is p}


def _exact(plans: list[Plan]) -> list[Plan]:
    """The split correlation that errs least for AS_EXACT times the time, if there is one."""
    kept = [p for p in plans if not loses(p)]
    most = AS_EXACT * min((p.predicted for p in kept), default=0)
    return sorted((p for p in kept if p.predicted <= most), key=loss)[:1]


def unserved(direction: str, problem: Problem, group: str, device: Device | None = None) -> str:
    """Why no kernel runs the case; "" where one does."""
    try:
        plan(unnamed(direction, problem, group, device))
    except ValueError as error:
        return str(error)
    return ""


def ours(plans: Mapping[Plan, bool], index: int = 0, prepared: bool = False) -> Iterator[Contender]:
    """This package's kernels, of ``entered``; ``chosen`` in a label is what they say.

    With ``prepared``, once more those that can transform their filter before, with it transformed.
    """
    for candidate, chosen in plans.items():
        yield _ours(candidate, chosen, index)
        if prepared and candidate.prepared_size:
            yield _ours(candidate, False, index, prepared)


def _name(p: Plan) -> str:
    """No other plan's that launches other kernels, or these on other segments and chunks."""
    return f"winolab {' '.join(what(p))} B"


def _ours(chosen: Plan, preferred: bool, index: int, prepared: bool = False) -> Contender:
    @cache
    def kernels() -> Mapping[str, Launchable]:
        return kernels_of(chosen, index)

    labels = {
        "method": "winolab",
        "kernel": chosen.kernel,
        "products": chosen.precision,
        "points": chosen.points,
        "plan": str(chosen.config),
        "predicted_us": round(chosen.predicted * 1e6, 2),
        "chosen": preferred,
        "simulated": chosen.simulated,
        "source": digest(chosen),
        **({"prepared": True} if prepared else {}),
    }
    run = (bound_prepared if prepared else bound)(chosen, kernels, index)
    name = _name(chosen) + (" prepared" if prepared else "")
    return Contender(name, "NHWC", chosen.workspace, labels, run)


def digest(chosen: Plan) -> str:
    """Digest of the source of a plan's kernels: rows of equal ones measured the same code."""
    return fingerprint(chosen.source())[:12]


def launched(
    chosen: Plan, kernels: Kernels, index: int, a: int, b: int, out: int, workspace: int
) -> None:
    """Launch a plan on contiguous channels-last arrays at these addresses."""
    chosen.launch(kernels, *_views(chosen, a, b, out), workspace, index)


def bound(
    chosen: Plan, kernels: Callable[[], Mapping[str, Launchable]], index: int
) -> Callable[[Arrays, int], None]:
    """The plan on arrays and the address of its workspace: recorded once, as users' calls are."""

    @cache
    def recording() -> Recording:
        addresses = [address_of(i) for i in range(4)]
        return Recording(kernels(), lambda found: launched(chosen, found, index, *addresses))

    def run(arrays: Arrays, workspace: int) -> None:
        stream = driver.cupy().cuda.get_current_stream().ptr
        recording().replay(stream, *arrays.addresses(), workspace)

    return run


def bound_prepared(
    chosen: Any, kernels: Callable[[], Mapping[str, Launchable]], index: int
) -> Callable[[Arrays, int], None]:
    """As ``bound``, but the filter is transformed only after the arrays were filled anew.

    ``chosen`` is a plan whose filter is transformed apart.
    """
    held: dict[str, Any] = {}
    a, b, out = _views(chosen, *(address_of(i) for i in range(3)))
    workspace_, filter_ = address_of(3), address_of(4)

    @cache
    def recordings() -> tuple[Recording, Recording]:
        return (
            Recording(kernels(), lambda k: chosen.prepare(k, b, filter_, index)),
            Recording(kernels(), lambda k: chosen.run(k, a, filter_, out, workspace_, index)),
        )

    def run(arrays: Arrays, workspace: int) -> None:
        prepare, compute = recordings()
        stream = driver.cupy().cuda.get_current_stream().ptr
        if held.get("of") != (id(arrays), arrays.filled):
            held["of"] = id(arrays), arrays.filled
            held["memory"] = driver.cupy().empty(chosen.prepared_size, "uint8")
            held["addresses"] = *arrays.addresses(), workspace, held["memory"].data.ptr
            prepare.replay(stream, *held["addresses"])
        compute.replay(stream, *held["addresses"])

    return run


def _views(chosen: Plan, *addresses: int) -> tuple[View, View, View]:
    filter_at = 2 if chosen.direction == "backward_filter" else 1
    a, b, out = (
        View(address, _strides(shape, 5 if i == filter_at else 4))
        for i, (address, shape) in enumerate(
            zip(addresses, shapes(chosen.direction, chosen.problem), strict=True)
        )
    )
    return a, b, out


def _strides(shape: tuple[int, ...], kept: int) -> tuple[int, ...]:
    steps = [1]
    for size in shape[:0:-1]:
        steps.insert(0, steps[0] * size)
    first, *spatial, last = steps
    return (first, *three(tuple(spatial), 0), last)[:kept]


def judges(
    direction: str, problem: Problem, group: str, index: int = 0, **choice: tuple[str, ...]
) -> Iterator[Contender | cudnn.Unsupported]:
    """Every algorithm of cuDNN, or why it does not run; ``choice`` as of cudnn.forced."""
    for forced in cudnn.forced(direction, problem, group, **choice):
        try:
            call = cudnn.Call(forced, index)
        except cudnn.Unsupported as error:
            yield error
            continue
        labels = {
            "method": "cudnn",
            "kernel": forced.algorithm,
            "products": "tf32 allowed" if (group, forced.math) == ("fp32", "default") else group,
            "math": forced.math,
            "frugal": forced.frugal,
        }
        yield Contender(str(forced), forced.layout, call.workspace, labels, _forced(call))


def _forced(call: cudnn.Call) -> Callable[[Arrays, int], None]:
    order = call.forced.layout

    def run(arrays: Arrays, workspace: int) -> None:
        a, b = arrays.operands[order]
        call(a.data.ptr, b.data.ptr, arrays.results[order].data.ptr, workspace)

    return run


def _ordered(shape: tuple[int, ...], order: str) -> tuple[int, ...]:
    return shape if order == "NHWC" else (shape[0], shape[-1], *shape[1:-1])


def _bits(values: Any) -> Any:
    """FP32 to BF16 bits, to nearest even."""
    bits = values.view("uint32")
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("uint16").view("int16")


def _wide(bits: Any) -> Any:
    return (driver.cupy().ascontiguousarray(bits).view("uint16").astype("uint32") << 16).view(
        "float32"
    )
