"""What an operator is asked for, read from its arguments once for all calls that have the same.

Operators know channels-first alone; strides say how arrays lie in memory. A padding is a list: low
and high of the first spatial dimension, then of the next. The last high ones are negative where
windows leave the end of x out, as transposed convolutions with output_padding have them.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from math import prod
from typing import Any, TypeVar

import torch
from torch.compiler import is_dynamo_compiling

from winolab.algorithm import parse_algorithm
from winolab.arguments.arrays import PRECISION_OF_DTYPE, precision_named
from winolab.arguments.tolerance import USUAL_TOLERANCE, Tolerance
from winolab.arguments.values import one_or_each, whole
from winolab.arguments.words import plural, type_of
from winolab.gpu.params import VECTOR
from winolab.gpu.runtime.array_layout import ArrayLayout
from winolab.options import INTS, Convolution, ConvOptions, Geometry
from winolab.problem import NAMES, Problem
from winolab.ref.arithmetic.split import Scale

DIRECTIONS = ("forward", "backward_data", "backward_filter")
NUMBERS = {direction: number for number, direction in enumerate(DIRECTIONS)}
T = TypeVar("T")
Sizes = int | Sequence[int]
DTYPES = {getattr(torch, name): name for name in PRECISION_OF_DTYPE}
SPECIALIZES = torch.__version__ >= "2.9"  # its compiler knows guard_scalar, guard_or_false


@dataclass(frozen=True)
class Options:
    """What operators take behind the geometry: ConvOptions as an operator's schema holds them."""

    algorithm: str | None = None
    precision: str | None = None
    out_dtype: torch.dtype | None = None
    workspace_limit: int | None = None
    on_range: str = "fallback"
    scale: str | None = None
    tolerance: str | None = None
    batch_invariant: int = 0  # no bool, of which the native module finds no calls again

    def given(self) -> tuple[Any, ...]:
        """The values, without the usual ones at the end."""
        found = tuple(getattr(self, f.name) for f in fields(self))
        while found and found[-1] == USUAL[len(found) - 1]:
            found = found[:-1]
        return found


USUAL = tuple(f.default for f in fields(Options))
SCHEMA = (
    "str? algorithm=None, str? precision=None, ScalarType? out_dtype=None, "
    "int? workspace_limit=None, str on_range='fallback', str? scale=None, "
    "str? tolerance=None, int batch_invariant=0"
)


