"""Im2col-Winograd 2024: Table 3 (mean relative errors) and Figure 10 (their distribution)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from experiments.harness.facts import facts, table
from experiments.harness.jobs import Job, Row
from experiments.harness.missing import not_reproduced
from experiments.harness.outputs import DISTRIBUTIONS, Variant
from experiments.harness.published import DIGITS
from experiments.harness.tables import Cell, Table, interval, one, select
from experiments.harness.verdicts import above, at_most, below, near
from winolab.algorithm import parse_algorithm
from winolab.measure import FULL, Case
from winolab.ref.arithmetic.simulated import arithmetic

PAPER = "im2col_winograd_2024"
SEEDS = 3
CHANNELS = 16
# Extra alignment bits of a Tensor Core: one on Ampere, two on Hopper (Fasi et al. 2021 measure
# the first; the second is what cuDNN's errors on an H100 show, see `cells_h100`).
HOPPER = arithmetic("tf32@hopper")

TYPED = Variant("typed", "published", digits=DIGITS)
EXACT = Variant("exact", "published")
PROGRAM = Variant("program", "program")
BEST = Variant("best", "program", points="best")
DIRECT = Variant("direct", "direct", thin=8)
TF32 = Variant("tf32", "direct", precision="tf32", thin=8)
VARIANTS = (TYPED, EXACT, PROGRAM, BEST, DIRECT, TF32)


def tile_of(column: Row) -> tuple[int, int, int]:
    """α, n, r of a column's kernel."""
    tile = parse_algorithm(column["algorithm"]).tiles[0]
    return tile.alpha, tile.n, tile.r


