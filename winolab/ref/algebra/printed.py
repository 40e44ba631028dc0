"""Transforms as text: for a screen, for JSON, LaTeX, HTML, NumPy and CUDA; exact throughout."""

from __future__ import annotations

import json
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Protocol

from winolab.arguments.matrices import NAMES, Matrix
from winolab.arguments.words import plural
from winolab.points import Modulus, show

LEFT = {"AT": "A^T", "G": "G", "BT": "B^T"}  # in LaTeX


class Transforms(Protocol):
    """What is printed of transforms (winolab.ref.algebra.transforms)."""

    @property
    def n(self) -> int: ...
    @property
    def r(self) -> int: ...
    @property
    def alpha(self) -> int: ...
    @property
    def points(self) -> Modulus: ...
    @property
    def scaling(self) -> str | None: ...
    @property
    def programs(self) -> Any:
        """The programs AT, G and BT, with their counts."""
        ...


def as_text(t: Transforms) -> str:
    """The points, the three matrices and what their programs cost, for a screen."""
    saved = Fraction(t.n * t.r, t.alpha)
    head = [
        f"F({t.n},{t.r})   α = {plural(t.alpha, 'multiplication')} for {plural(t.n, 'output')} of "
        f"{plural(t.r, 'tap')}, "
        f"where direct convolution has {t.n * t.r} ({float(saved):.3g} times fewer)",
        *([f"points   {_points(t)}"] if t.points else []),
        "y = AT[(G g) ⊙ (BT d)], proved exactly"
        + (f"; rows scaled: {t.scaling}" if t.scaling else ""),
    ]
    blocks = [_grid(name, getattr(t, name)) for name in NAMES]
    return "\n\n".join(["\n".join(head), *blocks, _costs(t)])


def as_json(t: Transforms) -> str:
    """Keys n, r, alpha, points, AT, G, BT; entries are texts such as "-1/6"."""
    matrices = {name: [[str(v) for v in row] for row in getattr(t, name)] for name in NAMES}
    shape = {"n": t.n, "r": t.r, "alpha": t.alpha, "points": [show(p) for p in t.points]}
    return json.dumps({**shape, **matrices})


def as_latex(t: Transforms) -> str:
    """Three pmatrix environments, for a paper (they need amsmath)."""
    # amsmath stops at ten columns otherwise
    wide = f"\\setcounter{{MaxMatrixCols}}{{{t.alpha}}}\n" if t.alpha > 10 else ""
    return wide + "\n".join(
        f"{LEFT[name]} = \\begin{{pmatrix}}\n{_latex_rows(t, name)}\n\\end{{pmatrix}}"
        for name in NAMES
    )


def as_mathjax(t: Transforms) -> str:
    """Three arrays in one display, for notebooks: any number of columns, no package."""
    return "\n".join(
        f"$$\n{LEFT[name]} = \\left(\\begin{{array}}{{{'r' * len(getattr(t, name)[0])}}}\n"
        f"{_latex_rows(t, name)}\n\\end{{array}}\\right)\n$$"
        for name in NAMES
    )


def as_html(t: Transforms) -> str:
    """A table a matrix, for notebooks: it takes the colours of the page that it is in."""
    scaled = f", rows scaled: {t.scaling}" if t.scaling else ""
    tables = (
        f'<table style="margin: .5em 0"><caption style="text-align: left">'
        f"{LEFT[name].replace('^T', '<sup>T</sup>')}</caption>"
        + "".join(
            "<tr>" + "".join(f'<td style="text-align: right">{v}</td>' for v in row) + "</tr>"
            for row in getattr(t, name)
        )
        + "</table>"
        for name in NAMES
    )
    return f"<div><p>{_title(t)}{scaled}</p>{''.join(tables)}</div>"


def as_numpy(t: Transforms) -> str:
    """Python source of three float64 arrays; every entry is a quotient, so it is rounded once."""
    lines = ["import numpy as np", "", f"# {_title(t)}"]
    for name in NAMES:
        rows = ["    [" + ", ".join(map(str, row)) + "]," for row in getattr(t, name)]
        lines += [f"{name} = np.array([", *rows, "], dtype=np.float64)"]
    return "\n".join(lines)


def as_cuda(t: Transforms) -> str:
    """Three CUDA C++ device functions, printed from the transforms' programs."""
    functions = [getattr(t.programs, name).cuda(f"transform_{name}") for name in NAMES]
    return "\n\n".join([f"// {_title(t)}", *functions])


def _points(t: Transforms) -> str:
    return ", ".join(map(show, t.points))


def _title(t: Transforms) -> str:
    return f"F({t.n},{t.r})" + (f" at {_points(t)}" if t.points else "")


def _latex_rows(t: Transforms, name: str) -> str:
    return " \\\\\n".join("  " + " & ".join(map(_latex, row)) for row in getattr(t, name))


def _grid(name: str, matrix: Matrix) -> str:
    cells = [[str(v) for v in row] for row in matrix]
    return f"{name} ({len(cells)} × {len(cells[0])})\n" + _aligned(cells)


def _costs(t: Transforms) -> str:
    cells = [["operations", "+, −", "×", "× power of two", "FMA", "together"]]
    for name in NAMES:
        c = getattr(t.programs, name).counts
        values = (c.additions, c.multiplications, c.shifts, c.fmas, c.instructions)
        cells.append([name, *map(str, values)])
    return _aligned(cells)


def _aligned(cells: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    rows = (zip(row, widths, strict=True) for row in cells)
    return "\n".join("  " + "  ".join(cell.rjust(width) for cell, width in row) for row in rows)


def _latex(q: Fraction) -> str:
    if q.denominator == 1:
        return str(q)
    sign = "-" if q < 0 else ""
    return f"{sign}\\frac{{{abs(q.numerator)}}}{{{q.denominator}}}"
