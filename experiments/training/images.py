"""The stand-in for Cifar and ILSVRC, which cannot be had: generated images of textures.

An image of class c is the sum of three plane waves of c's own frequencies and colours, each of them
with a phase, a rotation and a strength of the image's own, of a fainter wave of another class, and
of noise, squeezed into [-1, 1]. Classes overlap, so that a network has something to learn and does
not reach every image. Image i of a split is the same whoever asks, on every device, in any order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from experiments.training.runs import NOISE

WAVES, OTHER, TURN = 3, 0.6, 0.35  # of another class: its strength; in radians
SPLITS = {"train": 0, "test": 1}  # even and odd seeds: a generator takes 32 bits of one
CHUNK = 16  # images made at a time, whose waves stay in a cache
ABOUT = "generated textures, experiments/training/images.py"


@dataclass(frozen=True)
class Textures:
    """Images (3, size, size) and their classes, by number. ``noise`` is the noise's strength."""

    size: int = 32
    classes: int = 10
    split: str = "train"
    noise: float = NOISE

    def batch(
        self, numbers: Tensor, device: Any = "cpu", of: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """The images of these numbers, and their classes; ``of`` the split's first so many, which
        are made once and kept."""
        images, labels = _kept(self, of) if of else self.made(numbers)
        if of:
            images, labels = images[numbers], labels[numbers]
        return images.to(device), labels.to(device)

    def made(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """The images of these numbers, and their classes, on the CPU."""
        count = len(numbers)
        draw = _drawn(self.split, numbers, self.classes)
        labels, other = draw["labels"], draw["other"]
        waves = _waves(self.classes)
        grid = torch.arange(self.size, dtype=torch.float32) / self.size
        images = torch.zeros(count, 3, self.size, self.size)
        parts = [(labels, wave, 1.0) for wave in range(WAVES)] + [(other, 0, OTHER)]
        for place, (of, wave, strength) in enumerate(parts):
            angle = waves["angle"][of, wave] + TURN * draw["turn"][:, place]
            frequency = waves["frequency"][of, wave]
            along = torch.cos(angle)[:, None, None] * grid[None, None, :]
            along = along + torch.sin(angle)[:, None, None] * grid[None, :, None]
            phase = draw["phase"][:, place, None, None]
            value = torch.sin(2 * math.pi * (frequency[:, None, None] * along + phase))
            scale = strength * draw["strength"][:, place, None, None, None]
            images += scale * waves["colour"][of, wave][:, :, None, None] * value[:, None]
        for image, seed in zip(images, draw["seed"], strict=True):
            generator = torch.Generator().manual_seed(int(seed))
            image += self.noise * torch.randn(image.shape, generator=generator)
        return torch.tanh(images), labels


@lru_cache(maxsize=4)
def _kept(data: Textures, count: int) -> tuple[Tensor, Tensor]:
    """The first images of a split: runs of a plan train on the same ones, over and over, and making
    one takes 0.3 ms of a core at 32², 4 ms at 128²."""
    parts = [data.made(numbers) for numbers in torch.arange(count).split(CHUNK)]
    images, labels = zip(*parts, strict=True)
    return torch.cat(images), torch.cat(labels)


def _waves(classes: int) -> dict[str, Tensor]:
    """What classes have: angles, cycles an image, and a colour of each wave."""
    generator = torch.Generator().manual_seed(0)
    shape = (classes, WAVES)
    return {
        "angle": math.pi * torch.rand(shape, generator=generator),
        "frequency": 1.5 + 4.5 * torch.rand(shape, generator=generator),
        "colour": torch.randn((*shape, 3), generator=generator) / 2,
    }


def _drawn(split: str, numbers: Tensor, classes: int) -> dict[str, Tensor]:
    """What images have of their own: each number's draws from a generator of its own."""
    rows = []
    for number in numbers.tolist():
        generator = torch.Generator().manual_seed(2 * number + SPLITS[split])
        rows.append(torch.rand(3 * (WAVES + 1) + 2, generator=generator, dtype=torch.float64))
    drawn = torch.stack(rows)
    phase, turn, strength, rest = drawn.split([WAVES + 1] * 3 + [2], 1)
    labels = numbers % classes
    other = (labels + 1 + (rest[:, 0] * (classes - 1)).long()) % classes
    return {
        "labels": labels,
        "other": other,
        "phase": phase.float(),
        "turn": 2 * turn.float() - 1,
        "strength": 0.5 + strength.float(),
        "seed": (rest[:, 1] * 2**32).long(),
    }
