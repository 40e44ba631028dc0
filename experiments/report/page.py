"""results/report.html: one self-contained file that a reader understands without the code."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path

from matplotlib.figure import Figure

from experiments.harness import facts, studies
from experiments.harness.facts import ROOT, papers
from experiments.harness.jobs import Row
from experiments.harness.tables import Cell, Table
from experiments.harness.verdicts import APART, MEANINGS, Verdict
from experiments.report import figures
from experiments.report.counts import counts
from experiments.report.svg import shared_styles, svg
from experiments.report.texts import Text, absent

REPORT = ROOT / "results" / "report.html"

HERE = Path(__file__).parent
LINES = 5  # sentences that stand open
FEW = 40  # numbers that stand open
MANY = 200  # and those of which the page has the first, where none is judged


def write(
    judged: Sequence[tuple[Table, Sequence[Row], list[Cell]]],
    path: Path,
    told: Callable[[], object] = lambda: None,
) -> Path:
    """Write the report of these tables, their rows and their cells; returns its path. ``told``
    hears when each table's section is done: its figures take a second each.

    One file: a bar of contents, an overview, and a section a paper (or study of our own), of which
    a script shows one at a time.
    """
    results = [(table, rows) for table, rows, _ in judged]
    cells = {table.key: cells for table, _, cells in judged}
    names = [*papers(), *(table.paper for table, _ in results)]
    found = {name: mine for name in dict.fromkeys(names)
             if (mine := [pair for pair in results if pair[0].paper == name])}  # fmt: skip
    links = {"overview": "Overview"} | {name: _named(name) for name in found}
    bar = "".join(f'<a href="#{name}">{escape(title)}</a>' for name, title in links.items())
    overview = [INTRODUCTION, _summary(results, cells), WORDS]
    body, style = shared_styles(
        f'<nav aria-label="Contents"><div>{bar}</div></nav>\n'
        f"<header><h1>winolab: five papers' tables beside ours</h1>{_provenance(results)}</header>"
        f'\n<main>\n<section id="overview"><h2>Overview</h2>{"".join(overview)}</section>\n'
        + "\n".join(_study(name, mine, cells, told) for name, mine in found.items())
        + "\n</main>"
    )
    page = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>winolab report</title><style>{(HERE / 'style.css').read_text()}{style}</style>"
        f"</head>\n<body>\n{body}\n<script>{(HERE / 'pages.js').read_text()}</script>"
        "\n</body></html>\n"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(re.sub("</t[dhr]>", "", page))  # HTML ends them where the next begins
    return path


def _named(study: str) -> str:
    """What the bar calls a paper, or a study of our own."""
    if study not in papers():
        return studies.title(study)
    return facts.facts(study)["paper"].get("name") or facts.cited(study)


def _study(
    name: str,
    results: Sequence[tuple[Table, Sequence[Row]]],
    cells: Mapping[str, list[Cell]],
    told: Callable[[], object],
) -> str:
    """The section of a paper: what it is, what of it is here, and each table."""
    texts, drawn = studies.merged("texts", "TEXTS"), studies.merged("figures", "FIGURES")
    head = f"<h2>{escape(_named(name))}</h2>"
    if name in papers():
        paper = facts.facts(name)["paper"]
        head += (
            f'<p>{escape(paper["authors"])}: <a href="{facts.link(name)}">'
            f"{escape(paper['title'])}</a>. {escape(paper['venue'])}.</p>"
            f"<p>{escape(counts(c for t, _ in results for c in cells[t.key]).text)}.</p>"
        )
    links = "".join(
        f'<li><a href="#{_anchor(table)}">{escape(named(table.name))}</a>: '
        f"{escape(table.title)}</li>"
        for table, _ in results
    )
    sections = []
    for table, rows in results:
        text = texts.get(table.key) or absent(table)
        figures = drawn.get(table.key, ())
        sections.append(_section(table, rows, cells[table.key], text, figures))
        told()
    return "\n".join([f'<section id="{name}">{head}<ul>{links}</ul>', *sections, "</section>"])


def _provenance(results: Sequence[tuple[Table, Sequence[Row]]]) -> str:
    """Versions, commits and devices of the rows; the latest of many commits."""
    every = [row for _, rows in results for row in rows]
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    parts = [
        f"{name} {', '.join(values)}"
        for name, key in (
            ("winolab", "winolab"), ("NumPy", "numpy"), ("Python", "python"), ("on", "device"),
        )
        if (values := dict.fromkeys(str(row[key]) for row in every if row.get(key)))
    ]  # fmt: skip
    parts.append(f"written {made}")
    commits = list(dict.fromkeys(str(row["commit"]) for row in every if row.get("commit")))
    if len(commits) == 1:
        parts.insert(1, f"commit {commits[0]}")
    said = f'<p class="quiet">{escape(" · ".join(parts))}</p>'
    if len(commits) < 2:
        return said
    dated = [row for row in every if row.get("commit") and row.get("run")]
    last = max(dated, key=lambda row: str(row["run"]))["commit"] if dated else commits[-1]
    return said + (
        f'<details class="quiet"><summary>Rows of {len(commits)} commits, the latest {escape(last)}'
        f"</summary><p>{escape(', '.join(commits))}</p></details>"
    )


INTRODUCTION = """<p>Winograd convolution saves multiplications and pays in rounding error. Papers
report that error for their kernels. Here each figure stands beside one that is computed from
the algorithm's exact matrices alone: the same layers, the same distribution of data, every
operation rounded as the hardware rounds it, in the order in which the kernel makes it. Sections
that name a GPU have what it measured, from kept rows; the others need none. Where a constant was
fitted to a paper, the section says so.</p>"""
VERDICTS = "".join(
    f"<dt>{verdict}</dt><dd>{escape(meaning)}.</dd>" for verdict, meaning in MEANINGS.items()
)
WORDS = f"""<h3>Words</h3>
<p>{escape(APART)}</p>
<dl>{VERDICTS}
<dt>mean relative error (MARE)</dt><dd>mean of |error| / |exact|. It suits positive data; with
zero-mean data outputs near zero make it meaningless.</dd>
<dt>relative RMS</dt><dd>root mean square of the errors over that of the exact outputs.</dd>
<dt>relative bias</dt><dd>sum of the signed errors over the sum of |exact|; truncation and rounded
constants show here, random rounding does not.</dd>
<dt>prediction, bound</dt><dd>what is known before anything is run: an estimate of the error from
the mean and variance of the data, and a proven limit, here of the sampled outputs.</dd>
<dt>128x96x96x64:64x3x3</dt><dd>a layer: batch, height and width of the output, input channels :
output channels, filter; stride 1, padding of half the filter.</dd>
<dt>effective TFLOPS</dt><dd>direct convolution's multiplications and additions over the time, so
that a Winograd kernel may exceed its unit's peak. Φ·SGEMM: cuBLAS's FP32 product times the
multiplications that a tile saves, which kernels on FMA units can hardly exceed.</dd>
<dt>FFMA, split products</dt><dd>FP32 kernels on FMA units, and on Tensor Cores with each number
split in two of 16 bits; both as exact as FP32. TF32 is not.</dd></dl>"""


def _summary(results, cells: dict[str, list[Cell]]) -> str:
    rows = []
    for table, _ in results:
        found = counts(cells[table.key])
        rows.append(
            f'<tr><td><a href="#{_anchor(table)}">{escape(cited(table))}</a></td>'
            f'<td class="what">{escape(table.title)}</td><td class="what">{found.text}</td>'
            f'<td class="note">{escape(table.tolerance)}</td></tr>'
        )
    head = '<tr><th>table</th><th>what</th><th>agree</th><th class="note">if</th></tr>'
    listing = f'<div class="scroll"><table>{head}{"".join(rows)}</table></div>'
    return f"{_headlines(cells)}<details><summary>Every table</summary>{listing}</details>"


def _headlines(cells: dict[str, list[Cell]]) -> str:
    """A line a paper."""
    lines = []
    for paper in papers():
        mine = [c for key, found in cells.items() if key.split()[0] == paper for c in found]
        if not mine:
            continue
        link = f'<a href="#{paper}">{escape(_named(paper))}</a>'
        lines.append(f"<li>{link} ({escape(facts.cited(paper))}): {counts(mine).text}</li>")
    return f"<ul>{''.join(lines)}</ul>"


def cited(table: Table) -> str:
    """The table as a reader would cite it: "Lavin & Gray 2016, Table 4"."""
    name = named(table.name)
    if table.paper not in papers():
        return f"{table.paper}, {name}"
    return f"{facts.cited(table.paper)}, {name}"


def named(name: str) -> str:
    """A table's name for a reader: "table3_kernels" is Table 3 kernels."""
    name = name.replace("_", " ")
    for word in ("table", "figure", "equation"):
        name = re.sub(f"^{word}(?=[0-9])", f"{word.capitalize()} ", name)
    return name


