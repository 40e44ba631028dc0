"""Pairs of plans that differ by a policy: which ones, and what is said of them; not their times."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from statistics import geometric_mean

import pytest
from typer import BadParameter

from experiments.calibrate.policies import POLICIES
from experiments.harness.machines import stored
from experiments.measure.ways import policies
from experiments.measure.ways.policies import CASES, Case, has, pair
from tests.support.timed import stand_in
from winolab.bench.contenders import digest
from winolab.device import datasheet
from winolab.gpu.planner.planner import plan

H200 = datasheet("h200")
NAMES = {case.policy for case in CASES}
NAMED_ALONE = {"wgrad_mma.wrap"}  # fused Ω is no pick of a device with wgmma


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.policy} {c.layer} {c.direction}")
def test_a_case_has_two_plans_that_differ_by_its_policy(case: Case) -> None:
    """By nothing else but what goes with it; Γ on wgmma by what would be picked instead."""
    kinds = pair(case, H200)
    assert list(kinds.values()) == ["with", "without"]
    first, second = kinds
    assert [has(p, case.policy) for p in kinds] == [True, False]
    assert (first.precision, first.out_dtype) == (second.precision, second.out_dtype)
    a, b = (asdict(p.config) for p in kinds)
    section, name = case.policy.split(".")
    changed = {each for each in a if a[each] != b.get(each)}
    if case.policy == "gamma_wgmma.exchanges":
        assert {name} <= changed
        assert first.tiles == second.tiles
    else:
        assert first.kernel == second.kernel
        assert {name} <= changed <= {name, *POLICIES[section][name]}
    assert digest(first) != digest(second) or case.policy == "wgrad_ffma.wrap"


def test_every_policy_is_timed_where_it_is_picked_today() -> None:
    """On half of its layers at least, and of all kinds in turn."""
    assert {case.policy for case in CASES[: len(NAMES)]} == NAMES
    picked = Counter(c.policy for c in CASES if has(plan(c.request(H200)), c.policy))
    every = Counter(case.policy for case in CASES)
    for policy in NAMES - NAMED_ALONE:
        assert picked[policy] >= every[policy] / 2, policy
    assert not picked.keys() & NAMED_ALONE


def test_what_has_no_policy() -> None:
    wrapped = next(c for c in CASES if c.policy == "wgrad_ffma.wrap")
    with_, _ = pair(wrapped, H200)
    assert not has(with_, "wgrad_mma.wrap")
    assert not has(with_, "gamma_wgmma.exchanges")


def measured(monkeypatch, file, took) -> list[str]:
    """What is timed of the first case of a policy, whose plans take so many microseconds."""
    timed = stand_in(monkeypatch, policies, "timed", H200, took)
    monkeypatch.setattr(policies, "CASES", CASES[: len(NAMES)])
    policies.main("wgrad_ffma.wrap", seconds=60, output=file)
    return [f"{how} {p.x_shape} {group}" for how, p, group in timed]


def test_pairs_are_timed_once_and_say_what_a_policy_is_worth(tmp_path, monkeypatch, capsys) -> None:
    file = tmp_path / "rows.jsonl"
    assert measured(monkeypatch, file, (20.0, 21.0)) == ["backward_filter (1, 14, 14, 256) fp32"]
    kept = stored(file)
    assert [(row["kind"], row["picked"]) for row in kept] == [("with", True), ("without", True)]
    assert {row["policy"] for row in kept} == {"wgrad_ffma.wrap"}
    said = (
        "wgrad_ffma.wrap: 1 calls, faster on 1, worth 1.050, most 1.050; picked today: 1.050 of 1"
    )
    assert said in capsys.readouterr().out
    assert measured(monkeypatch, file, (20.0, 21.0)) == []
    with pytest.raises(BadParameter, match=r"'wrap'; .*gamma_wgmma\.exchanges"):
        policies.main("wrap")


def test_a_pick_that_loses_counts_where_it_is_picked() -> None:
    def row(layer: str, kind: str, took: float, picked: bool) -> policies.Row:
        return {
            "device": "G", "policy": "s.p", "layer": layer, "direction": "forward",
            "precision": "fp32", "kind": kind, "cold_us": [took] * 3, "picked": picked,
        }  # fmt: skip

    rows = [
        row(layer, kind, took, picked)
        for layer, *took_of, picked in (("a", 2.0, 3.0, True), ("b", 4.0, 3.0, True),
                                        ("c", 4.0, 2.0, False))
        for kind, took in zip(("with", "without"), took_of, strict=True)
    ]  # fmt: skip
    rows.append(row("d", "with", 1.0, True))  # whose other side has no row yet
    (line,) = policies.summarized(rows)
    worth, picked = geometric_mean([1.5, 1, 1]), geometric_mean([1.5, 0.75])
    assert line == (
        f"G: s.p: 3 calls, faster on 1, worth {worth:.3f}, most 1.500; "
        f"picked today: {picked:.3f} of 2"
    )
    (alone,) = policies.summarized(r for r in rows if not r["picked"])
    assert alone.endswith("picked today: none")
