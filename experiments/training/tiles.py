"""Convolutions by a tile forward and for data, and another for filter gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from winolab.algorithm import parse_algorithm
from winolab.torch import operators

OWN = "own"  # in place of an algorithm: what winolab picks
THIN = 4  # input channels, with fewer of which no tile is named: a network's first layer


class ByTiles(torch.autograd.Function):
    """The three directions, each by the algorithm that is named for it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, geometry: Any, how: Any) -> Tensor:
        ctx.save_for_backward(x, w)
        ctx.geometry, ctx.how = geometry, how
        algorithm, _, precision = how
        return operators.forward(x, w, *geometry, algorithm, precision)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, w = ctx.saved_tensors
        algorithm, gradients, precision = ctx.how
        dx = dw = None
        if ctx.needs_input_grad[0]:
            dx = operators.backward_data(dy, w, x.shape, *ctx.geometry, algorithm, precision)
        if ctx.needs_input_grad[1]:
            named = fitting(gradients, dy.shape[-1])
            n = parse_algorithm(named).tiles[-1].n if ":" in named else 1
            if max(ctx.geometry[0]) > 1 or w.shape[-1] % n or w.shape[1] < THIN:
                named = None
            dw = operators.backward_filter(x, dy, w.shape, *ctx.geometry, named, precision)
        return dx, dw, None, None


def fitting(algorithms: str, width: int) -> str:
    """The first of the algorithms, with commas, whose tile is no wider than dy; the last at least.

    >>> fitting("omega:16:3:14,omega:8:3:6", 8)
    'omega:8:3:6'
    """
    names = algorithms.split(",")
    wide = (name for name in names[:-1] if parse_algorithm(name).tiles[-1].r <= width)
    return next(wide, names[-1])


class Tiled(nn.Conv2d):
    """A Conv2d without bias and groups whose ``how`` is the algorithm, those of filter gradients,
    the first that fits, and the arithmetic. Filter gradients of strides and of thin layers are what
    winolab picks. Under autocast both operands have its type."""

    how: tuple[str | None, str, str | None]

    def forward(self, input: Tensor) -> Tensor:
        padding = [int(p) for p in self.padding for _ in range(2)]
        geometry = (list(self.stride), padding, list(self.dilation), self.groups)
        weight, device = self.weight, input.device.type
        if torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
            input, weight = input.to(dtype), weight.to(dtype)
        return ByTiles.apply(input, weight, geometry, self.how)  # pyright: ignore[reportReturnType]


def tiled(model: nn.Module, algorithm: str, gradients: str, precision: str | None) -> None:
    """Let a network's convolutions be computed so, in place."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            assert module.bias is None
            layer: Any = module
            layer.__class__ = Tiled
            layer.how = None if algorithm == OWN else algorithm, gradients, precision
