"""Networks that mix kinds of convolution: Inception-v3, DenseNet-121, ConvNeXt-T, EfficientNet-B0.

As torchvision builds them, in fewer words, without what no call reaches (auxiliary classifiers);
their convolutions are those of winolab/bench/networks.json, which a test compares.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Branches(nn.Module):
    """What each branch makes of the same input, one behind the other in channels."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], 1)


def _unit(a: int, b: int, taps: int | tuple[int, int], stride: int = 1, valid: bool = False):
    sizes = (taps, taps) if isinstance(taps, int) else taps
    padding = 0 if valid else (sizes[0] // 2, sizes[1] // 2)
    layer = nn.Conv2d(a, b, sizes, stride, padding, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(b, eps=0.001), nn.ReLU())


def _chain(a: int, *steps: tuple) -> nn.Sequential:
    """Units one behind the other: (channels, taps[, stride, valid])."""
    units = []
    for b, *how in steps:
        units.append(_unit(a, b, *how))
        a = b
    return nn.Sequential(*units)


def _pooled(a: int, b: int) -> nn.Sequential:
    return nn.Sequential(nn.AvgPool2d(3, 1, 1), _unit(a, b, 1))


def inception_v3(classes: int = 1000) -> nn.Sequential:
    """Inception-v3 for images of 299²."""
    stem = _chain(3, (32, 3, 2, True), (32, 3, 1, True), (64, 3))
    middle = _chain(64, (80, 1), (192, 3, 1, True))
    layers: list[nn.Module] = [stem, nn.MaxPool2d(3, 2), middle, nn.MaxPool2d(3, 2)]
    for a, pool in ((192, 32), (256, 64), (288, 64)):
        deep = _chain(a, (64, 1), (96, 3), (96, 3))
        wide = _chain(a, (48, 1), (64, 5))
        layers.append(Branches(_unit(a, 64, 1), wide, deep, _pooled(a, pool)))
    layers.append(
        Branches(
            _unit(288, 384, 3, 2, True),
            _chain(288, (64, 1), (96, 3), (96, 3, 2, True)),
            nn.MaxPool2d(3, 2),
        )
    )
    row, column = (1, 7), (7, 1)
    for c in (128, 160, 160, 192):
        short = _chain(768, (c, 1), (c, row), (192, column))
        long = _chain(768, (c, 1), (c, column), (c, row), (c, column), (192, row))
        layers.append(Branches(_unit(768, 192, 1), short, long, _pooled(768, 192)))
    layers.append(
        Branches(
            _chain(768, (192, 1), (320, 3, 2, True)),
            _chain(768, (192, 1), (192, row), (192, column), (192, 3, 2, True)),
            nn.MaxPool2d(3, 2),
        )
    )
    for a in (1280, 2048):
        both = [Branches(_unit(384, 384, (1, 3)), _unit(384, 384, (3, 1))) for _ in range(2)]
        layers.append(
            Branches(
                _unit(a, 320, 1),
                nn.Sequential(_unit(a, 384, 1), both[0]),
                nn.Sequential(_unit(a, 448, 1), _unit(448, 384, 3), both[1]),
                _pooled(a, 192),
            )
        )
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Dropout(), nn.Flatten(), nn.Linear(2048, classes)
    )


class _Dense(nn.Module):
    def __init__(self, a: int, growth: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.BatchNorm2d(a), nn.ReLU(), nn.Conv2d(a, 4 * growth, 1, bias=False),
            nn.BatchNorm2d(4 * growth), nn.ReLU(),
            nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.body(x)], 1)


def densenet121(
    classes: int = 1000, counts: Sequence[int] = (6, 12, 24, 16), growth: int = 32
) -> nn.Sequential:
    """DenseNet-121."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
    ]  # fmt: skip
    channels = 64
    for stage, count in enumerate(counts):
        for _ in range(count):
            layers.append(_Dense(channels, growth))
            channels += growth
        layers += [nn.BatchNorm2d(channels), nn.ReLU()]
        if stage < len(counts) - 1:
            layers += [nn.Conv2d(channels, channels // 2, 1, bias=False), nn.AvgPool2d(2)]
            channels //= 2
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)
    )


class _Last(nn.Module):
    """A module of tensors whose channels are last, for others."""

    def __init__(self, *modules: nn.Module) -> None:
        super().__init__()
        self.inner = nn.Sequential(*modules)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class _Added(nn.Module):
    def __init__(self, *modules: nn.Module) -> None:
        super().__init__()
        self.body = nn.Sequential(*modules)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


class _Scaled(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((channels, 1, 1), 1e-6))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


def convnext_tiny(classes: int = 1000) -> nn.Sequential:
    """ConvNeXt-T: depthwise 7×7 layers between linear ones."""
    layers: list[nn.Module] = []
    before = 3
    for count, c in zip((3, 3, 9, 3), (96, 192, 384, 768), strict=True):
        if before == 3:
            layers += [nn.Conv2d(3, c, 4, 4), _Last(nn.LayerNorm(c, eps=1e-6))]
        else:
            layers += [_Last(nn.LayerNorm(before, eps=1e-6)), nn.Conv2d(before, c, 2, 2)]
        for _ in range(count):
            wide = _Last(
                nn.LayerNorm(c, eps=1e-6), nn.Linear(c, 4 * c), nn.GELU(), nn.Linear(4 * c, c)
            )
            depthwise = nn.Conv2d(c, c, 7, padding=3, groups=c)
            layers.append(_Added(depthwise, wide, _Scaled(c)))
        before = c
    end = _Last(nn.LayerNorm(before, eps=1e-6))
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), end, nn.Flatten(), nn.Linear(before, classes)
    )


class _Squeezed(nn.Module):
    """Channels weighed by what two 1×1 layers make of their means."""

    def __init__(self, channels: int, narrow: int) -> None:
        super().__init__()
        self.weigh = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, narrow, 1), nn.SiLU(),
            nn.Conv2d(narrow, channels, 1), nn.Sigmoid(),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weigh(x)


def _mobile(a: int, b: int, taps: int, stride: int, widen: int) -> nn.Module:
    inner = a * widen

    def unit(a: int, b: int, taps: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
        layer = nn.Conv2d(a, b, taps, stride, taps // 2, groups=groups, bias=False)
        return [layer, nn.BatchNorm2d(b)]

    layers = [*unit(a, inner, 1), nn.SiLU()] if widen > 1 else []
    layers += [*unit(inner, inner, taps, stride, inner), nn.SiLU(), _Squeezed(inner, a // 4)]
    layers += unit(inner, b, 1)
    return _Added(*layers) if (a, stride) == (b, 1) else nn.Sequential(*layers)


def efficientnet_b0(classes: int = 1000) -> nn.Sequential:
    """EfficientNet-B0: inverted residuals with depthwise 3×3 and 5×5 layers."""
    stages = (  # widening, taps, stride, channels, blocks
        *((1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3)),
        *((6, 5, 1, 112, 3), (6, 5, 2, 192, 4), (6, 3, 1, 320, 1)),
    )
    layers: list[nn.Module] = [
        nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.SiLU(),
    ]  # fmt: skip
    a = 32
    for widen, taps, stride, b, count in stages:
        for block in range(count):
            layers.append(_mobile(a, b, taps, stride if not block else 1, widen))
            a = b
    layers += [nn.Conv2d(a, 1280, 1, bias=False), nn.BatchNorm2d(1280), nn.SiLU()]
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(1280, classes)
    )
