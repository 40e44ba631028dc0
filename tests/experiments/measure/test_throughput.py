"""What a run of the comparison keeps, skips and expects to take."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

import pytest

from experiments.measure import throughput
from experiments.measure.cases import cases
from experiments.measure.throughput import GUESS, estimate, latest, sources
from winolab.bench import contenders
from winolab.device import DATASHEETS, H100


def row(case, run: str, **more) -> dict:
    return {"case": [*case.key], "run": run, "took_s": 3.0, "device": H100.name, **more}


def test_the_last_run_of_a_case_is_kept_and_says_what_it_measured() -> None:
    first, second, *_ = cases("dragon")
    rows = [
        row(first, "2026-01-01", source="old"),
        row(second, "2026-01-01", source="b"),
        row(first, "2026-01-02", source="new"),
        row(first, "2026-01-02", method="failed", sources=["hung"]),
    ]
    found = latest(rows)
    assert [sources(mine) for mine in found] == [{"new", "hung"}, {"b"}]
    other = row(first, "2026-01-03", source="new", device="another")
    assert len(latest([*rows, other])) == 3


def test_every_case_once_in_the_order_of_importance() -> None:
    keys = [case.key for case in cases()]
    assert len(keys) == len(set(keys))
    assert keys[0][1:] == ("forward", "fp32")
    assert {case.list for case in cases("odd,resnet1")} == {"odd", "resnet1"}
    with pytest.raises(ValueError, match="expected dragon"):
        next(cases("none"))


def test_estimates_are_of_what_was_measured_or_of_its_kind() -> None:
    first, second, *_ = cases("dragon")
    lines = estimate([first, second], [[row(first, "2026-01-01")]])
    assert lines[-1] == "2 cases, about 6 s"
    assert estimate([first], [])[-1] == f"1 cases, about {GUESS:.0f} s"
    assert re.match("dragon forward fp32: 2 cases", lines[0])


class Picked(NamedTuple):
    """A plan, by the digest of its source."""

    source: str
    workspace: int


def test_a_run_skips_what_has_rows_of_the_same_source_and_pick(tmp_path, monkeypatch) -> None:
    first, second, third, *_ = cases("dragon")
    digests = {first: {"a"}, second: {"b"}, third: {"c"}}
    workspace = dict.fromkeys(digests, 100)
    ran = []

    def compare(direction, problem, group="fp32", effort=None, plans=None):
        if problem == third.layer.problem:
            raise ValueError("no")
        ran.append(problem)
        pick = next(iter(plans or [Picked("", 0)]))
        return [{"method": "winolab", "tflops": 1.0, "chosen": True, **pick._asdict()}]

    def planned(todo, device):
        return [(case, {Picked(min(digests[case]), workspace[case]): True}, digests[case])
                for case in todo]  # fmt: skip

    monkeypatch.setattr(throughput, "compare", compare)
    monkeypatch.setattr(throughput, "free", lambda: None)
    monkeypatch.setattr(throughput.bench, "ready", lambda: None)
    monkeypatch.setattr(throughput.bench, "context", lambda: {"device": H100.name})
    monkeypatch.setattr(throughput.driver, "device", lambda index: H100)
    monkeypatch.setattr(throughput.bench, "line", lambda rows: "")
    monkeypatch.setattr(throughput, "planned", planned)
    monkeypatch.setattr(throughput, "digest", lambda plan: plan.source)
    monkeypatch.setattr(throughput, "cases", lambda lists: iter(digests))
    rows_file = tmp_path / "rows.jsonl"
    options = {
        "lists": "",
        "match": "dragon .*3x3",
        "seconds": 60.0,
        "output": rows_file,
        "compile_only": False,
    }
    small = throughput.SMALL.problem
    throughput.main(**options)
    assert ran == [small, first.layer.problem, second.layer.problem]
    found = throughput.latest(throughput.stored(rows_file))
    assert [sources(mine) for mine in found] == [{"a"}, {"b"}, {"c"}]
    assert found[2][0]["method"] == "failed"
    assert "no" in found[2][0]["reason"]
    ran.clear()
    digests[second] = {"newer"}
    throughput.main(**options)
    assert ran == [small, second.layer.problem]
    assert len(throughput.stored(rows_file)) == 3
    ran.clear()
    workspace[first] = 50  # the same kernels, in other chunks
    throughput.main(**options)
    assert ran == [small, first.layer.problem]
    ran.clear()
    other = DATASHEETS["h200"]
    monkeypatch.setattr(throughput.bench, "context", lambda: {"device": other.name})
    monkeypatch.setattr(throughput.driver, "device", lambda index: other)
    throughput.main(**options)
    assert ran == [small, first.layer.problem, second.layer.problem]
    assert len(throughput.stored(rows_file)) == 6


def test_what_has_changed_since_it_was_measured_is_told_without_a_gpu(tmp_path, capsys) -> None:
    rows_file = tmp_path / "rows.jsonl"
    how = {"lists": "odd", "match": "63:65.* forward fp32", "output": rows_file, "changed": True}
    throughput.main(**how, compile_only=False)
    assert capsys.readouterr().out.endswith(f"1 cases, about {GUESS:.0f} s\n")
    (case,) = (c for c in cases("odd") if "63:65" in c.key[0] and c.key[1:] == ("forward", "fp32"))
    ((_, plans, digests),) = throughput.planned([case], H100)
    assert {contenders.digest(plan) for plan in plans} == digests
    for known, left in ((digests, 0), (digests - {min(digests)}, 1), (digests | {"other"}, 1)):
        rows_file.write_text(json.dumps(row(case, "2026-01-01", sources=sorted(known))) + "\n")
        throughput.main(**how, compile_only=False)
        assert capsys.readouterr().out.splitlines()[-1].startswith(f"{left} cases")
