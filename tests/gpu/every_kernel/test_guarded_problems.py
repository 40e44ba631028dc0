"""Random problems of every kernel between guard zones: see guarded.py."""

from __future__ import annotations

import pytest

from tests.gpu.guarded import Mold, run
from tests.gpu.support.molds import MOLDS, algorithms
from winolab.gpu.families.registry import FAMILIES

pytestmark = pytest.mark.gpu
PROBLEMS = 17


@pytest.mark.parametrize(
    "mold",
    [
        Mold(family.name, algorithm, precision, number)
        for family in FAMILIES
        for precision in family.precisions
        for algorithm in algorithms(family.name, precision)
        for number in range(MOLDS[family.name])
    ],
    ids=str,
)
def test_random_problems(mold) -> None:
    for number in range(PROBLEMS):
        run(mold, number)
