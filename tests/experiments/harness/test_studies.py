"""Papers are found in their folders: a new one is a new folder, and nobody imports one by name."""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.copies import GENERATED, copies
from experiments.harness import facts, reproduce, studies, tables
from experiments.report import page

ROOMS = ("harness", "report")
DOCS = facts.ROOT / "docs"
FACTS = """
[paper]
key = "trial_2027"
name = "Trial"
title = "A trial"
authors = "A. Author, B. Other"
year = 2027
venue = "TRIALS 2027"
doi = "10.1000/1"

[tables.1]
source = "Table 1"
value = 9
"""
TABLES = """
from functools import partial

from experiments.harness.counted import Count, cells, row
from experiments.harness.facts import table
from experiments.harness.tables import Table

PAPER = "trial_2027"


def squares():
    return [row("3", "square", 3**2, table(PAPER, 1)["value"])]


TABLES = (
    Table(
        PAPER, "table1", "Squares", lambda full: [Count(PAPER, "table1", squares)],
        partial(cells, unit=0), "equal",
    ),
)
"""
TEXTS = """
from experiments.report.texts import Text, ratios

TEXT = Text("It squared.", "The same.", "ours", lambda cells: [ratios(cells)])
TEXTS = {"trial_2027 table1": TEXT}
"""
FIGURES = """
from matplotlib.figure import Figure

FIGURES = {"trial_2027 table1": ((lambda rows: Figure(), "A caption of nothing."),)}
"""


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A checkout whose only study is one paper: five files of one folder."""
    folder = tmp_path / "papers" / "trial_2027"
    folder.mkdir(parents=True)
    parts = {"facts.toml": FACTS, "tables.py": TABLES, "texts.py": TEXTS, "figures.py": FIGURES}
    parts["reproduce.ipynb"] = "{}"
    for name, text in parts.items():
        (folder / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(facts, "PAPERS", tmp_path / "papers")
    monkeypatch.setattr(studies, "EXPERIMENTS", tmp_path / "experiments")
    monkeypatch.setattr(tables, "RESULTS", tmp_path / "kept")
    monkeypatch.setattr(tables, "COMPUTED", tmp_path / "results" / "rows")
    monkeypatch.setattr(page, "ROOT", tmp_path)
    monkeypatch.setattr(page, "REPORT", tmp_path / "report.html")
    yield folder
    for name in [name for name in sys.modules if name.startswith("papers.trial_2027")]:
        del sys.modules[name]


def test_a_new_paper_is_a_new_folder(trial: Path, capsys) -> None:
    """Listed, computed, kept, judged, told in the report, by the folder's own files alone."""
    reproduce.main(None, None, list_=True, as_json=True)
    (listed,) = json.loads(capsys.readouterr().out)
    assert (listed["paper"], listed["table"]) == ("trial_2027", "table1")
    reproduce.main("trial_2027", "table1", workers=1, update=True)
    said = " ".join(capsys.readouterr().out.split())
    assert "1 of 1 numbers agree. Rule: equal." in said
    assert "Where outputs are sampled, counts may differ from README's" in said
    (row,) = tables.stored("trial_2027")
    assert (row["ours"], row["printed"]) == (9, 9)
    text = page.REPORT.with_name("trial_2027.html").read_text()
    assert '<h3 id="trial_2027-table1">Author &amp; Other 2027, Table 1: Squares</h3>' in text
    assert '<a href="https://doi.org/10.1000/1">A trial</a>. TRIALS 2027.' in text
    assert text.count("<figure>") == 1
    assert "1 of 1 agree; ours over the paper" in text
    reproduce.main("trial_2027", "table1", full=True, workers=1)
    assert "sampled" not in capsys.readouterr().out
    assert not page.REPORT.exists()
    reproduce.main(None, None, workers=1)
    assert "1 of 1 agree; ours over the paper" in page.REPORT.read_text()


def test_the_site_lists_a_new_paper_by_its_folder(trial: Path) -> None:
    (copy,) = found = copies(trial.parents[1])
    assert found[copy] == trial / "reproduce.ipynb"
    (listed,) = re.findall(r"^_generated/papers/.*$", (DOCS / "index.md").read_text(), re.MULTILINE)
    assert copy.with_suffix("").match(f"docs/{listed}")
    assert copy.parents[1] == GENERATED


