"""What the report says of Im2col-Winograd's tables."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.gpu.texts import RUN, told
from experiments.harness.tables import Cell
from experiments.report.texts import Text, ratios
from papers.im2col_winograd_2024 import training, variants
from papers.im2col_winograd_2024.accuracy import KERNELS
from winolab.gpu.families.gamma_ffma.config import PRODUCTS


def _table3(cells: Sequence[Cell]) -> list[str]:
    def of(alpha: int, column: str) -> list[Cell]:
        return [c for c in cells if c.where.startswith(f"Γ{alpha}") and c.column.startswith(column)]

    typed, exact = "constants of", "exact constants"
    gemm = [c for c in cells if c.column == "CuGEMM, TF32"]
    below = [c.ratio for c in gemm if not c.agrees and c.ratio and 1 < c.ratio < FP32_CLASS]
    fp32 = sum(c.ratio > FP32_CLASS for c in gemm if c.ratio)
    return [
        f"Constants of 7 digits: Γ8 {ratios(of(8, typed))}; Γ16 {ratios(of(16, typed))}. Exact "
        f"constants, shown: Γ8 at {_ratios(of(8, exact))} of the paper's, Γ16 at "
        f"{_ratios(of(16, exact))}: the paper's Γ8 has exact constants, or more digits.",
        f"The 10⁻⁵ of Γ16 is the rounding of its constants. With exact ones the same kernel would "
        f"lose {_range(of(16, exact))}, in winolab's order of operations "
        f"{_range(of(16, KERNELS['program']))}, and with the best points "
        f"{_range(of(16, KERNELS['best']))}. Only the input transform's constants matter: on "
        "positive data its rows cancel, and a constant that is wrong in the eighth digit leaves a "
        "remainder of the data's mean.",
        "The growth with channels is not accumulation: feature maps shrink as channels grow, so "
        "that more tiles touch the padding, where rows no longer cancel.",
        f"CuGEMM as TF32 with truncated accumulation: {ratios(gemm)}. {fp32} entries are of FP32's "
        f"size, all of them in Γ8(7,2)'s column; {len(below)} lie below TF32 by a factor of up to "
        f"{max(below, default=1):.1f}. They have the longest sums of their columns, which a "
        "library may split among blocks: truncation then starts from zero in each. That "
        "explanation is not tested here.",
    ]


FP32_CLASS = 10  # TF32's error over an entry's, above which the entry is not TF32's


def _figure10(cells: Sequence[Cell]) -> list[str]:
    judged = [c for c in cells if c.agrees is not None]
    failed = [f"{c.where}: {c.column}, {c.ours:.2g}" for c in judged if not c.agrees]
    lines = [
        f"{sum(bool(c.agrees) for c in judged)} of {len(judged)} claims hold "
        "with simulated TF32 in CuGEMM's place."
    ]
    if failed:
        lines.append(f"Not: {'; '.join(failed)}.")
    lines.append(
        "Against direct convolution in FP32 the claims turn round: its mean is ten times smaller "
        "than that of the published Γ16. With the best points Γ16's mean is that of FP32."
    )
    return lines


def _h100(cells: Sequence[Cell]) -> list[str]:
    return [
        "One extra bit of alignment, which fits the paper's Ampere and Ada cards, gives more than "
        "an H100 shows; two bits give what it shows, and were chosen because they do."
    ]


def _ratios(cells: Sequence[Cell]) -> str:
    values = [c.ratio for c in cells if c.ratio]
    return f"{min(values):.2f} to {max(values):.2f}"


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
        "Constants are exact, or have the 7 significant digits of the kernels that the authors "
        "published for α = 16: these are judged, for every α. "
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
        "constants. Of all outputs (--full --gpu) the layer's maximum is one of them, and the "
        "share above CuGEMM's is counted; of a sample both follow from its tail.",
        "mean: over seeds, 90 % interval; maximum: that of another layer drawn alike lies in its "
        "interval with 90 %.",
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
    "im2col_winograd_2024 table2": Text(
        "Zhang et al. compare nine kernels with cuDNN's memory-frugal algorithms on an RTX 3060 Ti "
        "and an RTX 4090: the least and the greatest ratio of the shapes in their Figures 8 and 9, "
        "whose lists did not survive.",
        f"Ten shapes a kernel at equal work: those of its Table 3, and in between. {RUN} cuDNN has "
        "TF32 forbidden (FMA) where nothing else is said; the errors of the paper's own cuDNN "
        "column are those of TF32. cuDNN's fused Winograd does not run on Hopper.",
        "paper: RTX 4090 and RTX 3060 Ti, in the columns that name them; another GPU's ratios are "
        "no measure of these.",
        told,
    ),
    "im2col_winograd_2024 table3_kernels": Text(
        "The mean relative errors of Table 3.",
        "The CUDA kernels on the paper's shapes and U[1,2], with the papers' points, which the "
        "simulation predicts, and the best. Their constants are exact, which those of the paper's "
        "Γ16 are not: with its points it errs less. The whole batch is computed, as it is planned; "
        "images of 20 GFLOP, spread over it, are held against FP64 on the GPU. At α = 16 "
        f"the kernels cut sums of more than {PRODUCTS} products in pieces, which y adds up; the "
        "simulation does not: with 256 and 512 channels Γ16 errs less than predicted.",
        "prediction: the simulation of the same points.",
        told,
    ),
    "im2col_winograd_2024 figure10_kernels": Text(
        "The distribution of Γ16's relative error and of cuDNN's GEMM's.",
        "The same images as above, all their outputs; maxima are those of these images.",
        "ours: mean and maximum.",
        told,
    ),
    "im2col_winograd_2024 variants": Text(
        "Its sections 5.4 to 5.6: input reuse pays where (r − 1)/α is at least 0.4375, c64 raises "
        "Γ16(8,9)'s intensity from 10.24 operations a byte, of which reuse makes 12.19, to 15.06, "
        "and of a masked tile up to five sixths are computed in vain.",
        "Counted from the configs of the CUDA kernels that have these names (gamma:16:8:9;"
        "variant=c64+fused): bytes that a block loads of x and of the filter, which costs α "
        "numbers a tile instead of r where a launch before transforms it, as in our own kernels.",
        "Counted, nothing measured.",
        told,
    ),
}
if variants.ON_A_GPU in variants.TABLES:
    TEXTS[variants.ON_A_GPU.key] = Text(
        "The same variants; the paper has no times of them apart.",
        "Each kernel of Table 2 in its blocks, forward, every policy on and off, beside our own "
        f"kernel of the tile. {RUN}",
        "ours: time without the policy over time with it, geometric mean over layers.",
        told,
    )
TEXTS |= training.TEXTS
