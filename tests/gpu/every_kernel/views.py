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
    neighbours: int = -1, side: bool = False,
) -> Place:  # fmt: skip
    """A channels-last array of elements of ``size`` bytes. ``free``: every stride may be anything;
    else channels are contiguous, of the order "nchw" columns. With ``rows`` gaps lie between
    channels alone. What is not ``read`` is written, each element once. ``aligned``: for vectors, as
    ArrayLayout says. ``far``: the most that outer dimensions of one element step, but the one of
    ``neighbours``, as plans have it. ``side``: the pixels of a row lie side by side, and rows alone
    are aligned."""
    vector, unit = VECTOR // size, range(len(shape))[UNIT[order]]
    outer = [axis for axis in range(len(shape)) if free or axis != unit]
    if not rows and (order != "nhwc" or rng.random() < 0.3):
        rng.shuffle(outer)
    strides, step, last = [0] * len(shape), 1, unit
    if side:  # behind channels come pixels
        last = len(shape) - 2
        outer = [axis for axis in outer if axis not in (unit, last)] + [last]
        free = False
    for axis in [*([] if free else [unit]), *outer[::-1]]:
        strides[axis] = step
        gaps = not (side and axis == unit) and (axis == last or not rows)
        step *= shape[axis] + (rng.choice([0, 0, 1, 2]) if gaps else 0)
        if axis == last and aligned:
            step += -step % vector + rng.choice([0, 0, vector])
    for axis, n in enumerate(shape):
        if side and axis == last:
            continue
        if n == 1 and rng.random() < 0.7:
            near = axis in (len(shape) + neighbours - 1, *range(len(shape))[-2:])
            most = MAX_STRIDE if near else far
            strides[axis] = rng.choice([0, 1, 3, vector, rng.randint(0, 5000), most])
        elif n > 1 and read and not rows and (free or axis != unit) and rng.random() < 0.08:
            strides[axis] = rng.choice([0, 0, vector])
    first = vector * rng.choice([0, 0, 1]) if aligned else rng.randint(0, vector - 1)
    found = ArrayLayout(shape, tuple(strides), first % vector == 0, order)
    assert found.side_by_side or not side
    assert free or (found.direct and (side or found.aligned(size) or not aligned))
    assert read or found.distinct
    assert found.regular or not rows
    return found, first


def of_plan(
    p: Any, rng: Random, *, aligned: bool, side: bool | None = None, ends: bool | None = None
) -> tuple[Place, Place, Place]:
    """Where a plan's two operands and its result may lie. ``aligned``: as it was requested, of x's
    rows where the plan ``merges_pixels`` ``side``, of y ``ends`` (None: as ``aligned``)."""
    gradient, order, rows = p.direction == "backward_filter", p.config.memory_order, p.regular_rows
    size, out_size = ITEMSIZE[DTYPES[p.precision]], ITEMSIZE[p.out_dtype]
    first, second, out = shapes(p.direction, p.problem)
    far = MAX_STRIDE if gradient else FAR  # ArrayLayout.steps_fit
    merges = p.merges_pixels
    of_x = {"aligned": aligned if side is None or not merges else side, "side": merges}
    of_y = {"aligned": aligned if ends is None else ends}
    near = {"rows": rows, "neighbours": p.neighbours}
    if gradient:
        a = drawn(first, size, rng, order=order, far=far, **near, **of_x)
        b = drawn(second, size, rng, order=order, far=far, **near, **of_y)
        at_vectors = merges and ArrayLayout.fresh(out).aligned_rows(out_size)
        of_w = {"aligned": aligned or at_vectors, "side": merges}
        return a, b, drawn(out, out_size, rng, read=False, **near, **of_w)
    of_a, of_out = (of_x, of_y) if p.direction == "forward" else (of_y, of_x)
    a = drawn(first, size, rng, order=order, far=far, **near, **of_a)
    whole = p.reads_filters_in_place
    if merges and whole and second[-1] * size % VECTOR:
        b = ArrayLayout.fresh(second), 0  # taps side by side are no vectors
    else:
        b = drawn(second, size, rng, aligned=whole, free=not whole, rows=rows, side=merges)
    return a, b, drawn(out, out_size, rng, order=order, read=False, **near, **of_out)
