"""Errors of filter gradients beside their predictions, from rows made of today's plans."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from experiments.gpu.targets import table as gpu_targets
from experiments.gpu.targets.tensor import UNIFORM
from experiments.harness.verdicts import Verdict
from tests.experiments.gpu_rows import MACHINE
from winolab.bench.contenders import entered
from winolab.bench.layers import parse_layer
from winolab.device import H100
from winolab.gpu.planner.accuracy import predicted_rms
from winolab.gpu.planner.request import Plan

LAYER = "32x128x128x256:256x2x2"
JUDGED = "Gradient: relative RMS off the reference's prediction"


def rows(times: Callable[[Plan], float]) -> list[dict]:
    """Rows of all plans of the layer's gradient, whose error is so many times the predicted one."""
    found = []
    for group in ("fp32", "fp16", "bf16"):
        made = entered("backward_filter", parse_layer(LAYER).problem, group, None, H100)
        for p, chosen in made.items():
            row = {"list": "winrs", "case": [LAYER, "backward_filter", group], "kernel_of": None}
            row |= MACHINE | {"device": H100.name, "method": "winolab", "kernel": p.kernel}
            row |= {"products": p.precision, "points": p.points, "plan": str(p.config)}
            row |= {"chosen": chosen, "workspace": p.workspace, "tflops": 100.0, "frugal": None}
            row |= {"precision": group, "direction": "backward_filter", "cold_us": [1.0, 1.0, 1.0]}
            found.append(row | {"relative_rms_u11": times(p) * predicted_rms(p, UNIFORM)})
    return found


def test_every_family_is_held_against_its_prediction() -> None:
    mine = rows(lambda p: 1.1)
    cells = [c for c in gpu_targets.cells(mine) if c.where.startswith("Gradient: relative RMS o")]
    found = {c.where.partition(", ")[2]: c for c in cells}
    judged = found.pop("")
    assert (judged.where, judged.verdict) == (JUDGED, Verdict.REACHED)
    assert judged.ours == pytest.approx(0.1)
    assert f"0 of {len(mine)} beyond" in judged.note
    assert set(found) == {
        *("FFMA, Ω", "split, Ω", "split, direct"),
        *(f"{half}, {kind}" for half in ("FP16", "BF16") for kind in ("Ω", "direct")),
    }
    assert all(c.ours == pytest.approx(1.1) and c.verdict is Verdict.SHOWN for c in found.values())


def test_an_error_that_is_not_as_predicted_misses() -> None:
    mine = rows(lambda p: 0.7 if p.precision == "fp32" else 1.0)
    (judged,) = (c for c in gpu_targets.cells(mine) if c.where == JUDGED)
    assert judged.verdict is Verdict.MISSED
    assert judged.ours == pytest.approx(0.3)
    assert LAYER in judged.note
    assert "Ω8(2,7) fp32 " in judged.note


def test_rows_whose_plans_are_not_made_any_more_are_told() -> None:
    mine = rows(lambda p: 1.0)
    mine[0]["workspace"] += 1
    judged, left_out = (c for c in gpu_targets.cells(mine) if c.where == JUDGED)
    assert f"0 of {len(mine) - 1} beyond" in judged.note
    assert (left_out.column, left_out.ours) == ("results left out", 1)
