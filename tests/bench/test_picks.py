"""Picks by a clock, with a clock that says what a test tells it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from winolab.bench import picks
from winolab.bench.contenders import unnamed
from winolab.bench.networks import parse
from winolab.bench.timing import Times
from winolab.device import datasheet
from winolab.gpu.planner.planner import plan
from winolab.gpu.planner.request import Plan, Request
from winolab.gpu.planner.rivals import rivals, what
from winolab.gpu.runtime.cache import plans
from winolab.gpu.warm import Timed, Warmed

H200 = datasheet("h200")
REQUEST = unnamed("forward", parse("32x65x65x256>256x3x3p1").problem, "fp16", H200)
PICK, *OTHERS = rivals(REQUEST)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WINOLAB_CACHE", str(tmp_path))
    monkeypatch.setenv("WINOLAB_PLANS", "1")
    monkeypatch.setattr(plans, "_preferred", {})
    plans._planned.cache_clear()
    return tmp_path


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Who ran in each interleaved lot, by number; calls say how long they take."""
    lots: list[list[int]] = []

    def interleave(calls: dict[str, Callable[[], float]], *, rounds: int, **how: Any) -> Any:
        lots.append([*map(int, calls)])
        return {n: Times(s, s, s, rounds) for n, s in ((n, call()) for n, call in calls.items())}

    monkeypatch.setattr(picks, "interleave", interleave)
    return lots


