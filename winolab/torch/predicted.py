"""What a layer's convolutions will be computed by, how much they err and how long they take."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from winolab.algorithm import direct
from winolab.arguments.arrays import dtype_of
from winolab.arguments.shapes import nonempty
from winolab.device import Device
from winolab.options import ConvOptions
from winolab.problem import Problem
from winolab.ref.arithmetic.formats import FORMAT_OF
from winolab.ref.arithmetic.simulated import arithmetic
from winolab.ref.error.expected import expected
from winolab.ref.error.moments import CONSTANT
from winolab.ref.tolerance.cheapest import U11, foreseen
from winolab.torch.asked import USUAL_TOLERANCE, sizes, tile_for
from winolab.torch.modules import Convolution, check_options
from winolab.torch.operators import asked_by

DTYPES = {
    torch.float64: "fp64",
    torch.float32: "fp32",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
}
# What a layer does -> the operator that does it, of a convolution and of a transposed one.
ROLES = {
    "forward": ("forward", "backward_data"),
    "backward_data": ("backward_data", "forward"),
    "backward_filter": ("backward_filter", "backward_filter"),
}


@dataclass(frozen=True)
class Predicted:
    """One direction of a layer: its algorithm, or kernel on a GPU, its error and its time.

    ``direction`` is the layer's: the forward of a transposed convolution is another's backward
    data. ``relative_rms`` is of data uniform on [-1, 1], ``seconds`` None on the CPU.
    """

    direction: str
    algorithm: str
    relative_rms: float
    seconds: float | None = None


class _Met(Exception):  # what a call met, not an error
    def __init__(self, problem: Problem, direction: str) -> None:
        self.problem, self.direction = problem, direction


def met(layer: Convolution, shape: tuple[int, ...]) -> tuple[Problem, str]:
    """The problem, and the operator's direction, of a call with an input of that shape."""

    def through(direction: Any, input: Any, asked: bool = False) -> Any:
        def convolve(a: Any, w: Any, *arguments: Any) -> Any:
            problem = asked_by(direction, arguments).problem(tuple(a.shape), tuple(w.shape))
            raise _Met(problem, direction)

        return convolve

    layer.through = through
    try:
        with still(layer):
            weight: Any = layer.weight
            layer.forward(torch.empty(shape, dtype=weight.dtype, device="meta"))
    except _Met as found:
        return found.problem, found.direction
    finally:
        del layer.through
    raise AssertionError("a convolution's forward calls its operator")


@contextmanager
def still(layer: nn.Module) -> Iterator[None]:
    """Parametrizations in evaluation: in training one may learn from being asked for a weight."""
    modules = getattr(layer, "parametrizations", nn.ModuleDict()).modules()
    before = [(module, module.training) for module in modules]
    try:
        for module, _ in before:
            module.training = False
        with torch.no_grad():
            yield
    finally:
        for module, training in before:
            module.training = training


def smallest(layer: nn.Module) -> tuple[int, ...]:
    """The shape of an input that the layer's windows fit, and few of them: of one that its padding
    repeats or mirrors enough, for a transposed layer so much that its padding leaves a result."""
    of: Any = layer
    ndim = len(of.kernel_size)
    strides = sizes(of.stride, ndim, "stride", 1)
    dilations = sizes(of.dilation, ndim, "dilation", 1)
    spans = [d * (r - 1) for r, d in zip(of.kernel_size, dilations, strict=True)]
    least = [span + 4 for span in spans]
    if of.transposed:
        paddings = sizes(of.padding, ndim, "padding", 0)
        each = zip(least, spans, paddings, strides, strict=True)
        least = [n + max(0, -((span - 2 * p) // s)) for n, span, p, s in each]
    elif of.padding_mode != "zeros":
        ends = of._reversed_padding_repeated_twice[::-1]
        each = zip(least, ends[::2], ends[1::2], strict=True)
        least = [max(n, low + 1, high + 1) for n, low, high in each]
    return 1, of.in_channels, *least


def predicted(
    layer: Convolution, shape: tuple[int, ...], gpu: Device | None, cast: torch.dtype | None = None
) -> tuple[Predicted, ...]:
    """Forward and, in training, both gradients. ``gpu`` None is the CPU; ``cast`` is what autocast
    makes of the operands, None where it is off.

    Raises ValueError or TypeError for what does not serve the layer.
    """
    with still(layer):
        weight: Any = layer.weight
    if weight.dtype not in DTYPES:
        raise TypeError(f"weight has dtype {weight.dtype}; expected float64, float32 or 16 bits")
    dtype = weight.dtype if cast is None or weight.dtype == torch.float64 else cast
    problem, direction = met(layer, shape)
    asked = check_options(layer.algorithm, layer.precision, layer.tolerance)
    if asked.precision is None:
        asked = replace(asked, precision=DTYPES[dtype])
    roles = ROLES if layer.training else ("forward",)
    transposed, found = direction == "backward_data", []
    for role in roles:
        algorithm = tile_for(role, algorithm=asked.algorithm, cpu=gpu is None)
        tolerance = asked.tolerance or (None if algorithm else USUAL_TOLERANCE)
        how = replace(asked, algorithm=algorithm, tolerance=tolerance)
        does = ROLES[role][transposed]
        how = replace(how, batch_invariant=layer.batch_invariant and does != "backward_filter")
        told = _on_gpu(problem, does, how, gpu) if gpu else _on_cpu(problem, does, how, dtype)
        found.append(Predicted(role, *told))
    return tuple(found)


def _on_cpu(
    problem: Problem, direction: str, how: ConvOptions, dtype: torch.dtype
) -> tuple[str, float, None]:
    """By the reference, of operands and for a result of that dtype."""
    run = arithmetic(how.precision)
    algorithm = how.named or direct()
    stored = dtype_of(dtype)
    result = FORMAT_OF[stored]
    if how.tolerance and how.tolerance != USUAL_TOLERANCE:
        algorithm = foreseen(how.tolerance, problem, how.precision, direction, stored, stored)
    error = expected(U11, U11, problem, algorithm, run, direction=direction).relative_rms
    unit = result.unit_roundoff if result.precision < 24 else 0.0
    return str(algorithm), math.hypot(error, math.sqrt(CONSTANT) * unit), None


def _on_gpu(
    problem: Problem, direction: str, how: ConvOptions, gpu: Device
) -> tuple[str, float, float]:
    from winolab.gpu.planner.accuracy import predicted_rms
    from winolab.gpu.planner.planner import plan
    from winolab.gpu.planner.recast.images import images_at_once, of_images
    from winolab.gpu.planner.request import Request

    problem = nonempty(problem)
    asked = Request(problem, direction, gpu, how.named, how.precision, tolerance=how.tolerance)
    images = problem.batch
    if how.batch_invariant:
        images, asked = images_at_once(asked, plan)
        images = images or 1
        asked = of_images(asked, images)
    chosen = plan(asked)
    seconds = -(-problem.batch // images) * chosen.predicted
    return f"{chosen.kernel} {chosen.precision}", predicted_rms(chosen, U11), seconds
