"""WinRS simulated in its own order: what FP16 sums, segments and points do, on small layers."""

from __future__ import annotations

from papers.winrs_2025 import errors as winrs
from papers.winrs_2025.accuracy import FP32_SUMS, Gradient, Variant
from papers.winrs_2025.grid import Layer
from winolab.algorithm import Tile, parse_algorithm

SMALL = Layer(32, 16, 64, 3)
OMEGA8 = Tile(3, 6)


def run(*variants: Variant, tile: Tile = OMEGA8, layer: Layer = SMALL, data: str = "u01"):
    rows = Gradient((("paper", "p"), ("table", "t")), layer, tile, variants, data).run()
    return {row["variant"]: row for row in rows}


def test_a_row_can_be_run_again() -> None:
    row = run(winrs.EXACT)["exact constants"]
    assert parse_algorithm(row["algorithm"]).tiles == (Tile(3, 6),)
    assert {"seed", "layer", "taps", "data", "precision", "segments", "planned_for"} <= row.keys()
    assert run(winrs.EXACT)["exact constants"]["mare"] == row["mare"]


def test_fp32_sums_are_more_accurate_than_fp16_sums_and_truncation_is_worst() -> None:
    rows = run(winrs.PAPER16, winrs.TRUNCATED, winrs.OURS16)
    mare = {name: row["mare"] for name, row in rows.items()}
    assert 2 * mare["FP32 sums"] <= mare["FP16 sums"]
    assert 10 * mare["FP16 sums"] <= mare["FP16 sums, truncated"]


def test_segments_shorten_sums() -> None:
    one, many = (
        Variant(name, winrs.PAPER16.precision, scaling="l1", stored=True, segments=count)
        for name, count in (("one", 1), ("many", 8))
    )
    rows = run(one, many)
    assert rows["one"]["segments"] < rows["many"]["segments"]
    assert 1.5 * rows["many"]["mare"] <= rows["one"]["mare"]


def test_zero_mean_data_are_what_alpha_16_cannot_do() -> None:
    """Relative RMS about 0.2 with the paper's points and 0.05 with the best, direct's 3e-4."""
    text = f"fp16,{FP32_SUMS}"
    variants = [
        Variant("direct", text, order="direct"),
        Variant("paper", text, scaling="l1"),
        Variant("best", text, points="best", scaling="l1"),
    ]
    layer = Layer(32, 16, 64, 9)
    rows = run(*variants, tile=Tile(9, 8), layer=layer, data="normal")
    rms = {name: row["relative_rms"] for name, row in rows.items()}
    assert 2e-4 <= rms["direct"] <= 5e-4
    assert 0.03 <= rms["best"] <= 0.08
    assert 0.15 <= rms["paper"] <= 0.4


def test_sampled_rows_of_taps_are_the_whole_gradient() -> None:
    """The sample's problem has the layer's outputs and the middle row of its taps."""
    gradient = Gradient((), Layer(32, 16, 64, 5), Tile(5, 4), ())
    assert gradient.sampled.output == gradient.layer.problem.output
    assert gradient.sampled.filter == (1, 5)


def test_shapes_are_served_by_the_kernel_alone() -> None:
    for layer in winrs.shapes(Tile(9, 8)):
        assert layer.output % 8 == 0
        assert layer.allowed
        assert layer.accumulation <= winrs.LONGEST
