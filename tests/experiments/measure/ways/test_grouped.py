"""Which layers and plans the measurement of grouped layers has, and what its rows say."""

from __future__ import annotations

import pytest

from experiments.harness.machines import stored
from experiments.measure.ways.grouped import OWN, RESULTS, layers, plans, summarized
from winolab.device import datasheet


@pytest.mark.parametrize(
    ("direction", "precision"),
    [("forward", "bf16"), ("backward_filter", "fp16"), ("backward_filter", "fp32")],
)
def test_every_layer_has_all_plans_and_the_fastest_other(direction: str, precision: str) -> None:
    found = [plans(layer, direction, precision, datasheet("h200")) for layer in layers()]
    assert len(found) == len({str(layer) for layer in layers()}) == 17
    for mine in found:
        kernels = [p.kernel for p in mine]
        assert kernels.count(OWN) == len(kernels) - 1 >= 5
        assert kernels[-1] != OWN
        assert [*mine.values()] == [True] + [False] * (len(mine) - 1)


def test_rows_are_of_these_layers_and_exact() -> None:
    rows = stored(RESULTS)
    assert {row["layer"] for row in rows} == {str(layer) for layer in layers()}
    for row in rows:
        if row["method"] == "winolab":
            most = {"fp32": 1e-5, "fp16": 1e-3, "bf16": 8e-3}[row["precision"]]
            most = 5e-7 if row["kernel"] == OWN and row["precision"] == "fp32" else most
            assert 0 < row["relative_rms"] <= most


def test_the_note_has_what_rows_say() -> None:
    lines = list(summarized(stored(RESULTS)))
    assert lines[0].startswith("32x56x56x128:128x3x3 groups 32 forward fp16: PyTorch 56.48, ")
    assert "best 27.14 by 8x8" in lines[0]
