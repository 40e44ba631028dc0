"""Lavin & Gray 2016, Tables 1 to 3: normalized complexity and the layers of VGG network E."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from experiments.harness.counted import Count, cells, row
from experiments.harness.facts import table
from experiments.harness.jobs import Row
from experiments.harness.tables import Table
from experiments.harness.verdicts import Verdict
from winolab.algorithm import Problem, Tile, direct, winograd
from winolab.ref.algebra.program import program
from winolab.ref.algebra.transforms import transforms
from winolab.ref.cost.complexity import Normalized, normalized, normalized_fft, strassen
from winolab.ref.cost.count import cost

PAPER = "lavin_gray_2016"
COLUMNS = {"alpha": "products", "beta": "data", "gamma": "filter", "delta": "inverse"}
LETTERS = {"alpha": "α′", "beta": "β′", "gamma": "γ′", "delta": "δ′"}
UNIT = 0.01  # of the last digit that is printed
# Rows of G multiplied and of BT divided, with which F(3, 3) takes as many instructions as the
# paper: fitted by papers.lavin_gray_2016.fits.
ROW_SCALE = (1, 1, 3, 1, 1)
SCALED = "Winograd, tile 5, rows scaled"


def _rows(where: str, line: Row, found: Normalized) -> list[Row]:
    return [
        row(where, LETTERS[name], float(getattr(found, COLUMNS[name])), line[name])
        for name in COLUMNS
        if name in line
    ]


def table1() -> list[Row]:
    """Winograd, counted from the programs; FFT with four real products a complex."""
    printed = table(PAPER, 1)
    rows = [row("direct, tile 3", "α′", 9, printed["winograd"][0]["alpha"])]
    for line in printed["winograd"][1:]:
        tile = Tile(line["tile"] - 2, 3)
        for r in _rows(f"Winograd, tile {line['tile']}", line, normalized([tile] * 2)):
            fewer = r["ours"] < r["printed"] - UNIT / 2
            rows.append({**r, "note": "fewer instructions than the paper's" if fewer else ""})
    rows += _five(printed["winograd"][2])
    for line in printed["fft"]:
        whole = {**line, "gamma": line["beta"], "delta": line["beta"]}
        found = normalized_fft([line["tile"]] * 2, [3, 3], 4)
        rows += _rows(f"FFT, tile {line['tile']}", whole, found)
    return rows


def scaled(scale: Sequence[int]) -> dict[str, float]:
    """Instructions over multiplications of tile 5 with rows of G multiplied and of BT divided."""
    t = transforms(3, 3, "0,1,-1,2,inf")
    G = [[v * s for v in r] for r, s in zip(t.G, scale, strict=True)]
    BT = [[v / s for v in r] for r, s in zip(t.BT, scale, strict=True)]
    data, filters, inverse = (program(m).counts.instructions for m in (BT, G, t.AT))
    return {"beta": data * 10 / 25, "gamma": filters * 8 / 25, "delta": inverse * 8 / 25}


def _five(line: Row) -> list[Row]:
    """Tile 5 with rows scaled: the paper's counts, on which the scale was fitted."""
    return [
        row(SCALED, LETTERS[name], value, line[name], standing=Verdict.FITTED)
        for name, value in scaled(ROW_SCALE).items()
    ]


def table2() -> list[Row]:
    """FFT with three products: as printed, and with Hermitian symmetry in the additions too."""
    rows = []
    for line in table(PAPER, 2)["rows"]:
        size = [line["tile"]] * 2
        where = f"FFT, tile {line['tile']}"
        rows += _rows(where, line, normalized_fft(size, [3, 3], 3, half=False))
        fewer = normalized_fft(size, [3, 3], 3)
        rows += [
            row(where, f"{LETTERS[name]}, additions of the states only", float(value))
            for name, value in (("beta", fewer.data), ("gamma", fewer.filter))
        ]
    return rows


def table3() -> list[Row]:
    """GFLOP of each layer; what three tiles and a level of Strassen's recursion make of it."""
    rows = []
    total = 0.0
    for line in table(PAPER, 3)["rows"]:
        problem = Problem.of(
            (1, line["H"], line["W"], line["C"]), (line["K"], 3, 3, line["C"]), padding=1
        )
        where = f"conv {line['layer']}"
        gflops = line["depth"] * 2 * problem.macs / 1e9
        total += gflops
        rows.append(row(where, "GFLOP", gflops, line["gflops"]))
        base = cost(problem, direct()).flops
        for n in (2, 4, 6):
            found = cost(problem, winograd((n, n), (3, 3), points="paper"))
            rows.append(row(where, f"F({n}×{n}, 3×3), direct's FLOP over its", base / found.flops))
            if line["C"] % 2 == 0:
                saved = found.flops - 2 * found.products + _strassen(problem, n)
                rows.append(row(where, f"F({n}×{n}, 3×3), Strassen once", base / saved))
    rows.append(row("all layers", "GFLOP", total, table(PAPER, 3)["total_gflops"]))
    return rows


def _strassen(problem: Problem, n: int) -> int:
    """FLOP of the products of F(n×n, 3×3), each matrix product recursed into once."""
    tiles = problem.batch * (-(-problem.output[0] // n)) * (-(-problem.output[1] // n))
    even = tiles + tiles % 2
    one = strassen(even, problem.in_channels, problem.out_channels, 1)
    return (n + 2) ** 2 * one.flops


TABLE1 = Table(
    PAPER,
    "table1",
    "Normalized complexity of Winograd and FFT",
    lambda full: [Count(PAPER, "table1", table1)],
    partial(cells, unit=UNIT),
    "ours rounds to the printed number",
)
TABLE2 = Table(
    PAPER,
    "table2",
    "Normalized complexity of FFT with three-product complex multiplication",
    lambda full: [Count(PAPER, "table2", table2)],
    partial(cells, unit=UNIT),
    "ours rounds to the printed number",
)
TABLE3 = Table(
    PAPER,
    "table3",
    "Layers of VGG network E",
    lambda full: [Count(PAPER, "table3", table3)],
    partial(cells, unit=UNIT),
    "ours rounds to the printed number",
)
