"""The README's numbers, written from rows: ``python -m experiments.readme``.

Between the two marks of README.md stand the tables that the committed rows give and how many of
each table's numbers agree with the paper's. A test fails where the README says anything else.
"""

from __future__ import annotations

from experiments.facts import ROOT, facts
from experiments.reproduce import TABLES
from experiments.tables import stored

README = ROOT / "README.md"
MARKS = "<!-- rows -->\n", "<!-- /rows -->"


def generated() -> str:
    """The Markdown between the marks."""
    lines = ["| table | ours beside the paper's | agreement means |", "|---|---|---|"]
    for table in TABLES:
        rows = [row for row in stored(table.paper) if row["table"] == table.name]
        if not rows:
            continue
        judged = [cell for cell in table.cells(rows) if cell.agrees is not None]
        if judged:
            agreed = sum(bool(cell.agrees) for cell in judged)
            count = f"{agreed} of {len(judged)} agree"
            lines.append(f"| {_paper(table.paper)}{table.title} | {count} | {table.tolerance} |")
    return "\n".join([*lines, ""])


def written(text: str) -> str:
    """The README's text with what the rows give between the marks."""
    before, rest = text.split(MARKS[0])
    after = rest.split(MARKS[1])[1]
    return before + MARKS[0] + generated() + MARKS[1] + after


def _paper(key: str) -> str:
    try:
        paper = facts(key)["paper"]
    except ValueError:
        return ""
    return f"{paper.get('authors', paper['title']).split(',')[0]} {paper['year']}: "


if __name__ == "__main__":
    README.write_text(written(README.read_text()))
