"""The layers that kernels are compared on, as data: the papers' square filters of stride 1, padding
⌊r/2⌋, and those of networks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from winolab.algorithm import Algorithm, Problem, gamma
from winolab.bench import networks
from winolab.bench.networks import BatchedLayer


@dataclass(frozen=True)
class Layer:
    """A layer by its output, as the papers' tables state it, and the kernel that it was made for.

    ``kernel`` is (α, n, r) of Γ, or None where no paper's kernel is meant.
    """

    batch: int
    output: tuple[int, int]
    channels: int
    out_channels: int
    taps: int
    kernel: tuple[int, int, int] | None = None

    @cached_property
    def problem(self) -> Problem:
        """Padding ⌊r/2⌋ on both sides, as cuDNN needs it; even filters shrink the input by one."""
        pad = self.taps // 2
        height, width = (size + self.taps - 1 - 2 * pad for size in self.output)
        filter_ = (self.out_channels, self.taps, self.taps, self.channels)
        return Problem.of((self.batch, height, width, self.channels), filter_, padding=pad)

    @property
    def algorithm(self) -> Algorithm | None:
        """Γ of the layer's kernel."""
        return gamma(*self.kernel) if self.kernel else None

    def named(self, direction: str) -> Algorithm | None:
        """The layer's ``algorithm``, where it computes that direction: no filter gradient."""
        return None if direction == "backward_filter" else self.algorithm

    def __str__(self) -> str:
        height, width = self.output
        shape = f"{self.batch}x{height}x{width}x{self.channels}"
        return f"{shape}:{self.out_channels}x{self.taps}x{self.taps}"


def parse_layer(text: str) -> Layer | BatchedLayer:
    """A layer from its text: batch x height x width x channels of the output : filter, or of any
    kind, by its input, as a BatchedLayer has it.

    Raises ValueError for anything but "128x96x96x64:64x3x3", "32x224x224x3>64x7x7s2p3" and such.
    """
    return networks.parse(text) if ">" in text else parse_square(text)


def parse_square(text: str) -> Layer:
    """A layer of the papers' kind from its text. Raises ValueError for another text."""
    found = re.fullmatch(r"(\d+)x(\d+)x(\d+)x(\d+):(\d+)x(\d+)x(\d+)", text)
    if not found:
        raise ValueError(
            f"layer {text!r}; expected N x OH x OW x IC : OC x r x r, such as 128x96x96x64:64x3x3, "
            "of any kind N x input x IC > OC x filter, such as 32x224x224x3>64x7x7s2p3, or one of "
            f"{', '.join(LAYERS)}"
        )
    batch, height, width, channels, out_channels, taps, again = map(int, found.groups())
    if taps != again:
        raise ValueError(f"layer {text!r} has a filter of {taps} x {again}; expected a square one")
    return Layer(batch, (height, width), channels, out_channels, taps)


def squares(kernel: tuple[int, int, int], batch: int, sizes: Mapping[int, int]) -> list[Layer]:
    """Outputs of size × size for each number of channels, as many in as out."""
    return [Layer(batch, (hw, hw), c, c, kernel[2], kernel) for c, hw in sizes.items()]


# Im2col-Winograd's Table 3 has one column a kernel, four shapes each, at equal work: batch, and
# output size at 64 channels. In between, sizes fall as channels grow; n divides some.
TABLE3 = {
    (8, 7, 2): (128, 112),
    (8, 5, 4): (128, 80),
    (8, 6, 3): (128, 96),
    (8, 4, 5): (64, 128),
    (8, 3, 6): (64, 96),
    (8, 2, 7): (32, 128),
    (16, 10, 7): (32, 80),
    (16, 9, 8): (32, 144),
    (16, 8, 9): (32, 128),
}
TABLE3_CHANNELS = (64, 128, 256, 512)
CHANNELS = (64, 128, 256, 512, 96, 160, 192, 320, 384, 448)


def grid(channels: tuple[int, ...] = CHANNELS) -> list[Layer]:
    """Every kernel at these numbers of channels."""
    return [
        layer
        for kernel, (batch, size) in TABLE3.items()
        for layer in squares(kernel, batch, {c: round(size * 64 / c) for c in channels})
    ]


RESNET = {64: 56, 128: 28, 256: 14, 512: 7}
SQUARES: dict[str, list[Layer]] = {
    # the shapes of the published kernels' measurements on an H100
    "dragon": [
        *squares((8, 6, 3), 128, {64: 96, 128: 48, 256: 24, 512: 12}),
        *squares((8, 4, 5), 64, {64: 128, 128: 64, 256: 32}),
        *squares((16, 8, 9), 32, {64: 128, 128: 64, 256: 32}),
    ],
    "resnet": squares((8, 6, 3), 32, RESNET),
    "resnet1": squares((8, 6, 3), 1, RESNET),
    # of ResNet-50's bottlenecks, one a stage
    "pointwise": [
        Layer(32, (56, 56), 64, 256, 1),
        Layer(32, (28, 28), 512, 128, 1),
        Layer(32, (14, 14), 256, 1024, 1),
        Layer(32, (7, 7), 2048, 512, 1),
    ],
    "odd": [
        Layer(32, (48, 48), 63, 65, 3, (8, 6, 3)),
        Layer(32, (47, 47), 127, 129, 3, (8, 6, 3)),
        Layer(32, (31, 31), 99, 101, 5, (8, 4, 5)),
        Layer(16, (61, 61), 61, 67, 9, (16, 8, 9)),
    ],
    "table3": grid(TABLE3_CHANNELS),
    "grid": grid(),
}
LAYERS: dict[str, Sequence[Layer | BatchedLayer]] = {
    **SQUARES,
    # every convolution of 14 networks, in batches of 1 and 32: experiments.measure.networks
    "networks": networks.distinct(),
}
