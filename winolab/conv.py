"""The three convolutions: NumPy arrays run the reference, CUDA arrays the kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from winolab.gpu import conv as kernels
from winolab.gpu.arrays import on_gpu, shape_of
from winolab.gpu.call import NAMES, Transformed, Wishes, prepared
from winolab.gpu.dtypes import precision_of
from winolab.gpu.places import shapes
from winolab.nouns import Algorithm, Problem, direct
from winolab.operands import arithmetic_of, hand_over, operand
from winolab.problem import check_layout
from winolab.ref import convolution, decompose, fft, winograd, winrs
from winolab.ref.arithmetic import Arithmetic, Float, summed
from winolab.ref.split import Power, Scale

INTS = frozenset({int})
Sizes = int | Sequence[int]
ScaleLike = int | str | tuple[int, int] | Scale | None
Padding = int | str | Sequence[int | Sequence[int]]


def conv_forward(
    x: Any,
    w: Any,
    *,
    stride: Sizes = 1,
    padding: Padding = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    layout: str = "channels_last",
    algorithm: str | Algorithm | None = None,
    precision: str | Arithmetic | None = None,
    out: Any = None,
    out_dtype: Any = None,
    workspace_limit: int | None = None,
    deterministic: bool = True,
    on_range: str = "fallback",
    scale: ScaleLike = None,
) -> Any:
    """y = x ⋆ w, cross-correlation as in every deep-learning library.

    x is (N, *spatial, IC) and w (OC, *filter, IC/groups) channels-last, (N, IC, *spatial) and
    (OC, IC/groups, *filter) channels-first; y has x's layout and type, but is a CuPy array where x
    is another library's CUDA array (``__dlpack__``, ``__cuda_array_interface__``), not torch's.
    ``stride``, ``padding`` and ``dilation`` are an int or one per spatial dimension; ``padding``
    also a (low, high) pair per dimension, "same" (needs stride 1) or "valid".

    ``algorithm`` is a value or its text ("direct", "winograd:4x4:3x3", "gamma:8:6:3"); None is
    direct for NumPy arrays and the planner's choice on a GPU.
    ``precision`` is a name ("fp64", "fp32", "tf32", "bf16", "fp16", "exact", "mp:200") or an
    Arithmetic; None follows the dtype. NumPy arrays run the reference, in the order of operations
    of the kernels. ``out`` receives the result and may lie over x or w; ``out_dtype`` is the
    result's type where there is no ``out``, by default x's, of integers what they are computed in,
    or object for "exact" and "mp".
    ``workspace_limit`` bounds the kernels' workspace in bytes, in ``prepare_filter`` together with
    the filter that is kept; ``deterministic``, True or
    False, is met by every kernel and the reference, which takes no workspace.

    On a GPU, "fp32" may take split products (winolab.gpu.guard). Where magnitudes within a tensor
    are too far apart for them, ``on_range`` "fallback" computes again on FFMA units, "raise" waits
    for the result and raises ValueError. A ``scale`` that the caller knows spares the look for it:
    exponents of the powers of two that x and w are multiplied by, "11:18" or (11, 18), or of their
    largest magnitudes, "peaks:3:-7"; with one number, 11 or "peaks:3", it is x's. A scale that does
    not serve the data is found out as magnitudes too far apart are. For NumPy arrays it changes
    nothing but with "fp32_split", which then shows what such products lose; ``on_range`` nothing
    but for filters' gradients in float16.

    Where torch tensors require grad, the result has its place in the graph: gradients, of any
    order, are the other convolutions, in the same precision and within the same workspace; no
    ``out`` and no prepared filter serves then.

    Raises ValueError for shapes that do not fit, unknown or unfit algorithms and precisions;
    TypeError for arrays of a type that has no precision of its own, for other values of
    ``deterministic``.
    """
    geometry = (None, stride, padding, dilation, groups, layout)
    wishes = (layout, algorithm, precision, out_dtype, workspace_limit, on_range, scale)
    return _run("forward", x, w, out, geometry, wishes, deterministic)


def conv_backward_data(
    dy: Any,
    w: Any,
    input_shape: Sequence[int],
    *,
    stride: Sizes = 1,
    padding: Padding = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    layout: str = "channels_last",
    algorithm: str | Algorithm | None = None,
    precision: str | Arithmetic | None = None,
    out: Any = None,
    out_dtype: Any = None,
    workspace_limit: int | None = None,
    deterministic: bool = True,
    on_range: str = "fallback",
    scale: ScaleLike = None,
) -> Any:
    """dx, the gradient of ``conv_forward`` with respect to its input of shape ``input_shape``.

    dy has the shape of y; arguments and errors are those of :func:`conv_forward`.
    """
    geometry = (_sizes("input_shape", input_shape), stride, padding, dilation, groups, layout)
    wishes = (layout, algorithm, precision, out_dtype, workspace_limit, on_range, scale)
    return _run("backward_data", dy, w, out, geometry, wishes, deterministic)


def conv_backward_filter(
    x: Any,
    dy: Any,
    filter_shape: Sequence[int],
    *,
    stride: Sizes = 1,
    padding: Padding = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    layout: str = "channels_last",
    algorithm: str | Algorithm | None = None,
    precision: str | Arithmetic | None = None,
    out: Any = None,
    out_dtype: Any = None,
    workspace_limit: int | None = None,
    deterministic: bool = True,
    on_range: str = "fallback",
) -> Any:
    """dw, the gradient of ``conv_forward`` with respect to its filter of shape ``filter_shape``.

    ``filter_shape`` is w's logical shape in ``layout``. A "winograd:3x3:2x2" computes 3×3 taps from
    2×2 pieces of dy. On a GPU, a gradient without ``algorithm`` and ``workspace_limit`` takes less
    than half of the data or 16 MiB as workspace, unless products without transforms then take more
    than 2.5 times the time (``winolab plan backward-filter`` shows what a larger limit gains). A dw
    in float16 is infinite beyond 65504, as its sums may be; ``on_range`` "raise" looks at them
    first, on NumPy arrays too, and raises ValueError that says which types hold them. On a GPU,
    sums of wider types are refused in float16. Other arguments and errors are those of
    :func:`conv_forward`.
    """
    geometry = (_sizes("filter_shape", filter_shape), stride, padding, dilation, groups, layout)
    wishes = (layout, algorithm, precision, out_dtype, workspace_limit, on_range)
    return _run("backward_filter", x, dy, out, geometry, wishes, deterministic)


@dataclass(frozen=True, eq=False)
class PreparedFilter:
    """A filter made ready by ``prepare_filter``, accepted in its place for the same problem.

    On a GPU it holds device memory until it is deleted; NumPy's is the filter itself.
    """

    problem: Problem
    direction: str
    layout: str
    algorithm: Algorithm | None
    precision: Any
    scale: Scale | None
    held: np.ndarray | Transformed

    @property
    def shape(self) -> tuple[int, ...]:
        """The filter's, in its layout."""
        return _axes(self.problem.w_shape, self.layout)

    @property
    def nbytes(self) -> int:
        """Memory that it holds."""
        if isinstance(self.held, Transformed):
            return prepared(self.held.plan)
        return self.held.nbytes


