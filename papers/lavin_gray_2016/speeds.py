"""Lavin & Gray 2016, Tables 5 and 6, Figure 1: VGG network E on another GPU; nothing judged.

Theirs is a GPU of 2015, so that TFLOPS are not compared but shares: of the device's peak, and, for
ours, of 2.25 times its SGEMM. A layer's row is the fastest of the fused kernel's variants; sums
over the network weigh layers by how often they occur, as the paper does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from experiments.harness.facts import facts, table
from experiments.harness.jobs import Row
from experiments.harness.tables import Cell, Table, none, one
from experiments.harness.verdicts import Verdict

PAPER = "lavin_gray_2016"
SAVING = 2.25  # multiplications of direct convolution over those of F(2×2, 3×3)
BATCHES = (1, 2, 4, 8, 16, 32, 64)
# By table: the precision of the data, and the products that a row of ours names.
DATA = {5: ("fp32", "fp32"), 6: ("fp16", "fp16_ffma")}
FFMA_LANES = 128  # of a multiprocessor
MULTIPROCESSORS = {"NVIDIA H100 80GB HBM3": 132, "NVIDIA H200": 132}
LIMIT = 16 << 20  # bytes of workspace that the paper's kernel needs at most, "16 MB"
FUSED, APART = "filter transformed in the block", "filter transformed apart"


def layers() -> list[Row]:
    """Table 3's layers."""
    return table(PAPER, 3)["rows"]


def own(rows: Iterable[Row], data: str) -> list[Row]:
    """Rows of the fused kernel, of one run, with data of ``data``."""
    products = dict(DATA.values())[data]
    return [row for row in rows if row["list"] == "vgg_e_16" and row["products"] == products]


def fastest(rows: Iterable[Row], layer: str, batch: int) -> Row:
    """The fastest row of a layer at a batch."""
    mine = (r for r in rows if r["layer"] == f"conv {layer}" and r["batch"] == batch)
    return min(mine, key=lambda row: row["cold_us"][1])


def weighted(rows: Sequence[Row], batch: int) -> tuple[float, float, int]:
    """Milliseconds and effective TFLOPS of the network, and bytes of the largest workspace."""
    milliseconds = flops = 0.0
    most = 0
    for layer in layers():
        row = fastest(rows, layer["layer"], batch)
        milliseconds += layer["depth"] * row["cold_us"][1] / 1e3
        flops += layer["depth"] * row["tflops"] * row["cold_us"][1] * 1e6
        most = max(most, row["workspace"])
    return milliseconds, flops / milliseconds / 1e9, most


def transformed(rows: Sequence[Row], fused: bool) -> list[Row]:
    """Rows whose blocks transform the filter, or whose filters a launch before does."""
    return [row for row in rows if row["fused"] == fused]


def peak(row: Row) -> float:
    """TFLOPS of the device's FFMA units at the clock of the run."""
    return 2e-6 * FFMA_LANES * MULTIPROCESSORS[row["device"]] * row["sm_mhz"]


def cudnn(rows: Iterable[Row], batch: int) -> float:
    """Milliseconds of the network by cuDNN's fastest algorithms that run, in FP32."""
    total = 0.0
    mine = [r for r in rows if r["list"] == "vgg_e" and r["method"] == "cudnn"]
    for layer in layers():
        total += layer["depth"] * fastest(mine, layer["layer"], batch)["cold_us"][1] / 1e3
    return total


def cudnn_gpu(rows: Iterable[Row]) -> str:
    """The GPU of cuDNN's rows, "H200"."""
    return next(
        row["device"].split()[1]
        for row in rows
        if (row["list"], row["method"]) == ("vgg_e", "cudnn")
    )


def cells_table(number: int, rows: Sequence[Row]) -> list[Cell]:
    """The weighted totals of a table by batch: the paper's shares of its peak beside ours."""
    data, _ = DATA[number]
    mine = own(rows, data)
    if not mine:
        return []
    found = []
    theirs = facts(PAPER)["device"]["peak_tflops"]
    for line in table(PAPER, number)["rows"]:
        batch, where = line["N"], f"N = {line['N']}"
        milliseconds, tflops, most = weighted(mine, batch)
        best, sgemm = peak(mine[0]), mine[0]["sgemm_tflops"]
        other = {"standing": Verdict.NOT_COMPARABLE, "note": "another device"}
        found += [
            one(where, "ms", line["ms"], milliseconds, **other),
            one(where, "effective TFLOPS", line["tflops"], tflops, **other),
            one(where, "effective TFLOPS over the peak", line["tflops"] / theirs, tflops / best,
                **other),
            one(where, "effective TFLOPS over 2.25 × SGEMM", None, tflops / SAVING / sgemm),
            one(where, "MB of workspace", None, most / 1e6),
            one(where, "ms of filters transformed in the block over apart", None,
                weighted(transformed(mine, True), batch)[0]
                / weighted(transformed(mine, False), batch)[0]),
        ]  # fmt: skip
        if most > LIMIT:  # sums in parts beside transformed filters
            small = [row for row in mine if row["workspace"] <= LIMIT]
            milliseconds_less, tflops_less, less = weighted(small, batch)
            found += [
                one(where, "ms within 16 MiB of workspace", line["ms"], milliseconds_less, **other),
                one(where, "effective TFLOPS over the peak within 16 MiB", line["tflops"] / theirs,
                    tflops_less / best, **other),
                one(where, "MB of workspace within 16 MiB", None, less / 1e6),
            ]  # fmt: skip
        if data == "fp32":
            note = (
                "another device; over cuDNN's fastest that runs, of another run on an "
                f"{cudnn_gpu(rows)}"
            )
            found.append(one(where, "speedup over cuDNN", line["speedup"],
                             cudnn(rows, batch) / milliseconds,
                             standing=Verdict.NOT_COMPARABLE, note=note))  # fmt: skip
        else:
            fp32, _, _ = weighted(own(rows, "fp32"), batch)
            printed = next(r["ms"] for r in table(PAPER, 5)["rows"] if r["N"] == batch)
            found.append(one(where, "ms of fp32 over fp16's", printed / line["ms"],
                             fp32 / milliseconds, **other))  # fmt: skip
    return found


def cells_figure1(rows: Sequence[Row]) -> list[Cell]:
    """Effective TFLOPS by layer and batch, and which variant has it; the figure's numbers did not
    survive."""
    found = []
    for data in ("fp32", "fp16"):
        mine = own(rows, data)
        for layer in layers() if mine else ():
            for batch in BATCHES:
                row = fastest(mine, layer["layer"], batch)
                note = FUSED if row["fused"] else APART
                if row["split_k"] > 1:
                    note += f", sum in {row['split_k']} parts"
                found.append(
                    one(f"conv {layer['layer']}, {data}", f"N = {batch}", None, row["tflops"],
                        note=note)
                )  # fmt: skip
    return found


NOTHING = "nothing is judged: another device"
TABLE5, TABLE6 = (
    Table(
        PAPER, f"table{number}", f"VGG network E with {data} data, the paper's on a Titan X", none,
        partial(cells_table, number), NOTHING, sources=("fused2d",), values=("cold_us",),
    )
    for number, (data, _) in DATA.items()
)  # fmt: skip
FIGURE1 = Table(
    PAPER, "figure1", "Effective TFLOPS over batch size, by layer", none, cells_figure1, NOTHING,
    sources=("fused2d",), values=("tflops",),
)  # fmt: skip
TABLES = (TABLE5, TABLE6, FIGURE1)
