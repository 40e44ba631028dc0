"""Host time of ways to make an operator: ``python -m experiments.measure.ways.operator_cost``.

Each way calls the same function, which makes an empty tensor, with and without a tensor that
requires grad; a line has the least mean of ROUNDS series of CALLS calls, one way after the other,
in microseconds. The last ways are winolab.torch.conv2d whose kernel makes an empty tensor, so that
the host's part is what is left, and PyTorch's conv2d of as small tensors on the CPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import typer
from torch import Tensor
from torch.autograd import Function

import winolab.torch
from winolab.torch import operators

CALLS, ROUNDS = 300, 60
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


def without_kernel(direction: str, a: Tensor, b: Tensor, *arguments: Any) -> Tensor:
    """In the place of what computes on the CPU: an empty tensor, once the question is known."""
    operators.asked_by(direction, arguments)
    kind = a.dtype
    if direction == "backward_filter":
        return torch.empty_strided((8, 8, 3, 3), (72, 9, 3, 1), dtype=kind)
    return torch.empty_strided((1, 8, 8, 8), (512, 64, 8, 1), dtype=kind)


def calls() -> dict[tuple[str, bool], Callable[[], Any]]:
    """Every way, without and with a tensor that requires grad."""
    found: dict[tuple[str, bool], Callable[[], Any]] = {}
    known = ways()
    for grad in (False, True):
        x, w = (torch.zeros(2, 3, requires_grad=grad) for _ in range(2))
        for name, call in known.items():
            found[name, grad] = partial(call, x, w, *ARGUMENTS)
        x, w = torch.zeros(1, 8, 8, 8), torch.zeros(8, 8, 3, 3, requires_grad=grad)
        for whose in (winolab.torch, torch.nn.functional):
            name = f"{whose.__name__}.conv2d"
            found[name, grad] = partial(whose.conv2d, x, w, padding=1)
            found[name + ", autocast", grad] = partial(autocast, whose.conv2d, x, w)
            if grad:
                found[name + ", gradients", grad] = partial(both, whose.conv2d, x, w)
    return found


def autocast(conv: Callable[..., Tensor], x: Tensor, w: Tensor) -> Any:
    """A call under autocast."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return conv(x, w, padding=1)


def both(conv: Callable[..., Tensor], x: Tensor, w: Tensor) -> Any:
    """A call and its two gradients."""
    x = x.detach().requires_grad_()
    y = conv(x, w, padding=1)
    return torch.autograd.grad(y, (x, w), y.detach())


def costs(calls: dict[Any, Callable[[], Any]]) -> dict[Any, float]:
    """Seconds of a call."""
    least = dict.fromkeys(calls, float("inf"))
    for _ in range(ROUNDS):
        for name, call in calls.items():
            started = time.perf_counter()
            for _ in range(CALLS):
                call()
            least[name] = min(least[name], (time.perf_counter() - started) / CALLS)
    return least


def main() -> None:
    """Print what each way costs the host."""
    operators._on_cpu = without_kernel
    for direction in operators.DIRECTIONS:  # as the dispatcher calls it
        operators.LIBRARY.impl(
            f"conv_{direction}", partial(without_kernel, direction), "CPU", allow_override=True
        )
    for (name, grad), seconds in costs(calls()).items():
        shown = "requires grad" if grad else ""
        print(f"{name:45} {shown:14} {seconds * 1e6:5.1f} µs")


if __name__ == "__main__":
    typer.run(main)
