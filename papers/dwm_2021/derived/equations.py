"""DWM 2021, equations 18 and 23: the weight update, and the multiplications of every cut."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product

import numpy as np

from experiments.harness.counted import claim, row
from experiments.harness.jobs import Row
from experiments.harness.verdicts import above, equal
from papers.dwm_2021.costs import counted, dwm_multiplications, layer
from winolab.algorithm import Tile
from winolab.ref.algebra.transforms import transforms

# Filters whose every cut is counted, by dimensions, and taps of a piece.
CUT = {1: (4, 5, 6, 7, 8, 9, 10, 11), 2: (4, 5, 6, 7), 3: (4, 5)}
LARGEST = 3


def equation18() -> list[Row]:
    """One gradient step on F(2, 3)'s transformed filter against one on the filter itself.

    With W = G w and ∇w = Gᵀ ∇W, a step on W is W − η∇W and a step on w transforms to
    W − η G Gᵀ ∇W. They agree for every ∇W only where G Gᵀ = E.
    """
    t = transforms(2, 3, "paper")
    G = [list(r) for r in t.G]
    GGt = [[sum(a * b for a, b in zip(p, q, strict=True)) for q in G] for p in G]
    off = max(abs(v - (i == j)) for i, r in enumerate(GGt) for j, v in enumerate(r))
    rng = np.random.default_rng(18)
    matrix = np.array(t.G, float)
    range_of = matrix @ np.linalg.pinv(matrix)
    w, target = rng.standard_normal(3), rng.standard_normal(3)
    filter_, spectrum = w.copy(), matrix @ w
    for _ in range(STEPS):
        filter_ -= RATE * (filter_ - target)
        # The gradient of half the squared error of two outputs, averaged over white data.
        spectrum -= RATE * _second_moment(t) @ (spectrum - matrix @ target)
    outside = float(np.linalg.norm(spectrum - range_of @ spectrum) / np.linalg.norm(spectrum))
    away = float(np.linalg.norm(spectrum - matrix @ filter_) / np.linalg.norm(spectrum))
    return [
        claim("G Gᵀ ≠ E: largest deviation of an entry", 0, float(off), above(0)),
        row("F(2,3)", f"transformed filters apart after {STEPS} steps, relative", away),
        row("F(2,3)", "part of the spectrum that is no filter's", outside),
    ]


STEPS, RATE = 20, 0.1


def _second_moment(t) -> np.ndarray:
    """E[D AAᵀ D] with D = diag(BT d), d white: the curvature of W's squared error."""
    A, B = np.array(t.AT, float).T, np.array(t.BT, float)
    return (A @ A.T) * (B @ B.T)


def equation23() -> list[Row]:
    """The multiplications of every cut of some filters into pieces of up to three taps."""
    off, growth, best = 0, math.inf, 0.0
    for ndim, kernels in CUT.items():
        for kernel in kernels:
            found: dict[int, int] = {}  # by pieces a dimension, as many in each
            every = []
            for cut in product(list(_cuts(kernel)), repeat=ndim):
                counts = [len(pieces) for pieces in cut]
                every.append(sum(math.prod(Tile(2, r).alpha for r in p) for p in product(*cut)))
                off = max(off, abs(every[-1] - math.prod(kernel + n for n in counts)))
                if len(set(counts)) == 1:
                    found[counts[0]] = every[-1]
            growth = min(growth, *(found[n + 1] / found[n] for n in range(min(found), kernel)))
            best = max(best, dwm_multiplications(layer(ndim, kernel, 1, 2, 1)) / min(every))
    return [
        claim("∏(Sᵢ + mᵢ) whatever the pieces: largest deviation", 0, off, equal(0)),
        claim("the more pieces, the more multiplications: least growth with one more a dimension",
              1, growth, above(1)),
        claim("pieces as large as possible multiply least: DWM's over the least", 1, best,
              equal(1)),
    ]  # fmt: skip


def _cuts(kernel: int) -> Iterator[tuple[int, ...]]:
    """Every way to cut taps into pieces of up to LARGEST, in order."""
    if not kernel:
        yield ()
    for first in range(1, min(kernel, LARGEST) + 1):
        for rest in _cuts(kernel - first):
            yield first, *rest


EQUATION18 = counted("equation18", "Updating transformed filters", equation18)
EQUATION23 = counted(
    "equation23",
    "Multiplications of every cut",
    equation23,
    "a claim of the paper's prose holds for every cut of the filters",
)
