"""What the report says of WinRS's tables and figures."""

from __future__ import annotations

import math
from collections.abc import Sequence

from experiments.gpu.texts import RUN, told
from experiments.harness.tables import Cell
from experiments.harness.verdicts import Verdict
from experiments.report.counts import counts
from experiments.report.texts import Text
from papers.winrs_2025.grid import MB, MULTIPLE, grid
from papers.winrs_2025.lists import DRAWN, GFLOP
from papers.winrs_2025.measure import recorded, training
from papers.winrs_2025.measure import tables as measured
from papers.winrs_2025.timing import FP16_OVER_FP32

GRID = (
    "The paper's grid is not listed. Here it is every layer that its section 6 allows within the "
    "bounds that it states; three of its four bounds are met to the digit by single layers."
)
COUNTED = "Counted or planned, nothing measured."
LARGE = sum(2 * layer.problem.macs > GFLOP * 1e9 for layer in grid())
LEFT_OUT = (
    f"Layers above {GFLOP} GFLOP, {LARGE} of the {len(grid()):,} of the reconstructed grid, are "
    "left out of the sample."
)


def _count(cells: Sequence[Cell]) -> str:
    failed = [f"{c.where}, {c.column}" for c in cells if c.agrees is False]
    return f"{counts(cells).text}." + (f" Not: {'; '.join(failed)}." if failed else "")


def _one(cells: Sequence[Cell], where: str, column: str) -> float:
    return next(c.ours for c in cells if c.where == where and c.column == column)


def _table2(cells: Sequence[Cell]) -> list[str]:
    return [
        _count(cells),
        "One constant, blocks a multiprocessor for each unit of arithmetic intensity, is fitted to "
        "the average workspace; the average multiple of the data is not. The most workspace is the "
        "paper's largest multiple.",
        "The maximum, 134.8 MB, is 11 buckets of 12.25 MiB, 7×7 taps and 256 channels: in binary "
        "megabytes it comes out, in decimal ones no round number of buckets does. Our maxima lie "
        f"lower, at {_one(cells, MB, 'maximum'):.0f} MiB and "
        f"{_one(cells, MULTIPLE, 'maximum'):.2f} times the data.",
        "A width that the first kernel does not divide costs a bucket. With 6×6 taps and 1024 "
        "channels that alone exceeds the paper's maximum; such layers are left out.",
    ]


def _table3(cells: Sequence[Cell]) -> list[str]:
    fitted = [c.ratio for c in cells if c.verdict is Verdict.FITTED and c.ratio]
    error = math.sqrt(sum(math.log(ratio) ** 2 for ratio in fitted) / len(fitted))
    extremes = [c.ratio for c in cells if c.agrees is not None and not c.claim and c.ratio]
    ends = [
        f"{sum(bool(c.agrees) for c in mine)} of {len(mine)} {words}"
        for word, words in (("minimum", "minima"), ("maximum", "maxima"))
        if (mine := [c for c in cells if c.agrees is not None and c.column.endswith(word)])
    ]
    return [
        f"Over {len(fitted)} averages, on which its constants are fitted, the model's root mean "
        f"square error is {error:.0%} (of the logarithm). Of what is not fitted, "
        f"{' and '.join(ends)} agree; they come out {min(extremes):.2f} to {max(extremes):.2f} "
        "times the paper's.",
        "FFT and non-fused Winograd pay for moving data, so that their ratio falls with channels, "
        "filter size and bandwidth.",
        f"FP16 over FP32 comes out at {_one(cells, 'FP16 over FP32', 'average'):.2f} where "
        f"{FP16_OVER_FP32} is printed: the model adds transforms to products, which may overlap.",
    ]


