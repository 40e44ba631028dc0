"""Transforms as text: for a person, for JSON, LaTeX, NumPy and CUDA; exact fractions throughout.

And what every command prints with --json.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Annotated, Any

import typer

from winolab.ref.algebra.points import show
from winolab.ref.algebra.transforms import Matrix, Transforms

NAMES = ("AT", "G", "BT")
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]


def as_text(t: Transforms) -> str:
    """The points, the three matrices and what their programs cost, for a screen."""
    saved = Fraction(t.n * t.r, t.alpha)
    head = [
        f"F({t.n},{t.r})   α = {t.alpha} multiplications for {t.n} outputs of {t.r} taps, "
        f"where direct convolution has {t.n * t.r} ({float(saved):.3g} times fewer)",
        f"points   {', '.join(map(show, t.points))}",
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
    left = {"AT": "A^T", "G": "G", "BT": "B^T"}
    # amsmath stops at ten columns otherwise
    wide = f"\\setcounter{{MaxMatrixCols}}{{{t.alpha}}}\n" if t.alpha > 10 else ""
    return wide + "\n".join(
        f"{left[name]} = \\begin{{pmatrix}}\n"
        + " \\\\\n".join("  " + " & ".join(map(_latex, row)) for row in getattr(t, name))
        + "\n\\end{pmatrix}"
        for name in NAMES
    )


def as_numpy(t: Transforms) -> str:
    """Python source of three float64 arrays; every entry is a quotient, so it is rounded once."""
    lines = ["import numpy as np", "", f"# F({t.n},{t.r}) at {', '.join(map(show, t.points))}"]
    for name in NAMES:
        rows = ["    [" + ", ".join(map(str, row)) + "]," for row in getattr(t, name)]
        lines += [f"{name} = np.array([", *rows, "], dtype=np.float64)"]
    return "\n".join(lines)


def as_cuda(t: Transforms) -> str:
    """Three CUDA C++ device functions, printed from the transforms' programs."""
    title = f"// F({t.n},{t.r}) at {', '.join(map(show, t.points))}"
    functions = [getattr(t.programs, name).cuda(f"transform_{name}") for name in NAMES]
    return "\n\n".join([title, *functions])


FORMATS: dict[str, Callable[[Transforms], str]] = {
    "text": as_text,
    "json": as_json,
    "latex": as_latex,
    "cuda": as_cuda,
    "numpy": as_numpy,
}


def plain(value: Any) -> Any:
    """NaN and infinities as text, which JSON does not have as numbers; also inside a value."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def document(value: Any) -> str:
    """One JSON document that any parser reads."""
    return json.dumps(plain(value), allow_nan=False)


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