class NoInputs(Problem):
    """One whose x has size 0 somewhere. As in torch.nn.functional, y has the sizes that its padding
    makes, where winolab.conv_forward has 0."""

    @classmethod
    def checked(cls, given: Problem) -> NoInputs:
        """The same. Raises ValueError unless padding makes outputs, and of no images."""
        found = cls(**{f.name: getattr(given, f.name) for f in fields(given)})
        for d, (size, made) in enumerate(zip(found.input, found.output, strict=True)):
            if size == 0 and (made == 0 or (found.batch and found.in_channels)):
                instead = ", or no images" if made else ""
                raise ValueError(
                    f"x has size 0 in spatial dimension {d}; expected at least 1{instead}"
                )
        return found

    @property
    def output(self) -> tuple[int, ...]:
        """Output sizes."""
        ends = zip(self.input, self.extent, self.stride, self.padding, strict=True)
        return tuple((i + lo + hi - e) // s + 1 for i, e, s, (lo, hi) in ends)


@dataclass(frozen=True, eq=False)
class Asked(Convolution):
    """A convolution as an operator is asked for it, its padding negative where need be."""

    def problem(self, a_shape: tuple[int, ...], b_shape: tuple[int, ...]) -> Problem:
        """The problem with operands of these shapes. Raises as Problem.of, for dy as convolve."""
        g = self.geometry
        shapes = {
            "forward": (a_shape, b_shape),
            "backward_data": (g.result_shape, b_shape),
            "backward_filter": (a_shape, g.result_shape),
        }[self.direction]
        ends = tuple((max(0, low), max(0, high)) for low, high in g.padding)
        found = Problem.of(
            *shapes,
            stride=g.stride,
            padding=ends,
            dilation=g.dilation,
            groups=g.groups,
            layout="channels_first",
        )
        found = found if ends == g.padding else replace(found, padding=g.padding)
        if 0 in found.input:
            found = NoInputs.checked(found)
        dy = {"backward_data": a_shape, "backward_filter": b_shape}.get(self.direction)
        expected = (found.batch, found.out_channels, *found.output)
        if dy is not None and tuple(dy) != expected:
            raise ValueError(f"dy has shape {tuple(dy)}; expected {expected}")
        shape = g.result_shape or expected
        if prod(shape) >= 2**63:
            name = NAMES[self.direction][2]
            raise ValueError(f"{name} has shape {tuple(shape)}; expected fewer than 2**63 elements")
        return found


def options(
    algorithm: Any, precision: Any, tolerance: Any, batch_invariant: Any = False
) -> tuple[Any, ...]:
    """Options as operators take them, texts, but for the usual ones at their end."""
    if batch_invariant is not False:
        check_invariant(batch_invariant)
        found = options(algorithm, precision, tolerance)
        return *found, *USUAL[len(found) : -1], 1
    if not isinstance(algorithm, str):
        algorithm = text_of("algorithm", algorithm)
    if not isinstance(precision, str):
        precision = text_of("precision", precision)
    if tolerance is None:
        return () if algorithm is None and precision is None else (algorithm, precision)
    if not isinstance(tolerance, str):
        if is_dynamo_compiling():
            if SPECIALIZES:  # a number that varies has no text
                from torch.fx.experimental.symbolic_shapes import guard_scalar

                tolerance = guard_scalar(tolerance)
        elif type(tolerance) is not float:
            Tolerance.of(tolerance)  # which refuses what is no number
        tolerance = str(tolerance)
    return algorithm, precision, None, None, "fallback", None, tolerance


def text_of(name: str, value: Any) -> str | None:
    """The text of an algorithm, a precision or a scale. Raises TypeError and ValueError as they do
    for what is none."""
    if value is None:
        return None
    text, refused = _read(name, value)
    if refused:
        raise (ValueError if refused == "ValueError" else TypeError)(text)
    return text


def _read(name: str, value: Any) -> tuple[str, str]:
    """The text, or what is wrong and the name of the error. torch.compile runs this as it traces:
    it cannot trace it."""
    try:
        if name == "algorithm":
            return str(parse_algorithm(value)), ""
        if name == "scale":
            return str(Scale.of_caller(value)), ""
        found = precision_named(value)
        found = getattr(found, "name", found)
        if isinstance(found, str):
            return found, ""
        raise TypeError(f"precision is {type_of(value)}; expected a name, a dtype or an Arithmetic")
    except (TypeError, ValueError) as refusal:
        return str(refusal), type(refusal).__name__


# What torch.compiler.assume_constant_result does, too, which imports the compiler: a second.
_read.__dict__["_dynamo_marked_constant"] = True


def as_fresh(question: Asked, a: torch.Tensor) -> torch.Tensor:
    """The operand, or a copy where images are to have the same bits in every batch and it is less
    aligned than an array without gaps, which other kernels read."""
    if not question.options.batch_invariant:
        return a
    (n, c, *sizes), (image, channel, *steps) = a.shape, a.stride()
    aligned = a.data_ptr() % VECTOR == 0
    lies = ArrayLayout((n, *sizes, c), (image, *steps, channel), aligned)
    size = a.element_size()
    worse = ArrayLayout.fresh(lies.shape).aligned(size) and not lies.aligned(size)
    return a.clone() if worse and lies.direct else a


def check_invariant(value: Any) -> None:
    """Raise TypeError for what is neither True nor False."""
    if value is not True and value is not False:
        raise TypeError(f"batch_invariant is {value!r}; expected True or False")


def invariant(direction: str, arguments: tuple[Any, ...]) -> bool:
    """Whether an operator that has these arguments behind its operands is ``batch_invariant``: a
    filter's gradient, which has no images, is not."""
    given = {"forward": 4, "backward_data": 5}.get(direction)
    return given is not None and len(arguments) == given + len(USUAL) and bool(arguments[-1])


def of_part(
    direction: str, part: torch.Tensor, arguments: tuple[Any, ...], alone: bool
) -> tuple[Any, ...]:
    """The arguments of an operator that is ``batch_invariant`` for a part of the images; ``alone``:
    of one that is not."""
    arguments = arguments[:-1] if alone else arguments
    if direction == "forward":
        return arguments
    (_, *shape), *rest = arguments  # of dx
    return (part.shape[0], *shape), *rest


@lru_cache(maxsize=4096)
def asked(
    direction: str,
    result_shape: tuple[int, ...] | None,
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
    *options: Any,
) -> Asked:
    """The same object for the same arguments; options are those of ``Options``, in its order.

    Raises as ConvOptions.checked, TypeError for sizes that are no integers: 1.0 equals 1, which
    would find what was made of it.
    """
    o = Options(*options)
    usual = None if o.algorithm else USUAL_TOLERANCE

    def exact(name: str, sizes: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(whole(size, name) for size in sizes)

    return Asked(
        direction,
        Geometry(
            None if result_shape is None else exact("a size of the result", result_shape),
            exact("stride", stride),
            pairs(exact("padding", padding)),
            exact("dilation", dilation),
            whole(groups, "groups"),
        ),
        ConvOptions(
            "channels_first",
            o.algorithm,
            o.precision,
            o.out_dtype and DTYPES.get(o.out_dtype, str(o.out_dtype)),
            o.workspace_limit,
            o.on_range,
            None if o.scale is None else Scale.of_caller(o.scale),
            tolerance=usual if o.tolerance is None else o.tolerance,
            # A filter's gradient has no images.
            batch_invariant=bool(o.batch_invariant) and direction != "backward_filter",
        ).checked(),
    )


def tile_for(*directions: str, algorithm: T | None, cpu: bool) -> T | str | None:
    """The algorithm of a convolution beside one that has ``algorithm``, where either's direction is
    among these. A tile serves forward and backward data alike; filter gradients have tiles of
    their own, so that they are direct sums on the CPU and the planner's choice on a GPU."""
    if algorithm is None or "backward_filter" not in directions:
        return algorithm
    return "direct" if cpu else None


def pairs(padding: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """(low, high) of each dimension, of an operator's list."""
    return tuple(zip(padding[::2], padding[1::2], strict=True))


def check_tensors(direction: str, a: torch.Tensor, b: torch.Tensor) -> None:
    """Raise TypeError for dtypes that are not served or not the same, ValueError for devices."""
    first, second, _ = NAMES[direction]
    if a.dtype not in DTYPES:
        names = ", ".join(DTYPES.values())
        raise TypeError(f"{first} has dtype {a.dtype}; expected one of {names}: convert it")
    if a.dtype != b.dtype:
        raise TypeError(f"{first} has dtype {a.dtype} and {second} {b.dtype}; convert one of them")
    if a.device != b.device:
        raise ValueError(f"{first} is on {a.device} and {second} on {b.device}; move one of them")


def check_dense(name: str, v: torch.Tensor) -> None:
    """Raise TypeError for a tensor that does not lie in memory by strides."""
    if v.is_nested:
        raise TypeError(f"{name} is nested; expected a strided tensor: call to_padded_tensor()")
    if v.is_quantized:
        raise TypeError(f"{name} is quantized; expected floating point: call dequantize()")
    if v.layout != torch.strided:
        raise TypeError(f"{name} is {v.layout}; expected a strided tensor: call to_dense()")


def group_count(groups: Any) -> Any:
    """The groups, symbolic or not. Raises TypeError for what is no integer."""
    if isinstance(groups, bool):
        raise TypeError(f"groups is {groups}; expected an integer")
    return groups if isinstance(groups, torch.SymInt) else whole(groups, "groups")


def plain_sizes(ndim: int, *sizes: Any) -> bool:
    """Whether they are the integers, one or one a dimension, or the name that most calls have: what
    was read of them before is what they say again."""
    if is_dynamo_compiling():  # which takes no function that keeps its results
        return False
    for size in sizes:
        if type(size) is tuple:
            if len(size) != ndim or {*map(type, size)} != INTS:
                return False
        elif type(size) is not int and type(size) is not str:
            return False
    return True


def read_geometry(
    ndim: int, stride: Sizes, padding: Sizes | str, dilation: Sizes, taps: Sequence[int] = ()
) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any]]:
    """Strides, the paddings' ends and dilations, as operators take them; ``taps`` are those of a
    padding that is named."""
    strides = sizes(stride, ndim, "stride", 1)
    dilations = sizes(dilation, ndim, "dilation", 1)
    if isinstance(padding, str):
        return strides, _named_padding(padding, taps, strides, dilations), dilations
    ends = [end for size in sizes(padding, ndim, "padding", 0) for end in (size, size)]
    return strides, ends, dilations


@lru_cache(maxsize=1024)
def kept_geometry(*arguments: Any) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any]]:
    strides, ends, dilations = map(tuple, read_geometry(*arguments))
    return strides, ends, dilations


