"""What a call computes and how its arrays lie, before it is planned: dtypes, precision, layouts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from winolab.arguments.arrays import check_target
from winolab.arguments.epilogue import Epilogue, check_dtype, check_shapes
from winolab.device import Device
from winolab.gpu import driver
from winolab.gpu.planner.request import ITEMSIZE, Plan
from winolab.gpu.runtime.array_layout import ArrayLayout
from winolab.gpu.runtime.arrays import Described
from winolab.gpu.runtime.dtypes import common_dtype, precision_of, result_dtype
from winolab.gpu.runtime.layout_copy import Finishing
from winolab.options import ConvOptions
from winolab.problem import NAMES, Problem, check_layout, in_layout, shapes


@dataclass(frozen=True, eq=False)
class Transformed:
    """A filter in device memory, transformed for a plan; ``memory`` keeps ``address`` valid.

    Of an empty problem it is nothing, without a plan.
    """

    plan: Plan | None
    dtype: str
    index: int
    aligned: tuple[bool, bool]  # as the plan takes a and the result to be
    memory: Any
    address: int
    number: int = field(default_factory=count().__next__)  # no other's, ever

    @property
    def nbytes(self) -> int:
        """Memory that it holds."""
        return self.plan.prepared_size if self.plan else 0

    def taken(self, layout: ArrayLayout, itemsize: int, *, result: bool) -> bool:
        """Whether a, or the ``result``, lies as aligned as the plan takes it to be."""
        if not self.plan or not self.aligned[result]:
            return True
        return aligned_for(self.plan, layout, itemsize, result=result)

    def meant(self, name: str, value: Any) -> Any:
        """What a call's "algorithm" or "precision" is for it, None being the usual one."""
        if name == "precision":
            return precision_of(value, "w", self.dtype)
        return value or "of the planner's choice"


def aligned_for(plan: Plan, layout: ArrayLayout, itemsize: int, *, result: bool) -> bool:
    """Whether a correlation's plan finds vectors in a, or in the ``result``: in every pixel, or,
    where pixels of x's rows are one, in every row."""
    of_x = result == (plan.direction == "backward_data")
    rows = plan.merges_pixels and of_x
    return layout.aligned_rows(itemsize) if rows else layout.aligned(itemsize)


@dataclass(frozen=True)
class Operand:
    """An operand as kernels read it, and where it lies as the caller gives it."""

    layout: ArrayLayout
    given: ArrayLayout

    @classmethod
    def of(cls, given: ArrayLayout, fits: bool) -> Operand:
        """Read in place where that fits the kernels, or from a fresh copy."""
        return cls(given if fits else ArrayLayout.fresh(given.shape, given.order), given)

    @property
    def copied(self) -> bool:
        """Whether it is copied before it is read."""
        return self.layout != self.given


@dataclass(frozen=True)
class Resolved:
    """What a call computes, in which dtypes, and how its arrays lie; no plan yet."""

    direction: str
    problem: Problem
    options: ConvOptions
    index: int  # of the device
    dtype: str  # of the operands
    precision: str  # a key of PRECISIONS
    out_dtype: str  # of the result
    computed: str  # what the kernels are asked to write: float32 where it is looked at first
    a: Operand
    b: Operand | None  # None: it is transformed already
    transformed: Transformed | None
    out: ArrayLayout | None  # where the caller wants the result; None: in a new array
    out_first: bool  # a new result lies channels-first
    bias: ArrayLayout | None
    residual: ArrayLayout | None
    order: str = "nhwc"  # in which kernels take maps to lie
    meant: Device | None = None  # which need not be there; None: that of the index

    @property
    def device(self) -> Device:
        return self.meant or driver.device(self.index)

    @property
    def written_order(self) -> str:
        """In which kernels take the result to lie: filters have the usual one."""
        return "nhwc" if self.gradient else self.order

    @property
    def fresh(self) -> ArrayLayout:
        """A new result as kernels write it."""
        return ArrayLayout.fresh(shapes(self.direction, self.problem)[2], self.written_order)

    @property
    def wanted(self) -> ArrayLayout:
        """Where the result is to lie: in the caller's array, or a new one of a's memory order."""
        if self.out:
            return self.out
        last = replace(ArrayLayout.fresh(self.fresh.shape), order=self.written_order)
        return last.channels_first() if self.out_first else last

    @property
    def finishing(self) -> Finishing | None:
        """The epilogue, if there is one, as a copy of the result applies it."""
        given = self.bias is not None, self.residual is not None
        epilogue = Epilogue(*given, self.options.activation)
        stride = self.bias.strides[0] if self.bias else 0
        return Finishing(epilogue, self.out_dtype, stride, self.residual) if epilogue else None

    @property
    def narrowed(self) -> bool:
        """Whether the result is looked at before it is converted to a narrower dtype."""
        return self.computed != self.out_dtype

    @property
    def gradient(self) -> bool:
        return self.direction == "backward_filter"

    def taken(self, result: ArrayLayout) -> bool:
        """Whether a result lies as aligned as the filter's plan takes it to be."""
        given = self.transformed
        return not given or given.taken(result, ITEMSIZE[self.computed], result=True)


