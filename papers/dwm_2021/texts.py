"""What the report says of DWM's tables."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.harness.tables import Cell
from experiments.harness.verdicts import Verdict
from experiments.report.texts import Text
from papers.dwm_2021 import ranges, speeds
from papers.dwm_2021.costs import PHASES
from papers.dwm_2021.frontier import BUDGETS

LOST = (
    "The numbers of the paper's tables did not survive in the text we have; its prose did, and "
    "each of its claims stands beside what comes out here."
)
COUNTED = "paper: the number in the claim; ours: what comes out. Exact counts, nothing sampled."


def _judged(cells: Sequence[Cell]) -> str:
    judged = [c for c in cells if c.agrees is not None]
    failed = [c.column for c in judged if not c.agrees]
    told = f"{len(judged) - len(failed)} of {len(judged)} hold."
    told += f" Not: {'; '.join(failed)}." if failed else ""
    undecided = [f"{c.column} ({c.note})" for c in cells if c.verdict is Verdict.OPEN]
    return told + (f" Open: {'; '.join(undecided)}." if undecided else "")


def _named(cells: Sequence[Cell], text: str) -> Cell:
    return next(c for c in cells if text in c.column)


def _mse(cells: Sequence[Cell]) -> list[str]:
    return [
        _judged(cells),
        "DWM FP32 loses less than direct FP32 because direct's one long sum is cut into one sum "
        "a piece: it is the order of summation, not the number of multiplications. DWM FP16 loses "
        "more than direct FP16 because its transforms and its aggregation round to FP16 again.",
        "With three taps Winograd and DWM are one algorithm and lose the same: the exception to "
        'the paper\'s "almost in all situations".',
        "F(2, 3) in three dimensions is Winograd and DWM alike, so that its FP16 cannot be all "
        "NaN if DWM's is not; overflow begins at larger kernels, from the points 0, ±1, ±2, ±½, "
        "±4, … on. Other points may overflow earlier; the paper gives its points up to ±2 only.",
    ]


def _table7(cells: Sequence[Cell]) -> list[str]:
    six = _named(cells, "6-D: MSE of Winograd over DWM's, 7")
    return [
        _judged(cells),
        f"With seven taps in six dimensions Winograd's MSE is {six.ours:.1e} times DWM's. DWM's "
        "own relative error grows with the number of pieces that are added, as direct "
        "convolution's does with the taps: stable is what grows no more than that.",
    ]


def _saved(cells: Sequence[Cell]) -> list[str]:
    dwm = {c.where: c.ours for c in cells if c.column == "DWM"}
    three = next(v for k, v in dwm.items() if " 3 taps, stride 2" in k)
    others = [v for k, v in dwm.items() if "stride 2" in k and " 3 taps" not in k]
    phases = {c.where: c.ours for c in cells if c.column == PHASES}
    whole = ", ".join(f"{phases[k]:.2f} with {k.split(', ')[1]}" for k in phases)
    return [
        _judged(cells),
        "The abstract's 1.44 to 3.38 are multiplications, transforms left out: 1.44 = (6/5)² is "
        "3×3 with stride 2 in two dimensions, 3.375 = (6/4)³ is 3×3×3 with stride 1.",
        f"With stride 2 and 3 taps it saves {three:.2f} times, with 5 and more {min(others):.2f} "
        f"to {max(others):.2f} times; the paper's 2 to 3 is a range over dimensions.",
        f"A stride's phases, each by one tile of four outputs instead of DWM's pieces and two: "
        f"{whole}. That leaves out their transforms, which are more than shifts.",
        "Winograd's transforms dominate only where one tile of one channel is counted. In a layer "
        "of the paper's sizes they are shared by the filters, and F(2, r) multiplies less than DWM "
        "for every large kernel: what speaks against it is its error.",
    ]


def _table8(cells: Sequence[Cell]) -> list[str]:
    return [
        _judged(cells),
        "Layer lists were rebuilt from the networks' papers; their multiply-adds give the "
        "published figures within 4 %: of the three in DWM's own text I3D's is 3 % off, C3D's and "
        "R(2+1)D's round to theirs. With transforms as dense matrices, shared by channels and "
        "filters, plain Winograd multiplies less than DWM in SPyNet's 7×7 layers.",
    ]


def _table14(cells: Sequence[Cell]) -> list[str]:
    return [
        _judged(cells),
        "Counted: the tensors, and transformed filters, data and results of all pieces at once. "
        "Filters expand by ∏(Sᵢ + mᵢ)/∏Sᵢ and data by ∏(Sᵢ + mᵢ)/∏2Sᵢ over the patches of im2col, "
        "which is below 1: equations 25 and 27, rederived.",
    ]


def _ranges(cells: Sequence[Cell]) -> list[str]:
    scales = [c for c in cells if c.column == "winograd: least scale that is not finite"]
    least, where = min((c.ours, c.where) for c in scales)
    pieces = [c.ours for c in cells if c.column == "dwm: least scale that is not finite"]
    return [
        _judged(cells),
        f"One tile overflows from a scale of {least:g} on ({where}), DWM nowhere below "
        f"{min(pieces, default=2.0**15):g}: its transforms add four numbers a tile at most, "
        "two dimensions' F(2, 7) multiply by up to 25 and more. Below that scale one tile is "
        "finite and loses an order of magnitude more. A scale of the transforms, which the CUDA "
        "kernels have, moves the overflow, not the loss.",
        "What SPyNet's and GDConvNet's data are is not known here: the networks' weights are not "
        "in the paper. Filters are He's, so that outputs are of the size of the data.",
    ]


def _ranges_measured(cells: Sequence[Cell]) -> list[str]:
    first = [c for c in cells if c.column == "winograd: least scale that is not finite"]
    whole = [c for c in cells if c.column == "winograd: finite up to scale"]
    told = [_judged(cells)]
    if first:
        least, where = min((c.ours, c.where) for c in first)
        told.append(f"One tile overflows from a scale of {least:g} on ({where}).")
    if whole:
        told.append(
            f"On {len(whole)} of the kinds of layers it does nowhere: FP16's kernels scale filters "
            "and the transforms of one tile by powers of two, which the simulation here does not."
        )
    told.append("Pieces are added up in FP32 and rounded once, not as the simulation adds them.")
    return told


def _strategies(cells: Sequence[Cell]) -> list[str]:
    part, phases = (c.ours for c in cells if c.column.startswith("part") and c.where[0] == "a")
    return [
        f"By the model DWM's pieces of three taps and tiles of two outputs are the best on "
        f"{part:.0%} of the shapes: an H100's direct products run on Tensor Cores, each piece "
        "moves the outputs once more, and one larger tile saves more.",
        f"A stride's phases by the tiles that the planner takes are another matter: "
        f"{phases:.0%}, the more the larger the filter. The planner does not take them yet; "
        "Table 5 has their times on a GPU.",
    ]


def _measured(cells: Sequence[Cell]) -> list[str]:
    found = {(c.where, c.column): c.ours for c in cells}

    def ratios(above: str, below: str) -> list[float]:
        return [
            found[where, f"{above}, µs"] / us
            for (where, column), us in found.items()
            if column == f"{below}, µs" and (where, f"{above}, µs") in found
        ]

    told = [
        _judged(cells),
        "Another GPU and another cuDNN than the paper's.",
    ]
    others = {"Winograd": "winograd", "FFT": "fft", "direct products": "direct", "PyTorch": "torch"}
    speeds_of = [
        f"{min(speed):.2f} to {max(speed):.2f} times {name}"
        for name, method in others.items()
        if (speed := ratios(method, "dwm"))
    ]
    if speeds_of:
        told.append(
            f"DWM's speed is {', '.join(speeds_of)}. Its pieces are launches one after another, "
            "each of which moves the outputs once more; one tile has a single, fused launch."
        )
    if phases := ratios("direct", "phases"):
        told.append(
            f"A stride's phases by the planner's own tiles are {min(phases):.2f} to "
            f"{max(phases):.2f} times as fast as direct products, the more the larger the filter."
        )
    return told


def _equation18(cells: Sequence[Cell]) -> list[str]:
    away = _named(cells, "transformed filters apart")
    outside = _named(cells, "no filter's")
    return [
        "G Gᵀ of F(2, 3) is not the identity, so that gradient descent on transformed filters is "
        f"another algorithm: after the same steps it is {away.ours:.0%} away.",
        f"Its gradients leave the range of G: {outside.ours:.1%} of the spectrum is no filter's."
        if outside.ours > 1e-12
        else "On this quadratic loss it stays in the range of G and only its speed differs.",
    ]


def _equation23(cells: Sequence[Cell]) -> list[str]:
    return [
        _judged(cells),
        "The sum over pieces is a product of sums over dimensions, so that only their number "
        "counts: a filter cut unevenly multiplies as often as one cut evenly.",
    ]


def _frontier(cells: Sequence[Cell]) -> list[str]:
    def gains(budget: str) -> str:
        values = sorted(c.ours for c in cells if c.column == f"gain over DWM at {budget}")
        middle = values[len(values) // 2]
        return (
            f"{values[0]:.2f} to {values[-1]:.2f} times fewer multiplications, median {middle:.2f}"
        )

    return [
        f"At DWM's own error its choice is all but on the front: {gains(BUDGETS[0])}. What is "
        "gained comes from better points and from pieces of equal length.",
        f"A little more error buys much: at twice DWM's error {gains(BUDGETS[1])}; at the error of "
        f"direct convolution with one accumulator, {gains(BUDGETS[2])}. Tiles then have 3 to 5 "
        "outputs, often not the same in every dimension.",
    ]


TEXTS = {
    "dwm_2021 table1": Text(
        "DWM's Table 1 compares mean squared errors of 2-D convolutions, kernels of 3 to 11, in "
        f"FP32 and FP16, normally distributed data. {LOST}",
        "Blocks of 8×8 outputs and 8 filters inside of a layer with the paper's channels, in "
        "simulated arithmetic: FP32 with one accumulator, FP16 with FP16 tensors and transforms "
        "and FP32 sums. Winograd is F(2, r) with wincnn's points, which begin with the paper's.",
        "ours: mean over seeds; low and high: 90 % Student interval.",
        _mse,
    ),
    "dwm_2021 table2": Text(
        f"The same for 3-D convolutions, kernels of 3 to 9. {LOST}",
        "As for Table 1, blocks of 4×4×4 outputs.",
        "ours: mean over seeds; low and high: 90 % Student interval.",
        _mse,
    ),
    "dwm_2021 table3": Text(
        f"FLOPs and speedups of 2-D convolutions, strides 1 and 2. {LOST}",
        "Multiplications but by 0 and powers of two, as the paper counts: exact, for one tile of "
        "one channel and for whole layers.",
        COUNTED,
        _saved,
    ),
    "dwm_2021 table4": Text(
        f"The same for 3-D convolutions. {LOST}", "As for Table 3.", COUNTED, _saved
    ),
    "dwm_2021 table7": Text(
        "MSE of convolutions of one channel with 2 outputs a dimension, in one to six dimensions, "
        f"seed 11. {LOST}",
        "The same shapes, simulated FP32; further seeds up to four dimensions.",
        "ours: mean over seeds; low and high: 90 % Student interval where there are several.",
        _table7,
    ),
    "dwm_2021 table8": Text(
        f"FLOPs of whole networks under four readings. {LOST}",
        "Convolution layers from the networks' own papers (sources in the notes); Winograd is "
        "F(2, r) for every layer of stride 1, or of 3 taps and stride 1 only.",
        COUNTED,
        _table8,
    ),
    "dwm_2021 table14": Text(
        f"Memory of an implementation that is not fused, over plain convolution's. {LOST}",
        "Elements that each holds, unpadded layers with the sizes and channels of Tables 1 and 2.",
        COUNTED,
        _table14,
    ),
    "dwm_2021 frontier": Text(
        "DWM takes pieces of three taps and tiles of two outputs, whatever the filter.",
        "Every piece of up to the filter's length and every tile of up to 8 outputs, for each "
        "dimension its own; those that no other choice beats in both multiplications and noise "
        "gain are the front. Their error is predicted rounding by rounding (FP32, 64 channels, "
        "zero-mean data) and measured for some.",
        "ours: direct's multiplications over the choice's; prediction: of the best choice's error.",
        _frontier,
    ),
    "dwm_2021 ranges": Text(
        "In FP16, SPyNet by one tile of F(2, 7) has outputs that are NaN (Table 10, Figure 5), "
        f"GDConvNet nothing but NaN (Table 12), by DWM neither. {LOST}",
        "The layers of these and other video networks (sources in networks.py): blocks of 8×8 or "
        "4×4×4 outputs and 8 filters, FP16 tensors and transforms, FP32 sums, as for Tables 1 and "
        "2. Data: normal times 2**U[-20, 0] times a scale that grows; filters He's.",
        "ours: the least scale at which an output is not finite; relative RMS at scale 1.",
        _ranges,
    ),
    "dwm_2021 strategies": Text(
        "DWM was the best on about 25 % of around 2,000 shapes, against cuDNN, its FFT and "
        f"Winograd on a V100. {LOST}",
        "2,000 shapes of our own grid, forward in FP32, by the planner's model of an H100: direct "
        "products, one tile of two outputs, DWM's pieces with their additions, and a stride's "
        "phases by the planner's own tiles.",
        "ours: parts of the shapes, geometric means of times.",
        _strategies,
    ),
    "dwm_2021 equation23": Text(
        "Whatever the pieces, mᵢ of them along Sᵢ taps make ∏(Sᵢ + mᵢ) multiplications for two "
        "outputs a dimension: fewer pieces multiply less, and three taps are the most that keep "
        "the transforms simple.",
        "Every cut into pieces of up to three taps, of filters of 4 to 11 taps in one dimension, "
        "of 4 to 7 in two and of 4 and 5 in three, counted piece by piece.",
        COUNTED,
        _equation23,
    ),
    "dwm_2021 equation18": Text(
        "The paper keeps filters, not their transforms, as what training updates, because "
        "G Gᵀ ≠ E (equation 18).",
        "Gradient descent on a filter and on its transform, F(2, 3), the same quadratic loss.",
        "Exact but for the descent, which is FP64.",
        _equation18,
    ),
}
ON_GPU = Text(
    f"Wall clock time, on a V100 with cuDNN 7.4. {LOST}",
    "Whole calls of ours, piece after piece, beside PyTorch in benchmark mode, cold L2 cache, "
    "interleaved; the device is in the rows.",
    "ours: medians, or what the claim compares.",
    _measured,
)
RANGES_ON_GPU = Text(
    "In FP16, SPyNet by one tile of F(2, 7) has outputs that are NaN (Table 10, Figure 5), "
    f"GDConvNet nothing but NaN (Table 12), by DWM neither. {LOST}",
    "The layers whole, of each kind that with the largest map, by the FP16 kernels of a GPU, "
    "which the rows name, and by PyTorch. Data as in the simulation, cut off at FP16's largest "
    "number. Winograd is nested in two dimensions, in three along a row.",
    "ours: the least scale at which an output is not finite; relative RMS at scale 1, of the "
    "same FP16 numbers.",
    _ranges_measured,
)
TEXTS |= {table.key: ON_GPU for table in speeds.TABLES}
TEXTS[ranges.MEASURED.key] = RANGES_ON_GPU
