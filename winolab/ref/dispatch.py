"""The convolutions of NumPy arrays, by the reference; winolab.gpu.runtime.conv serves others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from winolab.algorithm import Algorithm, Problem, direct
from winolab.arguments.arrays import dtype_of
from winolab.options import ConvOptions
from winolab.problem import NAMES, in_layout, shapes
from winolab.ref.algorithms import convolution
from winolab.ref.arithmetic.simulated import Arithmetic, Float, summed
from winolab.ref.kinds.registry import ENGINES
from winolab.ref.operands import arithmetic_of, complex_dtype, hand_over, operand
from winolab.ref.tolerance.cheapest import within


def convolve(
    direction: str, problem: Problem, a: Any, b: Any, options: ConvOptions, out: Any
) -> np.ndarray:
    """The result of ``direction`` of two arrays in the options' layout, which fit the problem but
    for dy; the options are ``checked``. Raises as winolab.conv_forward.

    Of complex arrays it is made of three real convolutions, of a complex and a real one of two; in
    a gradient the other operand is conjugated.
    """
    names, layout = NAMES[direction], options.layout
    a, b = (operand(name, v, options.precision) for name, v in zip(names, (a, b), strict=False))
    dy = {"backward_data": a, "backward_filter": b}.get(direction)
    if dy is not None and _last(dy, layout).shape != problem.y_shape:
        raise ValueError(
            f"dy is {_last(dy, layout).shape} with channels last; the problem's output is "
            f"{problem.y_shape}"
        )
    run = arithmetic_of(options.precision, a, b)
    if options.scale and isinstance(run, Float) and run.parts > 1:
        run = replace(run, scale=options.scale)
    options = chosen(direction, problem, options, a, b, out)
    product = partial(_product, direction, problem, options, run)
    if "c" not in (a.dtype.kind, b.dtype.kind):
        exact = not isinstance(run, Float)  # whose elements are made exact once, read or not
        a, b = (_carriers(v, run) if exact or v.dtype == object else v for v in (a, b))
        return hand_over(direction, product(a, b), (a, b), options, out)
    wanted = complex_dtype(a, b, options.out_dtype, out)
    if out is None:
        out = np.empty(in_layout(shapes(direction, problem)[2], layout), wanted)
    first, second = a, b
    if direction == "backward_filter":
        first = _conjugate(a)
    elif direction == "backward_data":
        second = _conjugate(b)
    real, imag = _complex_product(first, second, run, product)
    options = replace(options, out_dtype=None)
    hand_over(direction, real, (a, b), options, out.real)
    hand_over(direction, imag, (a, b), options, out.imag)
    return out


def chosen(
    direction: str,
    problem: Problem,
    options: ConvOptions,
    a: np.ndarray | None,
    b: np.ndarray,
    out: Any = None,
) -> ConvOptions:
    """The options, the algorithm in the place of a tolerance: for these operands, or for any first
    one that is uniform on [-1, 1]."""
    if not options.tolerance or problem.empty:
        return options
    run = arithmetic_of(options.precision, b if a is None else a, b)
    wanted = options.out_dtype if out is None else out.dtype
    result = (b if a is None else a).dtype if wanted is None else dtype_of(wanted)
    found = within(options.tolerance, problem, run, direction, (a, b), result)
    return replace(options, algorithm=found, tolerance=None)


def try_filter(direction: str, problem: Problem, w: np.ndarray, options: ConvOptions) -> None:
    """Raise what a call with the filter would, by one that has no images and few outputs.

    NaN and infinity are refused in exact arithmetic.
    """
    run = arithmetic_of(options.precision, w)
    if not isinstance(run, Float):
        for part in (np.real(w), np.imag(w)) if w.dtype.kind == "c" else (w,):
            _carriers(part, run)
    w = w[: problem.groups]
    few = replace(problem, batch=0, out_channels=len(w))
    a = np.empty(in_layout(shapes(direction, few)[0], options.layout), w.dtype)
    convolve(direction, few, a, w, options, None)


def _conjugate(array: np.ndarray) -> np.ndarray:
    return array.conj() if array.dtype.kind == "c" else array


def _complex_product(
    a: np.ndarray, b: np.ndarray, run: Arithmetic, product: Callable[..., np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """The real and the imaginary part of a complex product, of few real ones."""
    a_real, b_real = (_carriers(np.real(array), run) for array in (a, b))
    if a.dtype.kind != "c":
        return product(a_real, b_real), product(a_real, _carriers(np.imag(b), run))
    a_imag = _carriers(np.imag(a), run)
    if b.dtype.kind != "c":
        return product(a_real, b_real), product(a_imag, b_real)
    b_imag = _carriers(np.imag(b), run)
    with np.errstate(all="ignore"):
        shared = product(run.add(a_real, a_imag), b_real)
        real = run.sub(shared, product(a_imag, run.add(b_real, b_imag)))
        return real, run.add(shared, product(a_real, run.sub(b_imag, b_real)))


@np.errstate(all="ignore")
def _carriers(array: np.ndarray, run: Arithmetic) -> np.ndarray:
    return run.asarray(array)


def _product(
    direction: str,
    problem: Problem,
    options: ConvOptions,
    run: Arithmetic,
    a: np.ndarray,
    b: np.ndarray,
) -> np.ndarray:
    """The result of two real arrays in the options' layout, channels last, as carriers."""
    compute = _engine(direction, options.named or direct(), run)
    # the engines have no tiles, no channels, or only constants, which may be infinite in a format
    nothing = problem if direction == "backward_filter" else replace(problem, batch=1)
    if nothing.empty:
        like = problem.without_images  # so that they refuse what they refuse of others
        a_shape, b_shape, _ = shapes(direction, like)
        compute(np.zeros(a_shape, a.dtype), np.zeros(b_shape, b.dtype), like)
        return run.asarray(np.zeros(shapes(direction, problem)[2], np.int64))
    return compute(_last(a, options.layout), _last(b, options.layout), problem)


def _engine(
    direction: str, chosen: Algorithm, run: Arithmetic
) -> Callable[[np.ndarray, np.ndarray, Problem], np.ndarray]:
    """The reference's function of two arrays and the problem, whatever NumPy is told to raise."""
    quiet = np.errstate(all="ignore")
    if chosen.kind == "direct" and run.name == "fp64":
        return quiet(getattr(convolution, direction))
    compute, run = getattr(ENGINES[chosen.kind], direction), summed(run, chosen)
    return quiet(lambda a, b, problem: compute(a, b, problem, chosen, run))


def _last(array: np.ndarray, layout: str) -> np.ndarray:
    return np.moveaxis(array, 1, -1) if layout == "channels_first" else array
