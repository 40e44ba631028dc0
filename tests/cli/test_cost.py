import json

import pytest
from typer.testing import CliRunner

from winolab.cli.command import app

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


def test_points_may_be_a_list_with_commas():
    text = "gamma:4:2:3@0,1,-1,inf"
    (row,) = json.loads(
        CliRunner()
        .invoke(app, ["cost", "--input", "1x8x8x4", "--filter", "4x3x3", "--json",
                      "--algorithm", text])
        .stdout
    )  # fmt: skip
    assert row["algorithm"] == text
    both = rows("--algorithm", f"direct,{text.replace('4:2:3', '8:4:5')},2,-2,1/2,-1/2")
    assert list(both) == ["direct", "gamma:8:4:5@0,1,-1,inf,2,-2,1/2,-1/2"]


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


def test_strassens_additions_count():
    """One product of 1024×64 by 64×64: 4, 4 and 7 additions on quarters of the three matrices."""
    layer = ["cost", "--input", "1x32x32x64", "--filter", "64x1x1", "--json", "--strassen"]
    (row,) = json.loads(CliRunner().invoke(app, [*layer, "1"]).stdout)
    assert row["additions"] == 1024 * 64 + 64 * 64 + 7 * 1024 * 64 // 4 == 184_320
    assert row["flops"] == 2 * 7 * 512 * 32 * 32 + 184_320
    assert row["speedup"] == pytest.approx(1.115, abs=5e-4)
    failed = CliRunner().invoke(app, [*layer, "20"])
    assert "1024×64 by 64×64" in str(failed.exception)
    assert "levels up to 6" in str(failed.exception)


def test_a_comparison_leaves_out_aloud_what_strassen_cannot_halve():
    shown = run("--compare", "--json", "--strassen", "1")
    found = {row["algorithm"] for row in json.loads(shown.stdout)}
    assert {"direct", "dwm:3:2"} <= found
    assert "dwm:3:4" not in found
    assert "left out: dwm:3:4 multiplies 49×128 by 128×128" in shown.stderr


def test_table_and_picture():
    shown = run("--algorithm", "dwm:3:2", "--picture").stdout
    assert "A A A B B" in shown
    assert "Multiplications of the products" in shown


def test_sizes_beyond_fp64_end_in_no_traceback():
    huge = ["cost", "--input", "x".join(["1", *[str(10**17)] * 18, "3"])]
    shown = CliRunner().invoke(app, [*huge, "--filter", "x".join(["5"] + ["1"] * 18)])
    assert shown.exit_code == 0, shown.exception
    assert "1.5e+307" in shown.stdout  # 10^(17 · 18) · 15 multiplications
    assert "3e+307" in shown.stdout
    longer = CliRunner().invoke(app, [*huge, "--filter", "x".join(["5000"] + ["1"] * 18)])
    assert "3e+310" in longer.stdout
    refused = CliRunner().invoke(app, ["cost", "--input", f"1x{10**18}x3", "--filter", "3x3"])
    assert "expected sizes of at most 18 digits" in str(refused.exception)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--stride", "one"], 'expected sizes such as "1", or one a dimension'),
        (["--groups", "3"], "groups = 3; expected a divisor of the 128 channels of input 1x28x28"),
        (["--groups", "0"], "groups = 0; expected a divisor of the 128 channels"),
        (["--filter", "127x5x5", "--groups", "2"], "of the 127 output channels of filter 127x5x5"),
        (["--filter", "5"], "expected sizes such as"),
        (["--algorithm", "dwm:0:2"], "expected at least 1"),
        (["--stride", "2", "--algorithm", "fft:16"], "use dwm or direct"),
        (["--picture"], "name one, such as --algorithm dwm:3:2"),
        (["--picture", "--algorithm", "dwm:3:2", "--json"], "without --json"),
    ],
)
def test_errors_say_what_is_possible(options, message):
    found = run(*options)
    assert isinstance(found.exception, ValueError)
    assert message in str(found.exception)
