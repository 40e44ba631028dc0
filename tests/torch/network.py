"""Random tensors, and a small network."""

from __future__ import annotations

from typing import Any

import torch

import winolab.torch


def tensors(*shapes: tuple[int, ...], dtype: Any = torch.float64) -> list[Any]:
    generator = torch.Generator().manual_seed(3)
    return [torch.rand(s, generator=generator, dtype=dtype) - 0.5 for s in shapes]


class Net(torch.nn.Module):
    """Three convolutions: padded, transformed, transposed; and a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.algorithm: str | None = "winograd:2x2:3x3"
        w, v, u, b = tensors((8, 3, 3, 3), (8, 8, 3, 3), (8, 4, 3, 3), (8,), dtype=torch.float32)
        self.w, self.v, self.u, self.b = (torch.nn.Parameter(p) for p in (w, v, u, b))

    def forward(self, x: Any) -> Any:
        y = winolab.torch.conv2d(x, self.w, self.b, padding="same").relu()
        y = winolab.torch.conv2d(y, self.v, padding=1, algorithm=self.algorithm)
        return winolab.torch.conv_transpose2d(y, self.u, stride=2, output_padding=1)

    def gradients(self, model: Any, x: Any) -> list[Any]:
        """The result and the parameters' gradients."""
        self.zero_grad()
        y = model(x)
        y.square().sum().backward()
        return [y.detach(), *(p.grad for p in self.parameters())]
