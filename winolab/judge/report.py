"""A judgement as one file of HTML: the verdict, what was found, errors, times."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any

from winolab.arguments.words import plural
from winolab.judge.judgement import Judgement

STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:75rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse;margin:1rem 0}td,th{padding:.2rem .7rem;text-align:left;"
    "border-bottom:1px solid #ccc;vertical-align:top}.refused{color:#a00}.accepted{color:#060}"
    ".left{color:#777}"
)
TRIALS = ("outcome", "problem", "data", "arrays", "stream", "relative_rms", "predicted_rms",
          "over_tolerance", "over_bound", "why")  # fmt: skip
TIMES = ("layer", "method", "kernel", "products", "cold_us", "warm_us", "tflops", "share",
         "workspace", "held_bytes", "relative_rms_u11")  # fmt: skip


def page(found: Judgement) -> str:
    """The report."""
    state = "accepted" if found else "refused"
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        f"<title>{escape(found.kernel)}: {state}</title><style>{STYLE}</style>",
        f"<h1>{escape(found.kernel)}</h1><p class={state}>{escape(found.verdict)}</p>",
    ]
    if found.faults:
        parts.append("<h2>Faults</h2><ul>")
        parts += [f"<li>{escape(str(fault))}" for fault in found.faults]
        parts.append("</ul>")
    if found.left:
        parts.append("<h2>Not judged</h2><ul>")
        parts += [
            f"<li>{plural(count, 'trial')}: {escape(why)}" for why, count in found.left.items()
        ]
        parts.append("</ul>")
    if found.times:
        parts += ["<h2>Times</h2>", *_table(found.times, TIMES)]
    parts += ["<h2>Trials</h2>", *_table(found.rows, TRIALS)]
    facts = ", ".join(f"{key} {value}" for key, value in found.facts.items())
    parts.append(f"<p>{escape(facts)}</p></html>")
    return "\n".join(parts)


def _table(rows: Iterable[dict[str, Any]], columns: tuple[str, ...]) -> list[str]:
    rows = list(rows)
    shown = [name for name in columns if any(name in row for row in rows)]
    lines = ["<table><tr>" + "".join(f"<th>{name.replace('_', ' ')}" for name in shown)]
    for row in rows:
        kind = escape(str(row.get("outcome", "")))
        cells = "".join(f"<td>{escape(_text(row.get(name)))}" for name in shown)
        lines.append(f"<tr class={kind or 'time'}>{cells}")
    return [*lines, "</table>"]


def _text(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.3g}" if isinstance(value, float) else str(value)
