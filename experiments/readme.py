"""The README's numbers, written from rows: ``python -m experiments.readme``.

Between the two marks of README.md stand how many of each table's numbers agree with the paper's,
and what the kernels reach, from the committed rows. A test fails where the README says anything
else.
"""

from __future__ import annotations

import json

from experiments.facts import ROOT
from experiments.report import cited
from experiments.reproduce import TABLES
from experiments.tables import RESULTS, stored
from winolab.nouns import parse_algorithm

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
            lines.append(f"| {cited(table)}: {table.title} | {count} | {table.tolerance} |")
    return "\n".join([*lines, "", *_kernels(), ""])


def _kernels() -> list[str]:
    """Throughput of the FP32 kernels on the shapes of the published kernels' measurements."""
    rows = [json.loads(line) for line in (RESULTS / "throughput.jsonl").read_text().splitlines()]
    chosen = [
        row
        for row in rows
        if (row["layers"], row["direction"], row["l2"]) == ("dragon", "forward", "cold")
    ]
    top, device = chosen[0]["sgemm_tflops"], chosen[0]["device"]
    lines = [
        f"FP32 kernels on an {device}, effective TFLOPS with cold L2 and the filter transform "
        f"counted, median of {chosen[0]['rounds']} interleaved rounds; PyTorch without TF32, "
        f"cudnn.benchmark on, its faster layout; SGEMM {top:.1f} in the same run "
        "(`python -m experiments.throughput`):",
        "",
        "| kernel | input | ours | of Φ·SGEMM | PyTorch | relative RMS error |",
        "|---|---|---|---|---|---|",
    ]
    for ours in (row for row in chosen if row["method"] == "winolab"):
        same = [row for row in chosen if row["input"] == ours["input"]]
        same = [row["tflops"] for row in same if row["filter"] == ours["filter"]
                and row["method"].startswith("torch")]  # fmt: skip
        (tile,) = parse_algorithm(ours["algorithm"]).tiles
        share = ours["tflops"] / (tile.n * tile.r / tile.alpha * top)
        lines.append(
            f"| {ours['algorithm']} | {ours['input']} | {ours['tflops']:.1f} | {share:.2f} "
            f"| {max(same):.1f} | {ours['relative_rms_u11']:.1e} |"
        )
    return lines


def written(text: str) -> str:
    """The README's text with what the rows give between the marks."""
    before, rest = text.split(MARKS[0])
    after = rest.split(MARKS[1])[1]
    return before + MARKS[0] + generated() + MARKS[1] + after


if __name__ == "__main__":
    README.write_text(written(README.read_text()))