def taking(seconds: dict[Plan, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let plans take so many seconds, one after another where there are several."""

    class Arrays:
        def __init__(self, *case: Any) -> None:
            assert case[1:] == (REQUEST.problem, "fp16", ("NHWC",))

        def fill(self, low: float, high: float) -> None:
            assert (low, high) == (-1, 1)

    class Memory:
        data = property(lambda self: self)
        ptr = 256

    class Cupy:
        class cuda:
            class Device:
                id = 0
                mem_info = (1 << 37, 1 << 37)

            @staticmethod
            def get_current_stream() -> Any:
                return SimpleNamespace(synchronize=lambda: None)

        empty = staticmethod(lambda size, dtype: Memory())

    def bound(p: Plan, kernels: Any, index: int) -> Callable[..., float]:
        found = seconds[p] if isinstance(seconds[p], list) else [seconds[p]]
        tried = False

        def call(*where: Any) -> float:
            nonlocal tried
            if isinstance(found[0], Exception):
                raise found[0]
            if not tried:  # whether it runs
                tried = True
                return 0.0
            return found.pop(0) if len(found) > 1 else found[0]

        return call

    monkeypatch.setattr(picks, "Arrays", Arrays)
    monkeypatch.setattr(picks, "bound", bound)
    monkeypatch.setattr(picks, "free", lambda: None)
    monkeypatch.setattr(picks.driver, "cupy", lambda: Cupy)
    monkeypatch.setattr(picks.driver, "make_current", lambda index: None)


def test_the_fastest_is_taken_and_kept(clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    taking(dict.fromkeys(OTHERS, 2.0) | {PICK: 1.0, OTHERS[1]: 0.5}, monkeypatch)
    found = picks.timed(REQUEST)
    assert found.plan == OTHERS[1]
    assert found.pick == PICK
    assert found.gain == 2.0
    assert [s for _, s in found.times] == sorted(s for _, s in found.times)
    # all; those near the fastest, and the pick; the pick and the fastest
    assert clock == [[*range(len(OTHERS) + 1)], [0, 2], [0, 2]]
    assert picks.timed(REQUEST) == found
    assert len(clock) == 3  # what was kept takes no time
    assert picks.timed(REQUEST, again=True) == found
    assert len(clock) == 6


@pytest.mark.parametrize(("share", "taken"), [(0.96, True), (0.98, False)])
def test_the_pick_stays_unless_another_is_surely_faster(
    share: float, taken: bool, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    taking(dict.fromkeys(OTHERS, 2.0) | {PICK: 1.0, OTHERS[0]: share}, monkeypatch)
    found = picks.timed(REQUEST)
    assert (found.plan == OTHERS[0]) == taken
    assert found.plan == (OTHERS[0] if taken else PICK)


def test_who_was_lucky_once_is_timed_again(clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    lucky = [0.9, 0.9, 1.1]  # of all, of those that are near, beside the pick alone
    taking(dict.fromkeys(OTHERS, 2.0) | {PICK: 1.0, OTHERS[2]: lucky}, monkeypatch)
    found = picks.timed(REQUEST)
    assert found.plan == PICK
    assert found.gain == 1.0
    assert dict(found.times)[OTHERS[2]] == 1.1


def test_what_does_not_run_is_left_out(
    clock: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fails = ValueError("no room")
    taking(dict.fromkeys(OTHERS, 2.0) | {PICK: 1.0, OTHERS[0]: fails, OTHERS[1]: 0.5}, monkeypatch)
    found = picks.timed(REQUEST)
    assert found.plan == OTHERS[1]
    assert OTHERS[0] not in dict(found.times)
    assert f"{OTHERS[0].title} is not timed: no room" in caplog.text
    assert picks.timed(REQUEST) == found  # as it was kept
    assert len(clock) == 3
    taking(dict.fromkeys(OTHERS, 2.0) | {PICK: fails}, monkeypatch)
    alone = picks.timed(REQUEST, again=True)
    assert alone.times == ((PICK, PICK.predicted),)


def test_what_another_process_timed_is_of_the_same_rivals(
    clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    taking(dict.fromkeys(OTHERS, 2.0) | {PICK: 1.0, OTHERS[1]: 0.5}, monkeypatch)
    plans.keep_times(REQUEST, False, ((OTHERS[0], 0.1), (OTHERS[1], 0.2)))
    assert picks.timed(REQUEST).plan == OTHERS[1]
    assert clock


def test_what_is_preferred_is_planned(clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    taking(dict.fromkeys(OTHERS, 2.0) | {PICK: 1.0, OTHERS[1]: 0.5}, monkeypatch)
    monkeypatch.setattr(picks, "compile_all", lambda units, workers: [*units] and None)
    monkeypatch.setattr(picks, "plans_units", lambda p: [what(p)])
    assert plans.planned(REQUEST) == PICK
    with plans.observed() as requests:
        plans.planned(REQUEST)
        plans.planned(REQUEST)
    assert [*requests] == [(REQUEST, False)]
    count = 0

    def done() -> None:
        nonlocal count
        count += 1

    (found,) = picks.prefer(requests, done=done)
    assert count == 1
    assert plans.planned(REQUEST) == OTHERS[1] == found.plan
    monkeypatch.setattr(plans, "_preferred", {})
    assert plans.planned(REQUEST) == PICK
    plans._planned.cache_clear()
    monkeypatch.setenv("WINOLAB_TIMED", "1")
    assert plans.planned(REQUEST) == OTHERS[1]
    said = str(Warmed((), 0.0, (found,)))
    assert said.endswith("; 1 call timed, 1 with another plan, up to 2.00 times as fast")
    assert "2.00 times as fast as the planner's pick" in str(found)
    assert found.to_dict()["pick"] == PICK.title


def test_arrays_without_memory_keep_the_pick(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def lacking(request: Request, apart: bool) -> Timed:
        raise MemoryError("out of memory")

    monkeypatch.setattr(picks, "timed", lacking)
    monkeypatch.setattr(picks, "compile_all", lambda units, workers: None)
    assert picks.prefer([(REQUEST, False)]) == ()
    assert "is not timed: out of memory" in caplog.text
    assert plans.planned(REQUEST) == PICK


def test_one_plan_alone_is_not_timed(clock: Any) -> None:
    config = plan(REQUEST).config
    found = picks.timed(replace(REQUEST, config=config))
    assert found.times == ((found.pick, found.pick.predicted),)
    assert not clock
    assert str(Warmed((), 0.0, (found,))).endswith("0 calls timed, which keep the planner's picks")


def test_damaged_times_are_none(folder: Path) -> None:
    plans.keep_times(REQUEST, False, ((PICK, 1.0),))
    assert plans.kept_times(REQUEST, False) == ((PICK, 1.0),)
    for path in (folder / "plans").iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    assert plans.kept_times(REQUEST, False) == ()


def test_a_library_s_plans_do_not_load_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    request = unnamed("forward", parse("32x14x14x672>128x1x1").problem, "fp16", H200)
    pick = plan(request)
    assert pick.kernel == "cuBLASLt"
    monkeypatch.setattr(plans, "library_there", lambda: True)
    plans.keep_times(request, False, ((pick, 1.0),))
    assert plans.kept_times(request, False)
    monkeypatch.setattr(plans, "library_there", lambda: False)
    assert plans.kept_times(request, False) == ()
