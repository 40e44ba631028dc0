"""What the report says of Lavin & Gray's tables."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.harness.tables import Cell
from experiments.report.texts import Text, ratios
from papers.lavin_gray_2016.speeds import FUSED

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


def _speeds(cells: Sequence[Cell]) -> list[str]:
    shares = [c for c in cells if c.column == "effective TFLOPS over the peak"]
    sgemm = [c.ours for c in cells if c.column == "effective TFLOPS over 2.25 × SGEMM"]
    most = max(c.ours for c in cells if c.column == "MB of workspace")
    block = [c.ours for c in cells if c.column.startswith("ms of filters transformed in the block")]
    low, high = shares[0], shares[-1]
    ms = {(c.where, c.column): c.ours for c in cells}
    less = [
        c.ours / ms[c.where, "ms"] for c in cells if c.column == "ms within 16 MiB of workspace"
    ]
    return [
        f"From N = 1 to 64 the share of the peak goes from {low.ours:.2f} to {high.ours:.2f}, the "
        f"paper's from {low.paper:.2f} to {high.paper:.2f}: an H100 has 132 multiprocessors to "
        "fill, a Titan X 24. Sums in parts fill some of them, with a workspace of at most "
        f"{most:.1f} MB, the transformed filter's 16.8 MB of 512 × 512 channels included."
        + (
            f" Within the paper's 16 MB it takes {min(less):.3f} to {max(less):.3f} times as long."
            if less
            else ""
        ),
        f"Of 2.25 times the device's SGEMM it is {min(sgemm):.2f} to {max(sgemm):.2f}. With "
        f"filters transformed in the block, and no workspace, it takes {min(block):.2f} to "
        f"{max(block):.2f} times as long: by producers, which bound the kernel.",
    ]


def _sixteen(cells: Sequence[Cell]) -> list[str]:
    gains = [c for c in cells if c.column == "ms of fp32 over fp16's"]
    low, high = min(c.ours for c in gains), max(c.ours for c in gains)
    return [
        *_speeds(cells),
        f"Data of 16 bits make it {low:.2f} to {high:.2f} times as fast as of 32, the paper's "
        f"{min(c.paper or 0 for c in gains):.2f} to {max(c.paper or 0 for c in gains):.2f}: memory "
        "does not bound the kernel here, and converting costs producers issue slots, which do.",
    ]


def _figure1(cells: Sequence[Cell]) -> list[str]:
    fused = [c for c in cells if c.note.startswith(FUSED)]
    split = [c for c in cells if "parts" in c.note]
    named = sorted({c.where.partition(",")[0] for c in fused})
    return [
        f"The filter's transform in the block is the fastest in {len(fused)} of {len(cells)} cases"
        + (f" ({', '.join(named)})" if named else "")
        + "; the paper has it so where filters and channels are many. "
        f"Sums in parts are the fastest in {len(split)}, all of small batches.",
    ]


SPEEDS = (
    "Our fused kernel, the fastest of its variants a layer, with a cold L2 cache on an H100; the "
    "filter's transform is in the time."
)
TEXTS = {
    "lavin_gray_2016 table5": Text(
        "Lavin & Gray time F(2×2,3×3) on the layers of VGG network E, fp32 data, on a Titan X of "
        "6.96 TFLOPS, beside cuDNN v3.",
        SPEEDS,
        "Other devices' numbers are shown and not judged; shares of the peak compare.",
        _speeds,
    ),
    "lavin_gray_2016 table6": Text(
        "The same with fp16 data and fp32 arithmetic.",
        SPEEDS + " Precision fp16_ffma.",
        "As Table 5; the last column is what 16 bits gain over 32.",
        _sixteen,
    ),
    "lavin_gray_2016 figure1": Text(
        "Lavin & Gray draw throughput by layer and batch, and mark where the filter is transformed "
        "apart; the figure's numbers did not survive.",
        SPEEDS,
        "Nothing is judged.",
        _figure1,
    ),
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
        "runs over the channels. fp16 data are stored in fp16 and computed in FP32. The kept rows "
        "are of all outputs of each layer (--full, three minutes of a core with Numba); without "
        "it a sample of them is computed, and the maximum follows from the tail of its errors. "
        "The interval is that of another layer drawn alike (generalized Pareto, 90 %), which "
        "includes the chance of the maximum itself.",
        "ours: the layer's maximum; low and high: the 90 % interval of another layer's.",
        _table4,
    ),
}
