"""WinRS's tables from rows of this folder: both plans, fused Ω in FP16, Figure 12 on a GPU.

Of a case that was measured more than once the last run counts, of the GPU that was measured last.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from matplotlib.figure import Figure

from experiments.gpu.rows import GRADIENT_KINDS, of_last, paper_alpha, stored, where
from experiments.harness.facts import table
from experiments.harness.tables import Cell, Table, none, one, select
from experiments.harness.verdicts import at_least, at_most
from experiments.report.counts import counts
from experiments.report.figures import Drawn, by_kernel, panels_of, with_legend
from experiments.report.texts import Text
from papers.winrs_2025.errors import cells_figure12
from papers.winrs_2025.grid import MIB, PAPER, WORDS
from papers.winrs_2025.measure.fused import KINDS, TAPS
from papers.winrs_2025.measure.kinds import (
    OTHER,
    Row,
    fastest,
    flop,
    is_,
    layers,
    over,
    spread,
)
from papers.winrs_2025.measure.plan_tables import LARGE, cells_plans, plans_picture
from papers.winrs_2025.measure.plans import DRAWN
from winolab.bench.contenders import FRUGAL

# Fused Ω ---------------------------------------------------------------------


def cudnn(*kernels: str) -> Callable[[Row], bool]:
    """Whether a row is of one of cuDNN's algorithms, and no result of it is wrong."""
    return lambda row: row["kind"] == "cuDNN" and row["kernel"] in kernels and _finite(row)


def _finite(row: Row) -> bool:
    return isinstance(row.get("relative_rms_u11"), float)


def cells_table2(rows: Sequence[Row]) -> list[Cell]:
    """Workspace of the fastest of each kind, and what FRUGAL of the data costs."""
    found: list[Cell] = []
    if not rows:
        return found
    (printed,) = (r for r in table(PAPER, 2)["rows"] if r["algorithm"] == "WinRS")
    every = layers(rows).values()
    for kind in KINDS[:3]:
        mine = [row for rows in every if (row := fastest(rows, is_(kind)))]
        for unit, values, paper in (
            ("MB", [row["workspace"] / MIB for row in mine], printed["mb"]),
            ("multiple of the data", [row["of_data"] for row in mine], printed["times"]),
        ):  # fmt: skip
            if values:
                ends = (sum(values) / len(values), min(values), max(values))
                for word, value, theirs in zip(WORDS, ends, paper, strict=True):
                    note = f"{len(values)} layers; the paper's are FP32's"
                    found.append(one(kind, f"{unit}, {word}", theirs, value, note=note, **OTHER))
    shares = [row["of_data"] for rows in every if (row := fastest(rows, is_("fused")))]
    if shares:
        average = sum(shares) / len(shares)
        found.append(one("aim", "workspace of the data, average", None, average,
                         accepted=at_most(FRUGAL), aim=FRUGAL))  # fmt: skip
    costs = [over(fastest(rows, is_("fused")), _lean(rows)) for rows in every]
    found += spread(f"time in {FRUGAL} of the data", "over the fastest", costs)
    return found


def _lean(rows: Sequence[Row]) -> Row | None:
    """The fastest fused kernel of a workspace of at most FRUGAL of the data."""
    fused = (KINDS[0], KINDS[2])
    return fastest(
        rows,
        lambda row: any(is_(kind)(row) for kind in fused) and row["of_data"] <= FRUGAL,
    )


def cells_table3(rows: Sequence[Row]) -> list[Cell]:
    """Speeds over cuDNN's classes by filter, beside the paper's on an RTX 4090."""
    found: list[Cell] = []
    every = layers(rows).values() if rows else []
    for taps in TAPS:
        mine = [rows for rows in every if rows[0]["filter"].split("x")[1] == str(taps)]
        printed = select(table(PAPER, 3)["rows"], precision="fp16", device="RTX 4090", filter=taps)
        for kind in KINDS:
            name = f"{taps}×{taps}, {kind}"
            for peer, kernels in GRADIENT_KINDS.items():
                ratios = [over(fastest(r, is_(kind)), fastest(r, cudnn(*kernels))) for r in mine]
                paper = printed[0].get(peer) if kind == "fused" else None
                found += spread(name, f"over {peer}", ratios, paper)
            ratios = [over(fastest(r, is_(kind)), fastest(r, is_("PyTorch"))) for r in mine]
            found += spread(name, "over PyTorch", ratios)
            if kind == "fused":
                ratios = [
                    over(fastest(r, is_(kind)), fastest(r, is_("two launches"))) for r in mine
                ]
                found += spread(name, "over two launches", ratios,
                                 accepted=at_least(1), aim=1.0)  # fmt: skip
    return found


