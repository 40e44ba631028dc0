"""What a caller asks for, as named values: no array library and no GPU is needed here.

Equal questions are one object (``convolution``), so that a call that was made before is found by
its identity: of a call that takes the host 3 µs, hashing a dataclass would take 1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from numbers import Number
from types import NoneType
from typing import Any, Literal, get_args

from winolab.algorithm import Algorithm, parse_algorithm
from winolab.arguments.arrays import precision_named
from winolab.arguments.epilogue import Activation
from winolab.arguments.tolerance import Tolerance
from winolab.arguments.values import whole
from winolab.problem import Problem, check_layout, in_layout

OnRange = Literal["fallback", "raise"]
ON_RANGE = get_args(OnRange)
INTS = frozenset({int})


@dataclass(frozen=True)
class KernelConfig:
    """How the kernels of a family are configured: block shape, pipeline stages, policies.

    Each family has a frozen dataclass of its own; its text, which rows keep, has what is not usual.
    """

    @property
    def memory_order(self) -> str:
        """How the kernels take x and y to lie: "nhwc", channels last, "nchw", or "chwn"."""
        return "nhwc"


@dataclass(frozen=True)
class ConvOptions:
    """How a convolution is computed: the arguments of winolab.conv_forward beside its geometry."""

    layout: str = "channels_last"
    algorithm: str | Algorithm | None = None
    precision: Any = None  # a name or an Arithmetic; None: that of the arrays' dtype
    out_dtype: Any = None
    workspace_limit: int | None = None  # bytes
    on_range: str = "fallback"
    scale: Any = None  # of split products: ref.arithmetic.split.Scale, or what its of_caller takes
    config: KernelConfig | None = None  # of a family's kernels
    tolerance: Any = None  # a Tolerance, or what its of takes
    activation: Any = None  # an Activation, or what its of takes
    batch_invariant: bool = False  # whether every batch gives an image the same bits

    @property
    def named(self) -> Algorithm | None:
        """The algorithm, where there is one. Raises as parse_algorithm."""
        return None if self.algorithm is None else parse_algorithm(self.algorithm)

    @property
    def in_pieces(self) -> bool:
        """Whether a GPU computes the algorithm as convolutions that are added up."""
        named = self.named
        return named is not None and named.in_pieces

    def checked(self) -> ConvOptions:
        """The same, algorithm, tolerance and activation no text and the precision no dtype.

        Raises TypeError for a limit that is no integer, ValueError for a negative one, for unknown
        layouts and on_range, for what names no algorithm, tolerance or activation, and for both an
        algorithm and a tolerance.
        """
        check_layout(self.layout)
        limit = self.workspace_limit
        if limit is not None and whole(limit, "workspace_limit") < 0:
            raise ValueError(f"workspace_limit is {limit}; expected bytes, 0 or more, or None")
        if self.on_range not in ON_RANGE:
            raise ValueError(f"on_range {self.on_range!r}; expected one of {', '.join(ON_RANGE)}")
        tolerance, algorithm = Tolerance.of(self.tolerance), self.named
        check_one(algorithm, tolerance)
        precision = precision_named(self.precision)
        activation = Activation.of(self.activation)
        return replace(
            self,
            algorithm=algorithm,
            precision=precision,
            tolerance=tolerance,
            activation=activation,
        )


def check_one(algorithm: Algorithm | str | None, tolerance: Tolerance | None) -> None:
    """Raise ValueError where both say how."""
    if tolerance and algorithm:
        raise ValueError(
            f"algorithm {algorithm} and tolerance {tolerance} both say how; give one of them"
        )


@dataclass(frozen=True)
class Geometry:
    """How windows lie on the input, as the caller states it; Problem.of reads and checks it."""

    result_shape: Any  # of dx or dw, in the caller's layout; None forward, where it follows
    stride: Any
    padding: Any
    dilation: Any
    groups: Any
    output_padding: Any = None  # of backward data: how much longer dx is than its windows reach


@dataclass(frozen=True, eq=False)
class Convolution:
    """One of the three convolutions as a caller asks for it, before it meets arrays."""

    direction: str
    geometry: Geometry
    options: ConvOptions
    unique: bool = True  # whether who asks for the same gets this very object

    def problem(self, a_shape: tuple[int, ...], b_shape: tuple[int, ...]) -> Problem:
        """The problem with operands of these shapes, in the caller's layout.

        Raises as Problem.of, and ValueError where result_shape and output_padding contradict.
        """
        g = self.geometry
        rest = {
            "stride": g.stride,
            "padding": g.padding,
            "dilation": g.dilation,
            "groups": g.groups,
            "layout": self.options.layout,
        }
        if self.direction == "forward":
            return Problem.of(a_shape, b_shape, **rest)
        if self.direction == "backward_filter":
            return Problem.of(a_shape, g.result_shape, **rest)
        if g.output_padding is None and g.result_shape is not None:
            return Problem.of(g.result_shape, b_shape, **rest)
        longer = 0 if g.output_padding is None else g.output_padding
        found = Problem.transposed(a_shape, b_shape, output_padding=longer, **rest)
        shape = in_layout(found.x_shape, self.options.layout)
        if g.result_shape is not None and tuple(g.result_shape) != shape:
            raise ValueError(
                f"input_shape is {g.result_shape} and output_padding {g.output_padding} gives "
                f"{shape}; give one of them"
            )
        return found


def convolution(
    direction: str,
    result_shape: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: Any,
    layout: Any,
    algorithm: Any = None,
    precision: Any = None,
    out_dtype: Any = None,
    workspace_limit: Any = None,
    on_range: Any = "fallback",
    scale: Any = None,
    output_padding: Any = None,
    tolerance: Any = None,
    activation: Any = None,
) -> Convolution:
    """What these arguments ask for, unchecked; the same object for the same hashable arguments.

    Keyword arguments would take a warm call 5 % longer.
    """
    types = None  # tells sizes from those that equal them, as 1.0 does 1
    if not (
        type(stride) is type(dilation) is type(groups) is int
        and (workspace_limit is None or type(workspace_limit) is int)
        and (type(padding) is int or (type(padding) is tuple and {*map(type, padding)} == INTS))
        and (result_shape is None or {*map(type, result_shape)} == INTS)
        and (type(scale) is not tuple or {*map(type, scale)} == INTS)
        and (type(scale) in (NoneType, int, str) or not isinstance(scale, Number))
        and (output_padding is None or type(output_padding) is int)
        and (tolerance is None or type(tolerance) in (float, str))
    ):
        numbers = (result_shape, stride, padding, dilation, groups, output_padding, tolerance)
        types = repr((numbers, workspace_limit, scale))
    try:
        return _unique(
            types, direction, result_shape, stride, padding, dilation, groups, layout, algorithm,
            precision, out_dtype, workspace_limit, on_range, scale, output_padding, tolerance,
            activation,
        )  # fmt: skip
    except TypeError:  # lists have no hash; of sizes in a tuple a call is kept
        pass
    sizes = result_shape, stride, padding, dilation
    rest = (
        groups, layout, algorithm, precision, out_dtype, workspace_limit, on_range, scale,
        output_padding, tolerance, activation,
    )  # fmt: skip
    hashable = (tuple(v) if type(v) is list else v for v in sizes)
    try:
        return _unique(types, direction, *hashable, *rest)
    except TypeError:
        return replace(_unique.__wrapped__(types, direction, *sizes, *rest), unique=False)


@lru_cache(maxsize=4096)
def _unique(
    types: str | None,
    direction: str,
    result_shape: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: Any,
    layout: Any,
    algorithm: Any,
    precision: Any,
    out_dtype: Any,
    workspace_limit: Any,
    on_range: Any,
    scale: Any,
    output_padding: Any,
    tolerance: Any,
    activation: Any,
) -> Convolution:
    """The same arguments as ``convolution``'s; ``types`` tells them from those that are equal."""
    return Convolution(
        direction,
        Geometry(
            result_shape=result_shape,
            stride=stride,
            padding=padding,
            dilation=dilation,
            groups=groups,
            output_padding=output_padding,
        ),
        ConvOptions(
            layout=layout,
            algorithm=algorithm,
            precision=precision,
            out_dtype=out_dtype,
            workspace_limit=workspace_limit,
            on_range=on_range,
            scale=scale,
            tolerance=tolerance,
            activation=activation,
        ),
    )
