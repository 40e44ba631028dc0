"""A small network, and small runs."""

from __future__ import annotations

from dataclasses import replace

from torch import nn

from experiments.training.runs import Run

TINY = Run("tiny", 8, images=64, tested=32, steps=12, batch=16, rate=0.01)
RUN = replace(TINY, tested=0, steps=6)


def trained(*_: object) -> nn.Sequential:
    """In place of the experiments' networks."""
    convolutions = nn.Conv2d(3, 8, 3), nn.LeakyReLU(), nn.ConvTranspose2d(8, 8, 3)
    return nn.Sequential(*convolutions, nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(512, 10))
