"""The GPU's tables and figures from made-up rows, whole and in part."""

from __future__ import annotations

import pytest

from experiments import gpu_figures, gpu_tables, gpu_targets, texts_gpu
from experiments.gpu_rows import cases, kernel, ratio
from experiments.throughput_cases import DRAWN, FILTERS, GFLOP, LISTS
from tests.experiments import gpu_rows

THROUGHPUT, ERRORS = gpu_rows.throughput(), gpu_rows.errors()
TABLES = [(table, {"throughput": THROUGHPUT, "gpu_errors": ERRORS}[source])
          for table, source in gpu_targets.SOURCES]  # fmt: skip


@pytest.mark.parametrize(("table", "rows"), TABLES, ids=lambda v: getattr(v, "key", ""))
def test_every_table_has_cells_text_and_pictures(table, rows) -> None:
    cells = table.cells(rows)
    assert cells
    assert all(cell.ours > 0 for cell in cells)
    assert all(isinstance(line, str) for line in texts_gpu.TEXTS[table.key].found(cells))
    for draw, caption in gpu_figures.FIGURES[table.key]:
        figure = draw(rows)
        assert any(panel.lines for panel in figure.axes)
        assert caption


@pytest.mark.parametrize(("table", "rows"), TABLES, ids=lambda v: getattr(v, "key", ""))
def test_no_rows_no_cells(table, rows) -> None:
    assert table.cells([]) == []


def test_fastest_of_each_kind() -> None:
    (case,) = (c for c in cases(THROUGHPUT) if c.name == "128x96x96x64:64x3x3"
               and (c.direction, c.group) == ("forward", "fp32"))  # fmt: skip
    assert case.ffma is not None
    assert case.split is not None
    assert case.ours is not None
    assert case.frugal is not None
    assert case.any is not None
    assert case.tf32 is not None
    assert case.ffma["products"] == "fp32"
    assert case.split["products"] == case.ours["products"] == "fp32_split"
    assert case.frugal["kernel"] == "IMPLICIT_PRECOMP_GEMM"
    assert case.any["kernel"] == "FFT_TILING"
    assert case.tf32["method"] == "torch"
    assert case.limit == pytest.approx(2.25 * 50)
    assert ratio(case.ffma, case.frugal) == pytest.approx(100 / 30)


def test_the_last_run_of_a_case_counts_once() -> None:
    assert len(cases(THROUGHPUT)) == len({tuple(row["case"]) for row in THROUGHPUT})


@pytest.mark.parametrize(("name", "expected"), [("Γ8(6,3)", (8, 6, 3)), ("conv2d", (1, 1, 1)),
                                                ("Ω16(9,8)", (16, 9, 8))])  # fmt: skip
def test_kernel_names(name: str, expected: tuple) -> None:
    assert kernel(name) == expected


def test_winrs_sample_is_the_same_every_time() -> None:
    sample = LISTS["winrs"]
    assert len(sample) == DRAWN * len(FILTERS)
    assert str(sample[0]) == "32x128x128x256:256x2x2"
    assert all(2 * layer.problem.macs <= GFLOP * 1e9 for layer in sample)


def test_a_lower_speed_misses_its_aim() -> None:
    missed = {c.where for c in gpu_targets.cells(THROUGHPUT) if c.agrees is False}
    assert "split products, 128x12x12x512:512x3x3" in missed
    assert gpu_tables.cells_winrs2(THROUGHPUT)
