"""openCNN's layers on another GPU: layouts beside each other, cuDNN and the authors' own builds;
nothing judged."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from experiments.harness.facts import table
from experiments.harness.jobs import Row
from experiments.harness.tables import Cell, Table, none, one
from experiments.harness.verdicts import Verdict
from experiments.measure.fused.left_out import SAVING  # equation 6 divides by it

PAPER = "opencnn_2021"
# The GPUs of the rows of openCNN's layers and of the authors' code, for texts; a test holds them to
# the rows.
GPU, AUTHORS_GPU = "H200", "H200"
AUTHORS_RUN = "the same run"  # "another run" where rows have no beside_ours_tflops, says the test
# The layouts of the paper and of its version of Yan et al., in CHWN, pixels not loaded ahead.
OURS, YAN = "sts64", "yan"
# The authors' code as they release it, by what they call its builds: theirs of Yan et al.'s layout,
# optSTS64, the compact layout, and 64-bit loads in Figure 13's order.
AUTHORS = {
    "ampere_BASE": "Yan et al.'s",
    "ampere_OPTSTS64": "optSTS64",
    "ampere_OPTSTS64_CMP": "compact",
    "ampere_OPTLDS64": "64-bit loads",
}
BASE, BEST = "ampere_BASE", "ampere_OPTSTS64"


def papers(rows: Sequence[Row], batch: int, layer: str) -> dict[str, Row]:
    """The rows of a case with 64 filters a block, by the layout of the output transform."""
    return {
        row["output_layout"]: row
        for row in rows
        if (row["list"], row["layer"], row["batch"]) == ("opencnn", layer, batch)
        and row.get("bm") == 64
        and row["layout"] == "CHWN"
        and "ahead" not in row["plan"]
    }


def _cudnn(rows: Sequence[Row], batch: int, layer: str) -> float:
    """The fastest of cuDNN's algorithms that run, without TF32."""
    mine = (row for row in rows if row["method"] == "cudnn" and row["list"] == "opencnn")
    return max(row["tflops"] for row in mine if (row["layer"], row["batch"]) == (layer, batch))


def authors(rows: Sequence[Row], variant: str, batch: int, layer: str) -> Row:
    """The row of one of the authors' builds."""
    (found,) = (
        row
        for row in rows
        if row["list"] == "authors"
        and (row["variant"], row["layer"], row["batch"]) == (variant, layer, batch)
    )
    return found


def cells_speedups(number: int, rows: Sequence[Row]) -> list[Cell]:
    """The paper's speedups of a table beside ours."""
    if not rows:
        return []
    found = []
    printed = table(PAPER, number)
    for line in printed["rows"]:
        for layer, paper in zip(printed["layers"], line["speedup"], strict=True):
            own, batch = papers(rows, line["N"], layer), line["N"]
            yan = line["baseline"] == YAN
            against = own[YAN]["tflops"] if yan else _cudnn(rows, batch, layer)
            note = "another device" if yan else "another device; over cuDNN's fastest that runs"
            found.append(one(f"over {line['baseline']}, N = {batch}", layer, paper,
                             own[OURS]["tflops"] / against,
                             standing=Verdict.NOT_COMPARABLE, note=note))  # fmt: skip
            if yan:
                best, base = (authors(rows, build, batch, layer) for build in (BEST, BASE))
                ratio = best["tflops"] / base["tflops"]
                found.append(
                    one(
                        f"the authors' code, N = {batch}",
                        layer,
                        paper,
                        ratio,
                        standing=Verdict.NOT_COMPARABLE,
                        note="another device",
                    )
                )
    return found


def cells_figure15(rows: Sequence[Row]) -> list[Cell]:
    """TFLOPS by equation 6, of the fastest policy and of the layouts; figures did not survive."""
    if not rows:
        return []
    found = []
    for layer in table(PAPER, 3)["layers"]:
        for batch in (32, 64, 96, 128):
            own = papers(rows, batch, layer)
            found += [
                one(f"{layer}N{batch}", name, None, own[name]["tflops"] / SAVING)
                for name in (OURS, YAN, "sts64_final", "compact")
            ]
            best = max(row["tflops"] for row in rows if row.get("output_layout") and (
                row["list"], row["layer"], row["batch"]) == ("opencnn", layer, batch))  # fmt: skip
            found.append(one(f"{layer}N{batch}", "fastest policy", None, best / SAVING))
            found += [
                one(f"{layer}N{batch}", f"the authors' {name}", None,
                    authors(rows, variant, batch, layer)["tflops"] / SAVING,
                    note=f"their code, {AUTHORS_RUN}, {AUTHORS_GPU}")
                for variant, name in AUTHORS.items()
            ]  # fmt: skip
    return found


NOTHING = "nothing is judged: another device"
SOURCES = ("fused2d", "opencnn_authors")
TABLE3, TABLE4 = (
    Table(
        PAPER, f"table{number}", f"Speedup, the paper's on an {device}", none,
        partial(cells_speedups, number), NOTHING, sources=SOURCES, values=("tflops",),
    )
    for number, device in ((3, "RTX 2080 Ti"), (4, "RTX 3090"))
)  # fmt: skip
FIGURE15 = Table(
    PAPER, "figure15", "TFLOPS by equation 6, with Figure 18", none, cells_figure15, NOTHING,
    sources=SOURCES, values=("tflops",),
)  # fmt: skip
