"""Transforms as text: every format holds the exact matrices, and values show theirs."""

from __future__ import annotations

import doctest
import json
import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import winolab
from winolab import Problem
from winolab.ref.algebra import printed
from winolab.ref.algebra.points import as_points
from winolab.ref.algebra.transforms import Transforms, transforms
from winolab.ref.algorithms.winrs.plan import plan as winrs_plan

TILES = [(2, 3), (6, 3), (8, 9)]


@pytest.mark.parametrize(("n", "r"), TILES)
def test_json_reads_back_exactly(n: int, r: int) -> None:
    t = transforms(n, r, "paper")
    read = json.loads(printed.as_json(t))
    assert list(read) == ["n", "r", "alpha", "points", "AT", "G", "BT"]
    assert (read["n"], read["r"], read["alpha"]) == (n, r, n + r - 1)
    assert as_points(",".join(read["points"]), t.tile) == t.points
    for name in printed.NAMES:
        assert tuple(tuple(map(Fraction, row)) for row in read[name]) == getattr(t, name)


@pytest.mark.parametrize(("n", "r"), TILES)
def test_numpy_source_runs_to_the_rounded_matrices(n: int, r: int) -> None:
    t = transforms(n, r, "paper")
    names: dict = {}
    exec(printed.as_numpy(t), names)
    for name in printed.NAMES:
        assert names[name].dtype == np.float64
        assert names[name].tolist() == [[float(v) for v in row] for row in getattr(t, name)]


def test_latex_holds_every_entry() -> None:
    t = transforms(6, 3, "paper")
    entries = re.findall(
        r"(-?)(?:\\frac\{(\d+)\}\{(\d+)\}|\b(\d+)\b) ?(?=[&\\\n])", printed.as_latex(t)
    )
    found = [Fraction(int(whole or top), int(bottom or 1)) for _, top, bottom, whole in entries]
    signs = [-1 if sign else 1 for sign, *_ in entries]
    exact = [v for name in printed.NAMES for row in getattr(t, name) for v in row]
    assert [s * v for s, v in zip(signs, found, strict=True)] == exact
    assert "MaxMatrixCols" not in printed.as_latex(t)
    assert "{MaxMatrixCols}{16}" in printed.as_latex(transforms(8, 9, "paper"))


def test_cuda_holds_the_three_programs() -> None:
    t = transforms(6, 3, "paper")
    source = printed.as_cuda(t)
    for name in printed.NAMES:
        assert getattr(t.programs, name).cuda(f"transform_{name}") in source


def test_text_aligns_and_counts() -> None:
    text = printed.as_text(transforms(4, 3, "0,1,-1,2,-2,inf", "l1"))
    assert "F(4,3)" in text
    assert "0, 1, -1, 2, -2, inf" in text
    assert "rows scaled: l1" in text
    for block in text.split("\n\n")[1:4]:
        assert len({len(line) for line in block.splitlines()[1:]}) == 1
    counts = transforms(4, 3, "paper").programs.BT.counts
    last = printed.as_text(transforms(4, 3, "paper")).splitlines()[-1].split()
    assert last[0] == "BT"
    assert int(last[-1]) == counts.instructions


F23 = transforms(2, 3, "0,1,-1,inf")


def test_transforms_show_their_matrices() -> None:
    assert str(F23) == repr(F23) == printed.as_text(F23)
    assert str(F23).startswith(
        """F(2,3)   α = 4 multiplications for 2 outputs of 3 taps, where direct convolution has 6 \
(1.5 times fewer)
points   0, 1, -1, inf
y = AT[(G g) ⊙ (BT d)], proved exactly

AT (2 × 4)
  1  1   1  0
  0  1  -1  1

G (4 × 3)
   -1     0    0
  1/2   1/2  1/2
  1/2  -1/2  1/2
    0     0    1

BT (4 × 4)
  -1   0  1  0
   0   1  1  0
   0  -1  1  0
   0  -1  0  1
"""
    )
    assert "Fraction" not in repr(transforms(6, 3))


def test_latex_of_f23() -> None:
    assert F23.to_latex() == (
        "A^T = \\begin{pmatrix}\n  1 & 1 & 1 & 0 \\\\\n  0 & 1 & -1 & 1\n\\end{pmatrix}\n"
        "G = \\begin{pmatrix}\n  -1 & 0 & 0 \\\\\n"
        "  \\frac{1}{2} & \\frac{1}{2} & \\frac{1}{2} \\\\\n"
        "  \\frac{1}{2} & -\\frac{1}{2} & \\frac{1}{2} \\\\\n  0 & 0 & 1\n\\end{pmatrix}\n"
        "B^T = \\begin{pmatrix}\n  -1 & 0 & 1 & 0 \\\\\n  0 & 1 & 1 & 0 \\\\\n"
        "  0 & -1 & 1 & 0 \\\\\n  0 & -1 & 0 & 1\n\\end{pmatrix}"
    )


