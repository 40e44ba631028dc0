"""The README's numbers, written from rows: ``python -m experiments.report.readme``.

Between the two marks of README.md stand how many of each table's numbers agree with the paper's,
and what the kernels reach, from the committed rows. A test fails where the README says anything
else.
"""

from __future__ import annotations

from experiments.harness import studies
from experiments.harness.facts import ROOT
from experiments.report.page import cited

README = ROOT / "README.md"
MARKS = "<!-- rows -->\n", "<!-- /rows -->"


def generated() -> str:
    """The Markdown between the marks."""
    lines = ["| table | ours beside the paper's | agreement means |", "|---|---|---|"]
    for table, rows in studies.results():
        judged = [cell for cell in table.cells(rows) if cell.agrees is not None]
        if judged:
            agreed = sum(bool(cell.agrees) for cell in judged)
            count = f"{agreed} of {len(judged)} agree"
            lines.append(f"| {cited(table)}: {table.title} | {count} | {table.tolerance} |")
    more = (line for module in studies.modules("summary") for line in module.lines())
    return "\n".join([*lines, "", *more, ""])


def written(text: str) -> str:
    """The README's text with what the rows give between the marks."""
    before, rest = text.split(MARKS[0])
    after = rest.split(MARKS[1])[1]
    return before + MARKS[0] + generated() + MARKS[1] + after


if __name__ == "__main__":
    README.write_text(written(README.read_text()))