def prepare_filter(
    w: Any,
    input_shape: Sequence[int],
    *,
    direction: str = "forward",
    stride: Sizes = 1,
    padding: Padding = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    layout: str = "channels_last",
    algorithm: str | Algorithm | None = None,
    precision: str | Arithmetic | None = None,
    out_dtype: Any = None,
    workspace_limit: int | None = None,
    scale: ScaleLike = None,
) -> PreparedFilter:
    """w, transformed once for ``conv_forward`` or ``conv_backward_data`` of inputs of one shape.

    ``input_shape`` is x's in both directions. A CUDA array is transformed on the caller's current
    stream, for the kernel that the planner takes; using it on another stream needs the caller's
    synchronization. The reference transforms while it runs and keeps w. The other arguments and
    the errors are those of :func:`conv_forward`; a call with other shapes, padding, algorithm or
    precision than were prepared raises ValueError, as does on a GPU one whose result is wider than
    ``out_dtype``.
    """
    if direction not in ("forward", "backward_data"):
        raise ValueError(f"direction {direction!r}; a filter serves forward and backward_data")
    wishes = Wishes(layout, algorithm, precision, out_dtype, workspace_limit).checked()
    rest = (stride, padding, dilation, groups, layout)
    problem = _problem(_sizes("input_shape", input_shape), shape_of(w), *rest)
    wishes = wishes._replace(scale=_scale(scale, precision, w))
    if on_gpu(w):
        held = kernels.transform(direction, problem, w, wishes)
    else:
        held = operand("w", w, precision)
        _try_on_nothing(direction, problem, held, rest, wishes)
    return PreparedFilter(problem, direction, layout, wishes.named, precision, wishes.scale, held)


