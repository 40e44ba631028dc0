"""The primitives on the CPU: XLA's own convolution, or the reference where something is named."""

from __future__ import annotations

import ctypes
import math
from dataclasses import replace
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from winolab.arguments.arrays import dtype_of
from winolab.arguments.dlpack import BFLOAT16
from winolab.jax.asked import Asked, Ints, Question
from winolab.jax.ffi import Call
from winolab.options import ConvOptions
from winolab.problem import Problem, shapes
from winolab.ref import dispatch
from winolab.ref.tolerance.cheapest import foreseen


def run(call: Call) -> None:
    """The handler: the reference, on XLA's buffers. Raises as winolab.conv_forward."""
    question, problem, options = _read(call.text)
    asked, dtypes = question.asked, (question.dtype, question.dtype, question.asked.out_dtype)
    a, b, out = (
        _view(address, shape, dtype).transpose(asked.axes(role))
        for address, shape, dtype, role in zip(
            call.addresses, question.shapes, dtypes, asked.roles, strict=True
        )
    )
    dispatch.convolve(asked.direction, problem, a, b, options, out)


@lru_cache(maxsize=1024)
def _read(text: bytes) -> tuple[Question, Problem, ConvOptions]:
    question = Question.of(text)
    return question, question.problem, question.asked.options()


def _view(address: int, shape: Ints, dtype: str) -> np.ndarray:
    """The memory as an array."""
    kind = _kind(dtype)
    memory: Any = (ctypes.c_char * (math.prod(shape) * kind.itemsize)).from_address(address)
    return np.frombuffer(memory, kind).reshape(shape)


def check(asked: Asked, problem: Problem, dtype: str) -> None:
    """Raise what the reference would, by a problem of no images and few channels: at trace time."""
    if asked.algorithm is None and asked.precision is None:
        return
    options = ConvOptions(algorithm=asked.algorithm, precision=asked.precision).checked()
    few = replace(problem.without_images, in_channels=1, out_channels=1, groups=1)
    _try(asked.direction, few, options, dtype)


def resolved(question: Question) -> Question:
    """The same with the algorithm that a tolerance admits, as it is traced: data are unknown, and
    taken to be uniform on [-1, 1]. Raises ValueError where nothing keeps to it."""
    asked = question.asked
    if asked.tolerance is None:
        return question
    options = asked.options()
    how = options.precision, asked.direction, _kind(question.dtype), _kind(asked.out_dtype)
    found = foreseen(options.tolerance, question.problem, *how)
    return replace(question, asked=replace(asked, algorithm=str(found), tolerance=None))


def _kind(dtype: str) -> np.dtype:
    return BFLOAT16 if dtype == "bfloat16" else dtype_of(dtype)


@lru_cache(maxsize=1024)
def _try(direction: str, problem: Problem, options: ConvOptions, dtype: str) -> None:
    a, b, _ = (np.zeros(shape, _kind(dtype)) for shape in shapes(direction, problem))
    dispatch.convolve(direction, problem, a, b, options, None)


def direct(asked: Asked, result: Any, a: Any, b: Any) -> Any:
    """XLA's direct convolution of the operands, with sums in float32 at least; ``result``: JAX's
    abstract value of it."""
    wide = jnp.promote_types(a.dtype, jnp.float32)
    given = dict(zip(asked.roles, (a.astype(wide), b.astype(wide)), strict=False))

    def forward(x: Any, w: Any) -> Any:
        axes = (_spec(asked.axes(role), role) for role in ("x", "w", "y"))
        return lax.conv_general_dilated(
            x,
            w,
            asked.stride,
            asked.padding,
            rhs_dilation=asked.dilation,
            dimension_numbers=lax.ConvDimensionNumbers(*axes),
            feature_group_count=asked.groups,
            precision=lax.Precision.HIGHEST,
        )

    made = asked.roles[2]
    if made == "y":
        return forward(given["x"], given["w"]).astype(asked.out_dtype)
    linear = {"x": lambda x: forward(x, given["w"]), "w": lambda w: forward(given["x"], w)}[made]
    (found,) = jax.linear_transpose(linear, result.update(dtype=wide))(given["y"])
    return found.astype(asked.out_dtype)


def _spec(axes: Ints, role: str) -> Ints:
    """Axes as lax has them: batch or outputs, channels, then spatial ones."""
    return (axes[0], axes[-1], *axes[1:-1])
