"""By how much a network's outputs and gradients deviate from FP64, which is computed once of each
model and images, whatever formats and modes are held against it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Numbers = tuple[Tensor, list[Tensor | None]]
MOST = 32  # results that are kept: VGG-16's gradients are 1.1 GB


def numbers(step: Any) -> Numbers:
    """Outputs and, of a training step, the parameters' gradients of a Step of end_to_end, by what
    cuDNN chooses unasked: a search for the fastest takes seconds, and this is called once."""
    for module in step.model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0  # formats draw differently
    training = step.case.step == "training"
    with step.products(benchmark=False), torch.set_grad_enabled(training):
        y, loss = step.loss()
        parameters = list(step.model.parameters()) if training else []
        found = torch.autograd.grad(loss, parameters, allow_unused=True) if training else ()
    return y.detach(), list(found)


class Kept:
    """Results that were computed before, by what they are of."""

    def __init__(self) -> None:
        self._found: dict[tuple[Any, ...], Numbers] = {}

    def get(
        self, what: tuple[Any, ...], model: nn.Module, x: Tensor, compute: Callable[[], Numbers]
    ) -> Numbers:
        """What ``compute`` has for a model and images, or had for these before: ``what`` and the
        sums of all their numbers tell them apart."""
        values = [*model.state_dict().values(), x]
        key = (*what, *(float(v.double().sum()) for v in values))
        if key not in self._found:
            while len(self._found) >= MOST:
                del self._found[next(iter(self._found))]
            self._found[key] = compute()
        return self._found[key]


def deviations(of: Numbers, exact: Numbers) -> dict[str, float]:
    """Largest differences from FP64 of outputs and gradients over their largest values; FP64 may be
    of the first images alone."""
    (y, gradients), (right, exact_gradients) = of, exact
    y = y[: len(right)]
    found = {"logits": float((y.double() - right).abs().max() / right.abs().max())}
    if exact_gradients:
        both = zip(gradients, exact_gradients, strict=True)
        pairs = [(p, q) for p, q in both if p is not None and q is not None]
        largest = max(float(q.abs().max()) for _, q in pairs)
        worst = max(float((p.double() - q).abs().max()) for p, q in pairs)
        found["gradients"] = worst / largest
    return found