def test_a_run_writes_under_results_and_leaves_the_checkout_as_it_was(trial: Path) -> None:
    """Issue 44: rows that are kept change with --update alone; the report has the new ones."""
    reproduce.main("trial_2027", "table1", workers=1, update=True)
    kept = tables.RESULTS / "trial_2027.jsonl"
    other = kept.read_text().replace("table1", "table2")
    old = kept.read_text().replace('"ours": 9', '"ours": 4')
    kept.write_text(old + other)
    (tables.COMPUTED / "trial_2027.jsonl").unlink()
    report = page.REPORT.with_name("trial_2027.html")
    report.unlink()
    before = {path: path.read_bytes() for path in trial.parents[1].rglob("*") if path.is_file()}
    reproduce.main("trial_2027", "table1", workers=1)
    written = {
        path for path in trial.parents[1].rglob("*")
        if path.is_file() and before.get(path) != path.read_bytes()
        and "__pycache__" not in path.parts
    }  # fmt: skip
    assert written == {tables.COMPUTED / "trial_2027.jsonl", report}
    assert "<td>9<td>9" in report.read_text()
    assert [row["ours"] for row in tables.stored("trial_2027")] == [4, 9]
    reproduce.main("trial_2027", "table1", workers=1, update=True)
    assert [(row["table"], row["ours"]) for row in tables.stored("trial_2027")] == [
        ("table2", 9), ("table1", 9),
    ]  # fmt: skip


def test_git_ignores_where_runs_write() -> None:
    ignored = (facts.ROOT / ".gitignore").read_text().splitlines()
    for path in (tables.COMPUTED, page.REPORT.parent):
        assert f"/{path.relative_to(facts.ROOT).parts[0]}/" in ignored


def test_a_folder_without_tables_is_no_study(trial: Path) -> None:
    (trial / "tables.py").unlink()
    assert studies.studies() == ()
    assert facts.papers() == ("trial_2027",)


def test_papers_come_by_year_and_every_table_has_its_words() -> None:
    found = [study.folder.name for study in studies.studies()]
    years = [facts.facts(name)["paper"]["year"] for name in found if name in facts.papers()]
    assert years == sorted(years)
    assert found[: len(years)] == [name for name in facts.papers() if name in found]
    keys = [table.key for table in studies.tables()]
    assert len(set(keys)) == len(keys)
    assert set(studies.merged("texts", "TEXTS")) == {
        t.key for t in studies.tables() if not t.missing
    }
    assert set(studies.merged("figures", "FIGURES")) <= set(keys)


def imported(path: Path) -> set[str]:
    """Dotted names that a file imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def test_the_harness_knows_no_study_by_name() -> None:
    """It imports no paper and no measurement."""
    for path in (p for room in ROOMS for p in (studies.EXPERIMENTS / room).glob("*.py")):
        for name in imported(path):
            own = name.split(".")[0] not in ("papers", "experiments")
            assert own or name.split(".")[1] in ROOMS, f"{path.name} imports {name}"


def test_nothing_outside_papers_names_a_paper() -> None:
    """Papers use the harness and what a GPU measured, not the other way round: no key of a table,
    no figure, no fact of a named paper. The package has their folders in comments and examples."""
    named = "|".join(sorted({path.parent.name for path in facts.PAPERS.glob("*/*.py")}))
    assert "winrs_2025" in named
    for root, used in (("experiments", named), ("winolab", rf"[\"']({named})")):
        paths = [*(facts.ROOT / root).rglob("*.py")]
        assert len(paths) > 100
        for path in paths:
            assert not [name for name in imported(path) if name.startswith("papers.")], path
            assert not re.search(used, path.read_text()), path


def test_no_paper_imports_another() -> None:
    for path in facts.PAPERS.glob("*/*.py"):
        for name in imported(path):
            own = not name.startswith("papers.") or name.startswith(f"papers.{path.parent.name}.")
            own = own or name == f"papers.{path.parent.name}"
            assert own, f"{path.relative_to(facts.PAPERS)} imports {name}"
