"""The papers' GPU tables from measured rows: Im2col-Winograd's 2 and 3, WinRS's 2, 3 and 4.

Nothing here measures: experiments.measure.throughput and experiments.measure.errors do, on a
GPU, and their rows are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from experiments.gpu.ceilings import product_bound, transform_bound
from experiments.gpu.rows import Measured, Row, cases, kernel, known, mean, paper_alpha, ratio
from experiments.harness.facts import table
from experiments.harness.tables import Cell, Table, select
from experiments.harness.tables import stored as simulated
from winolab.algorithm import parse_algorithm
from winolab.ref.algorithms.winrs.plan import data_size

IM2COL, WINRS = "im2col_winograd_2024", "winrs_2025"
MIB = 1 << 20
SIMULATION = 0.2  # a kernel's error is within so much of the simulation's
ROUNDED = 0.005  # of the paper's three digits, at most
GAMMA16 = 1e-6  # issue's aim for MARE of α = 16; the paper has 1e-5


def cell(where: str, column: str, paper: float | None, ours: float, agrees=None, **more) -> Cell:
    """A cell of one measured number."""
    return Cell(where, column, paper, ours, ours, ours, agrees, **more)


def name_of(text: str) -> str:
    """ "gamma:8:6:3" as Γ8(6,3)."""
    (tile,) = parse_algorithm(text).tiles
    return f"Γ{tile.alpha}({tile.n},{tile.r})"


def of_kernel(found: Sequence[Measured], name: str) -> list[Measured]:
    """Forward FP32 cases of a kernel's list."""
    return [c for c in found if (c.kernel_of, c.direction, c.group) == (name, "forward", "fp32")]


def cells_table2(rows: Sequence[Row]) -> list[Cell]:
    """Speedups over cuDNN's frugal algorithms, minimum and maximum over a kernel's shapes."""
    found = []
    every = [c for c in cases(rows) if c.list in ("dragon", "table3", "grid")]
    for printed in table(IM2COL, 2)["rows"]:
        name = name_of(printed["algorithm"])
        mine = of_kernel(every, name)
        for ours, label in ((lambda c: c.ffma, ""), (lambda c: c.split, ", split products")):
            for theirs, against, key in AGAINST:
                ratios = known(ratio(ours(c), theirs(c)) for c in mine)
                if not ratios:
                    continue
                papers = {
                    device: printed[f"{short}_{key}"]
                    for device, short in DEVICES.items()
                    if key and not label and f"{short}_{key}" in printed
                } or {"": (None, None)}
                for i, (word, value) in enumerate(
                    (("minimum", min(ratios)), ("maximum", max(ratios)))
                ):
                    for device, paper in papers.items():
                        column = f"over {against}{label}, {word}"
                        column += f" (paper: {device})" if device else ""
                        agrees = None if paper[i] is None else value >= paper[i]
                        found.append(cell(name, column, paper[i], value, agrees,
                                          note=f"{len(ratios)} shapes"))  # fmt: skip
    return found


DEVICES = {"RTX 4090": "rtx4090", "RTX 3060 Ti": "rtx3060ti"}
AGAINST: tuple[tuple[Callable[[Measured], Row | None], str, str], ...] = (
    (lambda c: c.frugal, "the fastest implicit GEMM, FMA", "fastest"),
    (lambda c: c.cudnn("IMPLICIT_PRECOMP_GEMM", layout="NHWC"), "NHWC GEMM, FMA", "gemm"),
    (lambda c: c.any, "the fastest of any workspace, FMA", ""),
    (lambda c: c.tf32, "implicit GEMM in TF32", ""),
)


def cells_table3(rows: Sequence[Row]) -> list[Cell]:
    """MARE of the kernels beside the paper's and the simulation's, by column and shape."""
    found = []
    rows = uniform(rows)
    predicted = select(simulated(IM2COL), table="table3")
    for column in table(IM2COL, 3)["columns"]:
        name = name_of(column["algorithm"])
        for paper, gemm, shape in zip(
            column["mare"], column["cugemm"], column["shapes"], strict=True
        ):
            mine = [
                r
                for r in rows
                if r["kernel_of"] == name and r["shape"].startswith("x".join(map(str, shape)) + ":")
            ]
            place = f"{name} {'x'.join(map(str, shape))}"
            simulation = select(
                predicted, column=column["algorithm"], shape="x".join(map(str, shape))
            )
            found += _errors(place, paper, mine, simulation)
            for products, label in (("fp32", "FMA"), ("tf32 allowed", "default")):
                for row in select(mine, method="cudnn", products=products):
                    found.append(cell(place, f"CuGEMM, {label}", gemm, row["mare"]))
    return found


def uniform(rows: Sequence[Row]) -> list[Row]:
    """Rows of experiments.measure.errors on the paper's data."""
    return [row for row in rows if row.get("data", "u12") == "u12"]


