import json

import pytest
from typer.testing import CliRunner

from winolab.cli import app

LAYER = ["cost", "--input", "1x28x28x128", "--filter", "128x5x5", "--padding", "2"]


def run(*more: str):
    return CliRunner().invoke(app, [*LAYER, *more])


def rows(*more: str):
    return {row["algorithm"]: row for row in json.loads(run(*more, "--json").stdout)}


def test_a_layer_of_five_by_five():
    found = rows("--algorithm", "direct,dwm:3:2")
    assert found["direct"]["multiplications"] == 28**2 * 25 * 128**2
    assert found["dwm:3:2"]["multiplications"] == 14**2 * 49 * 128**2
    assert found["dwm:3:2"]["transform_multiplications"] == 0


def test_compare_ranks_the_cheapest_first():
    found = list(rows("--compare").values())
    assert [row["flops"] for row in found] == sorted(row["flops"] for row in found)
    assert {"direct", "dwm:3:2", "winograd:4x4:5x5", "fft:16:3"} <= {r["algorithm"] for r in found}


@pytest.mark.parametrize("direction", ["backward_data", "backward_filter"])
def test_compare_in_other_directions_and_with_strides(direction):
    found = rows("--compare", "--direction", direction)
    assert {"direct", "winrs" if direction == "backward_filter" else "gamma:8:4:5"} <= set(found)
    assert "dwm:3:2" in rows("--compare", "--direction", direction, "--stride", "2x1")


def test_strassen_saves_an_eighth_a_level():
    once = rows("--strassen", "1")["direct"]["multiplications"]
    assert once * 8 == rows()["direct"]["multiplications"] * 7


def test_table_and_picture():
    shown = run("--algorithm", "dwm:3:2", "--picture").stdout
    assert "A A A B B" in shown
    assert "multiplications" in shown


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--stride", "one"], "expected a number"),
        (["--filter", "5"], "expected sizes such as"),
        (["--algorithm", "dwm:0:2"], "expected at least 1"),
        (["--stride", "2", "--algorithm", "fft:16"], "use dwm or direct"),
    ],
)
def test_errors_say_what_is_possible(options, message):
    found = run(*options)
    assert isinstance(found.exception, ValueError)
    assert message in str(found.exception)