def _try_on_nothing(
    direction: str, problem: Problem, w: np.ndarray, rest: tuple, given: tuple
) -> None:
    """Raise what a call with the filter would, by one that has no images and few outputs.

    ``rest`` and ``given`` are _run's, without the shape.
    """
    w = w[: problem.groups]
    problem = replace(problem, batch=0, out_channels=len(w))
    layout = rest[-1]
    x_shape, a_shape = (_axes(s, layout) for s in (problem.x_shape, shapes(direction, problem)[0]))
    geometry = (x_shape if direction == "backward_data" else None, *rest)
    _run(direction, np.empty(a_shape, w.dtype), w, None, geometry, given, True)


def _sizes(name: str, shape: Any) -> tuple:
    """The sizes of a shape. Raises TypeError for what is none."""
    try:
        return tuple(shape)
    except TypeError:
        raise TypeError(f"{name} is {shape!r}; expected all sizes, as (32, 56, 56, 64)") from None


def _axes(shape: tuple[int, ...], layout: str) -> tuple[int, ...]:
    """A channels-last shape as ``layout`` has it."""
    return (shape[0], shape[-1], *shape[1:-1]) if layout == "channels_first" else shape


def _types(shape: Any, stride: Any, padding: Any, dilation: Any, groups: Any, limit: Any) -> Any:
    """What tells sizes from those that equal them, as 1.0 does 1; None, quickly, of integers."""
    if (
        type(stride) is type(dilation) is type(groups) is int
        and (limit is None or type(limit) is int)
        and (type(padding) is int or (type(padding) is tuple and {*map(type, padding)} == INTS))
        and (shape is None or {*map(type, shape)} == INTS)
    ):
        return None
    return repr((shape, stride, padding, dilation, groups, limit))


def _problem(x_shape, w_shape, stride, padding, dilation, groups, layout) -> Problem:
    sizes = (stride, padding, dilation, groups)
    types = _types((*x_shape, *w_shape), *sizes, None)
    try:
        return _known_problem(types, x_shape, w_shape, *sizes, layout)
    except TypeError:  # lists have no hash
        return _known_problem.__wrapped__(types, x_shape, w_shape, *sizes, layout)


@lru_cache(maxsize=1024)
def _known_problem(_, x_shape, w_shape, stride, padding, dilation, groups, layout) -> Problem:
    return Problem.of(
        x_shape,
        w_shape,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        layout=layout,
    )


def _run(
    direction: str, a: Any, b: Any, out: Any, geometry: tuple, given: tuple, deterministic: bool
) -> Any:
    """``geometry``: w's or x's shape where it is given, and what follows the shapes in _problem."""
    if not isinstance(deterministic, bool | np.bool_):
        raise TypeError(f"deterministic is {deterministic!r}; expected True or False")
    held = b.held if isinstance(b, PreparedFilter) else b
    shape, *rest = geometry
    stride, padding, dilation, groups, _ = rest
    how = (geometry, given, _types(shape, stride, padding, dilation, groups, given[4]))
    known = kernels.recall(direction, a, held, out, how)
    if known:
        return known.run(a, held, out)
    wishes = Wishes(*given).checked()
    x_shape = shape if direction == "backward_data" else shape_of(a)
    problem = _problem(x_shape, shape if direction == "backward_filter" else shape_of(b), *rest)
    if isinstance(b, PreparedFilter):
        _check_prepared(b, direction, problem, wishes)
        scale = b.scale if wishes.scale is None else wishes.scale
        wishes = wishes._replace(algorithm=b.algorithm, precision=b.precision, scale=scale)
        b = b.held
    wishes = wishes._replace(scale=_scale(wishes.scale, wishes.precision, a))
    if on_gpu(a) or on_gpu(b) or isinstance(b, Transformed):
        return kernels.convolve(direction, problem, a, b, wishes, out, how)
    layout, precision, names = wishes.layout, wishes.precision, NAMES[direction]
    a, b = (operand(name, value, precision) for name, value in zip(names, (a, b), strict=False))
    run = arithmetic_of(precision, a, b)
    if wishes.scale and isinstance(run, Float) and run.parts > 1:
        run = replace(run, scale=wishes.scale)
    first, second = (_last(array, layout) for array in (a, b))
    if direction != "forward":
        dy = first if direction == "backward_data" else second
        if dy.shape != problem.y_shape:
            raise ValueError(
                f"dy is {dy.shape} with channels last; the problem's output is {problem.y_shape}"
            )
    compute = _reference(direction, wishes.named or direct(), run)
    if replace(problem, batch=1).empty:  # the engines have no tiles, or no channels
        result = np.zeros(shapes(direction, problem)[2], getattr(run, "dtype", object))
    else:
        result = compute(first, second, problem)
    return hand_over(direction, result, a.dtype, wishes, out)


