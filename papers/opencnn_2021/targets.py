"""What the fused kernel was to reach on an H100 or H200 with cold L2, beside what it does: aims of
our own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from experiments.harness.jobs import Row
from experiments.harness.tables import Cell, Table, none, one
from experiments.harness.verdicts import at_least
from experiments.measure.fused.left_out import BOUND_BY_MEMORY, SAVING, useful
from papers.opencnn_2021.machine import BATCHES, LAYERS
from papers.opencnn_2021.speeds import BASE, OURS, PAPER, SOURCES, YAN, authors, papers

SHARE = 0.90  # of 2.25 × SGEMM × the outputs of a tile that are in the image
OVER_AUTHORS, OVER_YAN = 1.5, 1.3
LARGE = (64, 96, 128)  # batches that fill the GPU
BUILDS = ("ampere_OPTSTS64", "ampere_OPTSTS64_CMP", "ampere_OPTLDS64", "turing_OPTSTS64", BASE)


def cells_targets(rows: Sequence[Row]) -> list[Cell]:
    """Shares of the ceiling, and speeds over the authors' code and over Yan et al.'s layout.

    Where the authors' code ran beside ours, its rows say how fast ours was; elsewhere it ran on
    another GPU of as many multiprocessors (AUTHORS_GPU).
    """
    found: dict[tuple[str, str, int], Row] = {}
    for row in rows:
        if row["list"] in ("opencnn", "vgg_e") and row.get("output_layout"):
            key = row["list"], row["layer"], row["batch"]
            if key not in found or row["tflops"] > found[key]["tflops"]:
                found[key] = row
    return [*_ceilings(found), *_over(rows, found)] if found else []


def _ceilings(found: dict[tuple[str, str, int], Row]) -> Iterator[Cell]:
    for (_, layer, batch), row in found.items():
        if batch in LARGE and layer != BOUND_BY_MEMORY:
            share = row["tflops"] / (SAVING * row["sgemm_tflops"] * useful(row["input"]))
            yield _aim(f"{layer} N = {batch}", "share of 2.25 × SGEMM × useful", share, SHARE)


def _over(rows: Sequence[Row], found: dict[tuple[str, str, int], Row]) -> Iterator[Cell]:
    for layer in LAYERS:
        for batch in BATCHES:
            theirs = max((authors(rows, build, batch, layer) for build in BUILDS), key=_tflops)
            mine = theirs.get("beside_ours_tflops", _tflops(found["opencnn", layer, batch]))
            where = f"{layer} N = {batch}"
            over = mine / _tflops(theirs)
            yield _aim(where, "speed over the authors' fastest build", over, OVER_AUTHORS)
            if layer == LAYERS[0]:
                own = papers(rows, batch, layer)
                gain = own[OURS]["tflops"] / own[YAN]["tflops"]
                yield _aim(where, "speed over Yan et al.'s layout", gain, OVER_YAN)


def _tflops(row: Row) -> float:
    return row["tflops"]


def _aim(where: str, column: str, value: float, aim: float) -> Cell:
    return one(where, column, None, value, accepted=at_least(aim), aim=aim)


TARGETS = Table(
    PAPER,
    "targets",
    "What the fused kernel was to reach on an H100 or H200",
    none,
    cells_targets,
    "reached: at least the aim; our own, not the paper's",
    sources=SOURCES,
    values=("tflops",),
)