def _table4(cells: Sequence[Cell]) -> list[str]:
    sums16 = [_one(cells, f"Ω{a} fp16", "FP16 sums, minimum") for a in (8, 16)]
    sums32 = [_one(cells, f"Ω{a} fp16", "FP32 sums, minimum") for a in (8, 16)]
    best = _one(cells, "Ω16 fp16", "FP32 sums, best points, maximum")
    cut = [c.ratio for c in cells if c.column == "FP16 sums, truncated, maximum" and c.ratio]
    return [
        _count(cells),
        "FP16: sums kept in FP16 and rounded to nearest come closest to the paper's figures: the "
        f"least errors are {sums16[0]:.1e} and {sums16[1]:.1e}. With FP32 sums they would be "
        f"{sums32[0]:.1e} and {sums32[1]:.1e}, about half the paper's least and less, mostly the "
        "rounding of the result; with truncated FP16 sums the largest would be "
        f"{min(cut):.0f} and {max(cut):.0f} times the paper's.",
        "FP32: the 10⁻⁵ of Ω16 is the rounding of typed constants, as in Im2col-Winograd's Γ16. "
        "With exact constants it loses several times less, with the best points again.",
        "The maxima of Ω4 and Ω8 in FP32 come out larger than the paper's: at 512 and 1024 "
        "channels our plans have one or two segments, where the paper's must have had more.",
        f"With FP32 sums, L1 scaling and the best points Ω16 in FP16 stays below {best:.1e}.",
    ]


def _figure12(cells: Sequence[Cell]) -> list[str]:
    plain = [
        c.ours
        for c in cells
        if c.column == "one segment" and c.where.endswith(("= 1638400", "= 1048576"))
    ]
    l1 = {c.where: c.ours for c in cells if c.column == "all"}
    powers = [c.ours / l1[c.where] for c in cells if c.column == "scaling by powers of two"]
    without = {c.where: c.ours / l1[c.where] for c in cells if c.column == "no scaling"}
    eight = [v for where, v in without.items() if where.startswith("Ω8")]
    sixteen = [v for where, v in without.items() if where.startswith("Ω16")]
    return [
        _count(cells),
        "Segments are what keeps accuracy: with one segment an FP16 sum of 2²⁰ products stagnates "
        f"and loses {min(plain):.0%} to {max(plain):.0%} of the result, as the paper reports of "
        "cuDNN (0.65 and 0.83).",
        "Kahan's summation of the buckets changes no digit shown: their number is at most a few "
        "hundred, and their own error is that of FP16.",
        f"Without scaling the error is {min(eight):.1f} to {max(eight):.1f} times as large for "
        f"α = 8 and {min(sixteen):.1f} to {max(sixteen):.1f} times for α = 16, whose transformed "
        "operands fall into FP16's subnormal numbers; nothing overflows here without it. "
        f"Powers of two, exact, give {min(powers):.2f} to {max(powers):.2f} times L1's error.",
    ]


def _zero_mean(cells: Sequence[Cell]) -> list[str]:
    def rms(kernel: str, points: str) -> float:
        return _one(cells, f"{kernel} fp16", f"{points}, zero mean, RMS")

    return [
        "On zero-mean data in FP16 the relative RMS is "
        f"{rms('Ω4(3,2)', 'direct'):.1e} for direct convolution, {rms('Ω4(3,2)', 'best'):.1e} for "
        f"α = 4, {rms('Ω8(3,6)', 'best'):.1e} for α = 8, and {rms('Ω16(9,8)', 'paper'):.2f} for "
        f"α = 16 with the paper's points, {rms('Ω16(9,8)', 'best'):.2f} with the best ones: most "
        "digits are lost. U[0,1] hides it, because the mean dominates.",
        "Admissible, for the planner and for every speed figure, is a kernel whose predicted "
        "relative RMS on zero-mean data is at most 10 times direct's in the same precision: α = 16 "
        "is not, in any of them.",
        "BF16's result, were it rounded to BF16, would lose 1.4e-3 by that alone.",
    ]


def _frontier(cells: Sequence[Cell]) -> list[str]:
    worst = max(c.ours for c in cells)
    return [
        f"The planner's choice is at most {worst - 1:.0%} slower than the fastest count. A few "
        "segments buy most of the time; more workspace buys nothing."
    ]


def _plain(cells: Sequence[Cell]) -> list[str]:
    return [_count(cells)]


def _conclusion(cells: Sequence[Cell]) -> list[str]:
    most: dict[int, list[str]] = {}
    for c in cells:
        if c.column == "faster up to so many channels":
            device = c.where.partition(",")[0]
            most.setdefault(int(c.ours), []).append(f"{device} {c.where.rpartition(' ')[2]}")
    never = ", ".join(most.get(0, []))
    always = {text.rpartition(" ")[0] for text in most.get(512, [])}
    return [
        f"Up to 512 channels it holds on {', '.join(sorted(always))}; nowhere on {never}.",
    ]


