"""Convolution layers of published networks, for counting their multiplications.

Each is built from its paper's table of layers; the multiply-adds it gives are held against the
figure its authors publish. Fully connected layers are left out: no algorithm here changes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from experiments.harness.facts import facts
from winolab.algorithm import Problem


@dataclass(frozen=True)
class Network:
    """Its layers with their multiplicities folded in, and the published multiply-adds in 1e9.

    ``published`` is None where no figure is known to us; ``source`` is where the layers are from.
    """

    name: str
    source: str
    published: float | None
    layers: tuple[Problem, ...]


Sizes = int | Sequence[int]


def conv(
    channels: int,
    outputs: int,
    size: Sequence[int],
    taps: Sizes,
    stride: Sizes = 1,
    padding: Sequence[int] | None = None,
) -> Problem:
    """A layer of one image; ``size`` is its input, padding keeps it (taps // 2) unless given."""
    ndim = len(size)
    taps = (taps,) * ndim if isinstance(taps, int) else tuple(taps)
    pads = tuple(t // 2 for t in taps) if padding is None else padding
    return Problem.of((1, *size, channels), (outputs, *taps, channels), stride=stride, padding=pads)


def vgg16() -> Iterator[Problem]:
    channels, size = 3, 224
    for outputs, depth in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(depth):
            yield conv(channels, outputs, (size, size), 3)
            channels = outputs
        size //= 2


def resnet(blocks: tuple[int, ...], bottleneck: bool) -> Iterator[Problem]:
    """Strides stand on the first convolution of 3×3 in a stage (ResNet v1.5 for bottlenecks)."""
    yield conv(3, 64, (224, 224), 7, 2)
    channels, size = 64, 56
    for stage, depth in enumerate(blocks):
        width = 64 << stage
        outputs = width * (4 if bottleneck else 1)
        for block in range(depth):
            stride = 2 if stage and not block else 1
            if channels != outputs:
                yield conv(channels, outputs, (size, size), 1, stride)
            if bottleneck:
                yield conv(channels, width, (size, size), 1)
                yield conv(width, width, (size, size), 3, stride)
            else:
                yield conv(channels, width, (size, size), 3, stride)
            size //= stride
            yield conv(width, outputs, (size, size), 1 if bottleneck else 3)
            channels = outputs


def c3d() -> Iterator[Problem]:
    channels = 3
    for outputs, depth, size in (
        (64, 1, (16, 112, 112)),
        (128, 1, (16, 56, 56)),
        (256, 2, (8, 28, 28)),
        (512, 2, (4, 14, 14)),
        (512, 2, (2, 7, 7)),
    ):
        for _ in range(depth):
            yield conv(channels, outputs, size, 3)
            channels = outputs


# 1×1, 3×3 reduced, 3×3, second 3×3 reduced, second 3×3, after the pool.
INCEPTION = (
    (192, (32, 28, 28), (64, 96, 128, 16, 32, 32)),
    (256, (32, 28, 28), (128, 128, 192, 32, 96, 64)),
    (480, (16, 14, 14), (192, 96, 208, 16, 48, 64)),
    (512, (16, 14, 14), (160, 112, 224, 24, 64, 64)),
    (512, (16, 14, 14), (128, 128, 256, 24, 64, 64)),
    (512, (16, 14, 14), (112, 144, 288, 32, 64, 64)),
    (528, (16, 14, 14), (256, 160, 320, 32, 128, 128)),
    (832, (8, 7, 7), (256, 160, 320, 32, 128, 128)),
    (832, (8, 7, 7), (384, 192, 384, 48, 128, 128)),
)


def i3d() -> Iterator[Problem]:
    yield conv(3, 64, (64, 224, 224), 7, 2)
    yield conv(64, 64, (32, 56, 56), 1)
    yield conv(64, 192, (32, 56, 56), 3)
    for channels, size, (one, r3, three, r5, five, pooled) in INCEPTION:
        yield conv(channels, one, size, 1)
        yield conv(channels, r3, size, 1)
        yield conv(r3, three, size, 3)
        yield conv(channels, r5, size, 1)
        yield conv(r5, five, size, 3)
        yield conv(channels, pooled, size, 1)


def r2plus1d(frames: int = 32) -> Iterator[Problem]:
    """34 layers on a clip of RGB frames of 112²: each 3×3×3 is a 1×3×3 and a 3×1×1 with as many
    channels between as keep its weights' number; the first layer has 45 there, as in the code."""
    size = (frames, 112, 112)
    yield conv(3, 45, size, (1, 7, 7), (1, 2, 2))
    size = (frames, 56, 56)
    yield conv(45, 64, size, (3, 1, 1))
    channels = 64
    for stage, depth in enumerate((3, 4, 6, 3)):
        outputs = 64 << stage
        for block in range(depth):
            stride = 2 if stage and not block else 1
            if stride > 1:
                yield conv(channels, outputs, size, 1, stride)
            for step in (stride, 1):
                between = 27 * channels * outputs // (9 * channels + 3 * outputs)
                yield conv(channels, between, size, (1, 3, 3), (1, step, step))
                size = (size[0], size[1] // step, size[2] // step)
                yield conv(between, outputs, size, (3, 1, 1), (step, 1, 1))
                size = (size[0] // step, *size[1:])
                channels = outputs


def slowfast() -> Iterator[Problem]:
    """8×8, R50: 8 and 32 frames of 256², β = 1/8, lateral 5×1×1 strided convolutions."""
    for frames, base, stem, deep_only in ((8, 64, 1, True), (32, 8, 5, False)):
        fused = base // 4 if deep_only else 0  # channels that the lateral connections add
        yield conv(3, base, (frames, 256, 256), (stem, 7, 7), (1, 2, 2))
        channels, size = base, 64
        for stage, depth in enumerate((3, 4, 6, 3)):
            width = base << stage
            outputs = 4 * width
            first = 3 if stage > 1 or not deep_only else 1
            channels += fused * (1 if stage == 0 else 1 << (stage + 1)) if deep_only else 0
            for block in range(depth):
                stride = (1, 2, 2) if stage and not block else (1, 1, 1)
                at = (frames, size, size)
                if not block:
                    yield conv(channels, outputs, at, 1, stride)
                yield conv(channels, width, at, (first, 1, 1))
                yield conv(width, width, at, (1, 3, 3), stride)
                size //= stride[1]
                yield conv(width, outputs, (frames, size, size), 1)
                channels = outputs
        if not deep_only:
            for lateral, edge in ((8, 64), (32, 64), (64, 32), (128, 16)):
                yield conv(lateral, 2 * lateral, (32, edge, edge), (5, 1, 1), (4, 1, 1))


def spynet(levels: int = 5, frame: tuple[int, int] = (448, 1024)) -> Iterator[Problem]:
    """Levels of a pyramid over frames, Sintel's after padding by default; 7×7 throughout."""
    for level in range(levels):
        size = (frame[0] >> level, frame[1] >> level)
        for channels, outputs in ((8, 32), (32, 64), (64, 32), (32, 16), (16, 2)):
            yield conv(channels, outputs, size, 7)


def v2v() -> Iterator[Problem]:
    """C3D's convolutions, then three 4×4×4 deconvolutions of stride 2, and two of 3×3×3 around.

    A deconvolution is the backward data of a convolution with stride 2: it multiplies as often as
    the convolution from its output to its input, by which it is stated here. The decoder's widths
    are C3D's in reverse; our text of the paper does not give them.
    """
    yield from c3d()
    for channels, outputs, size in (
        (512, 256, (2, 7, 7)),
        (256, 128, (4, 14, 14)),
        (128, 64, (8, 28, 28)),
    ):
        larger = tuple(2 * s for s in size)
        yield conv(outputs, channels, larger, 4, 2, (1, 1, 1))
    yield conv(64, 3, (16, 56, 56), 3)


def toflow() -> Iterator[Problem]:
    """Interpolation of Vimeo's 256 × 448: SPyNet of four levels both ways, then 9×9 and 1×1."""
    for _ in range(2):
        yield from spynet(4, (256, 448))
    yield conv(6, 64, (256, 448), 9)
    yield conv(64, 64, (256, 448), 1)
    yield conv(64, 3, (256, 448), 1)


def gdconvnet() -> Iterator[Problem]:
    """Four frames of 256 × 448: offsets by a pyramid, two deformable convolutions, contexts, grid.

    A deformable convolution multiplies as one of 5×5 with stride 5 over what it gathered.
    """
    rows = [(256 >> k, 448 >> k) for k in range(3)]
    yield conv(12, 48, rows[0], 3)
    for k, size in enumerate(rows):
        channels = 48 << k
        if k:
            yield conv(channels // 2, channels, rows[k - 1], 3, 2)
        for _ in range(4):
            yield conv(channels, channels, size, 3)
        yield conv(channels, 48, size, 1)
        yield conv(48, 48, rows[0], 3)
    for pooled in (1, 2, 3, 6):
        yield conv(192, 48, (64 // pooled, 112 // pooled), 1)
    yield conv(192, 192, rows[2], 1)
    yield conv(144, 144, rows[0], 3)
    for channels in (3, 6):
        for outputs in (50, 50, 50, 50, 25, 25):
            yield conv(144, outputs, rows[0], 5)
        yield conv(channels, channels, (5 * 256, 5 * 448), 5, 5, (0, 0))
    for _ in range(4):
        yield conv(3, 16, rows[0], 7)
        for _ in range(4):
            yield conv(16, 16, rows[0], 7)
        yield conv(48, 6, rows[0], 3)
    yield from _grid(rows)


def _grid(rows: Sequence[tuple[int, int]]) -> Iterator[Problem]:
    """GridNet: dense blocks of three rows, and what leads down and up between them."""
    yield conv(9, 16, rows[0], 3)
    for k, blocks in enumerate((7, 5, 5)):
        depth = 16 << k
        for _ in range(blocks):
            for layer in range(4):
                yield conv(depth + 16 * layer, 16, rows[k], 3)
            yield conv(depth + 64, depth, rows[k], 1)
    for k in (0, 1):
        depth = 16 << k
        for _ in range(3):
            yield conv(depth, depth, rows[k], 3, 2)
            yield conv(depth, 2 * depth, rows[k + 1], 3)
            yield conv(2 * depth, 2 * depth, rows[k], 3, 2)  # of the deconvolution, as V2V's
            yield conv(2 * depth, depth, rows[k], 3)
    yield conv(16, 3, rows[0], 3)


def shapenet() -> Iterator[Problem]:
    """Voxels of 30³, the network's first three layers."""
    none = (0, 0, 0)
    yield conv(1, 48, (30, 30, 30), 6, 2, none)
    yield conv(48, 160, (13, 13, 13), 5, 2, none)
    yield conv(160, 512, (5, 5, 5), 4, 1, none)


def networks() -> tuple[Network, ...]:
    """All of them."""
    told = facts("dwm_2021")["claims"]["gflops"]
    definitions: tuple[tuple[str, str, float | None, Callable[[], Iterator[Problem]]], ...] = (
        ("VGG-16", "Simonyan & Zisserman 2015, configuration D", 15.3, vgg16),
        ("ResNet-18", "He et al. 2016, Table 1", 1.8, lambda: resnet((2, 2, 2, 2), False)),
        (
            "ResNet-50",
            "He et al. 2016, Table 1; stride on 3×3",
            4.1,
            lambda: resnet((3, 4, 6, 3), True),
        ),
        ("C3D", "Tran et al. 2015, Figure 3; figure of DWM's text", told["C3D"], c3d),
        ("I3D", "Carreira & Zisserman 2017, Figure 3; figure of DWM's text", told["I3D"], i3d),
        (
            "R(2+1)D-34",
            "Tran et al. 2018, Table 1, 32 frames; figure of DWM's text",
            told["R(2+1)D-34"],
            r2plus1d,
        ),
        ("SlowFast-R50", "Feichtenhofer et al. 2019, Table 1, 8×8 at 256²", 65.7, slowfast),
        ("SPyNet", "Ranjan & Black 2017, five levels", None, spynet),
        ("V2V", "Tran et al. 2016, widths of the decoder assumed", None, v2v),
        ("TOFlow", "Xue et al. 2019, interpolation, as mmagic's TOFlowVFINet", None, toflow),
        ("GDConvNet", "Shi et al. 2021, the authors' code, 144 channels", None, gdconvnet),
        ("3D-ShapeNet", "Wu et al. 2015, the authors' code, 30³ voxels", None, shapenet),
    )
    return tuple(Network(n, s, p, tuple(make())) for n, s, p, make in definitions)
