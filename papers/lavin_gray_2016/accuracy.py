"""Lavin & Gray 2016, Table 4: the largest element error of each VGG layer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from experiments.harness.facts import table
from experiments.harness.jobs import Job, Row
from experiments.harness.outputs import Variant
from experiments.harness.tables import Cell, Table, select
from winolab.measure import FULL, Case
from winolab.ref.arithmetic.accumulate import Accumulation
from winolab.ref.arithmetic.formats import FORMATS
from winolab.ref.arithmetic.simulated import PRESETS

PAPER = "lavin_gray_2016"
ALGORITHMS = {
    "direct": ("direct", 1),
    "F2x2": ("winograd:2x2:3x3@paper", 2),
    "F4x4": ("winograd:4x4:3x3@paper", 4),
}
# A layer's sample: multiply-adds of one algorithm, and at most so many outputs, over 64 channels.
MACS = 1 << 27
MOST = 1 << 18
CHANNELS = 64
FP32 = PRESETS["fp32"]
# Half precision data: stored as fp16, everything else fp32 (section 7 of the paper).
FP16_STORAGE = replace(FP32, storage=FORMATS["fp16"])
# The sum over channels in partial sums of 256; up to 256 channels it is the same as one sum.
BLOCK = 256
IN_BLOCKS = replace(FP32, accumulation=Accumulation("two_level", BLOCK))
# The paper does not say how many images it took; it runs 1 to 64 elsewhere (Tables 5 and 6).
BATCHES = 64


def layers() -> list[Row]:
    """Table 4's rows with the shapes that Table 3 gives them."""
    shapes = {row["layer"]: row for row in table(PAPER, 3)["rows"]}
    return [{**shapes[row["layer"]], **row} for row in table(PAPER, 4)["rows"]]


def jobs(full: bool) -> list[Job]:
    """Each layer and algorithm; one image, as the paper's batch size is not stated."""
    return [_job(layer, column, full) for layer in layers() for column in ALGORITHMS]


def _job(layer: Row, column: str, full: bool) -> Job:
    algorithm, n = ALGORITHMS[column]
    available = -(-layer["H"] // n) * -(-layer["W"] // n)
    multiplied = (n + 2) ** 2 / n**2 * layer["C"]
    outputs = min(MOST, int(MACS / multiplied), layer["H"] * layer["W"] * layer["K"])
    tiles = min(available, -(-outputs // (n**2 * CHANNELS)))
    channels = min(layer["K"], -(-outputs // (n**2 * tiles)))
    everything = full or (tiles == available and channels == layer["K"])
    case = Case(
        algorithm,
        f"1x{layer['H']}x{layer['W']}x{layer['C']}",
        f"{layer['K']}x3x3",
        "1",
        data="u11",
        sample=FULL if everything else str(tiles * channels * n**2),
    )
    order = "program" if column == "direct" else "published"
    variants = [Variant("fp32", order), Variant("fp16", order, precision=FP16_STORAGE)]
    if column != "direct" and layer["C"] > BLOCK:
        variants.append(Variant("blocks", order, precision=IN_BLOCKS))
    labels = {"paper": PAPER, "table": "table4", "layer": layer["layer"], "column": column}
    return Job(
        tuple(labels.items()), case, tuple(variants), tiles, channels, "abs", batches=BATCHES
    )


def cells(rows: Sequence[Row]) -> list[Cell]:
    """Per layer: three fp32 columns, and the fp16 column of which all algorithms share a figure."""
    return [
        _cell(layer, column, variant, mine)
        for layer in layers()
        for variant in ("fp32", "blocks", "fp16")
        for column in ALGORITHMS
        if (mine := select(rows, layer=layer["layer"], column=column, variant=variant))
    ]


def _cell(layer: Row, column: str, variant: str, rows: Sequence[Row]) -> Cell:
    (row,) = rows
    paper = layer["fp16"] if variant == "fp16" else layer[column]
    name = {
        "fp32": f"{column}, fp32",
        "blocks": f"{column}, fp32, sums of {BLOCK} channels",
        "fp16": f"{column}, fp16 data",
    }[variant]
    ours = row["layer_max"]
    # The maximum of one image's outputs, all of them, may lie below what most images have.
    low, high = min(row["layer_max_low"], ours), row["batches_max_high"]
    # The paper's maximum lies in our interval, said of ours. Sums of blocks are not the paper's.
    accepted = None if variant == "blocks" else (paper * ours / high, paper * ours / low)
    rms = math.sqrt(row["mse"])
    expected = rms * row["predicted_relative_rms"] / row["relative_rms"]
    full = "all outputs" if row["sample"] == FULL else f"{row['samples']:,} outputs"
    return Cell(
        f"conv {layer['layer']}", name, paper, ours, low, high, accepted,
        bound=row["bound_max_abs"],
        note=f"{full}; RMS {rms:.2g}, predicted {expected:.2g}",
    )  # fmt: skip


TABLE4 = Table(
    PAPER,
    "table4",
    "Largest element error of VGG layers",
    jobs,
    cells,
    f"the paper's maximum lies in the 90 % interval of ours, for 1 to {BATCHES} images",
    values=("layer_max", "layer_max_low", "batches_max_high"),
)
