"""What every family says of a config that somebody names."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import pytest

from winolab.algorithm import Problem, parse_algorithm
from winolab.device import H100, datasheet
from winolab.gpu.families.registry import FAMILIES, Family
from winolab.gpu.planner.request import Request

PROBLEMS = (
    Problem.of((1, 5, 7, 64), (64, 3, 3, 64), padding=1),
    Problem.of((1, 5, 7, 64), (8, 1, 1, 64)),
    Problem.of((1, 5, 7, 32), (32, 3, 3, 8), padding=1, groups=4),
    Problem.of((1, 5, 7, 32), (32, 3, 3, 1), padding=1, groups=32),
    Problem.of((1, 9, 9, 64), (64, 3, 3, 64), padding=1, stride=2),
)


NAMED = {"fused2d": "winograd:2x2:3x3", "gamma_mma": "gamma:8:6:3"}


def configs(family: Family) -> Iterator[tuple[Request, Any]]:
    """A config of the family's for each problem that it serves."""
    device = datasheet("a100") if family.name == "gamma_mma" else H100
    named = parse_algorithm(NAMED[family.name]) if family.name in NAMED else None
    for problem in PROBLEMS:
        how = named, family.precisions[0]
        request = Request(problem, family.directions[0], device, *how)
        with contextlib.suppress(ValueError):
            for p in itertools.islice(family.plans(request), 1):
                yield request, p.config


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_numbers_that_no_kernel_has_are_refused_in_a_sentence(family: Family) -> None:
    """None divides by a config's zero, and none counts to less."""
    found = list(configs(family))
    assert found
    for request, config in found:
        for name in (f.name for f in fields(config) if isinstance(getattr(config, f.name), int)):
            with contextlib.suppress(ValueError):  # of some 0 is usual
                list(family.plans(replace(request, config=replace(config, **{name: 0}))))
            with pytest.raises(ValueError, match=r"\A.+\Z"):
                list(family.plans(replace(request, config=replace(config, **{name: -1}))))
