"""The convolutions of NumPy arrays, by the reference; winolab.gpu.runtime.conv serves others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from winolab.algorithm import Algorithm, Problem, direct
from winolab.operands import hand_over, operands
from winolab.options import ConvOptions
from winolab.problem import NAMES, shapes
from winolab.ref.algorithms import convolution, fft, winograd
from winolab.ref.algorithms.dwm import decompose
from winolab.ref.algorithms.winrs import gradient as winrs
from winolab.ref.arithmetic.simulated import Arithmetic, Float, summed

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


def convolve(
    direction: str, problem: Problem, a: Any, b: Any, options: ConvOptions, out: Any
) -> np.ndarray:
    """The result of ``direction`` of two arrays in the options' layout, which fit the problem but
    for dy; the options are ``checked``. Raises as winolab.conv_forward."""
    a, b, run = operands(NAMES[direction], (a, b), options.precision)
    if options.scale and isinstance(run, Float) and run.parts > 1:
        run = replace(run, scale=options.scale)
    first, second = (_last(array, options.layout) for array in (a, b))
    if direction != "forward":
        dy = first if direction == "backward_data" else second
        if dy.shape != problem.y_shape:
            raise ValueError(
                f"dy is {dy.shape} with channels last; the problem's output is {problem.y_shape}"
            )
    compute = _engine(direction, options.named or direct(), run)
    if replace(problem, batch=1).empty:  # the engines have no tiles, or no channels
        like = problem.without_images  # so that they refuse what they refuse of others
        a_shape, b_shape, _ = shapes(direction, like)
        compute(np.zeros(a_shape, a.dtype), np.zeros(b_shape, b.dtype), like)
        result = np.zeros(shapes(direction, problem)[2], getattr(run, "dtype", object))
    else:
        result = compute(first, second, problem)
    return hand_over(direction, result, (a, b), options, out)


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
