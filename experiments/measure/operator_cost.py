"""Host time of ways to make an operator: ``python -m experiments.measure.operator_cost``.

Each way calls the same function, which makes an empty tensor, with and without a tensor that
requires grad; a line has the least mean of ROUNDS series of CALLS calls, in microseconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

CALLS, ROUNDS = 3000, 7
ARGUMENTS: tuple[Any, ...] = ([1, 1], [0, 0, 0, 0], [1, 1], 1)
LIBRARY = torch.library.Library("winolab_cost", "DEF")
SCHEMA = "(Tensor x, Tensor w, int[] stride, int[] padding, int[] dilation, int groups) -> Tensor"
BELOW = torch._C._after_autograd_keyset


def plain(x: Tensor, w: Tensor, *rest: Any) -> Tensor:
    return torch.empty_strided((2, 3), (3, 1))


def _save(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(inputs[0], inputs[1])


class Above(Function):
    """A Function that calls an operator."""

    @staticmethod
    def forward(x: Tensor, w: Tensor, *rest: Any) -> Tensor:  # pyright: ignore
        return torch.ops.winolab_cost.bare.default(x, w, *rest)

    setup_context = staticmethod(_save)


class Inside(torch.autograd.function._SingleLevelFunction):
    """A Function that an operator's kernel calls."""

    @staticmethod
    def forward(ctx: Any, keyset: Any, x: Tensor, w: Tensor, *rest: Any) -> Tensor:  # pyright: ignore
        ctx.save_for_backward(x, w)
        return _below(keyset, x, w, *rest)


def _below(keyset: Any, *arguments: Any) -> Tensor:
    with torch._C._AutoDispatchBelowAutograd():
        return torch.ops.winolab_cost.tracked.default.redispatch(keyset & BELOW, *arguments)


def _tracked(keyset: Any, x: Tensor, w: Tensor, *rest: Any) -> Tensor:
    if torch._C._any_requires_grad(x, w):
        return Inside.apply(keyset, x, w, *rest)  # pyright: ignore
    return _below(keyset, x, w, *rest)


def ways() -> dict[str, Callable[..., Tensor]]:
    """The ways, by what they are."""
    for name in ("bare", "tracked"):
        LIBRARY.define(name + SCHEMA)
        LIBRARY.impl(name, plain, "CPU")
    LIBRARY.impl("tracked", _tracked, "Autograd", with_keyset=True)

    @torch.library.custom_op("winolab_cost::custom", mutates_args=())
    def custom(
        x: Tensor,
        w: Tensor,
        stride: list[int],
        padding: list[int],
        dilation: list[int],
        groups: int,
    ) -> Tensor:
        return plain(x, w)

    custom.register_autograd(lambda ctx, g: (g, g, *[None] * 4), setup_context=_save)
    return {
        "the function": plain,
        "Library operator": torch.ops.winolab_cost.bare.default,
        "Library operator with a kernel for autograd": torch.ops.winolab_cost.tracked.default,
        "Function that calls an operator": Above.apply,
        "custom_op with register_autograd": custom,
    }


def cost(call: Callable[..., Any], *arguments: Any) -> float:
    """Seconds of a call."""
    least = float("inf")
    for _ in range(ROUNDS):
        started = time.perf_counter()
        for _ in range(CALLS):
            call(*arguments)
        least = min(least, (time.perf_counter() - started) / CALLS)
    return least


def main() -> None:
    for name, call in ways().items():
        for grad in (False, True):
            x, w = (torch.zeros(2, 3, requires_grad=grad) for _ in range(2))
            shown = "requires grad" if grad else ""
            print(f"{name:45} {shown:14} {cost(call, x, w, *ARGUMENTS) * 1e6:5.1f} µs")


if __name__ == "__main__":
    main()
