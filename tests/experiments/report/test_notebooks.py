"""The papers' notebooks: what is kept is the text's, complete, small, and compared by its data."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path

import jupytext
import nbformat
import pytest
from matplotlib.figure import Figure

from experiments.harness import facts, studies
from experiments.report import described, notebooks, shown
from experiments.report.beside import Beside, Paper
from experiments.report.page import cited

KEPT = [path.with_suffix(".ipynb") for path in notebooks.notebooks()]


def read(path: Path) -> nbformat.NotebookNode:
    return nbformat.read(path, as_version=4)


def test_every_paper_has_a_notebook_in_both_forms() -> None:
    mine = {path.parent.name for path in KEPT if path.name == "reproduce.ipynb"}
    assert sorted(mine) == sorted(facts.papers())
    assert len(mine) == 5
    assert {path.name for path in KEPT} == {"reproduce.ipynb", "beyond_minimal.ipynb"}
    assert all(path.is_file() for path in KEPT)


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.parent.name)
def test_what_is_kept_has_the_text_s_cells_and_nothing_of_the_run(path: Path) -> None:
    """No counts, times or paths, at most 1 MB: another run writes the same."""
    book, text = read(path), path.read_text()
    nbformat.validate(book)
    assert len(text.encode()) <= 1_000_000
    source = jupytext.read(path.with_suffix(".py"))
    assert [cell.source for cell in book.cells] == [cell.source for cell in source.cells]
    assert source.metadata["jupytext"]["formats"] == "ipynb,py:percent"
    assert nbformat.writes(notebooks.stripped(book)) + "\n" == text
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert {cell.execution_count for cell in code} == {None}
    assert not any(cell.metadata for cell in book.cells)
    assert not re.search(r"/(work|home|root|tmp|usr)/", text)
    assert not notebooks.blank(book)
    assert "image/png" in text
    assert "Traceback" not in text


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.parent.name)
def test_every_table_of_the_paper_stands_in_its_notebook(path: Path) -> None:
    shown_texts = "\n".join(
        data["text/plain"]
        for cell in read(path).cells
        for output in cell.get("outputs", ())
        if "text/html" in (data := output.get("data", {}))
    )
    mine = [table for table in studies.tables() if table.paper == path.parent.name]
    missing = [table.key for table in mine if f"{cited(table)}: " not in shown_texts]
    assert missing == []


def test_a_table_has_the_paper_s_column_beside_ours_and_its_verdict() -> None:
    table = Paper("lavin_gray_2016").table("table2")
    html = table._repr_html_()
    for name in ("paper", "ours", "ratio", "verdict"):
        assert f"<th>{name}</th>" in html
    cell = next(c for c in table.cells if c.agrees)
    assert "<td>3.33</td><td>3.33</td><td>1.00</td><td>agrees</td>" in html
    assert cell.where in html
    assert repr(table).startswith("Lavin & Gray 2016, Table 2: ")
    with pytest.raises(ValueError, match="there is no 'table9' here; expected one of table1"):
        Paper("lavin_gray_2016").table("table9")


def test_a_table_without_numbers_of_a_column_has_no_such_column() -> None:
    table = Paper("lavin_gray_2016").table("table2")
    bare = [c for c in table.cells if c.paper is None]
    html = Beside(table.table, bare)._repr_html_()
    assert "<th>paper</th>" not in html
    assert "<th>ours</th>" in html


def test_a_paper_without_numbers_shows_how_many_of_its_claims_hold() -> None:
    paper = Paper("dwm_2021")
    (panel,) = paper.agreement().axes
    hold, not_hold, undecided = (
        sum(bar.get_width() for bar in bars)  # pyright: ignore
        for bars in panel.containers
    )
    assert f"{hold:g} of {hold + not_hold:g} claims hold" in paper.headline
    assert f"{undecided:g} open" in paper.headline


def drawn(last: float) -> Figure:
    figure = Figure()
    panel = figure.subplots()
    panel.set(title="Γ8(6,3)", xlabel="channels", ylabel="error")
    panel.plot([64, 128, 256], [1e-7, 2e-7, last], label="paper")
    panel.plot([64], [3e-7], "o")
    return figure


def test_a_figure_in_words_has_its_series() -> None:
    assert described.described(drawn(3e-7)) == (
        "Figure\n  panel Γ8(6,3), channels, error\n"
        "    paper: 3 points, x 64 / 149 / 256, y 1e-07 / 2e-07 / 3e-07\n"
        "    -: 1 points, x 64 / 64 / 64, y 3e-07 / 3e-07 / 3e-07"
    )
    assert described.alternative(drawn(3e-7)) == "Γ8(6,3): error against channels. Drawn: paper."
    assert shown.picture(drawn(3e-7)).startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("mare 1.13e-05, 3 of 4", "mare 1.14e-05, 3 of 4", True),
        ("mare 1.13e-05, 3 of 4", "mare 1.16e-05, 3 of 4", False),
        ("mse 1.1e-03", "mse 1.2e-03", True),  # a unit of the last digit: 1.149 and 1.151
        ("mse 1.1e-03", "mse 1.3e-03", False),
        ("5e-08", "6e-08", True),
        ("5e-08", "5e-07", False),
        ("36 of 36 agree", "35 of 36 agree", False),
        ("equal", "unequal", False),
        ("<td>2.25</td>", "<td>-2.25</td>", False),
        ("a\nb", "a", False),
        ("Γ16(8,9)  1", "Γ16(8,9) 1", True),  # columns move with their numbers
        ("Γ16(8,9)", "Γ16(9,8)", False),
    ],
)
def test_texts_are_compared_exactly_and_numbers_to_two_percent(one, other, same) -> None:
    assert (notebooks.unequal(one, other) == "") == same


def test_a_changed_output_a_missing_figure_and_another_cell_are_named() -> None:
    (path,) = [path for path in KEPT if path.parent.name == "opencnn_2021"]
    kept = read(path)
    assert list(notebooks.differences(kept, kept)) == []
    other = copy.deepcopy(kept)
    (figure,) = (  # that of Tables 3 and 4
        o for c in other.cells for o in c.get("outputs", ())
        if "image/png" in o.get("data", {}) and "2.15" in o.data["text/plain"]
    )  # fmt: skip
    figure.data["image/png"] = "other pixels"
    assert list(notebooks.differences(kept, other)) == []
    figure.data["text/plain"] = figure.data["text/plain"].replace("2.15", "2.51")
    assert len(list(notebooks.differences(kept, other))) == 1
    del figure.data["image/png"]
    assert any("kept are" in line for line in notebooks.differences(kept, other))
    assert notebooks.blank(other)
    other.cells[0].source += "."
    (line,) = notebooks.differences(kept, other)
    assert "--update" in line


def test_git_keeps_the_notebooks() -> None:
    ignored = (facts.ROOT / ".gitignore").read_text()
    assert "*.ipynb\n" not in ignored
    assert json.loads(KEPT[0].read_text())["nbformat"] == 4