def _errors(place: str, paper: float, mine: Sequence[Row], simulation) -> Iterator[Cell]:
    """A shape's kernels: beside the simulation of the same order and points, and the paper."""
    for row in select(mine, method="winolab"):
        variant = {"paper": "program", "best": "best"}[row["points"]]
        drawn = [r["mare"] for r in select(simulation, variant=variant)]
        expected = sum(drawn) / len(drawn) if drawn else None
        split = row["products"] != "fp32"
        if row["points"] == "best":
            limit = GAMMA16 if kernel(row["kernel"])[0] == 16 else paper * (1 + ROUNDED)
            agrees = row["mare"] <= limit
        else:
            agrees = None
            if expected and not split:
                agrees = abs(row["mare"] / expected - 1) <= SIMULATION
        column = f"{row['points']} points, {'split products' if split else 'FFMA'}"
        yield cell(
            place, column, paper, row["mare"], agrees, prediction=None if split else expected
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
            cell(place, f"{metric}, {row['kernel']}, {name}", None, row[metric])
            for metric in ("mare", "max_relative")
        ]
    return found


def gradients(rows: Sequence[Row], group: str) -> list[Measured]:
    """The sampled cases of WinRS's grid."""
    return [c for c in cases(rows) if (c.list, c.group) == ("winrs", group)]


def data_bytes(c: Measured) -> int:
    """Bytes of x, w and y in the arrays' type."""
    return data_size(c.layer.problem) // (1 if c.group == "fp32" else 2)


def cells_winrs2(rows: Sequence[Row]) -> list[Cell]:
    """Workspace in MiB and as a multiple of the data, over the sample; the paper's are FP32's."""
    found = []
    for printed in table(WINRS, 2)["rows"]:
        for name, of in WORKSPACES[printed["algorithm"]].items():
            group = "fp16" if name == PICKED16 else "fp32"
            pairs = [(c, row["workspace"]) for c in gradients(rows, group) if (row := of(c))]
            if not pairs:
                continue
            for unit, values, paper in (
                ("MB", [used / MIB for _, used in pairs], printed["mb"]),
                (
                    "multiple of the data",
                    [used / data_bytes(c) for c, used in pairs],
                    printed["times"],
                ),
            ):
                ours = (sum(values) / len(values), min(values), max(values))
                for word, value, old in zip(WORDS, ours, paper, strict=True):
                    theirs = None if (group, unit) == ("fp16", "MB") else old
                    judged = name in (PICKED, PICKED16) and word == "average"
                    agrees = value <= theirs if judged and theirs is not None else None
                    found.append(cell(name, f"{unit}, {word}", theirs, value, agrees))
    return found


PICKED, PICKED16 = "WinRS, picked", "WinRS, picked in FP16"
WORKSPACES: dict[str, dict[str, Callable[[Measured], Row | None]]] = {
    "WinRS": {
        PICKED: lambda c: c.ours,
        PICKED16: lambda c: c.ours,
        "WinRS, FFMA": lambda c: c.ffma,
        "WinRS, split products": lambda c: c.split,
    },
    "Cu-Algo1": {"Cu-Algo1": lambda c: c.cudnn("ALGO_1")},
    "Cu-Algo3": {"Cu-Algo3": lambda c: c.cudnn("ALGO_3")},
    "Cu-FFT": {"Cu-FFT": lambda c: c.cudnn("FFT", "FFT_TILING")},
    "Cu-WinNF": {"Cu-WinNF": lambda c: c.cudnn("WINOGRAD_NONFUSED")},
}
WORDS = ("average", "minimum", "maximum")
GRADIENT_KINDS = {
    "gemm": ("ALGO_0", "ALGO_1", "ALGO_3"),
    "fft": ("FFT", "FFT_TILING"),
    "winograd": ("WINOGRAD_NONFUSED",),
}


def cells_winrs3(rows: Sequence[Row]) -> list[Cell]:
    """Speedups over cuDNN's kinds of algorithms by filter size; published: RTX 4090."""
    found = []
    for group in ("fp32", "fp16", "bf16"):
        sample = gradients(rows, group)
        for taps in range(2, 10):
            mine = [c for c in sample if c.layer.taps == taps]
            printed = select(table(WINRS, 3)["rows"], precision=group, device="RTX 4090",
                             filter=taps)  # fmt: skip
            for who, of in OURS.items():
                for kind, kernels in GRADIENT_KINDS.items():
                    ratios = known(ratio(of(c), c.cudnn(*kernels)) for c in mine)
                    paper = printed[0].get(kind) if printed and who == "FFMA" else None
                    paper = printed[0].get(kind) if printed and group == "fp16" else paper
                    found += _speedups(f"{group} {taps}×{taps}, {who}", kind, ratios, paper)
                if who != "FFMA":
                    found += _ceilings(f"{group} {taps}×{taps}, {who}", mine, of)
    return found


