"""What was judged of public kernels: the kept rows, and trials that show their verdicts again."""

from __future__ import annotations

import json

import pytest

from experiments.judged.rows import KERNELS, PUBLIC, RESULTS
from winolab.judge.claim import Claim
from winolab.judge.loading import load
from winolab.judge.trial import Case, Judge
from winolab.problem import Problem

# What each is refused for, and data that show it: XLA flushes subnormal numbers on the CPU, and
# scipy.ndimage leaves taps out that are smaller than 2.2e-16, or NaN.
REFUSED = {
    f"{PUBLIC}:scipy_ndimage": {"values": "1e30 by 1e-30", "nan": "NaN in the filter"},
    f"{PUBLIC}:xla": {"subnormal": "subnormal"},
}
LAYER = Problem.of((2, 6, 7, 3), (4, 3, 3, 3))


def test_every_kernel_has_a_row() -> None:
    rows = {row["kernel"]: row for row in map(json.loads, RESULTS.read_text().splitlines())}
    assert rows.keys() == KERNELS.keys()
    for name, row in rows.items():
        assert row["accepted"] == (name not in REFUSED), name
        checks = [fault.partition(":")[0] for fault in row["faults"]]
        assert checks == [*REFUSED.get(name, ())]
        assert row["served"] >= 40
        assert row["pages"]
        assert row["served"] + sum(row["left"].values()) == row["trials"]
        assert row["packages"].keys() == set(KERNELS[name][1])
        if row["accepted"]:
            assert 0 < row["over_tolerance"] < 1


@pytest.mark.parametrize("name", [name for name in KERNELS if name.startswith(PUBLIC)])
def test_a_trial_shows_the_verdict(name: str) -> None:
    judge = Judge(load(name, arrays="numpy"), Claim())
    assert judge.run(Case(LAYER)).finding is None
    refused = REFUSED.get(name, {})
    for data in ("1e30 by 1e-30", "NaN in the filter", "subnormal", "NaN"):
        found = judge.run(Case(LAYER, data)).finding
        due = [check for check, shown in refused.items() if shown == data]
        assert ([found.check] if found else []) == due, found