def _figure7(cells: Sequence[Cell]) -> list[str]:
    return [
        "Counting confirms the formula for a padding of at most the filter and the output. The "
        "figure's own 12.5 % needs F·O = 16, which no filter has on its 6 × 6 area: 16.7 % there."
    ]


TEXTS = {
    **measured.TEXTS,
    **recorded.TEXTS,
    **training.TEXTS,
    "winrs_2025 table2": Text(
        "Zhang et al. give the workspace of WinRS over their grid: its average, minimum and "
        "maximum, in MB and as a multiple of the data.",
        f"The planner's, for an RTX 4090. {GRID}",
        COUNTED,
        _table2,
    ),
    "winrs_2025 table3": Text(
        "The speedup of WinRS over cuDNN 9.8's fastest GEMM, its FFT and its non-fused Winograd.",
        "A timing model of WinRS (products on lanes or Tensor Cores, transforms, waves of blocks, "
        f"traffic, the reduction), and equation 8 for cuDNN. {GRID}",
        "paper and ours: ratios over the layers of a filter size.",
        _table3,
    ),
    "winrs_2025 table4": Text(
        "Mean relative errors on U[0,1] against FP64, minimum and maximum over the grid; in FP16 "
        "dy is scaled by 0.01.",
        "Each kernel on three layers that it serves alone, from the shortest accumulation to 2¹⁸ "
        "products, planned for an RTX 4090, simulated in its order: transforms in FP32, products "
        "in steps of 8 images as mma.m16n8k8 adds them, buckets, Kahan's sum. The middle row of "
        "taps of a few channels is computed, with its whole accumulation.",
        "ours: over the layers.",
        _table4,
    ),
    "winrs_2025 figure2": Text(
        "Blocks of a layer forward and in its filter gradient.",
        "The same, and the planner's.",
        COUNTED,
        _plain,
    ),
    "winrs_2025 figure5": Text(
        "Examples of the fastest kernel pairs; one of them is in the text.",
        "The pair by width of the filter and of dy, weighted by the model's kernel throughputs.",
        COUNTED,
        _plain,
    ),
    "winrs_2025 figure6": Text(
        "The thirteen kernels, and the widths that they serve.",
        "The planner's table.",
        COUNTED,
        _plain,
    ),
    "winrs_2025 figure7": Text(
        "Blocks skip rows of padding: p(p+1)/(F·O) of the work, and 12.5 % in the figure.",
        "Counted over all taps and segments.",
        COUNTED,
        _figure7,
    ),
    "winrs_2025 figure9": Text(
        "Workspace and segments of 3×3 gradients against channels; the values are not in the text.",
        "The planner's for 256 images and an RTX 4090.",
        COUNTED,
        _plain,
    ),
    "winrs_2025 figure12": Text(
        "FP16 errors against the accumulation length N·O_H·O_W; the values are not in the text.",
        "Ω8(3,6) and Ω16(9,8) with the paper's points, with everything the paper does against "
        "error, and with each remedy switched off.",
        "ours: mean relative error on U[0,1].",
        _figure12,
    ),
    "winrs_2025 zero_mean": Text(
        "Not in the paper, whose data are U[0,1].",
        "The same simulation on normal data and U[0,1], for FP32, FP16, BF16 and FP8 (by the "
        "format only), sums in FP32, with the paper's and the best points. The truth is that of "
        "the unrounded data, so that direct convolution pays for rounding its inputs.",
        "ours: the metric named.",
        _zero_mean,
    ),
    "winrs_2025 frontier": Text(
        "Not in the paper.",
        "Predicted time against workspace, one point a segment count.",
        COUNTED,
        _frontier,
    ),
    "winrs_2025 table2_kernels": Text(
        "Workspace of WinRS and of cuDNN 9.8 over the grid.",
        f"A sample of the grid, {DRAWN} layers a filter size, drawn with a stated seed. {LEFT_OUT} "
        "Judged is Ω, the fastest of the paper's kernels on FFMA units, which have segments of "
        "their own, no hybrid pair, and one kernel a layer. What conv_backward_filter picks by "
        "itself is shown; where that computes products directly, it is not WinRS. FP16's data have "
        "half the bytes. Of cuDNN's algorithms stands what each asks for.",
        "paper and ours: average, minimum, maximum; low and high: 90 % interval of the average.",
        told,
    ),
    "winrs_2025 table3_kernels": Text(
        "Speedups over cuDNN 9.8's GEMM class (algorithms 0, 1 and 3), FFT and non-fused Winograd.",
        f"The sample above. {LEFT_OUT} {RUN} The average is geometric. Ω: the fastest of the "
        "paper's kernels, on FFMA units in FP32, transforms apart in 16 bits; split products are "
        "the fastest of any workspace; what is picked keeps to the usual one and is admissible, "
        "and is direct products where they are faster. Transforms allow what device memory does, "
        "which reads the data and writes and reads what they become, each once; products what "
        "Tensor Cores at 1980 MHz do.",
        "paper: RTX 4090; another GPU's ratios are no measure of these.",
        told,
    ),
    "winrs_2025 table4_kernels": Text(
        "Mean relative errors on U[0,1], minimum and maximum over the grid.",
        f"The sample above. {LEFT_OUT} The whole gradient is held against FP64 of the same rounded "
        "data; in 16 bits dy is scaled by 0.01, as in the paper. Ω has the best points and exact "
        "constants, which the paper's has not: nothing is judged.",
        "paper: its minimum and maximum. ours: over the layers of the sample; cuDNN in FP32 is "
        "that without TF32, except Cu-Algo1, which the paper has in TF32.",
        told,
    ),
    "winrs_2025 plans": Text(
        "Not in the paper: it has one planner.",
        "Algorithms 1 and 2, as the kernels launch them, and the fastest of the same kernels on "
        "segments of our own, by our device model on the whole grid. In FP16 dw is in FP16, so "
        "that every segment has a bucket, and 2, 4, 6 and 8 taps have no kernel but those of 3 and "
        "6.",
        "Predicted, nothing measured: our time over WinRS's; the geometric mean.",
        told,
    ),
    "winrs_2025 shares": Text(
        "WinRS's workspace is 0.18 of the data on average.",
        "Fused Ω in FP16 on segments of our own, all layers of the grid that its kernels serve: as "
        "much workspace as the model finds fastest, and at most a share of the data on every "
        "layer. dw is in FP16, so that every segment has a bucket; one segment needs none.",
        "Predicted, nothing measured: time over the fastest; the geometric mean.",
        told,
    ),
    "winrs_2025 conclusion": Text(
        "On an RTX 4090, an L40S and an A5000 WinRS in FP16 is 1.3 to 4.7 times as fast as cuDNN's "
        "GEMM.",
        "The fastest fused Ω and the fastest direct products of this package on 32 images of 32 to "
        "512 channels and equal work, by our device model and data sheets. On Hopper direct "
        "products run on wgmma, at twice mma.sync's rate, and transforms, which FP32 lanes do, "
        "bind Ω; elsewhere products bind it and its saving is left. Two launches, which transform "
        "once, are faster still where channels are many.",
        "Predicted; on an H100 measured as well (docs/notes/042).",
        _conclusion,
    ),
    "winrs_2025 simplification": Text(
        "Section 5.2: rows of points p and −p share products, which nearly halves them, for 6 % of "
        "the throughput.",
        "Multiplications and FMAs of the programs that the kernels are printed from, over entries "
        "of the matrices other than 0 and ±1.",
        COUNTED,
        _plain,
    ),
    "winrs_2025 ablations_kernels": Text(
        "Section 5.2: padding is worth 46 % in FP16, of the staged results 2 %; offsets of FP32's "
        "operands 5 %, shared products of the transforms 6 %; FP16 is 3.27 times FP32 on average.",
        "Fused Ω's policies on and off, on the GPU that was measured last. FP32's kernel stages "
        "its results in turn where the paper pads rows; its lanes read vectors 32 channels apart, "
        "and what the paper had without its offsets is not said: the 5 % stand alone. " + RUN,
        "ours: time without the policy over time with it, geometric mean over layers.",
        told,
    ),
}
