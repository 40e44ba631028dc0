"""Which tables the command names, and those that a GPU measured, from kept rows."""

from __future__ import annotations

import json

import pytest
from rich.console import Console

from experiments.gpu import variants as variants_tables
from experiments.gpu.targets import table as gpu_targets
from experiments.harness import reproduce, studies, tables
from experiments.report import page
from papers.im2col_winograd_2024 import kernels as im2col_kernels
from tests.experiments import gpu_rows

ROWS = {"throughput": gpu_rows.throughput(), "gpu_errors": gpu_rows.errors(),
        "host": gpu_rows.host(), "sanitizer": gpu_rows.sanitizer(),
        "throughput_variants": gpu_rows.variants()}  # fmt: skip


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "stored", lambda name: ROWS.get(name, []))


def text(shown: object) -> str:
    console = Console(width=140)
    with console.capture() as capture:
        console.print(shown)
    return " ".join(capture.get().split())


def test_the_list_has_what_a_gpu_measured_and_the_command(capsys) -> None:
    reproduce.main(None, None, list_=True, as_json=True)
    listed = json.loads(capsys.readouterr().out)
    assert len(listed) == len(studies.tables())
    (targets,) = (e for e in listed if (e["paper"], e["table"]) == ("gpu", "targets"))
    assert "python -m experiments.measure.throughput" in targets["measured_by"]
    assert {bool(entry["measured_by"]) for entry in listed} == {True, False}
    reproduce.main("gpu", None, list_=True)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len([e for e in listed if e["paper"] == "gpu"])
    assert lines[0].startswith("gpu targets  What the kernels were to reach (kept rows")
    assert any(line.startswith("gpu 'gradient bounds'  ") for line in lines)


def test_every_file_of_rows_has_a_command() -> None:
    used = {name for table in studies.kept() for name in table.sources}
    assert used == set(studies.merged("tables", "COMMANDS"))


def test_tables_of_a_gpu_are_chosen_by_name() -> None:
    assert reproduce.chosen("gpu", "targets") == [gpu_targets.TARGETS]
    assert im2col_kernels.TABLE2 in reproduce.chosen("im2col_winograd_2024", None)
    with pytest.raises(ValueError, match="gpu has no 'aims' here; expected one of targets"):
        reproduce.chosen("gpu", "aims")


def test_kept_rows_are_shown_with_what_measures_them(rows) -> None:
    cells, grid = reproduce.kept(gpu_targets.TARGETS, whole=False)
    assert cells
    measured = "From kept rows, measured on a GPU by python -m experiments.measure.throughput; "
    assert measured in text(grid)
    cells, line = reproduce.kept(variants_tables.VARIANTS, whole=False)
    assert text(line).startswith(
        f"gpu variants: {len(cells)} numbers, none judged: winolab reproduce gpu variants shows"
    )
    assert "From kept rows" in text(reproduce.kept(variants_tables.VARIANTS, whole=True)[1])


def test_without_rows_it_says_what_measures_them(monkeypatch) -> None:
    monkeypatch.setattr(tables, "stored", lambda name: [])
    cells, line = reproduce.kept(im2col_kernels.TABLE3, whole=True)
    assert cells == []
    assert line == (
        "im2col_winograd_2024 table3_kernels: no rows are kept; on a GPU they are measured by "
        "python -m experiments.measure.errors"
    )


@pytest.mark.parametrize(("table", "count"), [("variants", 1), (None, 3)])
def test_what_is_named_is_drawn_alone(table, count: int, rows, monkeypatch, capsys) -> None:
    """The whole report took minutes where one table had been asked for."""
    drawn = []

    def write(results, path, _told):
        drawn.extend(t for t, *_ in results)
        return path

    monkeypatch.setattr(page, "write", write)
    reproduce.main("gpu", table)
    assert len(drawn) >= count
    assert {t.paper for t in drawn} == {"gpu"}
    assert table is None or [t.name for t in drawn] == [table]
    assert capsys.readouterr().out.endswith("s; report: results/gpu.html\n")
