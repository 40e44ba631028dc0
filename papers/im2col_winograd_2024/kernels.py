"""Im2col-Winograd's Tables 2 and 3 and Figure 10 from the CUDA kernels, by rows that a GPU left.

Nothing here measures: experiments.measure.throughput and experiments.measure.errors do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from experiments.gpu.rows import Measured, Row, cases, known, name_of, of_kernel, ratio, uniform
from experiments.harness.facts import table
from experiments.harness.tables import Cell, Table, none, one, select
from experiments.harness.tables import stored as simulated
from experiments.harness.verdicts import Verdict, near
from papers.im2col_winograd_2024.accuracy import PAPER, tolerance

DEVICES = {"RTX 4090": "rtx4090", "RTX 3060 Ti": "rtx3060ti"}
AGAINST: tuple[tuple[Callable[[Measured], Row | None], str, str], ...] = (
    (lambda c: c.frugal, "the fastest implicit GEMM, FMA", "fastest"),
    (lambda c: c.cudnn("IMPLICIT_PRECOMP_GEMM", layout="NHWC"), "NHWC GEMM, FMA", "gemm"),
    (lambda c: c.any, "the fastest of any workspace, FMA", ""),
    (lambda c: c.tf32, "implicit GEMM in TF32", ""),
)


def cells_table2(rows: Sequence[Row]) -> list[Cell]:
    """Speedups over cuDNN's frugal algorithms, minimum and maximum over a kernel's shapes."""
    found = []
    every = [c for c in cases(rows) if c.list in ("dragon", "table3", "grid")]
    for printed in table(PAPER, 2)["rows"]:
        name = name_of(printed["algorithm"])
        mine = of_kernel(every, name)
        for ours, label in ((lambda c: c.ffma, ""), (lambda c: c.split, ", split products")):
            for theirs, against, key in AGAINST:
                ratios = known(ratio(ours(c), theirs(c)) for c in mine)
                papers = {
                    device: printed[f"{short}_{key}"]
                    for device, short in DEVICES.items()
                    if key and not label and f"{short}_{key}" in printed
                }
                found += _ratios(name, f"over {against}{label}", ratios, papers)
    return found


def _ratios(name: str, column: str, ratios: list[float], papers: dict) -> Iterator[Cell]:
    if not ratios:
        return
    for i, (word, value) in enumerate((("minimum", min(ratios)), ("maximum", max(ratios)))):
        note = f"{len(ratios)} shapes"
        for device, paper in papers.items():
            yield one(name, f"{column}, {word} (paper: {device})", paper[i], value,
                      standing=Verdict.NOT_COMPARABLE, note=f"{note}; another device")  # fmt: skip
        if not papers:
            yield one(name, f"{column}, {word}", None, value, note=note)


def cells_table3(rows: Sequence[Row]) -> list[Cell]:
    """MARE of the kernels beside the paper's and the simulation's, by column and shape."""
    found = []
    rows = uniform(rows)
    predicted = select(simulated(PAPER), table="table3")
    for column in table(PAPER, 3)["columns"]:
        name = name_of(column["algorithm"])
        for paper, gemm, shape in zip(
            column["mare"], column["cugemm"], column["shapes"], strict=True
        ):
            size = "x".join(map(str, shape))
            mine = [r for r in rows
                    if r["kernel_of"] == name and r["shape"].startswith(f"{size}:")]  # fmt: skip
            place = f"{name} {size}"
            simulation = select(predicted, column=column["algorithm"], shape=size)
            found += _errors(place, paper, mine, simulation)
            for products, label in (("fp32", "FMA"), ("tf32 allowed", "default")):
                for row in select(mine, method="cudnn", products=products):
                    found.append(
                        one(place, f"CuGEMM, {label}", gemm, row["mare"],
                            standing=Verdict.NOT_COMPARABLE, note="another device and cuDNN")
                    )  # fmt: skip
    return found


def _errors(place: str, paper: float, mine: Sequence[Row], simulation) -> Iterator[Cell]:
    """A shape's kernels: the paper's points on FFMA units are judged, others are shown; all beside
    the simulation of the same order and points."""
    for row in select(mine, method="winolab"):
        variant = {"paper": "program", "best": "best"}[row["points"]]
        drawn = [r["mare"] for r in select(simulation, variant=variant)]
        split = row["products"] != "fp32"
        expected = sum(drawn) / len(drawn) if drawn and not split else None
        judged = row["points"] == "paper" and not split
        yield one(
            place,
            f"{row['points']} points, {'split products' if split else 'FFMA'}",
            paper,
            row["mare"],
            accepted=near(paper, tolerance()) if judged else None,
            prediction=expected,
        )


def cells_figure10(rows: Sequence[Row]) -> list[Cell]:
    """Means and maxima of Γ16 and of cuDNN's GEMM, as far as images were computed."""
    found = []
    for row in rows:
        if "histogram" not in row:
            continue
        name = row["points"] + " points" if row["method"] == "winolab" else row["products"]
        place = f"{row['kernel_of']}, {row['channels']} channels"
        found += [
            one(place, f"{metric}, {row['kernel']}, {name}", None, row[metric])
            for metric in ("mare", "max_relative")
        ]
    return found


TABLE2 = Table(
    PAPER, "table2", "Speedup over cuDNN on a GPU", none, cells_table2,
    "nothing is judged: another device",
    sources=("throughput",), values=("tflops",),
)  # fmt: skip
TABLE3 = Table(
    PAPER, "table3_kernels", "Mean relative error of the CUDA kernels", none, cells_table3,
    f"the paper's points on FFMA units, whose constants are exact: within {tolerance():.1%}, as "
    "for the simulation",
    sources=("gpu_errors",), values=("mare",),
)  # fmt: skip
FIGURE10 = Table(
    PAPER, "figure10_kernels", "Distribution of the CUDA kernels' relative error", none,
    cells_figure10, "nothing is judged",
    sources=("gpu_errors",), values=("mare",),
)  # fmt: skip
TABLES = (TABLE2, TABLE3, FIGURE10)
