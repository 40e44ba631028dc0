"""Where arrays may lie that kernels read and write in place: gaps, other orders of the axes, odd
strides of a dimension's only element, inputs whose elements stand for several."""

from __future__ import annotations

from random import Random
from typing import Any

from winolab.gpu.params import VECTOR
from winolab.gpu.planner.request import DTYPES, ITEMSIZE
from winolab.gpu.runtime.array_layout import MAX_STRIDE, UNIT, ArrayLayout
from winolab.problem import shapes

FAR = 1 << 33  # elements, behind which nothing lies
Place = tuple[ArrayLayout, int]  # how an array lies, and its first element behind an aligned one


def drawn(
    shape: tuple[int, ...], size: int, rng: Random, *, aligned: bool, free: bool = False,
    rows: bool = False, order: str = "nhwc", read: bool = True, far: int = FAR,
    neighbours: int = -1,
) -> Place:  # fmt: skip
    """A channels-last array of elements of ``size`` bytes. ``free``: every stride may be anything;
    else channels are contiguous, of the order "nchw" columns. With ``rows`` gaps lie between
    channels alone. What is not ``read`` is written, each element once. ``aligned``: for vectors, as
    ArrayLayout says. ``far``: the most that outer dimensions of one element step, but the one of
    ``neighbours``, as plans have it."""
    vector, unit = VECTOR // size, range(len(shape))[UNIT[order]]
    outer = [axis for axis in range(len(shape)) if free or axis != unit]
    if not rows and (order != "nhwc" or rng.random() < 0.3):
        rng.shuffle(outer)
    strides, step = [0] * len(shape), 1
    for axis in [*([] if free else [unit]), *outer[::-1]]:
        strides[axis] = step
        step *= shape[axis] + (rng.choice([0, 0, 1, 2]) if axis == unit or not rows else 0)
        if axis == unit and aligned:
            step += -step % vector + rng.choice([0, 0, vector])
    for axis, n in enumerate(shape):
        if n == 1 and rng.random() < 0.7:
            near = axis in (len(shape) + neighbours - 1, *range(len(shape))[-2:])
            most = MAX_STRIDE if near else far
            strides[axis] = rng.choice([0, 1, 3, vector, rng.randint(0, 5000), most])
        elif n > 1 and read and not rows and (free or axis != unit) and rng.random() < 0.08:
            strides[axis] = rng.choice([0, 0, vector])
    first = vector * rng.choice([0, 0, 1]) if aligned else rng.randint(0, vector - 1)
    found = ArrayLayout(shape, tuple(strides), first % vector == 0, order)
    assert free or (found.direct and (found.aligned(size) or not aligned))
    assert read or found.distinct
    assert found.regular or not rows
    return found, first


def of_plan(p: Any, rng: Random, *, aligned: bool) -> tuple[Place, Place, Place]:
    """Where a plan's two operands and its result may lie; ``aligned``: as it was requested."""
    gradient, order, rows = p.direction == "backward_filter", p.config.memory_order, p.regular_rows
    size, out_size = ITEMSIZE[DTYPES[p.precision]], ITEMSIZE[p.out_dtype]
    first, second, out = shapes(p.direction, p.problem)
    far = MAX_STRIDE if gradient else FAR  # ArrayLayout.steps_fit
    near = {"rows": rows, "neighbours": p.neighbours}
    a = drawn(first, size, rng, aligned=aligned, order=order, far=far, **near)
    if gradient:
        b = drawn(second, size, rng, aligned=aligned, order=order, far=far, **near)
        return a, b, drawn(out, out_size, rng, aligned=aligned, read=False, **near)
    whole = p.reads_filters_in_place
    b = drawn(second, size, rng, aligned=whole, free=not whole, rows=rows)
    return a, b, drawn(out, out_size, rng, aligned=aligned, order=order, read=False, **near)
