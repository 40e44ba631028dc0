"""The rule of vmap: a batch of convolutions is one, with more images, channels or groups.

What it becomes more of follows from which of x, w and y have the batch, among them always the
result: x and y more images, w and y more outputs of each group, x and w more inputs of each
group, all three more groups.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax.numpy as jnp

from winolab.jax.asked import Asked

# The place of the axis in channels-last order, and whether its channels are cut into groups.
FOLDED = {
    frozenset("xy"): {"x": (0, False), "y": (0, False)},
    frozenset("wy"): {"w": (0, True), "y": (-1, True)},
    frozenset("xw"): {"x": (-1, True), "w": (-1, False)},
    frozenset("xwy"): {"x": (-1, False), "w": (0, False), "y": (-1, False)},
}


def batched(convolve: Callable[..., Any], arrays: Any, dims: Any, *, asked: Asked) -> Any:
    """The result of operands of which ``dims`` are the axes of a batch, and where it has them."""
    *operands, result = asked.roles
    given = dict(zip(operands, zip(arrays, dims, strict=True), strict=True))
    count = next(v.shape[d] for v, d in given.values() if d is not None)
    folded = FOLDED[frozenset([result, *(r for r, (_, dim) in given.items() if dim is not None)])]
    groups, shape = asked.groups, asked.result_shape
    if len(folded) == 3:
        groups *= count
    if shape:
        sizes, (at, _) = list(shape), folded[result]
        sizes[at] *= count
        shape = tuple(sizes)

    def place(role: str) -> tuple[int, int]:
        """The axis of a role's array as it lies, and into how many groups it is cut."""
        at, cut = folded[role]
        return asked.axes(role)[at], asked.groups if cut else 1

    wide = [
        v if dim is None else _into(jnp.moveaxis(v, dim, 0), *place(role))
        for role, (v, dim) in given.items()
    ]
    made = convolve(*wide, replace(asked, groups=groups, result_shape=shape))
    return _out_of(made, *place(result), count), 0


def _into(batch: Any, axis: int, groups: int) -> Any:
    """(B, …, groups · C, …) as (…, groups · B · C, …); of one group, the batch comes first."""
    shape = batch.shape[1:]
    cut = batch.reshape(len(batch), *shape[:axis], groups, -1, *shape[axis + 1 :])
    return jnp.moveaxis(cut, 0, axis + 1).reshape(*shape[:axis], -1, *shape[axis + 1 :])


def _out_of(result: Any, axis: int, groups: int, count: int) -> Any:
    """(…, groups · B · C, …) as (B, …, groups · C, …): the inverse of ``_into``."""
    before, behind = result.shape[:axis], result.shape[axis + 1 :]
    cut = result.reshape(*before, groups, count, -1, *behind)
    return jnp.moveaxis(cut, axis + 1, 0).reshape(count, *before, -1, *behind)
