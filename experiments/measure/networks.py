"""The convolutions of real networks, as data: winolab/bench/networks.json.

``python -m experiments.measure.networks`` writes it anew; it needs torchvision, whose networks
these are but for U-Nets, a video decoder and wav2vec's encoder, which stand here. Nothing is
computed: shapes are read from a call on PyTorch's meta device.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
import typer
from torch import Tensor, nn

from winolab.bench.networks import FILE, BatchedLayer

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
# torchvision's names, the image that each is made for
PICTURES = {
    "resnet18": 224,
    "resnet50": 224,
    "vgg16": 224,
    "inception_v3": 299,
    "densenet121": 224,
    "mobilenet_v3_large": 224,
    "efficientnet_b0": 224,
    "convnext_tiny": 224,
    "resnext50_32x4d": 224,
}


class UNet(nn.Module):
    """Two 3×3 convolutions a level, strided pooling down, transposed convolutions up."""

    def __init__(self, ndim: int, inputs: int, widths: Sequence[int], classes: int) -> None:
        super().__init__()
        conv: Any = CONVOLUTIONS[ndim - 1]
        up: Any = TRANSPOSED[ndim - 1]
        self.pool = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)[ndim - 1](2)

        def twice(a: int, b: int) -> nn.Module:
            return nn.Sequential(
                conv(a, b, 3, padding=1), nn.ReLU(), conv(b, b, 3, padding=1), nn.ReLU()
            )

        self.down = nn.ModuleList(
            twice(a, b) for a, b in zip((inputs, *widths), widths, strict=False)
        )
        pairs = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.ups = nn.ModuleList(up(a, b, 2, stride=2) for a, b in pairs)
        self.back = nn.ModuleList(twice(2 * b, b) for _, b in pairs)
        self.last = conv(widths[0], classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for level in self.down:
            x = level(self.pool(x) if kept else x)
            kept.append(x)
        for up, back, skip in zip(self.ups, self.back, kept[-2::-1], strict=True):
            x = back(torch.cat([skip, up(x)], 1))
        return self.last(x)


class VideoDecoder(nn.Module):
    """A video autoencoder's decoder as they are built now: causal 3×3×3 residual blocks, four
    levels of 384, 384, 192 and 96 channels, each a size larger; 16 latent channels."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [Causal(16, 384)]
        channels = 384
        for level, width in enumerate((384, 384, 192, 96)):
            for _ in range(3):
                layers.append(Block(channels, width))
                channels = width
            if level < 3:
                grow = (2, 2, 2) if level < 2 else (1, 2, 2)
                flat = nn.Conv3d(width, width, (1, 3, 3), padding=(0, 1, 1))
                layers += [nn.Upsample(scale_factor=grow), flat]
        self.all = nn.Sequential(*layers, Causal(channels, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.all(x)


class Causal(nn.Module):
    """3×3×3 whose frames see none that come later."""

    def __init__(self, a: int, b: int) -> None:
        super().__init__()
        self.conv = nn.Conv3d(a, b, 3, padding=(0, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(nn.functional.pad(x, (0, 0, 0, 0, 2, 0)))


class Block(nn.Module):
    def __init__(self, a: int, b: int) -> None:
        super().__init__()
        self.first, self.second = Causal(a, b), Causal(b, b)
        self.skip = nn.Identity() if a == b else nn.Conv3d(a, b, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.skip(x) + self.second(self.first(x).relu())


def wav2vec() -> nn.Module:
    """The feature encoder of wav2vec 2.0 and its positional convolution, ten seconds at 16 kHz."""
    taps = [(10, 5), *[(3, 2)] * 4, *[(2, 2)] * 2]
    convs = [nn.Conv1d(1 if i == 0 else 512, 512, r, stride=s) for i, (r, s) in enumerate(taps)]
    return nn.Sequential(
        *convs, nn.Conv1d(512, 768, 1), nn.Conv1d(768, 768, 128, padding=64, groups=16)
    )


def layers_of(build: Callable[[], nn.Module], shape: tuple[int, ...]) -> Counter[str]:
    """The texts of the convolutions of a network without batch, and how often each is called."""
    found: Counter[str] = Counter()

    def note(module: Any, arguments: tuple[Any, ...], y: Any) -> None:
        x = arguments[0]
        if isinstance(module, TRANSPOSED):  # its data's gradient is a convolution
            x, y = y, x
            channels, filters = module.out_channels, module.in_channels
        else:
            channels, filters = module.in_channels, module.out_channels
        of: Any = module
        layer = BatchedLayer(
            tuple(x.shape[2:]), channels, filters,
            of.kernel_size, of.stride, of.padding, of.dilation, of.groups,
        )  # fmt: skip
        found[str(layer)] += 1

    with torch.device("meta"):
        model = build().eval()
        for module in model.modules():
            if isinstance(module, CONVOLUTIONS + TRANSPOSED):
                module.register_forward_hook(note)
        model(torch.empty(1, *shape))
    return found


def networks() -> dict[str, dict[str, Any]]:
    """Every network: its input without batch, the batches it is run in, its layers with counts."""
    from torchvision import models  # pyright: ignore[reportMissingImports]
    from torchvision.models.segmentation import deeplabv3_resnet50  # pyright: ignore[reportMissingImports]

    built: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], list[int]]] = {
        name: (lambda name=name: models.get_model(name, weights=None), (3, size, size), [1, 32])
        for name, size in PICTURES.items()
    }
    built["deeplabv3_resnet50"] = (
        lambda: deeplabv3_resnet50(weights=None, weights_backbone=None), (3, 520, 520), [1, 32],
    )  # fmt: skip
    built["unet2d"] = lambda: UNet(2, 3, (64, 128, 256, 512, 1024), 2), (3, 512, 512), [1, 32]
    # Kernels count a tensor's elements in 31 bits: unet3d's largest has 2³¹ from 16 images on, the
    # video decoder's more from two on.
    built["unet3d"] = lambda: UNet(3, 1, (32, 64, 128, 256), 3), (1, 128, 128, 128), [1, 2]
    built["video_decoder"] = VideoDecoder, (16, 5, 60, 104), [1]
    built["wav2vec"] = wav2vec, (1, 160_000), [1, 32]
    return {
        name: {"input": shape, "batches": batches, "layers": dict(layers_of(build, shape))}
        for name, (build, shape, batches) in built.items()
    }


def main() -> None:
    """Write the shapes anew; needs torchvision."""
    import torchvision  # pyright: ignore[reportMissingImports]

    made = {"torchvision": torchvision.__version__.partition("+")[0], "networks": networks()}
    FILE.write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
