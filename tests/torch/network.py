"""Random tensors, and small networks."""

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


class Bottleneck(torch.nn.Module):
    """1×1, 3×3 with the stride, and 1×1 of four times as many channels, beside a shortcut."""

    def __init__(self, a: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = torch.nn.Conv2d(a, width, 1, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(width)
        self.conv2 = torch.nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = torch.nn.BatchNorm2d(width)
        self.conv3 = torch.nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = torch.nn.BatchNorm2d(4 * width)
        self.relu = torch.nn.ReLU(inplace=True)
        self.shortcut: torch.nn.Module = torch.nn.Identity()
        if (a, stride) != (4 * width, 1):
            self.shortcut = torch.nn.Sequential(
                torch.nn.Conv2d(a, 4 * width, 1, stride, bias=False),
                torch.nn.BatchNorm2d(4 * width),
            )

    def forward(self, x: Any) -> Any:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        y += self.shortcut(x)
        return self.relu(y)


def bottlenecks() -> torch.nn.Sequential:
    """The stem, a stage of two blocks and one of stride 2, and ten classes."""
    stem = (
        torch.nn.Conv2d(3, 8, 7, 2, padding=3, bias=False),
        torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(inplace=True),
    )
    blocks = Bottleneck(8, 4, 1), Bottleneck(16, 4, 1), Bottleneck(16, 8, 2)
    head = torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(32, 10)
    return torch.nn.Sequential(*stem, torch.nn.MaxPool2d(3, 2, padding=1), *blocks, *head)
