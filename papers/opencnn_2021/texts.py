"""What the report says of openCNN's tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from experiments.harness.tables import Cell
from experiments.harness.verdicts import Verdict
from experiments.report.counts import counts
from experiments.report.texts import Text
from papers.opencnn_2021.layouts import COUNTED, LAYOUTS, of
from papers.opencnn_2021.machine import (
    BATCHES,
    FIGURE16,
    FIGURE17,
    LAYERS,
    TABLE1A,
    TABLE1B,
)
from papers.opencnn_2021.policies import BANKS, ERRORS, LOOP, POLICY, STEPS
from papers.opencnn_2021.search import SEARCH
from papers.opencnn_2021.speeds import (
    AUTHORS,
    AUTHORS_GPU,
    AUTHORS_RUN,
    BEST,
    FIGURE15,
    GPU,
    TABLE3,
    TABLE4,
)
from papers.opencnn_2021.tables import EQUATION3
from papers.opencnn_2021.targets import TARGETS


def _equation3(cells: Sequence[Cell]) -> list[str]:
    failed = [f"{c.column}, {c.ours:.0f} where {c.paper:.0f} is printed"
              for c in cells if c.agrees is False]  # fmt: skip
    return [f"{counts(cells).text}. Not: {'; '.join(failed)}."]


def _layouts(cells: Sequence[Cell]) -> list[str]:
    return [
        f"{counts(cells).text}. The pictures are of the layouts' data: 64-bit loads in the order "
        "that the authors discarded do conflict; the swap of y and z spares the shuffles."
    ]


def _counted(cells: Sequence[Cell]) -> list[str]:
    found = {(c.where, c.column): c.ours for c in cells}
    speeds = [c.ours for c in cells if c.column.startswith("speed") and c.where != "yan"]
    wide, compact, yan = (found[name, "cycles on Turing"] for name in ("wide", "compact", "yan"))
    banks = [c.ours for c in cells if c.column.startswith("by the banks")]
    return [
        f"On Turing both phases of a block would take {yan:,.0f} cycles by Yan et al.'s layout, "
        f"{compact:,.0f} by the paper's, {wide:,.0f} by 128-bit stores of all lanes, which a "
        f"search found. With them our kernel has {min(speeds):.2f} to {max(speeds):.2f} of its "
        "speed with Yan et al.'s: warps fill the gaps of one another's stores, and "
        "producers bound it. Were nothing hidden, banks alone would make optSTS64 "
        f"{max(banks):.2f} times as fast as Yan et al.'s on 64 channels and {min(banks):.2f} on "
        "512, on either GPU: what the paper measures, up to 2.15, has other causes beside."
    ]


def _search(cells: Sequence[Cell]) -> list[str]:
    found = {(c.where, c.column): c.ours for c in cells}
    wide, least = of("wide"), found["any layout", "cycles on Turing at least"]
    return [
        f"Of {found['compact', 'layouts tried']:,.0f} layouts like the compact one "
        f"{found['compact', 'without conflicts']:,.0f} are as good: those whose rows turn by an "
        "odd multiple of four words, whatever the other digits do. Of "
        f"{found['wide', 'layouts tried']:,.0f} for 128-bit stores by all lanes "
        f"{found['wide', 'without conflicts']:,.0f} have no conflict; they take "
        f"{wide.cycles():,.0f} cycles, and by the model no layout can take less than {least:,.0f}. "
        f"Of {found['64-bit loads', 'orders tried']:.0f} orders of 64-bit loads "
        f"{found['64-bit loads', 'without conflicts']:.0f} have no conflict, those where a "
        "half-warp reads a row; with neighbours in a vector they need neither a swap nor shuffles."
    ]


def _speedups(cells: Sequence[Cell]) -> list[str]:
    over = [c.ours for c in cells if c.where.startswith("over yan")]
    theirs = [c for c in cells if c.where.startswith("the authors")]
    mean = {
        layer: sum(c.ours for c in theirs if c.column == layer) / len(BATCHES) for layer in LAYERS
    }
    told = ", ".join(f"{layer} {value:.2f}" for layer, value in mean.items())
    return [
        f"The authors' own builds on an {AUTHORS_GPU} gain {told}, falling with depth as printed. "
        f"In our kernel the 64-bit layout has {min(over):.2f} to {max(over):.2f} of the 128-bit "
        "one's speed: producers run ahead into the next work tile while consumers finish one, and "
        "hide what a layout gains; the authors' threads do all of it one after another."
    ]


def _figure15(cells: Sequence[Cell]) -> list[str]:
    best = [c.ours for c in cells if c.column == "fastest policy"]
    theirs = [c.ours for c in cells if c.column == f"the authors' {AUTHORS[BEST]}"]
    return [
        f"{min(best):.0f} to {max(best):.0f} TFLOPS by the fastest policy of each case; the "
        f"authors' optSTS64, on an {AUTHORS_GPU}, {min(theirs):.0f} to {max(theirs):.0f}. Their "
        "builds of the compact layout and of 64-bit loads are as fast, as the paper says."
    ]


def _targets(cells: Sequence[Cell]) -> list[str]:
    def told(start: str) -> str:
        found = [c for c in cells if c.column.startswith(start)]
        met = sum(c.verdict == Verdict.REACHED for c in found)
        low, high = min(c.ours for c in found), max(c.ours for c in found)
        return f"{low:.2f} to {high:.2f}, {met} of {len(found)} reached"

    return [
        f"Shares of the ceiling: {told('share')}; producers, which share a multiprocessor's issue "
        f"slots with the products, are the rest. Over the authors' fastest build, in {AUTHORS_RUN} "
        f"and on an {AUTHORS_GPU}: "
        f"{told('speed over the authors')}. Over Yan et al.'s layout on 64 channels: "
        f"{told('speed over Yan')}."
    ]


def _policies(cells: Sequence[Cell]) -> list[str]:
    def ends(where: str) -> str:
        found = [c.ours for c in cells if c.where == where]
        return f"{min(found):.2f} to {max(found):.2f}"

    names = list(dict.fromkeys(c.where for c in cells))
    told = "; ".join(f"{name} {ends(name)}" for name in names)
    return [
        f"Speeds, means of a layer's batches: {told}. Boxes follow the share of their tiles that "
        "are in the map, 49 of 56 on Conv2, half on Conv5: what Lavin & Gray gain by them, pixels "
        "that a block's tiles share, does not show. Groups of filters neither gain nor lose: "
        "transformed filters of these layers fit into L2. Of NCHW a load brings one channel of a "
        "pixel, where two of NHWC are neighbours."
    ]


def _banks(cells: Sequence[Cell]) -> list[str]:
    by = {(c.where, c.column): c.ours for c in cells}
    counted = [c.ours for c in cells if c.column == "conflicts a work tile"]
    shares = [c.ours for c in cells if c.column == "conflicts, % of wavefronts"]
    model = sum(c.ours for c in cells if c.column.endswith("model"))
    most = max(by, key=lambda key: by[key] if key[1] == "conflicts, % of wavefronts" else 0.0)
    return [
        f"Counters find {min(counted):.0f} to {max(counted):.0f} conflicts a work tile, "
        f"{min(shares):.1f} to {max(shares):.1f} % of the wavefronts, most in {most[0]}; the model "
        f"of the output transform has {model:.0f} in all layouts. With four times the channels a "
        "work tile has hardly more: conflicts come with its change, not with its stages, and not "
        "by a warp's instruction, which is all that the model knows."
    ]


def _steps(cells: Sequence[Cell]) -> list[str]:
    told = []
    for column in dict.fromkeys(c.column for c in cells):
        found = [c.ours for c in cells if c.column == column]
        told.append(f"{column} {min(found):.2f} to {max(found):.2f}")
    return [f"Shares of 2.25 × SGEMM × useful outputs: {'; '.join(told)}."]


def _loop(cells: Sequence[Cell]) -> list[str]:
    told = []
    for precision in dict.fromkeys(c.where.partition(", ")[0] for c in cells):
        mine = [c for c in cells if c.column == "gain" and c.where.startswith(f"{precision}, ")]
        gains = [c.ours for c in mine]
        wins = [f"{c.where.partition(', ')[2]} {c.ours:.2f}" for c in mine if c.ours > 1]
        told.append(
            f"{precision} {min(gains):.2f} to {max(gains):.2f} times as fast as what is picked; "
            + (f"it could win on {', '.join(wins)}" if wins else "it wins nowhere")
        )
    return [f"The loop, without loads and stores: {'. '.join(told)}."]


def _errors(cells: Sequence[Cell]) -> list[str]:
    told = []
    for said in ("prediction", "simulation"):
        found = [c.ours for c in cells if c.column.endswith(f"over the {said}")]
        far = sum(abs(value - 1) > 0.2 for value in found)
        told.append(f"over the {said} {min(found):.2f} to {max(found):.2f}, {far} of {len(found)} "
                    "by more than a fifth")  # fmt: skip
    bits = [c.ours for c in cells if c.column.startswith("bits of the reference's")]
    same = f"Of {len(bits)} whose order is stated {sum(bits):.0f} have the reference's bits."
    return [f"Errors {'; '.join(told)}.", *([same] if bits else [])]


def _table1(cells: Sequence[Cell]) -> list[str]:
    ours = {(c.where, c.column): c.ours for c in cells}
    half = "STS, 128 bits, half of the lanes"
    return [
        f"Stores of one warp take an {GPU}'s cycles as they take Turing's: a transaction and two "
        "beside. One warp alone does not say what a multiprocessor can: sixteen move 128 bytes a "
        f"cycle whatever the width, and {ours[half, '16 warps']:.0f} where half of the lanes are "
        "idle. Idle lanes cost half of the throughput on both; narrow stores cost nothing where "
        "other warps fill the gaps."
        if (half, "16 warps") in ours
        else "Cycles by one warp are nearly Turing's for stores; loads of 32 bits take twice.",
    ]


def _figure16(cells: Sequence[Cell]) -> list[str]:
    speed = [c.ours for c in cells if c.column == "TFLOPS"]
    gain = next(c.ours for c in cells if c.column == "gain of intensity")
    return [
        f"Blocks of 64 filters have {gain:.2f} times the intensity of 32, as the paper says. Both "
        "lie right of L2's roof, and speeds of "
        f"{min(speed):.0f} to {max(speed):.0f} TFLOPS below the FFMA units': neither bounds the "
        "kernel, its producers do.",
        *_figure16_counted(cells),
    ]


def _figure16_counted(cells: Sequence[Cell]) -> Iterator[str]:
    """What counters say of the same policies."""

    def ends(column: str) -> str:
        found = [c.ours for c in cells if c.column == column]
        return f"{min(found):.0f} to {max(found):.0f}"

    if any("counted" in c.column for c in cells):
        yield (
            f"Counted over the policies: {ends('FLOP a byte of L2, counted')} FLOP of products a "
            f"byte of L2, {ends('FLOP a byte of DRAM, counted')} a byte of DRAM; issue slots are "
            f"in use {ends('issue slots in use, %')} % of the time, L2's rate "
            f"{ends('L2, % of its rate')} %. "
            + "; ".join(
                f"{c.where} gains {c.ours:.2f} by L2's bytes"
                for c in cells
                if c.column == "gain of intensity, counted"
            )
            + "."
        )


def _figure17(cells: Sequence[Cell]) -> list[str]:
    mean = {c.where: c.ours for c in cells if c.column.startswith("average")}
    told = ", ".join(f"{name} {value:.2f}" for name, value in mean.items())
    cells = [c for c in cells if not c.column.startswith("average")]
    slower = sorted({c.where for c in cells if c.ours < 1})
    least = min(cells, key=lambda c: c.ours)
    return [
        f"Averages: {told}. Faster than ours somewhere: {', '.join(slower) or 'none'}, by most on "
        f"{least.column} ({least.ours:.2f}); it computes F(4×4,3×3) through a workspace, and gains "
        "with depth, as the paper found."
    ]


MACHINE = Text(
    "Castro et al. time loads and stores of shared memory by one warp, in machine code of their "
    "own, on an RTX 2080 Ti.",
    "Kernels of 64 unrolled accesses, whose machine code is disassembled and counted, on an "
    f"{GPU}.",
    "Another device's cycles are shown and not judged.",
    _table1,
)
SPEEDUPS = Text(
    "Castro et al. time the layers of ResNet over cuDNN's fused Winograd and over their version of "
    "Yan et al.'s layout.",
    f"The same layouts in our kernel, side by side in one run on an {GPU}, and the authors' own "
    f"code on an {AUTHORS_GPU}; cuDNN's fused Winograd does not run there, its fastest algorithm "
    "stands for it.",
    "Other devices' ratios are shown and not judged.",
    _speedups,
)
TEXTS = {
    LAYOUTS.key: Text(
        "Output transforms go through shared memory: Castro et al. replace 128-bit stores by half "
        "of a warp's lanes by 64-bit stores of all, and take the padding out.",
        "A model of the banks counts transactions, conflicts, idle lanes and bytes of the layouts "
        "that the kernel's indexing is printed from.",
        "Counts are exact; bytes a cycle follow from Table 1's cycles and are not judged.",
        _layouts,
    ),
    COUNTED.key: Text(
        "Castro et al. compare layouts by bytes a cycle of one warp's stores, and by speedups.",
        "All layouts of our kernel, by the model of the banks, whose Turing takes Table 1's "
        "cycles; the kernel's speed with each over that with Yan et al.'s, geometric means of "
        f"runs on an {GPU} and, of layouts that the paper does not have, on an {AUTHORS_GPU}.",
        "Nothing is judged: the paper has no such table.",
        _counted,
    ),
    SEARCH.key: Text(
        "Castro et al. find their layouts by hand, and discard 64-bit loads for their conflicts.",
        "Rows of 128 bytes turned by any multiple of the digits that say which row, and 64-bit "
        "loads in any order of a lane's bits.",
        "Nothing is judged: the paper has no such table.",
        _search,
    ),
    TARGETS.key: Text(
        "The paper states no such aims: a kernel on FFMA units does at best 2.25 times SGEMM.",
        "The fastest policy of each layer, L2 cold, the filter's transform included.",
        "An aim is reached or missed; none is the paper's.",
        _targets,
    ),
    STEPS.key: Text(
        "The paper does not take its kernel apart.",
        "The kernel that is offered, compiled without its loads of pixels, without the input or "
        "the output transform, and without all three, side by side; what lacks one computes wrong "
        "results.",
        "Nothing is judged: each is a bound on what the others leave.",
        _steps,
    ),
    POLICY.key: Text(
        "Lavin & Gray order tiles in superblocks and group filters, NCHW; Castro et al. keep CHWN.",
        "Each policy of our kernel over the same without, in one run.",
        "Nothing is judged: the paper has no such table.",
        _policies,
    ),
    ERRORS.key: Text(
        "The paper states no errors.",
        "Relative RMS and mean relative errors of the kernel against FP64, beside what is "
        "predicted of its arithmetic, and what the reference errs on one image in the same order.",
        "Nothing is judged: within a fifth was an aim of ours.",
        _errors,
    ),
    LOOP.key: Text(
        "The paper has FFMA units; Tensor Cores could multiply the same states.",
        "The main loop of such a kernel, 64 channels and 32 or 48 tiles a block: it transforms "
        "what lies in shared memory and multiplies, and loads and writes nothing; beside today's "
        "choice.",
        "Nothing is judged: where the loop is slower, no such kernel wins.",
        _loop,
    ),
    BANKS.key: Text(
        "Castro et al. say that their layouts have no bank conflicts.",
        "Bank conflicts of whole kernels by ncu's counter, beside those that the model finds in "
        "the output transform.",
        "Nothing is judged: the paper counts none.",
        _banks,
    ),
    TABLE3.key: SPEEDUPS,
    TABLE4.key: SPEEDUPS,
    TABLE1A.key: MACHINE,
    TABLE1B.key: MACHINE,
    FIGURE16.key: Text(
        "Castro et al. draw their kernel and cuDNN's under a roofline, and say that blocks of 64 "
        "filters have 33 % more arithmetic intensity than of 32.",
        "Products of a block over the bytes of filters and tiles that it loads; speeds on an "
        f"{GPU}; counted: products over the bytes that L2 and DRAM moved, under ncu.",
        "Nothing is judged: the gain follows from sizes of blocks, the figure's numbers did not "
        "survive.",
        _figure16,
    ),
    FIGURE17.key: Text(
        "Castro et al. draw heatmaps of speedups over cuDNN's other algorithms and state averages.",
        "The fastest policy of our kernel over cuDNN's algorithms, channels first, without TF32.",
        "Other devices' averages are shown and not judged; the cells did not survive.",
        _figure17,
    ),
    FIGURE15.key: Text(
        "Castro et al. draw TFLOPS by equation 6, which divides direct convolution's by 2.25.",
        f"Our kernel with their layouts, the fastest of its policies, on an {GPU}, and the "
        f"authors' code on an {AUTHORS_GPU}.",
        "The figures' numbers did not survive; nothing is judged.",
        _figure15,
    ),
    EQUATION3.key: Text(
        "Castro et al. print the matrices of F(2, 3) and count its operations: a third fewer "
        "multiplications than direct convolution's.",
        "Operations of winolab's programs; the printed matrices, proved to be convolution, beside "
        "those of the points 0, ±1 and infinity.",
        "Exact.",
        _equation3,
    ),
}
