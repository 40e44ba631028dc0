"""That likely layers meet every family, and every kind of plan that computes another problem."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from random import Random

from tests.gpu.every_kernel import likely
from tests.gpu.random_plans import MOST, names
from winolab.gpu.families.registry import FAMILIES
from winolab.gpu.planner.planner import candidates, plan

RECAST = {kind.__name__ for kind in likely.RECAST}


def test_every_family_and_every_plan_of_another_problem_is_met() -> None:
    """Plans of another problem are picked, of a network's layers, and run, of small ones."""
    families = {family.name for family in FAMILIES}
    picked, run = Counter(), Counter()
    for number in range(400):
        request = likely.request(Random(f"met {number}"))
        with suppress(ValueError):
            picked.update(names(plan(request)))
            if request.problem.macs <= MOST and not run.keys() >= RECAST | families:
                for p in (*candidates(request).plans, *likely.recast(request)):
                    run.update(names(p))
        if picked.keys() >= RECAST and run.keys() >= RECAST and (picked + run).keys() >= families:
            return
    missing = RECAST - picked.keys(), RECAST - run.keys(), families - (picked + run).keys()
    raise AssertionError(f"not met: {missing}")
