"""Where training breaks, tile by tile: a tiny network by Γα and Ωα in FP32, TF32 and FP16.

``python -m experiments.training.run --plan breaks`` trains it by the reference on the CPU. A row
has beside the loss what the first step's filter gradients err, relative RMS against FP64 over all
convolutions, and what is predicted of each direction for a layer of the network (MIDDLE) on
zero-mean data. FP16 has a loss scale, without which its gradients vanish whatever the tile.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from experiments.training.images import Textures
from experiments.training.runs import Run
from experiments.training.tables import PRECISIONS, TILES
from experiments.training.tiles import fitting
from experiments.training.trainer import built, orders
from winolab.algorithm import parse_algorithm
from winolab.problem import Problem
from winolab.ref.arithmetic.simulated import arithmetic
from winolab.ref.error.expected import expected
from winolab.ref.tolerance.cheapest import U11

BREAKS = Run(
    "tiny", 16, images=640, tested=320, steps=40, batch=32, rate=0.01, algorithm="direct",
    gradients="direct",
)  # fmt: skip
SCALE = 256.0  # of FP16's loss
MIDDLE = Problem.of((32, 16, 16, 8), (8, 3, 3, 8), padding=1)


def runs() -> Iterator[Run]:
    """Every tile in every precision."""
    for precision in PRECISIONS:
        scale = SCALE if precision == "fp16" else 1.0
        for algorithm, gradients in TILES.values():
            yield replace(
                BREAKS, algorithm=algorithm, gradients=gradients, precision=precision, scale=scale
            )


def errors(run: Run) -> dict[str, Any]:
    """What the first step's filter gradients err, and what is predicted of each direction."""
    return {"gradient_rms": measured(run), "predicted_rms": predicted(run)}


def measured(run: Run) -> float:
    """Relative RMS of all convolutions' filter gradients of the first step, against FP64; infinite
    where one is no number."""
    model = built(run).train()
    exact: nn.Module = built(replace(run, method="torch", algorithm=None, gradients=None))
    exact = copy.deepcopy(exact).double().train()
    x, labels = Textures(run.size, run.classes, noise=run.noise).batch(next(orders(run)))
    found = []
    for each, images in ((model, x), (exact, x.double())):
        loss = nn.functional.cross_entropy(each(images), labels)
        (run.scale * loss).backward()
        layers = [m for m in each.modules() if isinstance(m, nn.Conv2d)]
        found.append(torch.cat([m.weight.grad.double().flatten() for m in layers]))  # pyright: ignore[reportOptionalMemberAccess]
    got, right = found
    error = float((got - right).norm() / right.norm())
    return error if error == error else math.inf


def predicted(run: Run) -> dict[str, float]:
    """Relative RMS by direction, of MIDDLE."""
    assert run.algorithm
    assert run.gradients
    narrow = fitting(run.gradients, MIDDLE.output[-1])
    named = {"forward": run.algorithm, "backward_data": run.algorithm, "backward_filter": narrow}
    how = arithmetic(run.precision or "fp32")
    return {
        direction: expected(
            U11, U11, MIDDLE, parse_algorithm(name), how, direction=direction
        ).relative_rms
        for direction, name in named.items()
    }