def cells_table4(rows: Sequence[Row]) -> list[Cell]:
    """MARE on U[0, 1] and relative RMS on U[-1, 1), least and largest over the layers."""
    found: list[Cell] = []
    every = [row for rows in layers(rows).values() for row in rows] if rows else []
    printed = {r["algorithm"]: r.get("fp16") for r in table(PAPER, 4)["rows"]}
    for kind in KINDS[:2]:
        for alpha in (4, 8, 16):
            mine = [r for r in every if is_(kind)(r) and paper_alpha(r["kernel"]) == alpha]
            paper = printed.get(f"omega alpha {alpha}")
            found += _errors(f"Ω{alpha}, {kind}", mine, paper, judged=True)
    for name, kernels in (("Cu-WinNF", ("WINOGRAD_NONFUSED",)), ("Cu-Algo1", ("ALGO_1",))):
        mine = [r for r in every if r["kind"] == "cuDNN" and r["kernel"] in kernels]
        found += _errors(name, mine, printed[name])
    found += _errors("picked", [r for r in every if is_("picked")(r)], None)
    return found


def _errors(name: str, rows: Sequence[Row], paper, judged: bool = False) -> Iterator[Cell]:
    if not rows:
        return
    for metric, text in (("mare_u01", "U[0,1], MARE"), ("relative_rms_u11", "U[-1,1), RMS")):
        values = [row[metric] for row in rows if isinstance(row[metric], float)]
        theirs = paper if metric == "mare_u01" else None
        note = f"{len(values)} results"
        for i, value in enumerate((min(values), max(values)) if values else ()):
            word = ("minimum", "maximum")[i]
            extra = OTHER if theirs else {}
            yield one(name, f"{text}, {word}", theirs and theirs[i], value, note=note, **extra)
        if judged and theirs and values:
            most = max(theirs)
            yield one(name, f"{text}, at most the paper's", None, max(values),
                      accepted=at_most(most), aim=most)  # fmt: skip
        lost = float(len(rows) - len(values))
        yield one(name, f"{text}, results that are not finite", None, lost,
                  **({"accepted": at_most(0), "aim": 0.0} if judged else {}))  # fmt: skip


def speeds_picture(rows: Sequence[Row]) -> Figure:
    """Figure 11's kind: TFLOPS of each kind, a line each, over the layers."""
    every = layers(rows)
    figure, panels = panels_of(1, 1, (8, 3.8))
    found = {kind: is_(kind) for kind in KINDS}
    found |= {f"cuDNN, {peer}": cudnn(*kernels) for peer, kernels in GRADIENT_KINDS.items()}
    for name, accept in found.items():
        values = [r["tflops"] if (r := fastest(rows, accept)) else math.nan
                  for rows in every.values()]  # fmt: skip
        style = "--" if name.startswith("cuDNN") else "o-"
        panels[0].plot(range(len(every)), values, style, markersize=4, label=name)
    names = [f"{x}, {w.split('x')[1]} taps" for x, w, _ in every]
    panels[0].set_xticks(range(len(every)), names, rotation=40, ha="right")
    panels[0].set(ylabel="effective TFLOPS", yscale="log")
    return with_legend(figure, panels[0])


# Figure 12 -------------------------------------------------------------------


def measured(rows: Sequence[Row]) -> list[Row]:
    """Figure 12's rows that are finite: the last of each case."""
    kept = sorted(of_last(rows), key=lambda r: r["run"])
    last = {(r["layer"], r["taps"], r["variant"]): r for r in kept}
    return [row for row in last.values() if isinstance(row["mare"], float)]


def cells_remedies(rows: Sequence[Row]) -> list[Cell]:
    """Errors with one remedy off, the paper's claim, and results that are not finite."""
    found = cells_figure12(measured(rows))
    for name in dict.fromkeys(row["variant"] for row in rows):
        lost = float(sum(not row["finite"] for row in select(rows, variant=name)))
        found.append(one("results that are not finite", name, None, lost))
    return found


def told(cells: Sequence[Cell]) -> list[str]:
    """How many agree."""
    return [f"{len(cells)} numbers: {counts(cells).text}."]


