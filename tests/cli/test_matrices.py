"""`winolab transforms`: moduli, constructions, and matrices of one's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from winolab.cli.command import app
from winolab.ref.algebra.transforms import transforms

MODULUS = "0,3/4,-3/4,4/3,-4/3,inf,x^2+1"


def told(*arguments: str) -> str:
    """What the command prints, or what stops it."""
    found = CliRunner().invoke(app, ["transforms", *arguments])
    assert found.exception is None or isinstance(found.exception, (ValueError, SystemExit, OSError))
    return found.output if found.exit_code == 0 else f"{found.exception}{found.output}"


@pytest.mark.parametrize("points", [MODULUS, "sfc:6", "karatsuba", "legendre"])
def test_what_there_is_beside_points(points: str) -> None:
    printed = json.loads(told("6", "3", "--points", points, "--json"))
    t = transforms(6, 3, points)
    assert (printed["n"], printed["r"], printed["alpha"]) == (6, 3, t.alpha)
    assert printed["BT"] == [[str(v) for v in row] for row in t.BT]


def test_issue_48_proves_a_file_or_says_which_coefficient_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    for shape in ("text", "json"):
        path.write_text(told("6", "3", "--points", MODULUS, "--format", shape), encoding="utf-8")
        assert "F(6,3)   α = 9" in told("--matrices", str(path))
    text = told("6", "3", "--points", MODULUS)
    path.write_text(text.replace(" 4/3", " 5/3"), encoding="utf-8")
    assert "not a convolution: the coefficient of g[0]·d[1] in y[0] is" in told(
        "--matrices", str(path)
    )
    assert "--matrices says what F(N, R) is" in told("2", "3", "--matrices", str(path))
    assert "takes N and R, such as 6 3, or --matrices FILE" in told()
    path.write_bytes(b"\xff\xfe")
    assert "is no text; expected AT, G and BT" in told("--matrices", str(path))
    assert "No such file" in told("--matrices", str(tmp_path / "none"))