def _ceilings(where: str, mine: Sequence[Measured], of) -> Iterator[Cell]:
    """Shares of what transforms and products allow, for plans that transform apart."""
    pairs = [(c, row) for c in mine if (row := of(c)) and kernel(row["kernel"])[0] > 1]
    for name, bound in (
        ("transforms", transform_bound),
        ("products", lambda c, r: product_bound(r)),
    ):
        shares = [row["tflops"] / bound(c, row) for c, row in pairs]
        if shares:
            yield cell(where, f"share of what {name} allow", None, mean(shares),
                       note=f"{min(shares):.2f} to {max(shares):.2f}")  # fmt: skip


OURS: dict[str, Callable[[Measured], Row | None]] = {
    "FFMA": lambda c: c.ffma,
    "split products": lambda c: c.split,
    "picked": lambda c: c.ours,
    "fastest of any error": lambda c: c.ours_any if c.group != "fp32" else None,
}


def _speedups(where: str, kind: str, ratios: list[float], paper) -> Iterator[Cell]:
    if not ratios:
        return
    values = (mean(ratios), min(ratios), max(ratios))
    for i, (word, value) in enumerate(zip(WORDS, values, strict=True)):
        old = paper[i] if paper else None
        agrees = value >= old if old is not None and word == "average" else None
        yield cell(where, f"over {kind}, {word}", old, value, agrees, note=f"{len(ratios)} layers")


# Ω's largest MARE was to be at most this, by the arrays' precision and α; the paper's own stands
# beside it.
OMEGA_AIMS = {("fp32", 8): 8.3e-7, ("fp32", 16): 1e-6, ("fp16", 8): 5e-4, ("fp16", 16): 2e-3}


def cells_winrs4(rows: Sequence[Row]) -> list[Cell]:
    """MARE on U[0,1], minimum and maximum over the sample."""
    found = []
    kinds = {"Cu-FFT": "fft", "Cu-Algo0/3": "", "Cu-WinNF": "winograd", "Cu-Algo1": "gemm1"}
    for printed in table(WINRS, 4)["rows"]:
        name = printed["algorithm"]
        for group in ("fp32", "fp16", "bf16"):
            values: dict[str, list[float]] = {}
            for case in gradients(rows, group):
                for row in case.rows:
                    if isinstance(row.get("mare_u01"), float) and _is(row, name, kinds, group):
                        values.setdefault(row["products"], []).append(row["mare_u01"])
            aim = OMEGA_AIMS.get((group, int(name.split()[-1]))) if "omega" in name else None
            for products, mine in values.items():
                old = printed.get(group) if products in (group, "fp32_split") else None
                for i, value in enumerate((min(mine), max(mine))):
                    note, agrees = f"{len(mine)} results", None
                    if aim is not None and i:
                        note, agrees = f"{note}; aim {aim:.1e}", value <= aim
                    column = f"{products}, {('minimum', 'maximum')[i]}"
                    paper = old[i] if old else None
                    found.append(cell(name, column, paper, value, agrees, note=note))
    return found


def _is(row: Row, name: str, kinds: dict[str, str], group: str) -> bool:
    """Whether a row is one of the paper's line."""
    if name.startswith("omega"):
        return row["method"] == "winolab" and paper_alpha(row["kernel"]) == int(name.split()[-1])
    if row["method"] != "cudnn":
        return False
    if kinds[name] == "gemm1":
        return row["kernel"] == "ALGO_1"
    algorithms = GRADIENT_KINDS.get(kinds[name], ("ALGO_0", "ALGO_3"))
    return row["kernel"] in algorithms and row["products"] == group


def none(full: bool) -> list:
    """No job: a GPU measures these tables."""
    return []


SPEED = "at least the paper's ratio on the GPU named"
TABLE2 = Table(
    IM2COL,
    "table2",
    "Speedup over cuDNN on a GPU",
    none,
    cells_table2,
    SPEED,
    sources=("throughput",),
)
TABLE3 = Table(
    IM2COL, "table3_kernels", "Mean relative error of the CUDA kernels", none, cells_table3,
    f"paper's points: within {SIMULATION:.0%} of the simulation; best points: Γ8 at most "
    f"{ROUNDED:.1%} above the paper, Γ16 at most {GAMMA16:.0e}",
    sources=("gpu_errors",),
)  # fmt: skip
FIGURE10 = Table(
    IM2COL, "figure10_kernels", "Distribution of the CUDA kernels' relative error", none,
    cells_figure10, "nothing is judged",
    sources=("gpu_errors",),
)  # fmt: skip
WINRS2 = Table(
    WINRS, "table2_kernels", "Workspace on a GPU", none, cells_winrs2,
    "what is picked: average at most the paper's",
    sources=("throughput",),
)  # fmt: skip
WINRS3 = Table(
    WINRS, "table3_kernels", "Speedup over cuDNN on a GPU", none, cells_winrs3,
    "geometric mean at least the paper's average on an RTX 4090",
    sources=("throughput",),
)  # fmt: skip
WINRS4 = Table(
    WINRS, "table4_kernels", "Mean relative error on a GPU", none, cells_winrs4,
    "Ω: the largest at most the aim in the note, whatever the paper's",
    sources=("throughput",),
)  # fmt: skip
