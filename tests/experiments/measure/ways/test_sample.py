"""Samples of layers: they go on where they ended."""

from __future__ import annotations

import math

from experiments.measure import layers
from experiments.measure.ways import sample
from experiments.measure.ways.pointwise import cases
from experiments.measure.ways.sample import Sample
from winolab.device import datasheet

H200 = datasheet("h200")


def test_cases_go_on_behind_those_that_are_there(monkeypatch, capsys) -> None:
    """One that fails ends no other; a source that is another's is measured again."""
    asked, every = [], cases()[:5]

    def made(case, found):
        asked.append(case)
        if len(asked) == 2:
            raise MemoryError("too large")
        yield {"case": case}

    monkeypatch.setattr(Sample, "planned", lambda self, some, device: [(c, {"p": 1}) for c in some])
    monkeypatch.setattr(sample, "digest", lambda p: "new")
    monkeypatch.setattr(sample, "compile_all", list)
    monkeypatch.setattr(layers, "free", lambda: None)
    monkeypatch.setattr(sample.driver, "device", lambda index: H200)
    of = Sample(every, lambda *case: {}, 2, made)
    keys = [(str(layer), *rest) for layer, *rest in every]
    found = list(of.timed({keys[0]: "new", keys[1]: "old"}, 10, math.inf))
    assert asked == every[1:]
    assert [row["case"] for row in found] == [every[1], *every[3:]]
    assert "failed" in capsys.readouterr().out
    assert len(list(of.timed({}, 3, math.inf))) == 3
    assert not list(of.timed({}, 3, 0))