def resolve(
    direction: str,
    problem: Problem,
    options: ConvOptions,
    a: Described,
    b: Described | Transformed,
    out: Described | None,
    bias: Described | None = None,
    residual: Described | None = None,
    *,
    told: str | None = None,
    meant: Device | None = None,
) -> Resolved:
    """Dtypes, precision, and what kernels can read where it lies. Raises as winolab.conv_forward
    for arrays that do not fit the problem, one another or the kernels; of a dtype it tells the
    array ``told``, usually the first. ``meant`` is a device that need not be there."""
    transformed = b if isinstance(b, Transformed) else None
    names = NAMES[direction]
    arguments = (*names[:2], "out")  # as the caller names them
    given = {name: array for name, array in zip(arguments, (a, b, out), strict=True) if array}
    expected = dict(zip(arguments, shapes(direction, problem), strict=True))
    config = transformed.plan.config if transformed and transformed.plan else options.config
    order = config.memory_order if config else "nhwc"
    gradient = direction == "backward_filter"
    maps = {names[0]: order, names[1] if gradient else "out": order}
    layouts = _layouts(given, expected, options.layout, maps)
    if out:
        check_target(out.shape, out.strides)
    dtype = common_dtype(names, a.dtype, b.dtype)
    precision = precision_of(options.precision, told or names[0], dtype)
    out_dtype = result_dtype(direction, dtype, options.out_dtype, out)
    # dw that shall not overflow unnoticed is seen in float32 first
    looked_at = gradient and out_dtype == "float16" and options.on_range == "raise"

    layout_a, layout_b = layouts[names[0]], layouts.get(names[1])
    taken = not transformed or transformed.taken(layout_a, ITEMSIZE[dtype], result=False)
    fits_a = layout_a.direct and taken
    fits_a = fits_a and (not gradient or layout_a.steps_fit)
    operand_b = None
    if layout_b:
        fits_b = layout_b.direct and layout_b.steps_fit if gradient else layout_b.forward
        operand_b = Operand.of(layout_b, fits_b)
    shape = in_layout(shapes(direction, problem)[2], options.layout)
    check_shapes(bias and bias.shape, residual and residual.shape, shape, problem.out_channels)
    for name, added in {"bias": bias, "residual": residual}.items():
        if added:
            check_dtype(name, added.dtype, out_dtype)
            if added.index != a.index:
                raise ValueError(
                    f"{names[0]} is on CUDA device {a.index} and {name} on {added.index}; move one "
                    "of them"
                )
    return Resolved(
        direction=direction,
        problem=problem,
        options=options,
        index=a.index,
        dtype=dtype,
        precision=precision,
        out_dtype=out_dtype,
        computed="float32" if looked_at else out_dtype,
        a=Operand.of(layout_a, fits_a),
        b=operand_b,
        transformed=transformed,
        out=layouts.get("out"),
        bias=bias and ArrayLayout(bias.shape, bias.strides, bias.aligned),
        residual=residual and ArrayLayout.of(residual, options.layout),
        out_first=out is None and layout_a.first(options.layout),
        order=order,
        meant=meant,
    )


def resolve_filter(
    direction: str,
    problem: Problem,
    options: ConvOptions,
    w: Described,
    meant: Device | None = None,
) -> Resolved:
    """The same of a call whose other arrays are not there yet, and will be fresh ones."""
    fresh = ArrayLayout.fresh(shapes(direction, problem)[0])
    shape, strides = (in_layout(v, options.layout) for v in (fresh.shape, fresh.strides))
    first = Described(shape, strides, w.dtype, w.index, True)
    return resolve(direction, problem, options, first, w, None, told="w", meant=meant)


def _layouts(
    given: dict[str, Any],
    expected: dict[str, tuple[int, ...]],
    layout: str,
    orders: dict[str, str],
) -> dict[str, ArrayLayout]:
    """Where the arrays lie. Raises ValueError for other shapes and for different devices."""
    check_layout(layout)
    first = next(iter(given))
    index = given[first].index
    layouts = {}
    for name, array in given.items():
        if array.index != index:
            raise ValueError(
                f"{first} is on CUDA device {index} and {name} on {array.index}; move one of them"
            )
        if isinstance(array, Transformed):
            continue
        found = layouts[name] = ArrayLayout.of(array, layout, orders.get(name, "nhwc"))
        if found.shape != expected[name]:
            raise ValueError(
                f"{name} has shape {found.shape} with channels last; expected {expected[name]}"
            )
    return layouts
