"""Issue 48: the table of algorithms with quadratic factors, by `winolab reproduce moduli`."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import pytest

from experiments.harness.tables import rows_of, select
from experiments.harness.verdicts import Verdict
from experiments.moduli import summary
from experiments.moduli.tables import LINES, NESTED, TABLES, Line, ours_of, own
from winolab.algorithm import parse_algorithm
from winolab.ref.algebra.transforms import transforms
from winolab.ref.error.metrics import noise_gain

EVERY = [*LINES, *NESTED]
REACHED = {"lines": 44, "nested": 15, "quantized": 72, "plane": 2}


@pytest.mark.parametrize("table", TABLES, ids=lambda t: t.name)
def test_kept_rows_are_what_was_known(table) -> None:
    """Gain and saving to three digits, states, and errors in FP32 and FP16."""
    found = [c.verdict for c in table.cells(rows_of(table))]
    assert found.count(Verdict.REACHED) == REACHED[table.name]
    assert Verdict.MISSED not in found


@pytest.mark.parametrize("line", EVERY, ids=lambda line: line.where)
def test_gains_and_savings_of_the_rows(line: Line) -> None:
    """Anew, from the matrices; nesting multiplies the gains of the dimensions."""
    rows = [row for table in TABLES for row in rows_of(table)]
    for where, text in ((line.where, line.algorithm), (ours_of(line), own(line))):
        if where != line.where and text == line.algorithm:
            continue
        algorithm = parse_algorithm(text)
        kept = {row["column"]: row["ours"] for row in select(rows, where=where)}
        assert kept["gain"] == [pytest.approx(noise_gain(algorithm), rel=1e-12)]
        states = saved = 1
        for tile in algorithm.tiles:
            t = transforms(tile.n, tile.r, algorithm.points)
            assert t.alpha == tile.alpha
            states, saved = states * t.alpha, saved * tile.n * tile.r
        assert kept["states"] == [states]
        assert kept["saving"] == [saved / states]


@pytest.mark.parametrize("line", EVERY, ids=lambda line: line.where)
@pytest.mark.parametrize("version", [lambda line: line.algorithm, own], ids=["known", "own"])
def test_the_identity_by_another_way_than_the_prover(line: Line, version) -> None:
    """Products of random rational polynomials, by the transposed algorithm and term by term."""
    algorithm, random = parse_algorithm(version(line)), Random(0)
    tile = algorithm.tiles[0]
    t = transforms(tile.n, tile.r, algorithm.points)
    for _ in range(3):
        h, g = ([Fraction(random.randint(-99, 99), random.randint(1, 99)) for _ in range(size)]
                for size in (t.n, t.r))  # fmt: skip
        u = [
            sum(a * b for a, b in zip(column, h, strict=True)) for column in zip(*t.AT, strict=True)
        ]
        v = [sum(a * b for a, b in zip(row, g, strict=True)) for row in t.G]
        found = [sum(a * p * q for a, p, q in zip(column, u, v, strict=True))
                 for column in zip(*t.BT, strict=True)]  # fmt: skip
        product = [Fraction(0)] * (t.n + t.r - 1)
        for i, a in enumerate(h):
            for j, b in enumerate(g):
                product[i + j] += a * b
        assert found == product


def test_kernels_with_moduli_stand_beside_minimal_ones() -> None:
    """Times and errors of the same layer and products; a nested one beside fused FFMA is named."""

    def row(kernel: str, products: str, us: float, error: float, channels: int = 8) -> dict:
        return {"x": [1, 9, 9, channels], "w": [8, 9, 9, channels], "direction": "forward",
                "group": "fp32", "method": "winolab", "kernel": kernel, "products": products,
                "us": [0.0, us, 0.0], "relative_rms_n01": error}  # fmt: skip

    rows = [row("Γ16(8,9)", "fp32", 10.0, 4e-5), row("Γ19(8,9)", "fp32", 15.0, 1e-6),
            row("Γ19(8,9)", "fp32", 15.0, 1e-6, channels=16),
            row("F(8×8,9×9;19×19)", "fp32_split", 5.0, 2e-6)]  # fmt: skip
    assert list(summary.pairs(rows)) == [
        ("Γ19(8,9)", "Γ16(8,9)", "FFMA", [1.5], [1e-6 / 4e-5]),
        ("F(8×8,9×9;19×19)", "Γ16(8,9)", "split FP32 over FFMA", [0.5], [2e-6 / 4e-5]),
    ]
