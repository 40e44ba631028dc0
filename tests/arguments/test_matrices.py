from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from winolab.arguments.matrices import Matrices, parse
from winolab.points import parse_points, text_of, tile_of
from winolab.ref.algebra import printed
from winolab.ref.algebra.transforms import transforms

HALF = Fraction(1, 2)
# Lavin & Gray's F(2, 3), as several people would write it.
PRINTED = {
    "lines": "# mine\nAT\n1 1 1 0\n0 1 -1 -1\n\nG\n1 0 0\n1/2 1/2 1/2\n1/2 -1/2 1/2\n0 0 1\n"
    "BT\n1 0 -1 0\n0 1 1 0\n0 -1 1 0\n0 1 0 -1\n",
    "brackets": "A^T = [[1, 1, 1, 0], [0, 1, -1, -1]]\nG = [1,0,0]; [.5,.5,.5]; "
    "[.5,-.5,.5]; [0,0,1]\nB^T (4 × 4):\n[ 1, 0, -1, 0 ]\n[ 0, 1, 1, 0 ]\n"
    "[ 0, -1, 1, 0 ]\n[ 0, 1, 0, -1 ]",
    "json": '{"AT": [[1, 1, 1, 0], [0, 1, -1, -1]], "G": [[1, 0, 0], ["1/2", 0.5, "0.5"], '
    '[0.5, -0.5, 0.5], [0, 0, 1]], "BT": [[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], '
    "[0, 1, 0, -1]]}",
    "line": "AT[1,1,1,0|0,1,-1,-1]G[1,0,0|1/2,1/2,1/2|1/2,-1/2,1/2|0,0,1]"
    "BT[1,0,-1,0|0,1,1,0|0,-1,1,0|0,1,0,-1]",
}  # fmt: skip


@pytest.mark.parametrize("form", PRINTED)
def test_texts_mean_the_same(form: str, tmp_path: Path) -> None:
    found = parse(PRINTED[form])
    assert str(found) == PRINTED["line"]
    assert found.G == (((1, 0, 0), (HALF, HALF, HALF), (HALF, -HALF, HALF), (0, 0, 1)),)
    assert (found.n, found.r, found.alpha) == (2, 3, 4)
    path = tmp_path / "mine"
    path.write_text(PRINTED[form], encoding="utf-8")
    t = transforms(matrices=path)
    assert t == transforms(matrices=PRINTED[form]) == transforms(matrices=(found.AT[0], t.G, t.BT))
    assert t.equivalent(transforms(2, 3, "0,1,-1,inf"))


@pytest.mark.parametrize("shape", [printed.as_text, printed.as_json])
@pytest.mark.parametrize("points", ["best", "0,1,-1,inf,x^2+1,3,2,x^2+x+1", "karatsuba", "sfc:6"])
def test_what_is_printed_is_read_back(shape, points: str) -> None:
    t = transforms(6, 5, points)
    read = transforms(matrices=shape(t))
    assert (read.AT, read.G, read.BT) == (t.AT, t.G, t.BT)


def test_matrices_serve_their_own_tile() -> None:
    t = transforms(4, 3, "legendre:0,1,-1,2,-2,inf", "l1")
    text = text_of(t)
    assert text.count("*") == 3  # each in two stages
    assert parse_points(text) == parse_points(t)
    assert text_of(text) == text
    assert transforms(matrices=text).programs == t.programs == transforms(4, 3, text).programs
    assert tile_of(4, 3, text_of(transforms(4, 3, "karatsuba"))).alpha == 8
    with pytest.raises(ValueError, match=r"matrices of F\(4,3\) in 6 states; expected F\(3,3\)'s"):
        transforms(3, 3, t)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("AT\n1 1\nG\n1 x", "line 4: 'x' is no rational number such as -1/6"),
        ("1 1\nAT\n1 1", "line 1: '1 1' stands before any matrix"),
        ("AT\n1\nAT\n1", "line 3: AT comes twice"),
        ("AT\n1\nG\n1", "there is no BT; expected AT, G, BT"),
        ("AT\nG\n1\nBT\n1", "AT is empty"),
        ("AT\n1 1\n1\nG\n1\nBT\n1", r"AT\[1\] has 1 number and AT\[0\] 2; expected equally many"),
        ("AT\n1/0\nG\n1\nBT\n1", "'1/0' is no rational"),
        ("AT\n1e999\nG\n1\nBT\n1", "'1e999' is no rational"),
        ('{"AT": [[1]], "G": [[1]]}', "there is no BT"),
        ('{"AT": [[1]', "the matrices are no JSON"),
        ("AT[1]G[1]", "is malformed; expected AT"),
        ("AT[1,1]*[1]G[1]BT[1]", "AT is a product of 2 columns and 1 row;"),
        # A sign, and the coefficient that it spoils.
        (PRINTED["line"].replace("0,1,0,-1]", "0,1,0,1]"), r"g\[2\]·d\[3\] in y\[1\] is -1, not 1"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        transforms(matrices=text)
    assert "\n" not in str(raised.value)


def test_numbers_are_exact() -> None:
    with pytest.raises(TypeError, match=r"AT\[0\]\[0\] is 0\.5; expected an exact number"):
        Matrices.of(([[0.5]], [[2]], [[1]]))
    with pytest.raises(TypeError, match="expected AT, G and BT, or their text"):
        transforms(matrices=3)
    with pytest.raises(TypeError, match="takes n and r, or matrices"):
        transforms(1, 1, matrices=([[1]], [[1]], [[1]]))
    with pytest.raises(TypeError, match="takes n and r, such as"):
        transforms(3)