def _anchor(table: Table) -> str:
    return table.key.replace(" ", "-")


def _section(
    table: Table,
    rows: Sequence[Row],
    cells: Sequence[Cell],
    text: Text,
    drawn: Sequence[figures.Drawn],
) -> str:
    name = cited(table) if table.paper in papers() else named(table.name).capitalize()
    parts = [f'<h3 id="{_anchor(table)}">{escape(f"{name}: {table.title}")}</h3>']
    parts += [f"<p><b>What was reported.</b> {escape(text.did)}</p>"]
    parts += [f"<p><b>What is done here.</b> {escape(text.do)}</p>"]
    found = [f"<li>{escape(line)}</li>" for line in text.found(cells)]
    parts += [f"<p><b>What comes out.</b></p><ul>{''.join(found[:LINES])}</ul>"]
    if more := found[LINES:]:
        parts += [f"<details><summary>{len(more)} more</summary><ul>{''.join(more)}</ul></details>"]
    parts += [_figure(draw, rows, caption) for draw, caption in drawn]
    listed = cells
    if len(cells) > MANY and all(cell.verdict == Verdict.SHOWN for cell in cells):
        listed = cells[:MANY]
    listing = _cells(listed)
    note = f'<p class="quiet">{escape(text.read)} Agrees: {escape(table.tolerance)}.</p>'
    if len(cells) > FEW:
        which = f"All {len(cells)} numbers"
        if len(listed) < len(cells):
            command = f"winolab reproduce {table.paper} {shlex.quote(table.name)}"
            which = f"The first {len(listed)} of {len(cells)} numbers ({command} has all)"
        listing = f"<details><summary>{which}</summary>{note}{listing}</details>"
    else:
        listing = note + listing
    return "\n".join([*parts, listing, _measured(rows)])


