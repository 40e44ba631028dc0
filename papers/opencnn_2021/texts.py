"""What the report says of openCNN's tables."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.harness.tables import Cell
from experiments.report.counts import counts
from experiments.report.texts import Text
from papers.opencnn_2021.layouts import LAYOUTS, of
from papers.opencnn_2021.machine import FIGURE16, FIGURE17, TABLE1A, TABLE1B
from papers.opencnn_2021.speeds import FIGURE15, TABLE3, TABLE4
from papers.opencnn_2021.tables import EQUATION3
from winolab.gpu.families.fused2d.banks import TURING


def _equation3(cells: Sequence[Cell]) -> list[str]:
    failed = [f"{c.column}, {c.ours:.0f} where {c.paper:.0f} is printed"
              for c in cells if c.agrees is False]  # fmt: skip
    return [f"{counts(cells).text}. Not: {'; '.join(failed)}."]


def _layouts(cells: Sequence[Cell]) -> list[str]:
    wide = of("wide")
    return [
        f"{counts(cells).text}. 128-bit stores of all lanes are possible, too: a search over rows "
        f"that are turned found a layout of {wide.layout.bytes >> 10} KB without padding or "
        f"conflicts. Its stores move {TURING.bytes_a_cycle(wide.stores, stores=True):.1f} bytes a "
        f"cycle; on Turing both phases would take {wide.cycles():,.0f} cycles a block, the "
        f"paper's {of('compact').cycles():,.0f}, Yan et al.'s {of('yan').cycles():,.0f}."
    ]


def _speedups(cells: Sequence[Cell]) -> list[str]:
    over = [c.ours for c in cells if c.where.startswith("over yan")]
    return [
        f"The 64-bit layout has {min(over):.2f} to {max(over):.2f} of the 128-bit one's speed: "
        "producers bound our kernel, and hide what a layout gains."
    ]


def _figure15(cells: Sequence[Cell]) -> list[str]:
    best = [c.ours for c in cells if c.column == "fastest policy"]
    return [f"{min(best):.0f} to {max(best):.0f} TFLOPS by the fastest policy of each case."]


def _table1(cells: Sequence[Cell]) -> list[str]:
    ours = {(c.where, c.column): c.ours for c in cells}
    half = "STS, 128 bits, half of the lanes"
    return [
        "Stores of one warp take an H100's cycles as they take Turing's: a transaction and two "
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
        "kernel, its producers do."
    ]


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
    "Kernels of 64 unrolled accesses, whose machine code is disassembled and counted, on an H100.",
    "Another device's cycles are shown and not judged.",
    _table1,
)
SPEEDUPS = Text(
    "Castro et al. time the layers of ResNet over cuDNN's fused Winograd and over their version of "
    "Yan et al.'s layout.",
    "The same layouts in our kernel, side by side in one run on an H100; cuDNN's fused Winograd "
    "does not run there, its fastest algorithm stands for it.",
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
    TABLE3.key: SPEEDUPS,
    TABLE4.key: SPEEDUPS,
    TABLE1A.key: MACHINE,
    TABLE1B.key: MACHINE,
    FIGURE16.key: Text(
        "Castro et al. draw their kernel and cuDNN's under a roofline, and say that blocks of 64 "
        "filters have 33 % more arithmetic intensity than of 32.",
        "Products of a block over the bytes of filters and tiles that it loads; speeds on an H100.",
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
        "Our kernel with their layouts, and the fastest of its policies, on an H100.",
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