NOTHING = "nothing is judged: another device; aims are ours"
TABLES = (
    Table(PAPER, "plans_kernels", "WinRS's plan beside ours on a GPU", none, cells_plans,
          "nothing is judged: the paper has one planner", sources=("winrs_plans",),
          values=("cold_us",)),
    Table(PAPER, "table2_fused", "Workspace of fused Ω in FP16 on a GPU", none, cells_table2,
          NOTHING, sources=("winrs_fused",), values=("workspace",)),
    Table(PAPER, "table3_fused", "Fused Ω in FP16 over cuDNN on a GPU", none, cells_table3,
          NOTHING, sources=("winrs_fused",), values=("cold_us",)),
    Table(PAPER, "table4_fused", "Errors of fused Ω in FP16 on a GPU", none, cells_table4,
          "an aim: no larger than the paper's largest, and every result finite",
          sources=("winrs_fused",), values=("mare_u01",)),
    Table(PAPER, "figure12_kernels", "FP16 error with each remedy off on a GPU", none,
          cells_remedies, "the statement holds: with 2¹⁸ products and more no larger an error",
          sources=("winrs_remedies",), values=("mare",)),
)  # fmt: skip
COMMANDS = {
    name: f"python -m papers.winrs_2025.measure.{name.partition('_')[2]}"
    for name in ("winrs_plans", "winrs_fused", "winrs_remedies")
}
FIGURES: dict[str, tuple[Drawn, ...]] = {
    "winrs_2025 plans_kernels": (
        (plans_picture, "Speed over the same kernels on our segments, a point a layer."),
    ),
    "winrs_2025 table2_fused": (
        (lambda rows: by_kernel([c for c in cells_table2(rows) if "MB" in c.column],
                                "workspace, MB"),
         "Workspace in MB: average, minimum and maximum over the layers."),
    ),
    "winrs_2025 table3_fused": (
        (speeds_picture, "Figure 11's kind: fused Ω in FP16, what stands beside it, and cuDNN."),
    ),
    "winrs_2025 table4_fused": (
        (lambda rows: by_kernel([c for c in cells_table4(rows) if c.column.endswith("imum")],
                                "error", "log"),
         "Errors of each kind of kernel, least and largest over the layers."),
    ),
}  # fmt: skip
SAMPLE = "The layers of 3, 5, 7 and 9 taps of the sample of the grid, in FP16."
TEXTS = {
    "winrs_2025 plans_kernels": Text(
        "Not in the paper: it has one planner.",
        "Layers of the grid by a stated seed: Algorithms 1 and 2 as the kernels launch them "
        "(winrs), the same kernels on our segments (omega), Ω in two launches, direct products, "
        "and what is picked. Admitted is what the planner may take unasked: in FP16 at most four "
        "times direct products' error.",
        "ours: the time of our segments over the time of the kind named; geometric mean.",
        lambda cells: [*told(cells), *_timed(), *_where("winrs_plans")],
    ),
    "winrs_2025 table2_fused": Text(
        "Workspace of WinRS over the grid.",
        f"{SAMPLE} The fastest of the paper's kernels, whose dw is in FP16, so that every segment "
        "has a bucket; and the fastest in 0.18 of the data, the paper's average.",
        "paper and ours: average, minimum, maximum.",
        lambda cells: [*told(cells), *_where("winrs_fused")],
    ),
    "winrs_2025 table3_fused": Text(
        "Speedups over cuDNN 9.8's GEMM class, FFT and non-fused Winograd, in FP16.",
        f"{SAMPLE} Fused Ω with sums in FP32 and with the paper's in FP16; Ω in two launches; and "
        "under its own name what is picked by default: direct products, or Ω in two launches where "
        "its error is admitted.",
        "paper: RTX 4090.",
        lambda cells: [*told(cells), *_where("winrs_fused")],
    ),
    "winrs_2025 table4_fused": Text(
        "Mean relative errors on U[0,1] in FP16, minimum and maximum over the grid.",
        f"{SAMPLE} dy is scaled by 0.01, as in the paper; beside it the relative RMS on zero-mean "
        "data. Best points and exact constants.",
        "ours: over the layers.",
        lambda cells: [*told(cells), *_where("winrs_fused")],
    ),
    "winrs_2025 figure12_kernels": Text(
        "FP16 errors against the accumulation length; the values are not in the text.",
        "The kernels with the paper's points and FP16 sums, and with each remedy off in turn. The "
        "plain sum of buckets is the kernel's buckets, added up in order.",
        "ours: mean relative error on U[0,1].",
        lambda cells: [*told(cells), *_where("winrs_remedies")],
    ),
}  # fmt: skip


def _timed() -> list[str]:
    """How many of the drawn layers are timed."""
    found = {key[:2]: rows for key, rows in layers(stored("winrs_plans")).items()}
    large = sum(flop(rows[0]) > LARGE for rows in found.values())
    text = f"{len(found)} of {DRAWN} drawn layers are timed, {large} of them above 600 GFLOP."
    return [text] if found else []


def _where(name: str) -> list[str]:
    """The GPU and commit of kept rows."""
    rows = stored(name)
    return [f"On an {where(rows)}."] if rows else []
