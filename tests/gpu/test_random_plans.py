"""Random problems for GPUs: that all are planned, and that a wrong plan or result is told."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

from tests.gpu import hosted, random_plans
from tests.gpu.every_kernel import views
from tests.gpu.guarded import FAMILY
from tests.gpu.random_plans import Wrong, another, drawn, main, of_any_kind, plans, reached, run
from tests.gpu.support.host_compiler import HostError
from winolab.algorithm import Direct
from winolab.device import H100
from winolab.gpu.planner.planner import candidates, plan
from winolab.gpu.planner.recast.stacked import stacked
from winolab.gpu.planner.request import Request
from winolab.gpu.runtime.array_layout import ArrayLayout
from winolab.problem import Problem

PROBLEM = Problem.of((2, 5, 6, 4), (8, 3, 3, 4), padding=1, stride=2)


def test_every_problem_has_a_plan_or_a_sentence(tmp_path) -> None:
    rows = tmp_path / "rows.jsonl"
    assert main(["--seed", "tests", "--count", "50", "--rows", str(rows)]) == 0
    row = json.loads(rows.read_text())
    assert (row["seed"], row["count"], row["wrong"]) == ("tests", 50, 0)
    assert 0 < row["refused"] < 20
    assert row["kernels"] > 5
    assert 10 < row["likely"] < 30
    assert sum(n for name, n in row["plans"].items() if name in FAMILY) == (
        row["count"] - row["refused"] - row["empty"]
    )


def test_plans_that_nobody_picks_are_run_too() -> None:
    problem = Problem.of((2, 6, 7, 16), (16, 3, 3, 16), padding=1)
    request = Request(problem, "backward_filter", H100, precision="fp16")
    found = {type(another(request, Random(i))) for i in range(20)}
    assert len(found) > 3
    within = replace(request, workspace_limit=0)
    assert {p.workspace for i in range(9) if (p := another(within, Random(i)))} == {0}


def test_a_problem_follows_from_seed_and_number() -> None:
    assert drawn("s", 5) == drawn("s", 5) != drawn("s", 6)
    assert of_any_kind("s", 5, 1) == of_any_kind("s", 5, 1) != of_any_kind("s", 6, 1)
    assert of_any_kind("s", 5, 0) == (drawn("s", 5), False)


def test_a_refusal_of_what_has_to_be_served_is_told(monkeypatch) -> None:
    def refused(request):
        raise ValueError("two\nlines")

    one = next(d for i in range(99) if (d := drawn("s", i)) and d.free
               and d.request.problem.ndim <= 3 and plans(d))  # fmt: skip
    monkeypatch.setattr(random_plans, "plan", refused)
    with pytest.raises(Wrong, match="other than one line"):
        plans(one)
    late: Any = plan(one.request)
    monkeypatch.setattr(random_plans, "plan", lambda request: replace(late, predicted=-1))
    with pytest.raises(Wrong, match="predicted -1 s"):
        plans(one)


def test_a_wrong_result_is_told_and_so_is_nan_where_it_does_not_belong(monkeypatch) -> None:
    p = plan(Request(PROBLEM, "forward", H100, precision="fp32_ffma"))
    run(PROBLEM, p, np.random.default_rng(0))
    honest = hosted.execute
    monkeypatch.setattr(hosted, "execute", lambda *a, **k: honest(*a, **k) + 1)
    with pytest.raises(Wrong, match=r"error 1\.?\d*, proven"):
        run(PROBLEM, p, np.random.default_rng(0))

    def spread(p, a, b, **how):
        y = honest(p, a, b, **how)
        return y if np.isfinite(a).all() else y + np.nan

    monkeypatch.setattr(hosted, "execute", spread)
    with pytest.raises(Wrong, match="reaches what does not depend on it"):
        run(PROBLEM, p, np.random.default_rng(0), spoilt=True)


def test_results_that_follow_from_where_arrays_lie_are_told(monkeypatch) -> None:
    p = plan(Request(PROBLEM, "forward", H100, precision="fp32_ffma"))
    honest = hosted.execute
    for finished in (False, True):

        def elsewhere(*a, finished=finished, **k):
            return honest(*a, **k) + bool(k.get("places") and finished == ("epilogue" in k))

        run(PROBLEM, p, np.random.default_rng(0), finished=finished)
        with monkeypatch.context() as changed:
            changed.setattr(hosted, "execute", elsewhere)
            with pytest.raises(Wrong, match="elements are others where arrays lie as"):
                run(PROBLEM, p, np.random.default_rng(0), finished=finished)


def test_arrays_lie_anyhow_but_as_kernels_take_them() -> None:
    """Odd strides of single elements, channel slices, other orders, elements that stand for
    several, beginnings that are aligned to an element alone."""
    seen = set()
    for number in range(300):
        rng = Random(number)
        shape, aligned = (rng.choice([1, 3]), 1, rng.choice([1, 4]), rng.choice([1, 5])), number % 2
        rows, read = number % 3 == 0, number % 5 > 0
        lies, first = views.drawn(shape, 2, rng, aligned=bool(aligned), rows=rows, read=read)
        assert lies.direct
        assert lies.aligned(2) or not aligned
        assert lies.regular or not rows
        assert lies.distinct or read
        several = [s for s, n in zip(lies.strides, shape, strict=True) if n > 1]
        seen |= {"odd"} if any(s % 2 for s in lies.strides[:-1]) else set()
        seen |= {"far"} if max(lies.strides) > 1 << 26 else set()
        seen |= {"repeated"} if 0 in several else set()
        seen |= {"permuted"} if several[:-1] != sorted(several[:-1], reverse=True) else set()
        seen |= {"between"} if first % 8 else set()
        seen |= {"slice"} if 1 < shape[-1] < lies.strides[2] and shape[2] > 1 else set()
    assert seen == {"odd", "far", "repeated", "permuted", "between", "slice"}


def test_pixels_lie_side_by_side_where_plans_merge_them() -> None:
    """Rows begin at vectors or anywhere; of results no element is another."""
    seen = set()
    for number in range(200):
        rng = Random(number)
        shape = rng.choice([1, 3]), rng.choice([1, 4]), rng.choice([1, 4]), rng.choice([1, 3, 8])
        aligned, free = number % 2 > 0, number % 3 == 0
        lies, _ = views.drawn(
            shape, 2, rng, side=True, aligned=aligned, free=free, read=number % 5 > 0
        )
        assert lies.side_by_side
        whole = shape[-1] * shape[-2] * 2 % 16 == 0
        assert lies.aligned_rows(2) or not (aligned and whole)
        seen |= {"gaps"} if lies.strides[1] > shape[2] * shape[3] and shape[1] > 1 else set()
        seen |= {"anywhere"} if whole and not lies.aligned_rows(2) else set()
    assert seen == {"gaps", "anywhere"}


def test_what_lies_between_elements_is_guarded() -> None:
    place = ArrayLayout((2, 3), (8, 1)), 1
    given, out = (
        hosted.Guarded.of(np.ones((2, 3), "float32"), place),
        hosted.Guarded((2, 3), "float32", place),
    )
    assert given.array.ctypes.data % 16 == 4
    out.array[...] = 2
    for held in (given, out):
        held.check("it")
        gap = (held.array.ctypes.data - held.memory.ctypes.data) + 3 * 4
        held.memory[gap] = 0
        with pytest.raises(HostError, match="it"):
            held.check("it")
    given = hosted.Guarded.of(np.ones(3, "float32"))
    given.array[1] = 2
    with pytest.raises(HostError, match="x or what lies around it was written to"):
        given.check("x")


@pytest.mark.parametrize("direction", ["forward", "backward_data"])
def test_nan_reaches_outputs_whose_windows_would_hold_it_of_whole_strides(direction: str) -> None:
    """Direct products on a stride's phases as channels do: 5 taps by 2 are 6."""
    problem = Problem.of((2, 11, 12, 4), (8, 5, 5, 4), padding=2, stride=2)
    request = Request(problem, direction, H100, precision="fp32_ffma")

    def direct(request: Request, near: bool) -> Any:
        every = candidates(request)
        found = tuple(p for p in every.plans if all(t.alpha == 1 for t in p.tiles))
        return replace(every, plans=found)

    p = next(stacked(request, 1.0, direct))
    for seed in range(6):
        run(problem, p, np.random.default_rng(seed), spoilt=True)
    narrow = plan(replace(request, algorithm=Direct()))
    counts = [reached(problem, q, (1, 3, 3, 0)).sum() for q in (p, narrow)]
    assert counts[0] > counts[1]


def test_nan_reaches_the_outputs_whose_windows_hold_it() -> None:
    p = plan(Request(PROBLEM, "forward", H100, precision="fp32_ffma"))
    found = reached(PROBLEM, p, (1, 2, 3, 0))
    assert not found[0].any()
    assert found[1].all(axis=-1).tolist() == [[False, False, False], [False, True, True],
                                              [False, False, False]]  # fmt: skip
