"""Which layers, plans and rows the measurement of thin layers has; a GPU is elsewhere."""

from __future__ import annotations

import pytest

from experiments.measure.ways import thin as measure
from experiments.measure.ways.thin import FASTEST, OWN, cases, compared, summarized
from winolab.device import datasheet

LAYER = "2x128x128x128x32>3x1x1x1"


def test_picks_come_first_each_beside_another_family_s(monkeypatch: pytest.MonkeyPatch) -> None:
    found = cases(datasheet("h200"))
    firsts = [isinstance(next(iter(mine)), OWN) for _, mine in found]
    assert firsts == sorted(firsts, reverse=True)
    assert 6 <= sum(firsts) < len(firsts)
    picked = {(str(layer), *rest) for (layer, *rest), _ in found[: sum(firsts)]}
    assert {(LAYER, d, "bf16") for d in ("forward", "backward_filter")} <= picked
    assert ("32x224x224x3>64x7x7s2p3", "forward", "fp16") in picked
    for _, mine in found:
        own = [p for p in mine if isinstance(p, OWN)]
        assert 1 <= len(own) <= 2 * FASTEST
        assert len(mine) == len(own) + 1
        assert [*mine.values()] == [True] + [False] * (len(mine) - 1)
    made = dict(found)
    monkeypatch.setattr(measure, "plans", lambda case, *_: made.get(case, {}))
    some = cases(datasheet("h200"), ("backward_filter",))
    assert {case for case, _ in some} == {case for case in made if case[1] == "backward_filter"}


def row(kernel: str, us: float, *, chosen: bool = False, method: str = "winolab") -> dict:
    case = {"layer": LAYER, "direction": "forward", "precision": "fp16", "us": us}
    own = {"kernel": kernel, "plan": "config", "predicted_us": 100.0, "chosen": chosen}
    return case | {"method": method} | (own if method == "winolab" else {})


def test_rows_say_whether_the_faster_was_picked() -> None:
    rows = [row("implicit GEMM", 300.0, chosen=True), row("thin", 140.0), row("thin", 120.0)]
    rows += [row("", 240.0, method="torch"), row("", 200.0, method="torch")]
    ((best, other, torch, well),) = compared(rows)
    assert (best["us"], other["us"], torch, well) == (120.0, 300.0, 200.0, False)
    text = [*summarized(rows)]
    assert "1.20 of what is predicted, 0.40 of implicit GEMM's, 0.60 of PyTorch's" in text[0]
    assert text[0].endswith("; the slower is picked")
    assert text[1] == "1 cases: 1.20 of the prediction, spread 0.00; the faster is picked in 0"
    rows[0]["chosen"], rows[2]["chosen"] = False, True
    assert [well for *_, well in compared(rows)] == [True]
    assert [*summarized([])] == []
    assert measure.RESULTS.name == "thin.jsonl"
