"""What policies are worth: pairs of plans that differ by nothing else."""

from __future__ import annotations

from dataclasses import dataclass, fields
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from experiments.calibrate.device_model import FITTED, PREDICTED, Sample
from experiments.calibrate.policies import COUNTS, LOW, POLICIES, Worth, ratios
from winolab.gpu.families.registry import FAMILIES


@dataclass(frozen=True)
class Config:
    split_k: int = 1
    stages: int = 4
    bm: int = 64


def _unused(plan: Any, model: Any) -> float:
    raise AssertionError


def sample(*timed: tuple[Config, float, int]) -> Sample:
    plans = tuple((SimpleNamespace(kernel="K", config=config), _unused) for config, *_ in timed)
    seconds, beside = (np.array(column) for column in list(zip(*timed, strict=True))[1:])
    return Sample(plans, seconds, beside)


def test_a_policy_is_judged_by_plans_that_differ_by_it_alone() -> None:
    timed = sample(
        (Config(), 3.0, 0), (Config(split_k=2, stages=3), 2.0, 0), (Config(bm=32), 2.1, 0),
        (Config(), 1.0, 1), (Config(split_k=2), 1.5, 1),
        (Config(split_k=2), 9.0, 2), (Config(bm=128), 8.0, 2),
    )  # fmt: skip
    assert list(ratios(timed, "split_k", ("stages",))) == pytest.approx([1.5, 1 / 1.5])
    assert list(ratios(timed, "split_k", ())) == pytest.approx([1 / 1.5])
    counts = sample((Config(split_k=2), 2.0, 0), (Config(split_k=4), 1.0, 0))
    assert list(ratios(counts, "split_k", ())) == []  # both have it
    # 3.0 over 2.1 is of no plan near the call's fastest
    assert list(ratios(timed, "bm", ())) == []
    worth = str(Worth("s", "split_k", (1.5, 1 / 1.5)))
    assert worth == "s.split_k: 2 calls, faster on 1, worth 1.225, most 1.500"
    assert str(Worth("s", "bm", ())) == "s.bm: no pairs"


def test_policies_are_fields_of_configs() -> None:
    """Each is some family's, so that none is misspelled, and of sections that have rows."""
    known = {field.name for family in FAMILIES for field in fields(family.config)}
    assert POLICIES.keys() <= set(FITTED)
    assert PREDICTED
    for policies in POLICIES.values():
        assert known >= {*policies, *(name for beside in policies.values() for name in beside)}
    assert known >= LOW | COUNTS
