"""What the report says of Lavin & Gray's tables."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.harness.tables import Cell
from experiments.report.texts import Text, ratios

COUNTED = "paper: the number in the claim; ours: what comes out. Exact counts, nothing sampled."


def _named(cells: Sequence[Cell], text: str) -> Cell:
    return next(c for c in cells if text in c.column)


def _table1(cells: Sequence[Cell]) -> list[str]:
    fewer = sum(bool(c.note) for c in cells)
    return [
        f"The FFT columns come out to the printed digit; so does Winograd, but for {fewer} "
        "transforms that winolab's programs make with fewer instructions, and tile 5's filters: "
        "other counts than the paper's, and so no agreement.",
        "Tile 5's filter transform takes the paper's seven instructions where a factor of 3 moves "
        "from a row of BT to a row of G. That row and that factor were searched for, so that these "
        "three cells are fitted.",
        "The FFT counts are split-radix, a real transform of N taking 2N·log₂N − 4N + 6 and a "
        "complex one 4N·log₂N − 6N + 8 operations, and of the columns after the rows the first "
        "and the last are real again.",
    ]


def _table2(cells: Sequence[Cell]) -> list[str]:
    first = _named(cells, "β′, additions of the states only")
    return [
        "Every entry comes out to the digit where the additions that the three-product form needs "
        "are counted for all α² elements of a tile. The products are of α(⌊α/2⌋ + 1) states only, "
        f"and so are the additions: β′ of tile 8 is {first.ours:.2f}, not 3.77.",
    ]


def _table3(cells: Sequence[Cell]) -> list[str]:
    six = [c.ours for c in cells if c.column.startswith("F(6×6") and "Strassen" not in c.column]
    pairs = [
        (c.ours, d.ours)
        for c in cells
        for d in cells
        if c.where == d.where and c.column == "F(4×4, 3×3), direct's FLOP over its"
        and d.column == "F(4×4, 3×3), Strassen once"
    ]  # fmt: skip
    gains = [b / a for a, b in pairs]
    return [
        "Every layer's operations come out.",
        f"What the paper only mentions: F(6×6, 3×3) does {min(six):.2f} to {max(six):.2f} times "
        "less than direct convolution, transforms included and their filters not reused; one level "
        f"of Strassen's recursion makes F(4×4, 3×3) {min(gains):.2f} to {max(gains):.2f} times "
        "cheaper, where 8/7 = 1.14 is the most.",
    ]


def _table4(cells: Sequence[Cell]) -> list[str]:
    wide = [c for c in cells if "sums of" in c.column and c.ratio]
    shares = [c.ratio for c in wide if c.ratio]
    failed = [f"{c.where}, {c.column}" for c in cells if c.agrees is False]
    return [
        f"With one accumulator an output, {ratios(cells)}. Not: {'; '.join(failed)}.",
        "With 512 channels the paper's Winograd errors stop growing with the channels. Partial "
        "sums of 256 channels, which the paper does not mention and which are not judged, would "
        f"bring ours there to {min(shares):.2f} to {max(shares):.2f} times the paper's.",
        "Direct convolution's maxima lie some ten standard deviations out: an error grows with "
        "the partial sums it was made on, so that the largest outputs carry the largest errors and "
        "the tail is exponential rather than normal. A maximum over a sample therefore says little "
        "without its size.",
        "The fp16 column is what rounding the inputs to fp16 costs, and nothing else: a standard "
        "deviation of √K/3 · 2.9·10⁻⁴, the same for every algorithm.",
    ]


TEXTS = {
    "lavin_gray_2016 table1": Text(
        "Lavin & Gray give, for tiles of 3 to 256, the multiplications an output needs and the "
        "instructions of each transform over the multiplications of a tile.",
        "Winograd's instructions are counted in winolab's programs, an FMA as one; the FFT's by "
        "formula.",
        "Exact.",
        _table1,
    ),
    "lavin_gray_2016 table2": Text(
        "The same for FFT with complex products made of three real ones.",
        "The same formula, with one more addition for the data and two for filters and results.",
        "Exact.",
        _table2,
    ),
    "lavin_gray_2016 table3": Text(
        "The convolution layers of VGG network E and their operations.",
        "The same from the shapes, and what F(2×2), F(4×4), F(6×6) and Strassen make of them.",
        "Columns without a paper's number: direct's FLOP over the algorithm's, with transforms.",
        _table3,
    ),
    "lavin_gray_2016 table4": Text(
        "Lavin & Gray ran five layers of VGG network E on data and filters uniform on [-1, 1] and "
        "give the largest absolute error of a layer, against direct convolution with double "
        "accumulators: in fp32 for direct convolution, F(2×2,3×3) and F(4×4,3×3), and one figure "
        "for all of them with fp16 data.",
        "The same layers, one image each (the paper does not state its batch), in simulated FP32 "
        "with fused multiply-adds, the transforms in the paper's order, and one accumulator that "
        "runs over the channels. fp16 data are stored in fp16 and computed in FP32. A sample of "
        "the outputs is computed, and the maximum over the whole layer follows from the tail of "
        "its errors (generalized Pareto, 90 % interval, which includes the chance of the maximum "
        "itself); where a row says full, all outputs were computed.",
        "ours: median of the layer's maximum; low and high: its 90 % interval.",
        _table4,
    ),
}
