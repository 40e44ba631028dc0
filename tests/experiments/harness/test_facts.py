"""The papers' facts hold together: matrices convolve, tables are complete and consistent."""

from __future__ import annotations

import pytest

from experiments.gpu.rows import authors, printed_errors
from experiments.harness.facts import entries, facts, matrices, papers, table, tables_of

PRINTED = [
    (paper, name)
    for paper in papers()
    for name, entry in facts(paper).get("matrices", {}).items()
    if "BT" in entry
]


@pytest.mark.parametrize(("paper", "name"), PRINTED)
def test_printed_matrices_are_convolution(paper: str, name: str) -> None:
    printed = matrices(paper, name)
    n, r = printed["tile"]
    AT, G, BT = printed["AT"], printed["G"], printed["BT"]
    alpha = n + r - 1
    assert (len(AT), len(G), len(BT)) == (n, alpha, alpha)
    for o in range(n):
        for j in range(r):
            for i in range(alpha):
                value = sum(AT[o][p] * G[p][j] * BT[p][i] for p in range(alpha))
                assert value == (i == o + j)


@pytest.mark.parametrize("paper", papers())
def test_every_table_says_where_it_stands(paper: str) -> None:
    entries = facts(paper)
    assert entries["paper"]["key"] == paper
    for group in ("tables", "matrices"):
        for entry in entries.get(group, {}).values():
            assert entry["source"]


def test_vgg_layers_have_their_operations() -> None:
    """2·9·C·H·W·K·depth is the printed GFLOPs to their two decimals."""
    rows = table("lavin_gray_2016", 3)["rows"]
    for row in rows:
        flops = 2 * 9 * row["C"] * row["H"] * row["W"] * row["K"] * row["depth"]
        assert abs(flops / 1e9 - row["gflops"]) < 0.006
    assert abs(sum(row["gflops"] for row in rows) - 39.02) < 0.006


@pytest.mark.parametrize("number", [5, 6])
def test_vgg_throughputs_follow_from_the_times(number: int) -> None:
    for row in table("lavin_gray_2016", number)["rows"]:
        assert abs(39.02 * row["N"] / row["ms"] - row["tflops"]) < 0.01
        assert abs(row["cudnn_ms"] / row["ms"] - row["speedup"]) < 0.01


def test_fft_multiplications_follow_the_formula() -> None:
    """Four real products a complex one in Table 1, three in Table 2; Hermitian symmetry."""
    for number, products, rows in ((1, 4, "fft"), (2, 3, "rows")):
        for row in table("lavin_gray_2016", number)[rows]:
            tile = row["tile"]
            alpha = products * (tile // 2 + 1) * tile / (tile - 2) ** 2
            assert abs(alpha - row["alpha"]) < 0.006


def test_gamma_columns_fit_their_tiles() -> None:
    columns = table("im2col_winograd_2024", 3)["columns"]
    assert len(columns) == 9
    for column in columns:
        _, alpha, n, r = column["algorithm"].split(":")
        assert int(alpha) == int(n) + int(r) - 1
        assert len(column["mare"]) == len(column["cugemm"]) == len(column["shapes"]) == 4
        for _, height, width, _ in column["shapes"]:
            assert height == width
            assert width % int(n) == 0
        assert [shape[3] for shape in column["shapes"]] == [64, 128, 256, 512]


def test_winrs_kernels_sum_to_their_alpha() -> None:
    for n, r in facts("winrs_2025")["kernels"]["fp32"]:
        assert n + r - 1 in (1, 4, 8, 16)


def test_what_papers_state_is_found_without_naming_them() -> None:
    assert [len(entry["rows"]) for entry in entries("h100_speed")] == [len(authors())]
    assert printed_errors() == table("im2col_winograd_2024", 3)["columns"]
    assert entries("no such") == tables_of("none") == []


def test_an_unknown_paper_is_named() -> None:
    with pytest.raises(ValueError, match="unknown paper 'fft'; expected one of lavin_gray_2016"):
        facts("fft")