def _scale(scale: ScaleLike, precision: str | Arithmetic | None, array: Any) -> Scale | None:
    if scale is None:
        return None
    text = str(getattr(precision, "name", precision or ""))
    name, _, rest = text.partition(",")
    dtype = getattr(array, "dtype", None) or np.asarray(array).dtype
    if name not in ("", "fp32", "fp32_split") or not str(dtype).endswith("float32"):
        raise ValueError(
            f"precision {text or dtype} takes no scale: it serves split products of float32 "
            "arrays, which are those of fp32_split, and of fp32 on a GPU"
        )
    if "scale=" in rest:
        raise ValueError(f"precision {text} has a scale, and another one is given")
    return Scale.of_caller(scale)


def _check_prepared(w: PreparedFilter, direction: str, problem: Problem, wishes: Wishes) -> None:
    if (w.direction, w.layout) != (direction, wishes.layout):
        raise ValueError(
            f"the filter is prepared for {w.direction}, {w.layout}, not {direction}, "
            f"{wishes.layout}"
        )
    if w.problem != problem:
        raise ValueError(f"the filter is prepared for {w.problem}, not {problem}")
    for name in ("algorithm", "precision"):
        wanted = getattr(wishes, name)
        if wanted is None:
            continue
        meant, have = (_meant(name, value, w.held) for value in (wanted, getattr(w, name)))
        if meant != have:
            raise ValueError(f"the filter is prepared with {name} {have}, not {meant}")
    scale = _scale(wishes.scale, w.precision, np.empty(0, "float32"))
    filters = [s.b if s else Power() for s in (scale, w.scale)]
    if filters[0] not in (Power(), filters[1]):
        raise ValueError(f"the filter is prepared with scale {w.scale}, not {scale}")


def _meant(name: str, value: Any, w: np.ndarray | Transformed) -> Any:
    """What an algorithm or a precision of a call with the filter is, None being the usual one."""
    if name == "precision":
        if isinstance(w, Transformed):
            return precision_of(value, "w", w.dtype)
        return arithmetic_of(value, w).name
    if value is None:
        return "of the planner's choice" if isinstance(w, Transformed) else direct()
    return value


# kind of algorithm -> the module whose forward, backward_data, backward_filter run it.
ENGINES = {
    "direct": winograd,
    "winograd": winograd,
    "gamma": winograd,
    "dwm": decompose,
    "fft": fft,
    "omega": winrs,
    "winrs": winrs,
}


def _reference(
    direction: str, chosen: Algorithm, run: Arithmetic
) -> Callable[[np.ndarray, np.ndarray, Problem], np.ndarray]:
    """The reference's function of the two arrays and the problem."""
    if chosen.kind == "direct" and run.name == "fp64":
        return getattr(convolution, direction)
    compute, run = getattr(ENGINES[chosen.kind], direction), summed(run, chosen)
    return lambda a, b, problem: compute(a, b, problem, chosen, run)


def _last(array: np.ndarray, layout: str) -> np.ndarray:
    check_layout(layout)
    return np.moveaxis(array, 1, -1) if layout == "channels_first" else array