def _cells(cells: Sequence[Cell]) -> str:
    columns = [
        ("where", lambda c: escape(c.where)),
        ("what", lambda c: escape(c.column)),
        ("paper", lambda c: number(c.paper)),
        ("aim", lambda c: number(c.aim)),
        ("ours", lambda c: number(c.ours)),
        ("low", lambda c: number(c.low)),
        ("high", lambda c: number(c.high)),
        ("ratio", lambda c: "" if c.ratio is None else f"{c.ratio:.2f}"),
        ("prediction", lambda c: number(c.prediction)),
        ("bound", lambda c: number(c.bound)),
    ]
    spread = any((c.low, c.high) != (c.ours, c.ours) for c in cells)
    shown = [(name, of) for name, of in columns
             if any(of(c) for c in cells) and (spread or name not in ("low", "high"))]  # fmt: skip
    head = "".join(f"<th>{name}</th>" for name, _ in shown)
    judged = any(cell.verdict is not Verdict.SHOWN for cell in cells)
    noted = any(cell.note for cell in cells)
    head += '<th class="said">verdict</th>' * judged + '<th class="note">note</th>' * noted
    lines = []
    for cell in cells:
        values = "".join(f"<td>{of(cell)}</td>" for _, of in shown)
        said = "" if cell.verdict is Verdict.SHOWN else cell.verdict.value
        values += f'<td class="said {STYLES.get(cell.verdict, "")}">{said}</td>' * judged
        values += f'<td class="note">{escape(cell.note)}</td>' * noted
        lines.append(f"<tr>{values}</tr>")
    return f'<div class="scroll"><table><tr>{head}</tr>{"".join(lines)}</table></div>'


STYLES = {
    Verdict.AGREES: "yes", Verdict.REACHED: "yes", Verdict.DISAGREES: "no", Verdict.MISSED: "no",
}  # fmt: skip
METRICS = (
    "mare", "relative_rms", "predicted_relative_rms", "relative_bias", "max_abs", "bound_ratio",
)  # fmt: skip


def _measured(rows: Sequence[Row]) -> str:
    """Every variant's metrics over the table's rows, bias apart from RMS."""
    if not rows or not {"variant", "data", "mare"} <= rows[0].keys():
        return ""  # counted, of another metric, or of one kind of data: its cells say all
    names = list(dict.fromkeys((row["variant"], row["data"]) for row in rows))
    metrics = [m for m in METRICS if any(row.get(m) is not None for row in rows)]
    head = "<th>variant</th><th>data</th><th>rows</th>"
    head += "".join(f"<th>{m.replace('_', ' ')}</th>" for m in metrics)
    lines = []
    for variant, data in names:
        mine = [row for row in rows if row["variant"] == variant and row["data"] == data]
        cells = []
        for metric in metrics:
            values = [float(row[metric]) for row in mine if row.get(metric) is not None]
            cells.append(f"<td>{number(min(values))} … {number(max(values))}</td>")
        lines.append(
            f"<tr><td>{escape(variant)}</td><td>{data}</td><td>{len(mine)}</td>"
            + "".join(cells)
            + "</tr>"
        )
    table = f'<div class="scroll"><table><tr>{head}</tr>{"".join(lines)}</table></div>'
    what = (
        "The least and the greatest over the layers and seeds of each variant; bound ratio: the "
        "largest |error| over its proven bound."
    )
    return (
        f"<details><summary>All metrics, bias apart</summary>"
        f'<p class="quiet">{what}</p>{table}</details>'
    )


def _figure(draw: Callable[[Sequence[Row]], Figure], rows: Sequence[Row], caption: str) -> str:
    """A figure, which a narrow page scrolls, or has with its panels one below the other."""
    wide = draw(rows)
    drawn = f'<div class="scroll">{svg(wide)}</div>'
    if wide in figures.SIDE_BY_SIDE:
        with figures.narrow():
            slim = draw(rows)
        drawn = f'<div class="wide">{drawn}</div><div class="narrow">{svg(slim)}</div>'
    return f"<figure>{drawn}<figcaption>{escape(caption)}</figcaption></figure>"


def number(value: float | None) -> str:
    """Three digits, or nothing: what is not known is NaN."""
    return "" if value is None or math.isnan(value) else f"{value:.3g}"
