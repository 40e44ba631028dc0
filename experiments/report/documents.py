"""What documents say of rows: ``python -m experiments.report.documents`` writes it anew.

README.md has it between marks, ``<!-- NAME -->`` and ``<!-- /NAME -->``; docs/results.md,
docs/records.md and the pictures in docs/ are wholly generated. What the modules ``summary`` of the
studies say is put together here. A test fails where a document says anything else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import typer

from experiments.harness import facts, studies, verdicts
from experiments.harness.facts import ROOT
from experiments.harness.tables import Cell, Table
from experiments.report import records
from experiments.report.counts import Counts, counts
from experiments.report.page import named

README = ROOT / "README.md"
RESULTS = ROOT / "docs" / "results.md"
RECORDS = ROOT / "docs" / "records.md"
MARKED = re.compile(r"(<!-- (\w+) -->\n).*?(<!-- /\2 -->)", re.DOTALL)
NOTHING = "its facts are kept; its kernels are not built"


@cache
def judged() -> list[tuple[Table, list[Cell]]]:
    """Every table that has rows, with its cells."""
    return [(table, cells) for table, _, cells in studies.results()]


def written(text: str) -> str:
    """The README's text with what the rows give between its marks. Raises KeyError at others."""
    parts = {"results": results_table} | studies.merged("summary", "MARKED")
    return MARKED.sub(lambda found: found[1] + parts[found[2]]() + found[3], text)


def results_table() -> str:
    """A row a paper, and those of other studies."""
    lines = ["| | what came out | agree |", "|---|---|---|"]
    summaries = {study.folder.name: study.module("summary") for study in studies.studies()}
    for paper in facts.papers():
        summary = summaries.get(paper)
        found = of(paper)
        told = summary.headline() if summary else NOTHING
        lines.append(f"| [{facts.named(paper)}]({facts.link(paper)}) | {told} | {short(found)} |")
    for summary in studies.modules("summary"):
        lines += (f"| {' | '.join(row)} |" for row in getattr(summary, "readme_rows", tuple)())
    return "".join(f"{line}\n" for line in lines)


def short(found: Counts) -> str:
    """The counts in few words: "31/35 numbers, 4/5 claims; 3 fitted"."""
    text = re.sub(r"(\d+) of (\d+)", r"\1/\2", found.text)
    return text.replace(" numbers agree", " numbers").replace(" claims hold", " claims")


def results() -> str:
    """docs/results.md."""
    lines = [
        "# Results",
        "",
        "Generated from the rows in `experiments/results/` by "
        "`python -m experiments.report.documents`; change nothing here by hand. Each row names "
        "its device, versions and commit, and holds what it takes to run it again. "
        "`winolab reproduce --list` names the tables, `winolab reproduce PAPER TABLE` computes one "
        "anew, and `results/report.html` shows every number.",
        "",
        "## The papers' tables",
        "",
        f"{verdicts.APART} `make reproduce` samples outputs, and its counts may differ; with "
        "`FULL=1` it gives those of the kept rows, which stand here.",
        "",
        *(f"- **{verdict}**: {meaning}." for verdict, meaning in verdicts.MEANINGS.items()),
    ]
    for paper in facts.papers():
        lines += ["", f"### {facts.named(paper)}", ""]
        lines += [
            f"[{facts.facts(paper)['paper']['title']}]({facts.link(paper)}): {of(paper).text}."
        ]
        lines += _tables(paper)
    rest = sorted({table.paper for table, _ in judged()} - {*facts.papers()})
    for study in rest:
        if tables := _tables(study):
            lines += ["", f"### {study}, beyond the papers", *tables]
    for summary in studies.modules("summary"):
        for title, told in getattr(summary, "sections", tuple)():
            lines += ["", f"## {title}", "", *told]
    return "".join(f"{line}\n" for line in lines)


def of(paper: str) -> Counts:
    """The counts of all of a paper's tables."""
    return counts(cell for table, cells in judged() if table.paper == paper for cell in cells)


def _tables(study: str) -> list[str]:
    """The tables of a study in which anything is judged, or why nothing is, as Markdown."""
    lines = ["", "| table | ours beside the paper's | agreement means |", "|---|---|---|"]
    for table, cells in judged():
        found = counts(cells)
        if table.paper == study and found.text != counts([]).text:
            name = f"{named(table.name)}: {table.title}"
            lines.append(f"| {name} | {found.text}{_missing(cells)} | {table.tolerance} |")
    return lines if len(lines) > 3 else []


def _missing(cells: Iterable[Cell]) -> str:
    """What would decide the claims that are open, each reason once."""
    notes = dict.fromkeys(cell.note for cell in cells if cell.verdict is verdicts.Verdict.OPEN)
    return f" ({'; '.join(notes)})" if notes else ""


def documents() -> Iterator[tuple[Path, str]]:
    """Each document's path and what it has to be."""
    yield README, written(README.read_text())
    yield RESULTS, results()
    yield RECORDS, records.page()
    for name, drawn in studies.merged("summary", "PICTURES").items():
        yield ROOT / "docs" / name, drawn()


def main() -> None:
    """Write README's numbers, docs/results.md, docs/records.md and the pictures in docs/ anew."""
    for path, text in documents():
        path.write_text(text)


if __name__ == "__main__":
    typer.run(main)
