"""Plans side by side: which ones, and what is said of them; not their times."""

from __future__ import annotations

import json

import pytest

from experiments.gpu import variants as variants_tables
from experiments.measure import picks
from experiments.measure.cases import cases
from winolab.bench.contenders import offered, unnamed
from winolab.device import H100


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
    wanted = {"match": "^32x64x64x128:128x9x9 forward fp32", "kernel": "Γ16.* fp32 "}
    picks.main("a step", "none", "", near=1.3, most=3, output=file, **wanted)
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [row["us"] for row in rows] == [200, 100, 400]
    assert {row["step"] for row in rows} == {"a step"}
    assert variants_tables.cells(rows)[0].note.startswith("best of 3: Γ16(8,9) ")
    assert len(variants_tables.pairs(rows)) == 3
    assert "1 picks take 100.0% more than the fastest on average" in capsys.readouterr().out


def test_no_two_plans_are_no_loss() -> None:
    assert picks.told([]) == ["no case has two such plans"]
