"""Training beside WinRS's Figure 13, from planted rows: what rows there are, and what is told."""

from __future__ import annotations

from matplotlib.figure import Figure

from experiments.training.run import PLANS
from papers.winrs_2025.measure import training
from tests.experiments import gpu_rows


def test_a_run_without_pytorch_s_beside_it_is_shown() -> None:
    runs = list(PLANS["fp16"](["winolab"]))
    rows = [gpu_rows.trained(run, "fp16") for run in runs]
    cells = training.cells_figure13(rows)
    assert len({c.where for c in cells}) == len(rows)
    assert not any(c.column.startswith("times") for c in cells)
    peak = "MB at the peak"
    assert [c.ours for c in cells if c.column == peak] == [100.0] * len(rows)
    old = [{**row, "peak_mb": row["memory_mb"], "memory_mb": None} for row in rows]
    assert not any(c.column == peak for c in training.cells_figure13(old))
    assert isinstance(training.curves("fp16", rows), Figure)


def test_the_last_of_several_rows_counts() -> None:
    rows = [gpu_rows.trained(run, "fp16") for run in PLANS["fp16"](["torch", "winolab"])]
    again = [{**row, "step_ms": 4.0} for row in rows]
    cells = training.cells_figure13([*rows, *again])
    assert len({(c.where, c.column) for c in cells}) == len(cells)
    assert {c.ours for c in cells if c.column == "ms a step"} == {4.0}
    (figure, *_) = training.curves("fp16", [*rows, *again]).axes
    assert len(figure.lines) == len(rows) / 2  # of one network


def test_what_is_missing_and_what_has_not_converged_is_told() -> None:
    runs = list(PLANS["fp16"](["torch", "winolab"]))
    rows = [gpu_rows.trained(run, "fp16") | {"test_accuracy": 0.95} for run in runs]
    told = training.TEXTS[training.FIGURE13.key].found
    assert len(told(training.cells_figure13(rows))) == len(rows)  # a line a run
    for row in rows:
        row["test_accuracy"] = 0.95 if row["network"] == "resnet34" else 0.5
    lines = told(training.cells_figure13(rows[:-1]))
    assert len(lines) == len(rows) + 1
    assert lines[-2].startswith("resnet50 with gradients by fused Ω is missing")
    assert "resnet50 has converged by nobody: accuracies are 0.50 to 0.50" in lines[-1]
