"""Which layers and plans the measurement of grouped layers has, and what its rows say."""

from __future__ import annotations

from experiments.harness.machines import stored
from experiments.measure.ways.grouped import RESULTS, layers, plans, summarized
from winolab.device import datasheet


def test_every_layer_has_all_plans_and_the_implicit_gemm() -> None:
    found = [plans(layer, "forward", "bf16", datasheet("h200")) for layer in layers()]
    assert len(found) == len({str(layer) for layer in layers()}) == 17
    for mine in found:
        kernels = [p.kernel for p in mine]
        assert kernels.count("implicit GEMM") == 1
        assert kernels.count("grouped") == len(kernels) - 1 >= 7
        assert [*mine.values()] == [True] + [False] * (len(mine) - 1)


def test_rows_are_of_these_layers_and_exact() -> None:
    rows = stored(RESULTS)
    assert {row["layer"] for row in rows} == {str(layer) for layer in layers()}
    for row in rows:
        if row["method"] == "winolab":
            assert 0 < row["relative_rms"] <= {"fp16": 1e-3, "bf16": 8e-3}[row["precision"]]


def test_the_note_has_what_rows_say() -> None:
    lines = list(summarized(stored(RESULTS)))
    assert lines[0].startswith("32x56x56x128:128x3x3 groups 32 forward fp16: PyTorch 56.48, ")
    assert "best 27.14 by 8x8" in lines[0]