def sizes(value: Any, ndim: int, name: str, least: int) -> list[Any]:
    """One size a dimension. Raises TypeError for no integers, ValueError for counts and signs."""
    whole = int, torch.SymInt  # a tuple: PyTorch 2.8's compiler knows no unions
    given = value if isinstance(value, (list, tuple)) else (value,)
    if any(isinstance(v, bool) for v in given):  # as torch.nn.functional refuses them
        raise TypeError(f"{name} is {value!r}; expected an integer, or one a dimension")
    if isinstance(value, whole):
        found = [value] * ndim
    elif isinstance(value, Sequence) and not isinstance(value, str):
        found = [v if isinstance(v, whole) else _whole(v, name) for v in value]
        found = found * ndim if len(found) == 1 else found
    else:
        found = [_whole(value, name)] * ndim
    if len(found) != ndim:
        raise ValueError(f"{name} has {plural(len(found), 'value')}; {one_or_each(ndim)}")
    for size in found:
        if size < least:
            raise ValueError(f"{name} is {value}; expected at least {least}")
    return found


def _whole(value: Any, name: str) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}; expected an integer, or one a dimension") from None


def _named_padding(
    name: str, taps: Sequence[int], strides: list[Any], dilations: list[Any]
) -> list[Any]:
    """Ends of "valid" and of "same", which has as many outputs as inputs."""
    if name == "valid":
        return [0] * (2 * len(taps))
    if name != "same":
        raise ValueError(f'padding {name!r}; expected numbers, "same" or "valid"')
    if any(s != 1 for s in strides):
        raise ValueError(f'padding "same" with stride {strides}; expected stride 1')
    totals = [t * (r - 1) for r, t in zip(taps, dilations, strict=True)]
    return [end for total in totals for end in (total // 2, total - total // 2)]
