"""A kernel that forks gets a verdict, and the process that judges stays one."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path

import pytest

from winolab.judge import judgement
from winolab.judge.claim import Claim
from winolab.judge.judgement import cases, judge
from winolab.judge.loading import load
from winolab.judge.trial import Case

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")
FORKING = str(Path(__file__).with_name("forking.py"))
SERVES = "stride=1 dilation=1 groups=1 batch=1-4"


def judged(name: str, count: int, monkeypatch: pytest.MonkeyPatch) -> judgement.Judgement:
    """With the first problems alone, which is where threads call."""
    candidate = load(f"{FORKING}:{name}", serves=SERVES)
    few = list(islice(cases(candidate, 0, "0", set()), count))
    monkeypatch.setattr(judgement, "cases", lambda *_: few)
    monkeypatch.setattr(judgement, "LEAST", 1)
    return judge(candidate, Claim(), count=0, seconds=0.1)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize(("name", "count"), [("halves", 3), ("pooled", 1)])
def test_a_right_kernel_that_forks_is_accepted(name: str, count: int, monkeypatch) -> None:
    found = judged(name, count, monkeypatch)
    assert found, found.verdict
    assert found.facts["forks"]
    assert found.verdict.endswith("; it forks, and was called from one thread alone")


def test_one_whose_copy_returns_is_refused(monkeypatch) -> None:
    here = os.getpid()
    found = judged("returns_twice", 2, monkeypatch)
    assert os.getpid() == here
    assert [fault.finding.check for fault in found.faults] == ["fork"], found.verdict
    assert "a process that it forks returns as its caller, too" in found.verdict


def test_what_does_not_fork_says_nothing_of_it(monkeypatch) -> None:
    few: list[Case] = []
    monkeypatch.setattr(judgement, "cases", lambda *_: few)
    kernels = Path(__file__).with_name("kernels.py")
    found = judge(load(f"{kernels}:right"), Claim(), count=0)
    assert not found.facts["forks"]
