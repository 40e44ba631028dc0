"""Tables of both plans, of fused Ω and of Figure 12 on a GPU, from made-up rows."""

from __future__ import annotations

import pytest

from experiments.harness.verdicts import Verdict
from papers.winrs_2025.measure import fused, recorded, tables
from tests.experiments import gpu_rows
from winolab.device import H100
from winolab.gpu.families.wgrad_mma.plan import WgradMmaPlan


def test_plans_are_compared_by_work_in_their_last_run() -> None:
    cells = {(c.where, c.column): c.ours for c in tables.cells_plans(gpu_rows.winrs_plans())}
    average = (0.8 * 0.8 / 1.5) ** 0.5
    assert cells["fp32, all", "winrs over omega, average"] == pytest.approx(average)
    assert cells["fp32, above 600 GFLOP", "winrs over omega, average"] == pytest.approx(0.8 / 1.5)
    assert cells["fp16, all", "layers on which winrs is faster"] == 0
    assert cells["fp16, all", "picked over omega, average"] == 1  # the same kernel
    assert cells["fp32, all", "direct over omega, maximum"] == pytest.approx(0.5)


def test_the_default_is_judged_beside_what_its_error_admits() -> None:
    rows = gpu_rows.winrs_plans()
    for row in rows:  # 20 % slower than the paper's plan, whose Ω8 errs too much in FP16
        if row["kind"] == "omega, picked":
            row["cold_us"] = [1.2 * row["cold_us"][1] / 0.8] * 3
    cells = {(c.where, c.column): c.ours for c in tables.cells_plans(rows)}
    assert cells["fp16, all", "picked over the fastest, maximum"] == 1
    assert cells["fp16, all", "picked over the fastest, minimum"] == pytest.approx(1 / 1.2)
    assert cells["fp16, all", "picked over the fastest admitted, minimum"] == 1
    assert cells["fp32, all", "picked over the fastest admitted, minimum"] == pytest.approx(1 / 1.2)
    assert cells["fp16, all", "layers on which the model's first is the fastest"] == 1


def test_the_text_has_as_many_layers_as_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = gpu_rows.winrs_plans()
    monkeypatch.setattr(tables, "stored", lambda name: rows)
    text = tables.TEXTS["winrs_2025 plans_kernels"]
    assert "2 of 100 drawn layers are timed, 1 of them above 600 GFLOP." in text.found([])
    rows = [row for row in rows if row["input"] == rows[0]["input"]]
    assert text.found([])[1].startswith("1 of 100 drawn layers")
    rows = []
    assert len(text.found([])) == 1


def test_fused_omega_stands_beside_cudnn_and_two_launches() -> None:
    """The fastest kernel of a kind counts; aims are none of the paper's numbers."""
    rows = gpu_rows.winrs_fused()
    cells = {(c.where, c.column): c for c in tables.cells_table3(rows)}
    gemm = cells["3×3, fused", "over gemm, average"]
    assert (gemm.paper, gemm.verdict) == (2.21, Verdict.NOT_COMPARABLE)
    assert gemm.ours == pytest.approx(1.6)
    assert cells["9×9, picked", "over gemm, average"].ours == pytest.approx(4)
    assert cells["9×9, picked", "over gemm, average"].paper is None
    aim = cells["5×5, fused", "over two launches, average"]
    assert (aim.verdict, aim.paper) == (Verdict.MISSED, None)
    assert aim.ours == pytest.approx(0.5)
    spaces = {(c.where, c.column): c for c in tables.cells_table2(rows)}
    assert spaces["aim", "workspace of the data, average"].verdict is Verdict.MISSED
    costs = spaces["time in 0.18 of the data", "over the fastest, average"]
    assert costs.ours == pytest.approx(2.2)


def test_results_that_are_not_finite_are_counted() -> None:
    cells = {(c.where, c.column): c for c in tables.cells_table4(gpu_rows.winrs_fused())}
    lost = cells["Ω16, fused, FP16 sums", "U[0,1], MARE, results that are not finite"]
    assert (lost.ours, lost.verdict) == (1, Verdict.MISSED)
    fine = cells["Ω8, fused", "U[0,1], MARE, at most the paper's"]
    assert (fine.verdict, fine.aim) == (Verdict.REACHED, 2.69e-3)
    remedies = tables.cells_remedies(gpu_rows.winrs_remedies())
    (claim,) = (c for c in remedies if c.claim)
    assert (claim.ours, claim.agrees) == (2, False)
    counted = {c.column: c.ours for c in remedies if c.where == "results that are not finite"}
    assert counted == {"all": 0, "one segment": 0, "no scaling": 1}


def test_recorded_gradients_are_judged_where_an_exact_result_is_finite() -> None:
    cells = {(c.where, c.column): c for c in recorded.cells(gpu_rows.winrs_recorded())}
    assert cells["records", "tensor pairs"].ours == 2
    assert cells["records", "of these dw fits FP16"].ours == 1
    assert cells["fused", "results that are not finite"].verdict is Verdict.REACHED
    assert cells["fused, no scaling", "results that are not finite"].ours == 1
    assert cells["fused", "error over the pick's, average"].ours == pytest.approx(2)


def test_what_is_measured_of_fused_omega() -> None:
    """Each kernel of the paper that divides the filter; in 0.18 of the data; and the pick."""
    problems = fused.cases()
    assert [p.filter[-1] for p in problems] == [3] * 3 + [5] * 3 + [7] * 3 + [9] * 3
    kinds = fused.planned(problems[-1], H100)
    assert set(kinds.values()) == set(fused.KINDS)
    mine = [p for p, kind in kinds.items() if kind == "fused"]
    assert {str(p.tiles[0]) for p in mine} == {"F(3,2)", "F(3,6)", "F(9,8)"}
    assert all(isinstance(p, WgradMmaPlan) for p in mine)
    data = fused.data_size(problems[-1]) // 2
    lean = [p for p, kind in kinds.items() if kind == "fused in 0.18"]
    assert lean
    assert all(p.workspace <= 0.18 * data for p in lean)
    rows = [
        {"method": "winolab", "kernel": p.kernel, "plan": str(p.config), "workspace": p.workspace}
        for p in kinds
    ]
    others = [{"method": "cudnn", "workspace": data}, {"method": "torch", "workspace": None},
              {"method": "refused", "reasons": {}}]  # fmt: skip
    made = fused.labelled(rows + others, kinds, data)
    assert [row["kind"] for row in made] == [*kinds.values(), "cuDNN", "PyTorch"]
    assert made[-2]["of_data"] == 1
    assert "of_data" not in made[-1]
