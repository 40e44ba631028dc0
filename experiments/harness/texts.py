"""What the report says of each table: what the paper did, what is done here, what came out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from experiments.harness.tables import Cell


@dataclass(frozen=True)
class Text:
    """Paragraphs of a section; ``found`` reads its numbers from the cells."""

    did: str
    do: str
    read: str
    found: Callable[[Sequence[Cell]], list[str]]


def ratios(cells: Sequence[Cell]) -> str:
    """How many agree, and the range of ours over the paper's."""
    judged = [c for c in cells if c.agrees is not None]
    values = [c.ratio for c in judged if c.ratio is not None]
    count = f"{sum(bool(c.agrees) for c in judged)} of {len(judged)} agree"
    return f"{count}; ours over the paper's {min(values):.2f} to {max(values):.2f}"


def _table4(cells: Sequence[Cell]) -> list[str]:
    one = [c for c in cells if "sums of" not in c.column]
    blocks = [c for c in cells if "sums of" in c.column]
    return [
        f"With one accumulator an output, {ratios(one)}.",
        "What disagrees are the Winograd columns of the two layers with 512 channels, where the "
        "paper's errors stop growing with the channels. With partial sums of 256 channels, which "
        f"changes no other layer, {ratios(blocks)}.",
        "Direct convolution's maxima lie some ten standard deviations out: an error grows with "
        "the partial sums it was made on, so that the largest outputs carry the largest errors and "
        "the tail is exponential rather than normal. A maximum over a sample therefore says little "
        "without its size.",
        "The fp16 column is what rounding the inputs to fp16 costs, and nothing else: a standard "
        "deviation of √K/3 · 2.9·10⁻⁴, the same for every algorithm.",
    ]


def _table3(cells: Sequence[Cell]) -> list[str]:
    gamma8 = [c for c in cells if c.where.startswith("Γ8") and c.column == "exact constants"]
    gamma16 = [c for c in cells if c.where.startswith("Γ16") and "digits" in c.column]
    exact16 = [c for c in cells if c.where.startswith("Γ16") and c.column == "exact constants"]
    best16 = [c for c in cells if c.where.startswith("Γ16") and c.column == "best points"]
    program16 = [c for c in cells if c.where.startswith("Γ16") and "program" in c.column]
    gemm = [c for c in cells if c.column.startswith("CuGEMM")]
    places = {c.where for c in gemm}
    tf32 = {c.where for c in gemm if c.agrees and c.column.endswith("TF32")}
    fp32 = {c.where for c in gemm if c.agrees and c.column.endswith("FP32")}
    off = [c for c in gemm if c.note]
    below = [c for c in off if c.column.endswith("TF32") and c.ratio and c.ratio > 1]
    return [
        f"Γ8, exact constants: {ratios(gamma8)}. Γ16, constants of 7 digits: {ratios(gamma16)}.",
        f"The 10⁻⁵ of Γ16 is the rounding of its constants. With exact ones the same kernel would "
        f"lose {_range(exact16)}, in winolab's order of operations {_range(program16)}, and with "
        f"the best points {_range(best16)}. Only the input transform's constants matter: on "
        "positive data its rows cancel, and a constant that is wrong in the eighth digit leaves a "
        "remainder of the data's mean.",
        "The growth with channels is not accumulation: feature maps shrink as channels grow, so "
        "that more tiles touch the padding, where rows no longer cancel.",
        f"CuGEMM: {len(tf32)} of {len(places)} entries are those of TF32 with truncated "
        f"accumulation, {len(fp32)} those of FP32, all of them in Γ8(7,2)'s column. Of the other "
        f"{len(off)}, {len(below)} lie below TF32 by a factor of up to "
        f"{max((c.ratio for c in below if c.ratio), default=1):.1f}. They have the longest sums of "
        "their columns, which a library may split among blocks: truncation then starts from zero "
        "in each. That explanation is not tested here.",
    ]


def _figure10(cells: Sequence[Cell]) -> list[str]:
    judged = [c for c in cells if c.agrees is not None]
    failed = [f"{c.where}: {c.note}" for c in judged if not c.agrees]
    told = [
        f"{sum(bool(c.agrees) for c in judged)} of {len(judged)} claims hold "
        "with simulated TF32 in CuGEMM's place."
    ]
    if failed:
        told.append(f"Not: {'; '.join(failed)}. TF32's error grows with the channels.")
    told.append(
        "Against direct convolution in FP32 the claims turn round: its mean is ten times smaller "
        "than that of the published Γ16. With the best points Γ16's mean is that of FP32."
    )
    return told


