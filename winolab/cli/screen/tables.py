"""What the command shows a person: rows and reports as tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from winolab.cli.screen import fitted
from winolab.gpu.machine import install
from winolab.measure import Case
from winolab.ref.algebra.points import NAMES, named_points, show
from winolab.ref.error.search import Scored

METRICS = {
    "mare": "MARE",
    "relative_rms": "relative\nRMS",
    "prediction": "RMS as\npredicted",
    "max_abs": "max\n|error|",
    "bound": "largest\nbound",
    "bound_ratio": "error/\nbound",
}
RANKS = (1, 0, 2, 5, 3, 4)  # in which METRICS stay where a terminal is narrow
LEGEND = (
    "MARE: mean of |error| / |exact|. Relative RMS: RMS of errors over RMS of exact values; "
    "beside it what a model of the roundings predicts. Bound: proven for every single output, "
    "the largest is shown; error/bound is the worst of all outputs."
)
RANGE = (
    " Range: what is too large or too small for the arithmetic's formats, outputs that are not "
    "finite (overflow) or most of the error as predicted (underflow)."
)


def accuracy(rows: Sequence[dict[str, Any]]) -> RenderableType:
    """A table of rows: what differs between the cases as columns, what does not above them."""
    names = [field.name for field in fields(Case)]
    varied = [name for name in names if len({row[name] for row in rows}) > 1]
    flagged = any(row.get("range") for row in rows)
    shared = [f"{name} {rows[0][name]}" for name in names if name not in varied]
    lines = []
    for row in rows:
        absent = {"prediction"} if row["prediction"] == "nan" else set()
        absent |= {"bound", "bound_ratio"} if row["unbounded"] else set()
        cells = ("none" if name in absent else _number(row[name]) for name in METRICS)
        flag = (row.get("range") or "",) if flagged else ()
        lines.append((*(str(row[name]) for name in varied), *flag, *cells))
    titles = [
        *fitted.texts(*varied, *["range"] * flagged),
        *fitted.numbers(*METRICS.values(), ranks=RANKS),
    ]
    table = fitted.of_rows(titles, lines)
    legend = LEGEND + RANGE * flagged
    return Group(Text(", ".join(shared)), Text(), table, Text(), Text(legend, style="dim"))


def leaders(found: Sequence[Scored]) -> list[dict[str, Any]]:
    """The sets that a search found, as flat rows; ``name`` where a set has one."""
    rows = []
    for scored in found:
        alpha, r = scored.tile.alpha, scored.tile.r
        names = [name for name in NAMES if scored.points == named_points(name, alpha, r)]
        rows.append(
            {
                "name": ", ".join(names) or None,
                "points": [show(point) for point in scored.points],
                "tile": str(scored.tile),
                "noise_gain": scored.gain,
                "zero_mean": scored.zero_mean,
                "positive": scored.positive,
                "score": scored.score,
            }
        )
    return rows


def points(rows: Sequence[dict[str, Any]], shown: int = 10) -> RenderableType:
    """The leaders of a search, best first, and the named sets wherever they stand."""
    titles = fitted.numbers("rank", "score", "U[-1,1]", "U[1,2]", "noise gain")
    lines = []
    for rank, row in enumerate(rows, 1):
        if rank <= shown or row["name"]:
            numbers = (row[key] for key in ("score", "zero_mean", "positive", "noise_gain"))
            cells = (*map(_number, numbers), row["name"] or "", ", ".join(row["points"]))
            lines.append((str(rank), *cells))
    legend = (
        f"Errors of {rows[0]['tile']} on rows over 64 channels in FP32: relative RMS on U[-1,1], "
        "MARE on U[1,2]. Score: their geometric mean; the noise gain predicts the first."
    )
    table = fitted.of_rows([*titles, *fitted.texts("name", "points")], lines)
    return Group(table, Text(), Text(legend, style="dim"))


def doctor(report: dict[str, Any]) -> RenderableType:
    """What is installed, what is missing and how to get it."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for name, text in _lines(report):  # as they are: paths may look like rich's markup
        grid.add_row(name, text if isinstance(text, Text) else Text(text))
    return grid


def _lines(report: dict[str, Any]) -> Iterator[tuple[str, str | Text]]:
    for name in ("winolab", "commit", "checkout", "python", "device"):
        yield name, report[name] or "none"
    yield "core", _versions(report["core"])
    for extra, packages in report["extras"].items():
        yield f"extra {extra}", _extra(extra, packages)
    for i, gpu in enumerate(report["gpus"]):
        yield f"GPU {i}", ", ".join(f"{k} {v}" for k, v in gpu.items())
    if not report["gpus"]:
        yield "GPU", "none found (nvidia-smi lists none); everything but kernels works"
    for name, release in report["compilers"].items():
        yield name, release or "none"
    yield from _cuda(report["cuda"])


def _cuda(found: dict[str, Any]) -> Iterator[tuple[str, str | Text]]:
    """What kernels and comparisons need, each with what to change where it does not serve."""
    driver, cupy, folder = (found[name] for name in ("driver", "cupy", "cache"))
    yield "driver", f"runs CUDA up to {driver}" if driver else "none"
    if len(wheels := found["cupy_wheels"]) > 1:
        anew = f"pip uninstall {' '.join(wheels)}, then {install('gpu')}"
        yield "CuPy", _warning(f"{' and '.join(wheels)} overwrite each other's files: {anew}")
    elif cupy and driver and int(cupy.split(".")[0]) > int(driver.split(".")[0]):
        change = f"update the driver, or {install('gpu')}"
        yield "CuPy", _warning(f"for CUDA {cupy}, which the driver does not run: {change}")
    elif cupy:
        yield "CuPy", f"for CUDA {cupy}"
    yield "cuDNN", found["cudnn"] or "none: winolab bench compares without it"
    if not folder:
        yield "kernels", _warning("kept nowhere, without a home directory: set WINOLAB_CACHE")
    elif found["cache_writable"]:
        yield "kernels", f"kept in {folder}"
    else:
        change = "set WINOLAB_CACHE to a folder that can"
        yield "kernels", _warning(f"kept in {folder}, which cannot be written to: {change}")


def _warning(text: str) -> Text:
    return Text(text, style="yellow")


def _number(value: float | str) -> str:
    return f"{float(value):.3g}"


def _versions(packages: dict[str, str | None]) -> str:
    return ", ".join(f"{name} {version or 'missing'}" for name, version in packages.items())


def _extra(extra: str, packages: dict[str, str | None]) -> Text:
    if all(packages.values()):
        return Text(_versions(packages))
    return _warning(f"{_versions(packages)}: {install(extra)}")
