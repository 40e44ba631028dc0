"""openCNN on another GPU: Table 1, Figure 16's roofline, Figures 17 and 19; little is judged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from experiments.gpu.rows import of_last
from experiments.harness.facts import facts, table
from experiments.harness.jobs import Row
from experiments.harness.tables import Cell, Table, none, one
from experiments.harness.verdicts import Verdict
from papers.opencnn_2021.speeds import NOTHING, PAPER, SAVING
from winolab.bench.layers import parse_square
from winolab.gpu.families.fused2d.config import KC
from winolab.gpu.families.fused2d.layouts import STATES, TILES

SECTOR = 32  # bytes of L2 that a counter counts as one
WIDTHS = {"w32": 32, "w64": 64, "w128": 128}
LAYERS, BATCHES = ("Conv2", "Conv3", "Conv4", "Conv5"), (32, 64, 96, 128)
# Figure 17's names of cuDNN's algorithms, from above, by what a row calls them.
ALGORITHMS = {
    "FFT": "fft",
    "FFT_TILING": "fft_tiling",
    "GEMM": "gemm",
    "IMPLICIT_GEMM": "implicit_gemm",
    "IMPLICIT_PRECOMP_GEMM": "precomputed_gemm",
    "WINOGRAD_NONFUSED": "winograd_nonfused",
}
OTHER = {"standing": Verdict.NOT_COMPARABLE, "note": "another device"}


def cells_table1(part: str, rows: Sequence[Row]) -> list[Cell]:
    """Cycles (a) or bytes a cycle (b) by one warp, the paper's beside ours; by sixteen; and what
    the text says of stores by the lanes that Yan et al.'s layout has at work."""
    column = {"a": "cycles", "b": "bytes_a_cycle"}[part]
    found = []
    if not rows:
        return []
    measured = {(r["type"], r["width"], r["lanes"], r["warps"]): r[column] for r in of_last(rows)}
    for line in table(PAPER, f"1{part}")["rows"]:
        for key, width in WIDTHS.items():
            where = f"{line['type']}, {width} bits"
            ours = measured[line["type"], width, 32, 1]
            found.append(one(where, "one warp", line[key], ours, **OTHER))
            ours = measured[line["type"], width, 32, 16]
            found.append(one(where, "16 warps", None, ours))
    if part == "b":
        said = facts(PAPER)["layouts"]["divergent"]
        where = "STS, 128 bits, half of the lanes"
        found.append(one(where, "one warp", said, measured["STS", 128, 16, 1], **OTHER))
        found.append(one(where, "16 warps", None, measured["STS", 128, 16, 16]))
    return found


def intensity(bm: int) -> float:
    """Operations of a stage's products over the bytes of U and x that a block loads for them."""
    products = 2 * STATES * bm * TILES * KC
    return products / (4 * STATES * KC * (bm + TILES))


def cells_figure16(rows: Sequence[Row]) -> list[Cell]:
    """Intensity and TFLOPS of products, of blocks of 64 and 32 filters, at N = 128."""
    mine = [
        r for r in rows
        if r.get("list") == "opencnn" and r.get("output_layout") == "sts64" and r["batch"] == 128
        and r["layout"] == "CHWN" and "ahead" not in r["plan"]
    ]  # fmt: skip
    if not mine:
        return []
    gain = intensity(64) / intensity(32)
    note = "section 3: by 33 %; of sizes of blocks alone"
    found = [one("b_k = 64 over 32", "gain of intensity", 1.33, gain, note=note)]
    for row in mine:
        where = f"{row['layer']}N128, b_k = {row['bm']}"
        found.append(one(where, "FLOP a byte", None, intensity(row["bm"])))
        found.append(one(where, "TFLOPS", None, row["tflops"] / SAVING))
    return found + list(_counted(rows))