def test_a_notebook_shows_matrices_of_any_width_without_amsmath() -> None:
    shown = F23._repr_latex_()
    assert shown.startswith("$$\nA^T = \\left(\\begin{array}{rrrr}\n  1 & 1 & 1 & 0 \\\\\n")
    assert shown.count("$$") == 6
    assert "MaxMatrixCols" not in transforms(8, 9)._repr_latex_()
    html = F23._repr_html_()
    assert html.startswith("<div><p>F(2,3) at 0, 1, -1, inf</p><table")
    for name in printed.NAMES:
        for row in getattr(F23, name):
            cells = "".join(f'<td style="text-align: right">{v}</td>' for v in row)
            assert f"<tr>{cells}</tr>" in html


def test_matrices_of_the_caller_have_no_points_to_show() -> None:
    own = Transforms(F23.AT, F23.G, F23.BT)
    shown = [str(own), own._repr_html_(), own.to_cuda(), printed.as_numpy(own)]
    assert all("F(2,3)" in text and " at " not in text for text in shown)
    assert "points" not in str(own)


@pytest.mark.parametrize(
    ("dtype", "element"),
    [(np.float64, float(Fraction(1, 6))), ("float32", np.float32(1 / 6)), ("float16", 0.16663),
     (object, Fraction(1, 6))],
)  # fmt: skip
def test_to_numpy_rounds_each_element_once(dtype, element) -> None:
    t = transforms(4, 3, "paper")
    AT, G, BT = t.to_numpy(dtype)
    assert {m.dtype for m in (AT, G, BT)} == {np.dtype(dtype)}
    assert [m.shape for m in (AT, G, BT)] == [(4, 6), (6, 3), (6, 6)]
    assert -G[1, 0] == (np.float16(element) if dtype == "float16" else element)
    wrong = np.array(t.BT, dtype=object) - BT.astype(object)
    assert not wrong.any()  # integers


@pytest.mark.parametrize("dtype", ["int64", np.longdouble, "nonsense"])
def test_to_numpy_names_a_dtype_that_it_cannot_round_to(dtype) -> None:
    with pytest.raises(TypeError, match=r"dtype is .*; expected a"):
        F23.to_numpy(dtype)


def test_cuda_constants_are_the_nearest_fp32_in_hexadecimal() -> None:
    t = transforms(4, 3, "paper")
    found = set(map(float.fromhex, re.findall(r"0x1\.[0-9a-f]+p[+-]\d+", t.to_cuda())))
    assert float(np.float32(1 / 6)) in found
    assert all(float(np.float32(v)) == v for v in found)
    assert not re.search(r"[^x\w.]\d+\.\d*[1-9]\d*f", t.to_cuda())  # no decimal ones


def test_the_examples_of_the_docstrings_run() -> None:
    from winolab.ref.algebra import transforms as module

    found = doctest.testmod(module)
    assert found.attempted >= 5
    assert found.failed == 0


def test_algorithms_plans_and_decompositions_show_their_text() -> None:
    algorithm = winolab.gamma(8, 6, 3, points="paper")
    assert repr(algorithm) == "parse_algorithm('gamma:8:6:3@paper')"
    assert eval(repr(algorithm), {"parse_algorithm": winolab.parse_algorithm}) == algorithm
    shapes = ((32, 28, 28, 256), (256, 3, 3, 256))
    for direction in ("forward", "backward_data", "backward_filter"):
        found = winolab.plan(*shapes, padding=1, direction=direction)
        assert repr(found) == str(found)
        assert {repr(plan) == str(plan) for plan in found.fastest} == {True}
        assert str(found).startswith(f"{direction} x(32, 28, 28, 256) w(256, 3, 3, 256)")
    problem = Problem.of((1, 9, 9, 1), (1, 5, 5, 1))
    assert repr(winolab.decomposition(problem, winolab.dwm())).startswith("A A A B B\n")
    winrs = winrs_plan(Problem.of(*shapes, padding=1))
    assert repr(winrs).startswith("backward filter x(32, 28, 28, 256)")


@pytest.mark.parametrize("points", ["0,3/4,-3/4,4/3,-4/3,inf,x^2+1", "sfc:6", "legendre:best"])
def test_programs_of_other_factors_are_printed_alike(points: str) -> None:
    """Issue 48: as Python they compute the matrix exactly; as CUDA they have as many operations."""
    t = transforms(6, 3, points)
    cuda = t.to_cuda()
    for name in ("AT", "G", "BT"):
        program = getattr(t.programs, name)
        scope: dict[str, Any] = {"Fraction": Fraction}
        exec(program.python("run"), scope)
        units = (
            [Fraction(int(i == j)) for j in range(program.inputs)] for i in range(program.inputs)
        )
        columns = [scope["run"](unit) for unit in units]
        assert tuple(zip(*columns, strict=True)) == getattr(t, name)
        printed = cuda.partition(f"void transform_{name}(")[2].partition("}")[0]
        assert printed.count("_rn(") == program.counts.instructions
        assert printed.count("  y[") == len(getattr(t, name))
