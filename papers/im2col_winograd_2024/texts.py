"""What the report says of Im2col-Winograd's tables."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.harness.tables import Cell
from experiments.report.texts import Text, ratios


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


def _range(cells: Sequence[Cell]) -> str:
    values = [c.ours for c in cells]
    return f"{min(values):.2g} to {max(values):.2g}"


TEXTS = {
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
}
