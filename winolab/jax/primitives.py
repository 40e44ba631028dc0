"""The three convolutions as primitives of JAX: shapes, derivatives of any order, batches, lowering.

Each is bilinear, and its transposes are the other two: so grad, jvp, linearize and what is made of
them follow from one rule, and nothing has a derivative that is zero without a word.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import jax
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from winolab.jax import ffi, reference
from winolab.jax.asked import Asked, Question
from winolab.jax.batching import batched
from winolab.problem import NAMES

PRIMITIVES = {direction: Primitive(f"winolab_conv_{direction}") for direction in NAMES}


def convolve(a: Any, b: Any, asked: Asked) -> Any:
    """The result of arrays that lie as ``asked`` says. Raises as winolab.conv_forward."""
    a, b = _varying(a, b)
    return PRIMITIVES[asked.direction].bind(a, b, asked=asked)


def _varying(*arrays: Any) -> list[Any]:
    """The same, varying along the same axes of a mesh within jax.shard_map, as lax's operands."""
    along = [_mapped_over(jax.typeof(v)) for v in arrays]
    every = frozenset().union(*along)
    missing = [tuple(every - own) for own in along]
    return [
        lax.pcast(v, axes, to="varying") if axes else v
        for v, axes in zip(arrays, missing, strict=True)
    ]


def _mapped_over(aval: Any) -> frozenset[str]:
    """Axes of a mesh along which devices have values of their own."""
    known = getattr(aval, "manual_axis_type", None)  # of JAX 0.10 and later
    return known.varying if known is not None else getattr(aval, "vma", frozenset())


def _shaped(a: Any, b: Any, *, asked: Asked) -> Any:
    for value in (a, b):
        if any(value.sharding.spec):
            raise ValueError(
                f"an operand is sharded as {value.sharding.spec} in its type; convolve the parts "
                "within jax.shard_map"
            )
    problem = asked.problem(a.shape, b.shape)
    reference.check(asked, problem, a.dtype.name)
    dtype = jax.numpy.dtype(asked.out_dtype)
    return a.update(shape=asked.result(problem), dtype=dtype, weak_type=False)


def _transposed(operand: int, cotangent: Any, a: Any, b: Any, *, asked: Asked) -> Any:
    """The cotangent of one operand, which is linear; the other one has a value."""
    wanted = (a, b)[operand].aval
    first, second, result = asked.roles
    known = {first: a, second: b, result: cotangent.astype(wanted.dtype)}
    asks = asked.making((first, second)[operand], wanted.shape, wanted.dtype.name)
    a, b = (known[role] for role in asks.roles[:2])
    return convolve(a, b, asks)


def _on_cpu(context: Any, a: Any, b: Any, *, asked: Asked) -> Any:
    if asked.plain:
        compute = partial(reference.direct, asked, context.avals_out[0])
        lower: Any = mlir.lower_fun(compute, multiple_results=False)
        return lower(context, a, b)
    question = reference.resolved(_question(context, asked))
    return _called(_host_target(), context, a, b, question)


def _on_cuda(context: Any, a: Any, b: Any, *, asked: Asked) -> Any:
    from winolab.jax import kernels

    question = _question(context, asked)
    kernels.check(question)
    return _called(_cuda_target(), context, a, b, question)


@cache
def _host_target() -> str:
    return ffi.register("winolab_conv_host", "cpu", reference.run)


@cache
def _cuda_target() -> str:
    from winolab.jax import kernels

    return ffi.register("winolab_conv_cuda", "CUDA", kernels.run)


def _question(context: Any, asked: Asked) -> Question:
    shapes = (*(v.shape for v in context.avals_in), context.avals_out[0].shape)
    return Question(asked, shapes, context.avals_in[0].dtype.name)


def _called(target: str, context: Any, a: Any, b: Any, question: Question) -> Any:
    """A call of a handler, every array in the order of its axes."""
    return jax.ffi.ffi_lowering(target)(context, a, b, asked=question.text())


def _register(primitive: Any) -> None:
    primitive.def_impl(jax.jit(primitive.bind, static_argnames="asked"))
    primitive.def_abstract_eval(_shaped)
    ad.defbilinear(primitive, partial(_transposed, 0), partial(_transposed, 1))
    batching.primitive_batchers[primitive] = partial(batched, convolve)
    mlir.register_lowering(primitive, _on_cpu, platform="cpu")
    mlir.register_lowering(primitive, _on_cuda, platform="cuda")


for _primitive in PRIMITIVES.values():
    _register(_primitive)
