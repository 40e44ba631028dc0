"""The three convolutions: arrays on the CPU run the reference, CUDA arrays the kernels."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from winolab.algorithm import Algorithm
from winolab.arguments.arrays import DtypeLike, flag, on_gpu
from winolab.arguments.dlpack import numpy_view
from winolab.arguments.epilogue import Activation
from winolab.arguments.values import Padding, Sizes, stated
from winolab.calls import recall
from winolab.options import Convolution, OnRange, convolution
from winolab.problem import NAMES, Layout
from winolab.ref import dispatch, foreign
from winolab.ref.arithmetic.simulated import Arithmetic
from winolab.ref.arithmetic.split import Scale
from winolab.ref.operands import operand
from winolab.ref.prepared import PreparedFilter, check_filter, scale_of

PrecisionLike = str | DtypeLike | Arithmetic | None
ToleranceLike = float | str | None
ScaleLike = int | str | tuple[int, int] | Scale | None


def conv_forward(
    x: Any,
    w: Any,
    *,
    stride: Sizes = 1,
    padding: Padding = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    layout: Layout = "channels_last",
    algorithm: str | Algorithm | None = None,
    precision: PrecisionLike = None,
    out: Any = None,
    out_dtype: Any = None,
    workspace_limit: int | None = None,
    deterministic: bool = True,
    on_range: OnRange = "fallback",
    scale: ScaleLike = None,
    tolerance: ToleranceLike = None,
    bias: Any = None,
    residual: Any = None,
    activation: str | Activation | None = None,
) -> Any:
    """y = x ⋆ w, cross-correlation as in every deep-learning library.

    x is (N, *spatial, IC) and w (OC, *filter, IC/groups) channels-last, (N, IC, *spatial) and
    (OC, IC/groups, *filter) channels-first; y has x's layout, library and dtype, whatever has
    ``__dlpack__`` on the CPU (torch, JAX, the array API), but is a CuPy array where x is a CUDA
    array (``__dlpack__``, ``__cuda_array_interface__``) and not torch's.
    ``stride``, ``padding`` and ``dilation`` are an int or one per spatial dimension; ``padding``
    also a (low, high) pair per dimension, "valid", or "same_upper" or "same_lower": zeros for
    ⌈input / stride⌉ outputs, the odd one behind or before; "same" is "same_upper".

    ``algorithm`` is a value or its text ("direct", "winograd:4x4:3x3", "gamma:8:6:3"); None is
    direct on the CPU and the planner's choice on a GPU, where "dwm" runs piece after piece.
    ``precision`` is a name ("fp64", "fp32", "tf32", "bf16", "fp16", "exact", "mp:200"; of 16-bit
    arrays in FP32 arithmetic "fp16_ffma", "bf16_ffma"), an Arithmetic, or a dtype or its name; None
    follows the arrays'. Arrays on the CPU run the
    reference, in the order of operations of the kernels. ``tolerance``, in place of the algorithm,
    takes the cheapest, on a GPU the fastest plan, whose predicted relative RMS error it admits:
    1e-5; or "proven:1e-4", by the proven bound, "componentwise:1e-5", direct products only, or
    "direct:4", four times what is predicted of direct products. By default and by a multiple of
    direct's error, the planner takes what errs no more than sums in FP32 do, where that takes up
    to 15 % longer, and the smaller workspace where more saves less than a tenth.
    ``out`` receives the result and may lie over x or w; ``out_dtype`` is the result's type where
    there is no ``out``, by default x's, of NumPy's integers what they are computed in, or object
    for "exact" and "mp". NumPy arrays hold numbers of any type (object arrays int, Fraction,
    Decimal, mpmath's and NumPy's), which count exactly; a result is rounded to its type once.
    On a GPU arrays may have any strides: what kernels cannot read or write where it lies is copied
    on the way, beside the workspace, and a new result has x's memory order.
    ``workspace_limit`` bounds the kernels' workspace in bytes, in ``prepare_filter`` together with
    the filter that is kept; ``deterministic``, True or False, is met by every kernel and the
    reference, which takes no workspace. Where memory of a GPU lacks for a call's workspace, copies
    included, the fastest plan of less computes it, and what asks for the same in this process from
    then on; the log (``winolab.gpu``) says so once. Results may differ by rounding from those
    before. An algorithm, tolerance, limit and prepared filter that are given stay as they are. If
    the smallest plan does not fit either, MemoryError says its bytes. While a CUDA graph captures,
    nothing is planned again: MemoryError says so, and a call before the capture finds what fits.

    Algorithms that transform tiles (all but "direct"; on a GPU the planner's choice may) are as
    accurate as their precision says relative to the largest numbers of a tile, not of every
    output: beside an element of 1e12 among normal ones, or in maps of mostly zeros, small outputs
    lose digits that "direct" keeps, whose error is relative to each output's own Σ|x||w|
    (winolab.ref.error.predict of arrays shows the error of each). NaN and infinity stay within
    their image, but in INT8 and FP8, whose scales images share, and spread within a tile: one
    element of a map of 11 × 11 reaches 9 outputs of a 3 × 3 filter, and as many by F(2×2,3×3), 18
    by Γ8(6,3), all 81 by fft:16. On a GPU they reach neighbouring groups of few channels where a
    kernel multiplies several groups at once, and of strided layers whose phases are channels also
    outputs whose windows would have them if the filter were whole strides long.

    ``bias``, one number an output channel, ``residual``, an array of y's shape that lies anywhere,
    and ``activation``, "relu", "silu" or "leaky_relu" ("leaky_relu:0.2" with a slope, else 0.01),
    are applied to y in this order, each rounded to y's dtype, which they have: the bits are those
    of one step behind the other, as winolab.ref.epilogue defines them. Kernels do it as they store
    y; behind split products that are looked at again, cuBLASLt's, nested tiles' and sums of taps
    one more pass does, whose time counts where a kernel is picked: it may be another than without.

    Complex arrays, complex64 or complex128, run the reference: three real convolutions whose sums
    are of the size of both parts, so that a small part has the error of a large one. Gradients are
    conjugated as PyTorch's are: ⟨dy, x ⋆ w⟩ = ⟨dx, x⟩ = ⟨dw, w⟩.

    On a GPU, "fp32" may take split products (winolab.gpu.planner.fallback). Where magnitudes within
    a tensor are too far apart for them, ``on_range`` "fallback" computes again on FFMA units,
    "raise" waits for the result and raises ValueError; those of TF32 parts, which no range breaks,
    lose what of an element is below 2⁻¹³⁶, as "fp32_ffma" does not. A ``scale`` that the caller
    knows spares the look for it: exponents of the powers of two that x and w are multiplied by,
    "11:18" or (11, 18), or of their largest magnitudes, "peaks:3:-7"; with one number, 11 or
    "peaks:3", it is x's. A scale that does not serve the data is found out as magnitudes too far
    apart are. For NumPy arrays it changes nothing but with "fp32_split", which then shows what such
    products lose; ``on_range`` nothing but for filters' gradients in float16.

    Where torch tensors require grad, the result has its place in the graph: gradients, of any
    order, are the other convolutions, in the same precision and within the same workspace; no
    ``out`` and no prepared filter serves then, nor under torch.compile. torch.func and tensors
    without numbers are served by winolab.torch.

    Raises ValueError for shapes that do not fit, unknown or unfit algorithms and precisions, a
    tolerance that nothing keeps to or that stands beside an algorithm or a prepared filter, and for
    a result that its integer type does not hold; TypeError for arrays of a type that has no
    precision of its own, for elements that are no real numbers, for other values of
    ``deterministic``.

    >>> x, w = np.arange(16.0).reshape(1, 4, 4, 1), np.ones((1, 3, 3, 1))
    >>> conv_forward(x, w, algorithm="winograd:2x2:3x3")[0, ..., 0].tolist()
    [[45.0, 54.0], [81.0, 90.0]]
    """
    asked = convolution(
        "forward", None,
        stride, padding, dilation, groups, layout, algorithm, precision, out_dtype,
        workspace_limit, on_range, scale, None, tolerance, activation,
    )  # fmt: skip
    return _run(asked, x, w, out, deterministic, bias, residual)


def conv_backward_data(
    dy: Any,
    w: Any,
    input_shape: Sequence[int] | None = None,
    *,
    stride: Sizes = 1,
    padding: Padding = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    layout: Layout = "channels_last",
    algorithm: str | Algorithm | None = None,
    precision: PrecisionLike = None,
    out: Any = None,
    out_dtype: Any = None,
    workspace_limit: int | None = None,
    deterministic: bool = True,
    on_range: OnRange = "fallback",
    scale: ScaleLike = None,
    output_padding: Sizes | None = None,
    tolerance: ToleranceLike = None,
) -> Any:
    """dx, the gradient of ``conv_forward`` with respect to its input of shape ``input_shape``.

    dy has the shape of y. Without ``input_shape`` it is a transposed convolution, as PyTorch's:
    dx is as small as its windows allow, and longer by ``output_padding`` at the high end,
    an int or one per spatial dimension, below the larger of stride and dilation. A complex w is
    conjugated, which PyTorch's transposed convolution leaves to the caller. Other arguments and
    errors are those of :func:`conv_forward`.

    >>> dy, w = np.ones((1, 2, 2, 1)), np.ones((1, 2, 2, 1))
    >>> conv_backward_data(dy, w, (1, 3, 3, 1))[0, ..., 0].tolist()
    [[1.0, 2.0, 1.0], [2.0, 4.0, 2.0], [1.0, 2.0, 1.0]]
    """
    asked = convolution(
        "backward_data", None if input_shape is None else stated("input_shape", input_shape),
        stride, padding, dilation, groups, layout, algorithm, precision, out_dtype,
        workspace_limit, on_range, scale, output_padding, tolerance,
    )  # fmt: skip
    return _run(asked, dy, w, out, deterministic)


def conv_backward_filter(
    x: Any,
    dy: Any,
    filter_shape: Sequence[int],
    *,
    stride: Sizes = 1,
    padding: Padding = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    layout: Layout = "channels_last",
    algorithm: str | Algorithm | None = None,
    precision: PrecisionLike = None,
    out: Any = None,
    out_dtype: Any = None,
    workspace_limit: int | None = None,
    deterministic: bool = True,
    on_range: OnRange = "fallback",
    tolerance: ToleranceLike = None,
) -> Any:
    """dw, the gradient of ``conv_forward`` with respect to its filter of shape ``filter_shape``.

    ``filter_shape`` is w's logical shape in ``layout``. A "winograd:3x3:2x2" computes 3×3 taps from
    2×2 pieces of dy. On a GPU, a gradient without ``algorithm`` and ``workspace_limit`` takes less
    than half of the data or 16 MiB as workspace, or more, some times the data, where that saves a
    tenth of the time (``winolab plan backward-filter`` shows both). A dw in float16 is infinite
    beyond 65504, as its sums may be; ``on_range`` "raise" looks at them first, on NumPy arrays
    too, and raises ValueError that says which types hold them. On a GPU, sums of wider types are
    refused in float16. There, NaN and infinity of x may reach every tap of their input channel,
    and of dy of their output channel: products with zeros beyond a border are not left out. Other
    arguments and errors are those of :func:`conv_forward`.

    >>> x, dy = np.arange(16.0).reshape(1, 4, 4, 1), np.ones((1, 3, 3, 1))
    >>> conv_backward_filter(x, dy, (1, 2, 2, 1))[0, ..., 0].tolist()
    [[45.0, 54.0], [81.0, 90.0]]
    """
    asked = convolution(
        "backward_filter", stated("filter_shape", filter_shape),
        stride, padding, dilation, groups, layout, algorithm, precision, out_dtype,
        workspace_limit, on_range, None, None, tolerance,
    )  # fmt: skip
    return _run(asked, x, dy, out, deterministic)


def prepare_filter(
    w: Any,
    input_shape: Sequence[int],
    *,
    direction: Literal["forward", "backward_data"] = "forward",
    stride: Sizes = 1,
    padding: Padding = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    layout: Layout = "channels_last",
    algorithm: str | Algorithm | None = None,
    precision: PrecisionLike = None,
    out_dtype: Any = None,
    workspace_limit: int | None = None,
    scale: ScaleLike = None,
    tolerance: ToleranceLike = None,
) -> PreparedFilter:
    """w, transformed once for ``conv_forward`` or ``conv_backward_data`` of inputs of one shape.

    ``input_shape`` is x's in both directions. A CUDA array is transformed on the caller's current
    stream, for the kernel that the planner takes; using it on another stream needs the caller's
    synchronization. The reference transforms while it runs and keeps a copy of w. ``tolerance``
    counts for an input that is uniform on [-1, 1]. Where memory lacks for the filter, the plan of a
    smaller one is taken, as ``conv_forward`` does for its workspace. The other arguments and the
    errors are those of :func:`conv_forward`; a call with other shapes, padding, algorithm or
    precision than were prepared raises ValueError, as does on a GPU one whose result is wider than
    ``out_dtype``.

    >>> x, w = np.ones((1, 4, 4, 1)), np.ones((1, 3, 3, 1))
    >>> prepared = prepare_filter(w, x.shape)
    >>> conv_forward(x, prepared)[0, ..., 0].tolist()
    [[9.0, 9.0], [9.0, 9.0]]
    """
    if direction not in ("forward", "backward_data"):
        raise ValueError(f"direction {direction!r}; a filter serves forward and backward_data")
    x_shape = stated("input_shape", input_shape)
    asked = convolution(
        direction, x_shape if direction == "backward_data" else None,
        stride, padding, dilation, groups, layout, algorithm, precision, out_dtype,
        workspace_limit, tolerance=tolerance,
    )  # fmt: skip
    options = asked.options.checked()
    problem = asked.problem(x_shape, shape_of("w", w))
    options = replace(options, scale=scale_of(scale, options.precision, w))
    if tracked(w):
        raise ValueError(
            "w requires grad, and a prepared filter has none: detach it, or call "
            "under torch.no_grad(), and outside of torch.compile"
        )
    if on_gpu(w):
        from winolab.gpu.runtime import conv as kernels

        held = kernels.transform(direction, problem, w, options)
    else:
        given = numpy_view("w", w) if foreign.foreign(w) else w
        held = np.array(operand("w", given, options.precision))  # as it is now, whatever becomes
        options = dispatch.chosen(direction, problem, options, None, held)
        dispatch.try_filter(direction, problem, held, options)
    return PreparedFilter(
        problem, direction, layout, options.named, options.precision, options.scale, held
    )


def shape_of(name: str, value: Any) -> tuple[int, ...]:
    """The shape of any array, of one that says it to other libraries only, too.

    Raises TypeError for what is no array: None, a text, a number, rows of different lengths.
    """
    if hasattr(value, "shape"):
        return np.shape(value)
    if on_gpu(value):
        from winolab.gpu.runtime.arrays import CUPY

        return np.shape(CUPY.array(name, value))
    try:
        shape = np.shape(value)
    except ValueError:
        raise TypeError(f"{name} is a list of different lengths; expected an array") from None
    if not shape:
        text = "None" if value is None else f"of type {type(value).__name__}"
        raise TypeError(f"{name} is {text}; expected an array")
    return shape


def _run(
    asked: Convolution,
    a: Any,
    b: Any,
    out: Any,
    deterministic: bool,
    bias: Any = None,
    residual: Any = None,
) -> Any:
    """The result of what is asked: by a call that was kept, or checked and computed anew."""
    if deterministic is not True:  # warm calls have no time for another call
        flag(deterministic, "deterministic")
    held = b.held if isinstance(b, PreparedFilter) else b
    more = () if bias is None and residual is None else (bias, residual)
    known = recall(asked, a, held, out, *more)
    if known:
        return known.run(a, held, out, *more)
    if tracked(a, held, out, *more):
        from winolab.torch import graph

        return graph.convolve(asked, a, b, out, bias, residual)
    options = asked.options.checked()
    names = NAMES[asked.direction]
    if isinstance(a, PreparedFilter):
        raise TypeError(f"{names[0]} is a prepared filter, which stands in the place of w")
    problem = asked.problem(shape_of(names[0], a), shape_of(names[1], b))
    if isinstance(b, PreparedFilter):
        check_filter(b, asked.direction, problem, options)
        scale = b.scale if options.scale is None else options.scale
        options = replace(options, algorithm=b.algorithm, precision=b.precision, scale=scale)
    options = replace(options, scale=scale_of(options.scale, options.precision, a))
    if on_gpu(a) or on_gpu(held) or (held is not b and not isinstance(held, np.ndarray)):
        from winolab.gpu.runtime import conv as kernels

        return kernels.convolve(asked.direction, problem, a, held, options, out, asked, *more)
    return foreign.convolve(asked.direction, problem, a, held, options, out, *more)


def tracked(*values: Any) -> bool:
    """Whether one is torch's and has a place in its graph of derivatives. Raises as graph does."""
    torch = sys.modules.get("torch")
    if torch is None or not any(isinstance(v, torch.Tensor) for v in values):
        return False
    from winolab.torch import graph

    return graph.tracked(*values)
