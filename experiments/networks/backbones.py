"""ResNets and VGGs, as benchmarks run them and as Im2col-Winograd's authors trained them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

Activation = Callable[[], nn.Module]
# Blocks a stage, and whether they are bottlenecks.
RESNETS = {18: ((2, 2, 2, 2), False), 34: ((3, 4, 6, 3), False), 50: ((3, 4, 6, 3), True)}
# Convolutions of each stage; a pooling layer halves the map behind every stage.
VGGS = {16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
WIDTHS = (64, 128, 256, 512, 512)
SMALL = 64  # pixels: up to here images keep their size through the first layer


def conv(a: int, b: int, taps: int, stride: int = 1) -> nn.Sequential:
    """A convolution without bias that keeps the map's size, and its normalization."""
    return nn.Sequential(
        nn.Conv2d(a, b, taps, stride, padding=taps // 2, bias=False), nn.BatchNorm2d(b)
    )


class Residual(nn.Module):
    """A block of a ResNet: two 3×3 layers, or a bottleneck of 1×1, 3×3 and 1×1."""

    def __init__(self, a: int, b: int, stride: int, narrow: bool, activation: Activation) -> None:
        super().__init__()
        if narrow:
            inner = b // 4
            steps = [conv(a, inner, 1), conv(inner, inner, 3, stride), conv(inner, b, 1)]
        else:
            steps = [conv(a, b, 3, stride), conv(b, b, 3)]
        layers = [layer for step in steps for layer in (step, activation())]
        self.body = nn.Sequential(*layers[:-1])
        self.skip = nn.Identity() if (a, stride) == (b, 1) else conv(a, b, 1, stride)
        self.activation = activation()

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(self.body(x) + self.skip(x))


def resnet(
    depth: int, size: int = 224, classes: int = 1000, activation: Activation = nn.ReLU
) -> nn.Sequential:
    """A ResNet of 18, 34 or 50 layers for images of that size; small ones meet a 3×3 layer first,
    others 7×7 of stride 2 and a pooling layer."""
    counts, narrow = RESNETS[depth]
    if size <= SMALL:
        layers: list[nn.Module] = [conv(3, 64, 3), activation()]
    else:
        layers = [conv(3, 64, 7, 2), activation(), nn.MaxPool2d(3, 2, padding=1)]
    channels = 64
    for stage, count in enumerate(counts):
        width = (256 if narrow else 64) << stage
        for block in range(count):
            stride = 2 if stage and not block else 1
            layers.append(Residual(channels, width, stride, narrow, activation))
            channels = width
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)]
    return nn.Sequential(*layers, *head)


def vgg(
    depth: int,
    size: int = 224,
    classes: int = 1000,
    activation: Activation = nn.ReLU,
    *,
    taps: Callable[[int], int] = lambda layer: 3,
    normalized: bool = False,
    hidden: tuple[int, ...] = (4096, 4096),
) -> nn.Sequential:
    """A VGG of 16 or 19 layers; ``taps`` of the i-th convolution from 0; ``normalized``: behind the
    last convolution of every stage. ``hidden``: layers between the last map and the classes."""
    layers: list[nn.Module] = []
    channels, index = 3, 0
    for count, width in zip(VGGS[depth], WIDTHS, strict=True):
        for place in range(count):
            r = taps(index)
            layers.append(nn.Conv2d(channels, width, r, padding=r // 2))
            if normalized and place == count - 1:
                layers.append(nn.BatchNorm2d(width))
            layers.append(activation())
            channels, index = width, index + 1
        layers.append(nn.MaxPool2d(2))
    sizes = [channels * (size // 32) ** 2, *hidden, classes]
    layers.append(nn.Flatten())
    for a, b in itertools.pairwise(sizes):
        layers += [nn.Linear(a, b), activation()]
    return nn.Sequential(*layers[:-1])


def small(
    classes: int = 10, activation: Activation = nn.LeakyReLU, width: int = 16
) -> nn.Sequential:
    """Four 3×3 layers of ``width`` and twice as many channels, which a processor trains."""
    widths = (3, width, width, 2 * width, 2 * width)
    layers: list[nn.Module] = []
    for i, (a, b) in enumerate(itertools.pairwise(widths)):
        layers += [conv(a, b, 3), activation(), *([nn.MaxPool2d(2)] if i % 2 else [])]
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * width, classes)
    )


def kaiming(modules: Iterable[nn.Module]) -> None:
    """Weights of convolutions and linear layers by Kaiming's uniform rule, biases zero."""
    for module in modules:
        if isinstance(module, nn.modules.conv._ConvNd | nn.Linear):
            nn.init.kaiming_uniform_(module.weight, nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)


def trained(name: str, size: int, classes: int) -> nn.Sequential:
    """One of Im2col-Winograd's networks, section 6.3: LeakyReLU, five normalizations in a VGG,
    Kaiming-uniform weights; vgg16x5 has 5×5 filters, vgg16x7 7×7 in its first four layers. What the
    paper leaves open, how layers were fitted to images, is as ``resnet`` and here: VGGs have no
    hidden layer at 32², one of 4096 above. The seed is the caller's."""
    if name in ("small", "tiny"):
        model = small(classes, width={"small": 16, "tiny": 8}[name])
    elif name.startswith("resnet"):
        model = resnet(int(name.removeprefix("resnet")), size, classes, nn.LeakyReLU)
    else:
        depth, _, wide = name.removeprefix("vgg").partition("x")
        ways = {"": lambda i: 3, "5": lambda i: 5, "7": lambda i: 7 if i < 4 else 3}
        model = vgg(
            int(depth),
            size,
            classes,
            nn.LeakyReLU,
            taps=ways[wide],
            normalized=True,
            hidden=() if size <= SMALL else (4096,),
        )
    kaiming(model.modules())
    return model


NAMES = (
    *("resnet18", "resnet34", "resnet50", "vgg16", "vgg19", "vgg16x5", "vgg16x7"),
    *("small", "tiny"),
)


def parameters(model: nn.Module) -> int:
    """How many numbers are learned."""
    return sum(p.numel() for p in model.parameters())


def meta(build: Callable[[], nn.Module]) -> nn.Module:
    """The network without numbers."""
    with torch.device("meta"):
        return build()


def calibrate(model: nn.Module, x: Tensor) -> None:
    """Normalizations' statistics as these images have them: with those of a new network what
    reaches the last layer is nothing beside its bias."""
    norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    before = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 1.0
    with torch.no_grad():
        model.train()(x)
    for norm, momentum in zip(norms, before, strict=True):
        norm.momentum = momentum