def case_of(column: Row, shape: Sequence[int], full: bool, seed: int, sample: int) -> Case:
    """The layer whose output has this shape: r × r filters, padding ⌊r/2⌋."""
    _, _, r = tile_of(column)
    batch, height, width, channels = shape
    grown = r - 1 - 2 * (r // 2)
    return Case(
        f"{column['algorithm']}@paper",
        f"{batch}x{height + grown}x{width + grown}x{channels}",
        f"{channels}x{r}x{r}",
        str(r // 2),
        data="u12",
        sample=FULL if full else str(sample),
        seed=seed,
    )


# What is held against the paper, for every kernel and for cuDNN's column; others are shown.
HEADLINE = ("typed", "tf32")


def measured() -> list[Row]:
    """Errors measured on an H100."""
    return facts(PAPER)["h100"]["rows"]


@cache
def tolerance() -> float:
    """The paper's own spread: how far the authors' kernels, run again, came from its Table 3."""
    printed = {
        (column["algorithm"], tuple(shape)): mare
        for column in table(PAPER, 3)["columns"]
        for shape, mare in zip(column["shapes"], column["mare"], strict=True)
    }
    again = {(row["algorithm"], tuple(row["shape"])): row["mare"] for row in measured()}
    return max(abs(again[key] / printed[key] - 1) for key in again if key in printed)


def jobs_table3(full: bool) -> list[Job]:
    """Each column, shape and seed; fewer tiles where channels make a tile's error average out."""
    found = []
    for column in table(PAPER, 3)["columns"]:
        _, n, _ = tile_of(column)
        for shape in column["shapes"]:
            tiles = max(32, 192 * 64 // shape[3])
            for seed in range(1 if full else SEEDS):
                case = case_of(column, shape, full, seed, tiles * CHANNELS * n)
                labels = {
                    "paper": PAPER,
                    "table": "table3",
                    "column": column["algorithm"],
                    "shape": "x".join(map(str, shape)),
                }
                found.append(Job(tuple(labels.items()), case, VARIANTS, tiles, CHANNELS))
    return found


def cells_table3(rows: Sequence[Row]) -> list[Cell]:
    """Every entry: the kernels' own columns, and cuDNN's beside direct FP32 and simulated TF32."""
    found = []
    for column in table(PAPER, 3)["columns"]:
        for i, shape in enumerate(column["shapes"]):
            place = "x".join(map(str, shape))
            mine = select(rows, column=column["algorithm"], shape=place)
            if mine:
                found += _kernel_cells(column, i, place, mine)
                found += _gemm_cells(column, i, place, mine)
        if "cuwinograd" in column:
            found += [
                not_reproduced(f"Γ{alpha}({n},{r})", f"CuWinograd, entry {i + 1}", value)
                for alpha, n, r in [tile_of(column)]
                for i, value in enumerate(column["cuwinograd"])
            ]
    return found


def _kernel_cells(column: Row, i: int, place: str, rows: Sequence[Row]) -> list[Cell]:
    alpha, n, r = tile_of(column)
    where = f"Γ{alpha}({n},{r}) {place}"
    return [
        _cell(where, name, column["mare"][i], rows, variant) for variant, name in KERNELS.items()
    ]


KERNELS = {
    "typed": f"constants of {DIGITS} digits",
    "exact": "exact constants",
    "program": "winolab's program",
    "best": "best points",
}


def _gemm_cells(column: Row, i: int, place: str, rows: Sequence[Row]) -> list[Cell]:
    """cuDNN's entry beside both modes; TF32 is judged, whose error most of the column has."""
    alpha, n, r = tile_of(column)
    return [
        _cell(f"Γ{alpha}({n},{r}) {place}", f"CuGEMM, {name}", column["cugemm"][i], rows, variant)
        for variant, name in (("direct", "FP32"), ("tf32", "TF32"))
    ]


def _cell(where: str, name: str, paper: float, rows: Sequence[Row], variant: str) -> Cell:
    mine = select(rows, variant=variant)
    ours, low, high = interval([row["mare"] for row in mine])
    return Cell(
        where, name, paper, ours, low, high,
        near(paper, tolerance()) if variant in HEADLINE else None,
        prediction=mine[0]["predicted_mare"],
        bound=mine[0]["bound_mare"],
    )  # fmt: skip


# MARE of truncated accumulation per term of the sum on U[1,2] (the paper's CuGEMM columns).
TF32_RATE = 1.27e-8


TABLE3 = Table(
    PAPER,
    "table3",
    "Mean relative error of the fused kernels",
    jobs_table3,
    cells_table3,
    f"with constants of {DIGITS} digits, and CuGEMM as TF32: within {tolerance():.1%}, by which "
    "the authors' own kernels, run again, differ from the table",
    values=("mare",),
)


def jobs_figure10(full: bool) -> list[Job]:
    """Γ16 of each width at 64 and 128 channels, against direct convolution in both modes."""
    found = []
    for column in table(PAPER, 3)["columns"]:
        alpha, n, _ = tile_of(column)
        if alpha != 16:
            continue
        for shape in column["shapes"][: len(DISTRIBUTIONS)]:
            for seed in range(1 if full else 2):
                case = case_of(column, shape, full, seed, 256 * n * 8)
                labels = {
                    "paper": PAPER,
                    "table": "figure10",
                    "column": column["algorithm"],
                    "width": shape[3],
                }
                # of all outputs direct ones are all computed too: their maximum is asked for
                one, two = (replace(v, thin=1 if full else v.thin) for v in (DIRECT, TF32))
                found.append(
                    Job(
                        tuple(labels.items()), case, (TYPED, EXACT, BEST, one, two), 256, 8,
                        "relative", histogram=True, against=TF32.name,
                    )
                )  # fmt: skip
    return found


def cells_figure10(rows: Sequence[Row]) -> list[Cell]:
    """Means and maxima, of all outputs or extrapolated, and the three claims of section 6.2.2."""
    found = []
    for column in table(PAPER, 3)["columns"]:
        for width in DISTRIBUTIONS:
            mine = select(rows, column=column["algorithm"], width=width)
            if mine:
                found += _distribution(column, width, mine)
    return found


def _distribution(column: Row, width: int, rows: Sequence[Row]) -> list[Cell]:
    alpha, n, r = tile_of(column)
    place = f"Γ{alpha}({n},{r}), {width} channels"
    of = {variant: select(rows, variant=variant) for variant in NAMES}
    mean = {v: interval([row["mare"] for row in mine]) for v, mine in of.items()}
    top = {v: interval([row["layer_max"] for row in mine])[0] for v, mine in of.items()}
    found = []
    of_typed = top["typed"] / top["tf32"], mean["typed"][0] / mean["tf32"][0]
    for variant, name in NAMES.items():
        found.append(Cell(place, f"mean, {name}", None, *mean[variant]))
    for variant, name in NAMES.items():
        low = min(top[variant], *(row["layer_max_low"] for row in of[variant]))
        high = max(top[variant], *(row["layer_max_high"] for row in of[variant]))
        found.append(Cell(place, f"maximum of the layer, {name}", None, top[variant], low, high))
    share = beyond(rows)
    for text, ours, accepted in (
        ("the mean of Γ16 is the smaller: over CuGEMM's", of_typed[1], below(1)),
        ("the maximum of Γ16 is the larger: over CuGEMM's", of_typed[0], above(1)),
        ("a share above CuGEMM's maximum that is negligible", share, at_most(NEGLIGIBLE)),
    ):
        found.append(one(place, text, None, ours, accepted=accepted, claim=True))
    return found


# A share that changes nothing of what is printed in three digits.
NEGLIGIBLE = 0.005
NAMES = {
    "typed": f"Γ16, constants of {DIGITS} digits",
    "exact": "Γ16, exact constants",
    "best": "Γ16, best points",
    "direct": "direct, FP32",
    "tf32": "direct, TF32",
}


def beyond(rows: Sequence[Row]) -> float:
    """Share of Γ16's outputs whose relative error is above the largest of TF32's: counted where
    the rows have all outputs, else by the bins of the samples'."""
    typed = select(rows, variant="typed")
    if all(row["sample"] == FULL for row in typed):
        return sum(row["beyond"] for row in typed) / len(typed)
    limit = max(row["max_relative"] for row in select(rows, variant="tf32"))
    counts = [row["histogram"] for row in typed]
    total = [sum(c) for c in zip(*counts, strict=True)]
    edges = [10 ** (-12 + 0.05 * (i + 1)) for i in range(len(total))]
    above = sum(c for c, edge in zip(total, edges, strict=True) if edge > limit)
    return above / sum(total)


FIGURE10 = Table(
    PAPER,
    "figure10",
    "Distribution of the relative error of Γ16 and of GEMM",
    jobs_figure10,
    cells_figure10,
    "the three claims of section 6.2.2 hold, with simulated TF32 as CuGEMM; negligible: at most "
    f"{NEGLIGIBLE:.1%}, half a unit of three digits",
    values=("mare", "layer_max", "max_relative", "beyond"),
)


def jobs_h100(full: bool) -> list[Job]:
    """The layers on which cuDNN's modes were measured on an H100."""
    found = []
    for row in measured():
        if row["algorithm"] != "direct" or row["precision"] != "tf32":
            continue
        batch, height, width, channels = row["shape"]
        r = row["filter"]
        case = Case(
            "direct", f"{batch}x{height}x{width}x{channels}", f"{channels}x{r}x{r}", str(r // 2),
            data="u12", sample=FULL if full else "4096",
        )  # fmt: skip
        labels = {"paper": PAPER, "table": "h100", "shape": "x".join(map(str, row["shape"]))}
        one, two = Variant("ampere", precision="tf32"), Variant("hopper", precision=HOPPER)
        variants = (Variant("fp32"), one, two)
        found.append(Job(tuple(labels.items()), case, variants, 256, CHANNELS))
    return found


def cells_h100(rows: Sequence[Row]) -> list[Cell]:
    """cuDNN on an H100 beside direct FP32 and TF32 with one and two extra alignment bits."""
    found = []
    for entry in measured():
        if entry["algorithm"] != "direct":
            continue
        place = "x".join(map(str, entry["shape"]))
        modes = {"fp32": ("fp32",), "tf32": ("ampere", "hopper")}[entry["precision"]]
        for mode in modes:
            mine = select(rows, shape=place, variant=mode)
            if not mine:
                continue
            bits = {"fp32": "FP32", "ampere": "TF32, 1 extra bit", "hopper": "TF32, 2 extra bits"}
            note = f"measured {entry['mare']:.3g}"
            found.append(
                Cell(place, bits[mode], None, *interval([row["mare"] for row in mine]), note=note)
            )
    return found


H100 = Table(
    PAPER,
    "h100",
    "cuDNN's two modes, as measured on an H100",
    jobs_h100,
    cells_h100,
    "nothing is judged: the paper has no such table, and the bits were chosen on these layers",
)
