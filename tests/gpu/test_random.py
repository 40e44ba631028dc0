"""Random problems of every kernel between guard zones: see guarded.py."""

from __future__ import annotations

import pytest

from tests.gpu.guarded import Mold, run
from winolab.gpu.gamma import WIDTHS
from winolab.gpu.plan import FAMILIES
from winolab.nouns import Tile
from winolab.ref.winrs_kernels import TILES

pytestmark = pytest.mark.gpu
TENSOR_OMEGAS = (Tile(1, 1), Tile(3, 2), Tile(3, 6), Tile(2, 3), Tile(5, 4))
# Compiled kernels of each algorithm, and problems of each: 1,008 of Γ and 616 of Ω.
MOLDS, PROBLEMS = {"gamma": 6, "omega": 4, "omega_tensor": 2}, 14


def algorithms(family: str) -> list[str]:
    """Every tile of a family's kernels."""
    if family == "gamma":
        gammas = [f"gamma:{a}:{a - r + 1}:{r}" for a, widths in WIDTHS.items() for r in widths]
        return ["direct", *gammas]
    tiles = TILES["fp32"] if family == "omega" else TENSOR_OMEGAS
    return ["direct" if t.alpha == 1 else f"omega:{t.alpha}:{t.n}:{t.r}" for t in tiles]


@pytest.mark.parametrize(
    "mold",
    [
        Mold(family.module, algorithm, precision, number)
        for family in FAMILIES
        for algorithm in algorithms(family.module)
        for precision in family.precisions
        for number in range(MOLDS[family.module])
    ],
    ids=str,
)
def test_random_problems(mold) -> None:
    for number in range(PROBLEMS):
        run(mold, number)
