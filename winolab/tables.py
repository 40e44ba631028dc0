"""What the command shows a person: rows and reports as tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from winolab.measure import Case

METRICS = {
    "mare": "MARE",
    "relative_rms": "relative RMS",
    "max_abs": "max |error|",
    "bias": "bias",
}
LEGEND = "MARE: mean of |error| / |exact|. Relative RMS: RMS of errors over RMS of exact values."


def accuracy(rows: Sequence[dict[str, Any]]) -> RenderableType:
    """A table of rows: what differs between the cases as columns, what does not above them."""
    names = [field.name for field in fields(Case)]
    varied = [name for name in names if len({row[name] for row in rows}) > 1]
    shared = [f"{name} {rows[0][name]}" for name in names if name not in varied]
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in varied:
        table.add_column(name, justify="left", no_wrap=True)
    for title in METRICS.values():
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        cells = [str(row[name]) for name in varied]
        table.add_row(*cells, *(_number(row[metric]) for metric in METRICS))
    return Group(Text(", ".join(shared)), Text(), table, Text(), Text(LEGEND, style="dim"))


def doctor(report: dict[str, Any]) -> RenderableType:
    """What is installed, what is missing and how to get it."""
    grid = Table.grid(padding=(0, 2))
    for name in ("winolab", "commit", "checkout", "python", "device"):
        grid.add_row(name, report[name] or "none")
    grid.add_row("core", _versions(report["core"]))
    for extra, packages in report["extras"].items():
        grid.add_row(f"extra {extra}", _extra(extra, packages))
    for i, gpu in enumerate(report["gpus"]):
        grid.add_row(f"GPU {i}", ", ".join(f"{k} {v}" for k, v in gpu.items()))
    if not report["gpus"]:
        grid.add_row("GPU", "none found (nvidia-smi lists none); everything but kernels works")
    for name, release in report["compilers"].items():
        grid.add_row(name, release or "none")
    return grid


def _number(value: float | str | None) -> str:
    return "none" if value is None else f"{float(value):.3g}"


def _versions(packages: dict[str, str | None]) -> str:
    return ", ".join(f"{name} {version or 'missing'}" for name, version in packages.items())


def _extra(extra: str, packages: dict[str, str | None]) -> Text:
    if all(packages.values()):
        return Text(_versions(packages))
    return Text(f"{_versions(packages)}: pip install 'winolab[{extra}]'", style="yellow")
