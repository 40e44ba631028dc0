"""Plans side by side: which ones, and what is said of them; not their times."""

from __future__ import annotations

import json

import pytest

from experiments.gpu import variants as variants_tables
from experiments.harness.facts import ROOT
from experiments.harness.machines import stored
from experiments.measure import picks
from experiments.measure.cases import cases
from tests.support.timed import stand_in
from winolab.bench.contenders import offered, unnamed
from winolab.device import DATASHEETS, H100, datasheet

H200 = datasheet("h200")


def case(layer: str, direction: str, group: str = "fp32"):
    return next(c for c in cases() if c.key == (layer, direction, group))


@pytest.mark.parametrize(
    ("layer", "direction", "kernel"),
    [
        ("32x14x14x256:256x3x3", "forward", ""),
        ("32x64x64x128:128x9x9", "backward_data", "Γ16.* fp32 "),
        ("32x14x14x256:256x3x3", "backward_filter", " fp32 "),
    ],
)
def test_the_planners_choice_is_first_and_others_are_near(layer, direction, kernel) -> None:
    mine = case(layer, direction)
    found = picks.rivals(mine, H100, kernel, 1.2, 5)
    request = unnamed(direction, mine.layer.problem, "fp32", H100)
    every = [plans for _, plans in offered(request, mine.layer.named(direction))]
    if not kernel:
        firsts = {picks.name(plans[0]) for plans in every if plans}
        assert {picks.name(plans[0]) for plans in found} <= firsts
    assert found
    for plans in found:
        assert 2 <= len(plans) <= 5
        assert len(set(map(picks.name, plans))) == len(plans)
        assert all(p.predicted <= 1.2 * plans[0].predicted for p in plans)
        assert all(kernel.strip(" ").split(".*")[0] in picks.name(p) for p in plans)


def test_rows_of_a_step_and_what_picks_lose(tmp_path, monkeypatch, capsys) -> None:
    times = [2e-4, 1e-4, 4e-4]
    monkeypatch.setattr(picks.bench, "ready", lambda: None)
    monkeypatch.setattr(picks.bench, "context", lambda: {"device": H100.name})
    monkeypatch.setattr(picks.driver, "device", lambda index: H100)
    monkeypatch.setattr(picks, "compile_all", lambda plans: len(list(plans)))
    monkeypatch.setattr(picks, "timed", lambda case, plans: times[: len(plans)])
    file = tmp_path / "rows.jsonl"
    match, kernel = "^32x64x64x128:128x9x9 forward fp32", "Γ16.* fp32 "
    picks.main("a step", "none", "", match, kernel, near=1.3, most=3, output=file)
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [row["us"] for row in rows] == [200, 100, 400]
    assert {row["step"] for row in rows} == {"a step"}
    assert variants_tables.cells(rows)[0].note.startswith("best of 3: Γ16(8,9) ")
    assert len(variants_tables.pairs(rows)) == 3
    assert "1 picks take 100.0% more than the fastest on average" in capsys.readouterr().out


def test_no_two_plans_are_no_loss() -> None:
    assert picks.told([]) == ["no case has two such plans"]


LISTED = {
    "step": "a refit", "device": H200.name, "layer": "32x28x28x128>128x1x1",
    "direction": "forward", "precision": "fp32", "before": ["cuBLASLt fp32 workspace=0", 0],
    "after": ["Γ1(1,1) fp32_split 128x64x64 stages=8+8", 1379072],
}  # fmt: skip
LATE = {**LISTED, "layer": "32x14x14x256>128x1x1", "after": ["cuBLASLt fp32 workspace=0", 0],
        "before": ["Γ1(1,1) fp32_split 128x64x64 stages=8+8", 535808]}  # fmt: skip


def measured(monkeypatch, file, listed, took) -> list[str]:
    """What is timed of a list on an H200 whose plans take so many seconds, in order."""
    timed = stand_in(monkeypatch, picks, "side_by_side", H200, took)
    list_file = file.with_name("list.jsonl")
    list_file.write_text("".join(json.dumps(pair) + "\n" for pair in listed))
    picks.main("a refit", changed=list_file, seconds=60, output=file)
    return [f"{how} {p.x_shape[0]}x{p.x_shape[1]}" for how, p, _ in timed]


def test_changed_picks_are_timed_by_name_and_once(tmp_path, monkeypatch, capsys) -> None:
    """Both plans of each pair of this GPU and step; what has rows is not timed again."""
    others = [{**LISTED, "step": "another"}, {**LISTED, "device": H100.name}]
    file = tmp_path / "rows.jsonl"
    assert measured(monkeypatch, file, [*others, LISTED], (20.0, 22.0)) == ["forward 32x28"]
    kept = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(row["kind"], row["kernel"]) for row in kept] == [
        ("before", "cuBLASLt"),
        ("after", "Γ1(1,1)"),
    ]
    assert {row["layer"] for row in kept} == {LISTED["layer"]}
    said = capsys.readouterr().out
    assert "1 changed picks take 1.100 times as long as before, 1 over 1.03" in said
    assert "1.100 32x28x28x128>128x1x1 forward fp32" in said
    assert measured(monkeypatch, file, [*others, LISTED, LATE], (20.0, 18.0)) == ["forward 32x14"]
    assert "2 changed picks take 0.995 times as long as before, 1 over" in capsys.readouterr().out


def test_a_name_that_is_gone_is_said_and_left_out(tmp_path, monkeypatch, capsys) -> None:
    gone = {**LISTED, "before": ["cuBLASLt fp32 workspace=7", 7]}
    file = tmp_path / "rows.jsonl"
    assert picks.both(gone, H200) == {}
    assert "no plan is cuBLASLt fp32 workspace=7 with 7 bytes" in capsys.readouterr().out
    assert measured(monkeypatch, file, [gone, LATE], (20.0, 18.0)) == ["forward 32x14"]


def test_every_changed_pick_that_is_listed_has_both_plans() -> None:
    """One in twenty-nine."""
    listed = stored(ROOT / "experiments" / "measure" / "picks_to_time.jsonl")
    assert listed
    for pair in listed[::29]:
        device = next(d for d in DATASHEETS.values() if d.name == pair["device"])
        assert list(picks.both(pair, device).values()) == ["before", "after"]