def counted(rows: Sequence[Row]) -> Iterator[tuple[str, Row, float]]:
    """The fused kernel's rows of counters, of the GPU that was measured last: which policy of which
    layer, and FLOP of products."""
    known: dict[int, str] = dict(zip((64, 128, 256, 512), LAYERS, strict=True))
    fused = [row for row in rows if row.get("launch") == "winolab_fused2d"]
    for row in of_last(fused):
        layer = parse_square(row["layer"])
        bm, layout = row["plan"].split("x")[0], row["plan"].split()[1]
        where = f"{known[layer.channels]}N{layer.batch}, {layout}, b_k = {bm}"
        yield where, row, 2 * layer.problem.macs / SAVING


def _counted(rows: Sequence[Row]) -> Iterator[Cell]:
    """By counters: products' FLOP over the bytes that L2 and DRAM moved, and issue slots in use."""
    for where, row, flop in counted(rows):
        yield one(where, "FLOP a byte of L2, counted", None, flop / (SECTOR * row["l2_sectors"]))
        moved = row["dram_read"] + row["dram_written"]
        yield one(where, "FLOP a byte of DRAM, counted", None, flop / moved)
        yield one(where, "TFLOPS, counted", None, 1e-12 * flop / row["seconds"])
        yield one(where, "issue slots in use, %", None, row["issue"])
        yield one(where, "L2, % of its rate", None, row["l2"])
    bytes_of = {where: row["l2_sectors"] for where, row, _ in counted(rows)}
    for where, moved in bytes_of.items():
        layer, *layout = where.split(", ")
        small = f"{layer}, {layout[0]}, b_k = 32"
        if where.endswith("b_k = 64") and small in bytes_of:
            gain = bytes_of[small] / moved
            yield one(f"{layer}, b_k = 64 over 32", "gain of intensity, counted", None, gain)


def over(rows: Sequence[Row], layer: str, batch: int, algorithm: str) -> float:
    """Speed of our fastest policy over one of cuDNN's algorithms, channels first, without TF32."""
    mine = [r for r in rows if (r["list"], r["layer"], r["batch"]) == ("opencnn", layer, batch)]
    best = max(r["tflops"] for r in mine if "output_layout" in r)
    (theirs,) = (r["tflops"] for r in mine if r["method"] == "cudnn"
                 and r["kernel"] == algorithm and r["layout"] == "NCHW")  # fmt: skip
    return best / theirs


def cells_figure17(rows: Sequence[Row]) -> list[Cell]:
    """Averages that the text states beside ours, and a heatmap's cells, which did not survive."""
    found = []
    for algorithm, key in ALGORITHMS.items() if rows else ():
        values = {(layer, n): over(rows, layer, n, algorithm) for layer in LAYERS for n in BATCHES}
        average = float(np.mean(list(values.values())))
        for device, name in (("rtx2080ti", "RTX 2080 Ti"), ("rtx3090", "RTX 3090")):
            printed = facts(PAPER)["averages"][device][key]
            found.append(one(algorithm, f"average, the paper's on an {name}", printed, average,
                             **OTHER))  # fmt: skip
        found += [
            one(algorithm, f"{layer}N{n}", None, value) for (layer, n), value in values.items()
        ]
    return found


TABLE1A, TABLE1B = (
    Table(
        PAPER, f"table1{part}", title, none, partial(cells_table1, part), NOTHING,
        sources=("shared_memory",), values=(value,),
    )
    for part, title, value in (
        ("a", "Cycles of shared memory accesses, the paper's on an RTX 2080 Ti", "cycles"),
        ("b", "Bytes a cycle of shared memory, the paper's on an RTX 2080 Ti", "bytes_a_cycle"),
    )
)  # fmt: skip
FIGURE16 = Table(
    PAPER, "figure16", "Roofline of blocks of 64 and 32 filters", none, cells_figure16,
    "nothing is judged", sources=("fused2d", "counters"), values=("tflops",),
)  # fmt: skip
FIGURE17 = Table(
    PAPER, "figure17", "Speedups over cuDNN's algorithms, with Figure 19", none, cells_figure17,
    NOTHING, sources=("fused2d",), values=("tflops",),
)  # fmt: skip
