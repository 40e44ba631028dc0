"""Transforms as text: every format holds the exact matrices."""

from __future__ import annotations

import json
import re
from fractions import Fraction

import numpy as np
import pytest

from winolab.cli import render
from winolab.ref.algebra.points import as_points
from winolab.ref.algebra.transforms import transforms

TILES = [(2, 3), (6, 3), (8, 9)]


@pytest.mark.parametrize(("n", "r"), TILES)
def test_json_reads_back_exactly(n: int, r: int) -> None:
    t = transforms(n, r, "paper")
    read = json.loads(render.as_json(t))
    assert list(read) == ["n", "r", "alpha", "points", "AT", "G", "BT"]
    assert (read["n"], read["r"], read["alpha"]) == (n, r, n + r - 1)
    assert as_points(",".join(read["points"]), t.alpha) == t.points
    for name in render.NAMES:
        assert tuple(tuple(map(Fraction, row)) for row in read[name]) == getattr(t, name)


@pytest.mark.parametrize(("n", "r"), TILES)
def test_numpy_source_runs_to_the_rounded_matrices(n: int, r: int) -> None:
    t = transforms(n, r, "paper")
    names: dict = {}
    exec(render.as_numpy(t), names)
    for name in render.NAMES:
        assert names[name].dtype == np.float64
        assert names[name].tolist() == [[float(v) for v in row] for row in getattr(t, name)]


def test_latex_holds_every_entry() -> None:
    t = transforms(6, 3, "paper")
    entries = re.findall(
        r"(-?)(?:\\frac\{(\d+)\}\{(\d+)\}|\b(\d+)\b) ?(?=[&\\\n])", render.as_latex(t)
    )
    found = [Fraction(int(whole or top), int(bottom or 1)) for _, top, bottom, whole in entries]
    signs = [-1 if sign else 1 for sign, *_ in entries]
    exact = [v for name in render.NAMES for row in getattr(t, name) for v in row]
    assert [s * v for s, v in zip(signs, found, strict=True)] == exact
    assert "MaxMatrixCols" not in render.as_latex(t)
    assert "{MaxMatrixCols}{16}" in render.as_latex(transforms(8, 9, "paper"))


def test_cuda_holds_the_three_programs() -> None:
    t = transforms(6, 3, "paper")
    source = render.as_cuda(t)
    for name in render.NAMES:
        assert getattr(t.programs, name).cuda(f"transform_{name}") in source


def test_text_aligns_and_counts() -> None:
    text = render.as_text(transforms(4, 3, "0,1,-1,2,-2,inf", "l1"))
    assert "F(4,3)" in text
    assert "0, 1, -1, 2, -2, inf" in text
    assert "rows scaled: l1" in text
    for block in text.split("\n\n")[1:4]:
        assert len({len(line) for line in block.splitlines()[1:]}) == 1
    counts = transforms(4, 3, "paper").programs.BT.counts
    last = render.as_text(transforms(4, 3, "paper")).splitlines()[-1].split()
    assert last[0] == "BT"
    assert int(last[-1]) == counts.instructions
