"""What the tests of Γ on Tensor Cores ask of errors and of plans."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any

from winolab.gpu.families.gamma_wgmma.plan import GammaWgmmaPlan

BOUND = 16 * 2**-24  # relative RMS: FP32's with the noise gain of Γ8


Pairs = dict[Any, tuple[GammaWgmmaPlan, GammaWgmmaPlan]]


def paired(
    others: Iterable[GammaWgmmaPlan],
    plain: Iterable[GammaWgmmaPlan],
    alike: Callable[[GammaWgmmaPlan], Any],
    rows: Callable[[GammaWgmmaPlan], Any],
) -> Pairs:
    """Plans beside the first plain one that is ``alike``: by parts of the sum, and where that is
    one by ``rows``, of stages; one of each."""
    first: dict[Any, GammaWgmmaPlan] = {}
    pairs: Pairs = {}
    for p in plain:
        first.setdefault(alike(p), p)
    for p in others:
        if same := first.get(alike(p)):
            split_k = p.config.split_k
            pairs.setdefault((1, rows(p)) if split_k == 1 else (split_k, None), (p, same))
    return pairs


def by_turns(pairs: Pairs, number: int) -> Pairs:
    """Every second of a case's pairs, which neighbouring cases take turns with."""
    return dict(list(pairs.items())[number % 2 :: 2])


def has(plan: GammaWgmmaPlan, **policies: int) -> bool:
    """Whether a plan has these policies."""
    return {**asdict(plan.config), **policies} == asdict(plan.config)