def _h100(cells: Sequence[Cell]) -> list[str]:
    return [
        f"{ratios(cells)}. One extra bit of alignment, which fits the paper's Ampere and Ada "
        "cards, gives more than an H100 shows; two bits give what it shows."
    ]


def _rows(cells: Sequence[Cell]) -> list[str]:
    judged = [c for c in cells if c.agrees is not None]
    return [
        f"{sum(bool(c.agrees) for c in judged)} of {len(judged)} thresholds are met.",
        "At α = 8 the papers' points are within a few per cent of the best. At α = 16 the best "
        "points, all dyadic, lose five times less on zero-mean data of any kind. On positive data "
        "the papers' points lose most through their constants, and how much depends on the order "
        "of operations: the factored programs of winolab lose several times less with the same "
        "points.",
        "Zero-mean data show what positive data hide: direct FP32 loses tens of times less than "
        "α = 16 with any points.",
    ]


def _layers(cells: Sequence[Cell]) -> list[str]:
    paper = [c for c in cells if c.column.startswith("paper, published order, over")]
    positive = [c.ours for c in paper if ", u12," in c.where]
    zero_mean = [c.ours for c in paper if ", u11," in c.where]
    return [
        f"On U[1,2] the gain over the papers' points falls from {positive[0]:.1f} at 64 channels "
        f"to {positive[-1]:.1f} at 512, because accumulation, which points do not touch, grows "
        f"with the channels. On zero-mean data it stays at {min(zero_mean):.1f} to "
        f"{max(zero_mean):.1f}."
    ]


def _range(cells: Sequence[Cell]) -> str:
    values = [c.ours for c in cells]
    return f"{min(values):.2g} to {max(values):.2g}"


TEXTS = {
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
    "im2col_winograd_2024 table3": Text(
        "Zhang et al. give the mean relative error of nine fused kernels on four shapes each, on "
        "inputs and filters uniform on [1, 2], against FP64 on a CPU, beside cuDNN's GEMM.",
        "Tensors of the paper's full shapes are drawn, random tiles and channels of the output are "
        "computed in simulated FP32 in the kernels' order (filter rows, then channels, fused "
        "multiply-adds; transforms by pairs of rows, from left to right), and compared with FP64. "
        "Constants are exact, or have the 7 significant digits of the published α = 16 kernels. "
        "Beside cuDNN's column stand direct convolution in FP32, and in TF32 as a Tensor Core "
        "sums it: products aligned to the largest term and cut off, 8 at a time.",
        "ours: mean over seeds; low and high: 90 % Student interval over seeds. Predictions leave "
        "padding out, which counts where maps are small.",
        _table3,
    ),
    "im2col_winograd_2024 figure10": Text(
        "The paper's Figure 10 compares the distribution of Γ16's relative error with that of "
        "cuDNN's implicit GEMM and draws three conclusions: Γ16 has the smaller mean and the "
        "larger maximum, and such large values are rare. The figure's shapes are not stated.",
        "Γ16 of the three widths at 64 and 128 channels of Table 3, with the published order and "
        "constants; the maximum over the layer is extrapolated from the tail of the sample.",
        "mean: over seeds, 90 % interval; maximum: median over the layer, 90 % interval.",
        _figure10,
    ),
    "im2col_winograd_2024 h100": Text(
        "Not from a paper: mean relative errors of cuDNN 9.19 on an H100, in FP32 and in its "
        "default mode, which may use TF32.",
        "Direct convolution of the same layers in simulated FP32, and in TF32 with one and two "
        "extra bits in the alignment of the Tensor Core's sums.",
        "One seed.",
        _h100,
    ),
    "points rows": Text(
        "The papers on α = 16 interpolate at 0, ±1, ±2, ±½, ±3, ±⅓, ±4, ±¼ and infinity.",
        "F(n, r) on rows over 64 channels, all outputs, ten seeds, for the papers' and for the "
        "best points known, in the published order of operations and in winolab's, on data that "
        "are positive (u12), zero-mean (u11, normal), after ReLU (relu) and of wide exponents "
        "(wide). Positive data are judged by the mean relative error, others by the relative RMS.",
        "ours: error over that of the best points with the same data; low and high: 90 % interval.",
        _rows,
    ),
    "points layers": Text(
        "As above.",
        "9 × 9 filters over 32 × 32 outputs with padding 4, 64 to 512 channels.",
        "ours: error over that of the best points with the same data; low and high: 90 % interval. "
        "Predictions leave padding out.",
        _layers,
    ),
}
