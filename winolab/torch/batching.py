"""torch.vmap's rules: a batch of convolutions is one, with more images, channels or groups."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def register(library: torch.library.Library, direction: str, operator: Any) -> None:
    """The operator's rule."""
    rule = RULES[direction]

    def batched(info: Any, dims: tuple[Any, ...], a: Tensor, b: Tensor, *arguments: Any) -> Any:
        first, second = (
            None if dim is None else v.movedim(dim, 0) for v, dim in zip((a, b), dims, strict=False)
        )
        return rule(operator, info.batch_size, first, second, a, b, list(arguments))

    torch.library.register_vmap(f"winolab::conv_{direction}", batched, lib=library)


def _forward(
    conv: Any, count: int, xs: Any, ws: Any, x: Tensor, w: Tensor, rest: list
) -> tuple[Tensor, int]:
    """y of a batch of x, of w or of both, whose batch comes first; None is no batch."""
    if ws is None:
        return conv(xs.flatten(0, 1), w, *rest).unflatten(0, (count, xs.shape[1])), 0
    if xs is None:  # more output channels in each group
        groups = rest[3]
        y = conv(x, _into_groups(ws, 0, groups), *rest)
        return _out_of_groups(y, 1, groups, count), 0
    rest[3] *= count
    y = conv(xs.movedim(0, 1).flatten(1, 2), ws.flatten(0, 1), *rest)
    return y.unflatten(1, (count, ws.shape[1])), 1


def _backward_data(
    conv: Any, count: int, ys: Any, ws: Any, dy: Tensor, w: Tensor, rest: list
) -> tuple[Tensor, int]:
    """dx of a batch of dy, of w or of both, whose batch comes first."""
    shape, groups = list(rest[0]), rest[4]
    batch, channels = shape[:2]
    if ws is None:
        rest[0] = [count * batch, *shape[1:]]
        return conv(ys.flatten(0, 1), w, *rest).unflatten(0, (count, batch)), 0
    rest[0] = [batch, count * channels, *shape[2:]]
    if ys is None:  # more input channels in each group
        dx = conv(dy, ws.movedim(0, 1).flatten(1, 2), *rest)
        return _out_of_groups(dx, 1, groups, count), 0
    rest[4] *= count
    dx = conv(ys.movedim(0, 1).flatten(1, 2), ws.flatten(0, 1), *rest)
    return dx.unflatten(1, (count, channels)), 1


def _backward_filter(
    conv: Any, count: int, xs: Any, ys: Any, x: Tensor, dy: Tensor, rest: list
) -> tuple[Tensor, int]:
    """dw of a batch of x, of dy or of both, whose batch comes first."""
    shape, groups = list(rest[0]), rest[4]
    outputs, inputs = shape[:2]
    if ys is None:  # more input channels in each group
        rest[0] = [outputs, count * inputs, *shape[2:]]
        dw = conv(_into_groups(xs, 1, groups), dy, *rest)
        return dw.unflatten(1, (count, inputs)), 1
    rest[0] = [count * outputs, *shape[1:]]
    if xs is None:  # more output channels in each group
        return _out_of_groups(conv(x, _into_groups(ys, 1, groups), *rest), 0, groups, count), 0
    rest[4] *= count
    dw = conv(*(v.movedim(0, 1).flatten(1, 2) for v in (xs, ys)), *rest)
    return dw.unflatten(0, (count, outputs)), 0


def _into_groups(batch: Tensor, axis: int, groups: int) -> Tensor:
    """(B, …, groups · C, …) as (…, groups · B · C, …): channels are on ``axis`` of an element."""
    cut = batch.unflatten(axis + 1, (groups, batch.shape[axis + 1] // groups))
    return cut.movedim(0, axis + 1).flatten(axis, axis + 2)


def _out_of_groups(result: Tensor, axis: int, groups: int, count: int) -> Tensor:
    """(…, groups · B · C, …) as (B, …, groups · C, …): the inverse of ``_into_groups``."""
    cut = result.unflatten(axis, (groups, count, result.shape[axis] // (groups * count)))
    return cut.movedim(axis + 1, 0).flatten(axis + 1, axis + 2)


RULES = {
    "forward": _forward,
    "backward_data": _backward_data,
    "backward_filter": _backward_filter,
}
