"""WinRS's Tables 2, 3 and 4 from the CUDA kernels, by rows that a GPU left.

Nothing here measures: experiments.measure.throughput does. What computes products directly is not
WinRS: beside the paper's numbers stands Ω, by kernels of the paper's list; what
conv_backward_filter picks by itself is shown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from experiments.gpu.ceilings import product_bound, transform_bound
from experiments.gpu.rows import (
    GRADIENT_KINDS,
    Measured,
    Row,
    data_bytes,
    gradients,
    kernel,
    known,
    mean,
    of_last,
    paper_alpha,
    ratio,
    tiles,
)
from experiments.gpu.samples import PRECISIONS
from experiments.harness.facts import table
from experiments.harness.tables import Cell, Table, interval, none, one, select
from experiments.harness.verdicts import Range, Verdict
from papers.winrs_2025.grid import MIB, PAPER, WORDS
from papers.winrs_2025.timing import FP16_OVER_FP32
from winolab.ref.algorithms.winrs.kernels import TILES

Pick = Callable[[Measured], Row | None]


def omega(c: Measured) -> Row | None:
    """The fastest of the paper's kernels: its tiles, FFMA in FP32, Tensor Cores in 16 bits."""
    listed = TILES["fp32" if c.group == "fp32" else "fp16"][1:]
    return c.fastest(
        lambda r: (
            (r["method"], r["products"]) == ("winolab", c.group)
            and not r.get("prepared")
            and any(tile in listed for tile in tiles(r["kernel"]))
        )
    )


OMEGA, PICKED = "Ω", "picked"


def cells_table2(rows: Sequence[Row]) -> list[Cell]:
    """Workspace in MiB and as a multiple of the data, over the sample; the paper's are FP32's."""
    found, samples = [], {group: gradients(rows, group) for group in PRECISIONS}
    for printed in table(PAPER, 2)["rows"]:
        for name, (of, group) in WORKSPACES[printed["algorithm"]].items():
            mine = [(c, row) for c in samples[group] if (row := of(c))]
            for unit, values, paper in (
                ("MB", [row["workspace"] / MIB for _, row in mine], printed["mb"]),
                (
                    "multiple of the data",
                    [row["workspace"] / data_bytes(c) for c, row in mine],
                    printed["times"],
                ),
            ):
                if values:
                    note = f"{len(mine)} layers{_direct(mine) if name.endswith(PICKED) else ''}"
                    found += _workspaces(f"{printed['algorithm']}{name}", unit, values, paper, note)
    return found


def _direct(mine: Sequence[tuple[Measured, Row]]) -> str:
    count = sum(not tiles(row["kernel"]) for _, row in mine)
    return f", {count} of them direct products"


def _workspaces(where: str, unit: str, values: list[float], paper, note: str) -> Iterator[Cell]:
    average, low, high = interval(values)
    judged, shown = where == f"WinRS, {OMEGA}", where.startswith("WinRS")
    # The paper's average lies in the interval of ours, said of ours; its maximum bounds ours.
    accepted: dict[str, Range] = {
        "average": (paper[0] - (high - average), paper[0] + (average - low)),
        "maximum": (paper[1], paper[2]),
    }
    ends = {"average": (low, high)}
    standing = None if shown else Verdict.NOT_COMPARABLE
    for word, value, old in zip(WORDS, (average, min(values), max(values)), paper, strict=True):
        reason, why = standing, note if shown else f"{note}; another device and cuDNN"
        if judged and word not in accepted:
            reason, why = Verdict.NOT_COMPARABLE, f"{note}; one segment needs none"
        yield Cell(
            where, f"{unit}, {word}", old, value, *ends.get(word, (value, value)),
            accepted=accepted.get(word) if judged else None, standing=reason, note=why,
        )  # fmt: skip


def _cudnn(*kernels: str) -> dict[str, tuple[Pick, str]]:
    return {"": (lambda c: c.cudnn(*kernels), "fp32")}


WORKSPACES: dict[str, dict[str, tuple[Pick, str]]] = {
    "WinRS": {
        f", {OMEGA}": (omega, "fp32"),
        ", split products": (lambda c: c.split, "fp32"),
        f", {PICKED}": (lambda c: c.ours, "fp32"),
        f" in FP16, {PICKED}": (lambda c: c.ours, "fp16"),
    },
    "Cu-Algo1": _cudnn("ALGO_1"),
    "Cu-Algo3": _cudnn("ALGO_3"),
    "Cu-FFT": _cudnn("FFT", "FFT_TILING"),
    "Cu-WinNF": _cudnn("WINOGRAD_NONFUSED"),
}


def cells_table3(rows: Sequence[Row]) -> list[Cell]:
    """Speedups over cuDNN's kinds of algorithms by filter size; published: RTX 4090."""
    found = []
    for group in PRECISIONS:
        sample = gradients(rows, group)
        for taps in range(2, 10):
            mine = [c for c in sample if c.layer.taps == taps]
            printed = select(table(PAPER, 3)["rows"], precision=group, device="RTX 4090",
                             filter=taps)  # fmt: skip
            for who, of in OURS.items():
                for kind, kernels in GRADIENT_KINDS.items():
                    ratios = known(ratio(of(c), c.cudnn(*kernels)) for c in mine)
                    paper = printed[0].get(kind) if printed and who == OMEGA else None
                    found += _speedups(f"{group} {taps}×{taps}, {who}", kind, ratios, paper)
                if who != OMEGA or group != "fp32":
                    found += _ceilings(f"{group} {taps}×{taps}, {who}", mine, of)
    return found


OURS: dict[str, Pick] = {
    OMEGA: omega,
    "split products": lambda c: c.split,
    PICKED: lambda c: c.ours,
    "fastest of any error": lambda c: c.ours_any if c.group != "fp32" else None,
}


def _ceilings(where: str, mine: Sequence[Measured], of: Pick) -> Iterator[Cell]:
    """Shares of what transforms and products allow, for plans that transform apart."""
    pairs = [(c, row) for c in mine if (row := of(c)) and kernel(row["kernel"])[0] > 1]
    for name, bound in (
        ("transforms", transform_bound),
        ("products", lambda c, r: product_bound(r)),
    ):
        shares = [row["tflops"] / bound(c, row) for c, row in pairs]
        if shares:
            yield one(where, f"share of what {name} allow", None, mean(shares),
                      note=f"{min(shares):.2f} to {max(shares):.2f}")  # fmt: skip


def _speedups(where: str, kind: str, ratios: list[float], paper) -> Iterator[Cell]:
    if not ratios:
        return
    values = (mean(ratios), min(ratios), max(ratios))
    for i, (word, value) in enumerate(zip(WORDS, values, strict=True)):
        note = f"{len(ratios)} layers"
        if paper:
            yield one(where, f"over {kind}, {word}", paper[i], value,
                      standing=Verdict.NOT_COMPARABLE, note=f"{note}; another device")  # fmt: skip
        else:
            yield one(where, f"over {kind}, {word}", None, value, note=note)


def cells_table4(rows: Sequence[Row]) -> list[Cell]:
    """MARE on U[0,1], minimum and maximum over the sample."""
    found, samples = [], {group: gradients(rows, group) for group in PRECISIONS}
    for printed in table(PAPER, 4)["rows"]:
        name = printed["algorithm"]
        for group in PRECISIONS:
            values: dict[str, list[float]] = {}
            for case in samples[group]:
                for row in case.rows:
                    if isinstance(row.get("mare_u01"), float) and _is(row, name, group):
                        values.setdefault(row["products"], []).append(row["mare_u01"])
            for products, mine in values.items():
                old = printed.get(group) if products == group else None
                for i, value in enumerate((min(mine), max(mine))):
                    why = "best points, exact constants" if "omega" in name else "another cuDNN"
                    note = f"{len(mine)} results" + (f"; {why}" if old else "")
                    found.append(
                        one(name, f"{products}, {('minimum', 'maximum')[i]}", old and old[i], value,
                            standing=Verdict.NOT_COMPARABLE if old else None, note=note)
                    )  # fmt: skip
    return found


CUDNN = {
    "Cu-FFT": GRADIENT_KINDS["fft"],
    "Cu-Algo0/3": ("ALGO_0", "ALGO_3"),
    "Cu-WinNF": GRADIENT_KINDS["winograd"],
    "Cu-Algo1": ("ALGO_1",),
}


def _is(row: Row, name: str, group: str) -> bool:
    """Whether a row is one of the paper's line; Cu-Algo1 stands there in TF32 too."""
    if name.startswith("omega"):
        alpha = int(name.split()[-1])
        return row["method"] == "winolab" and paper_alpha(row["kernel"]) == alpha
    if row["method"] != "cudnn" or row["kernel"] not in CUDNN[name]:
        return False
    return name == "Cu-Algo1" or row["products"] == group


# Section 5.2: padding of ldmatrix's rows, FP16; of the rows that results are staged in; products
# that rows of the transforms share. (Its 5 %, offsets of FP32's operands, have no policy: a lane's
# vectors lie 32 channels apart in our kernel, which no bank meets twice, and what the paper had
# without its offsets it does not say.)
PADDING, STAGED, PAIRED = 1.46, 1.02, 1.06


FUSED_KINDS = {"fused": "", "fused in FP32": " FP32"}  # of rows, behind the kernel's name


def cells_ablations(rows: Sequence[Row]) -> list[Cell]:
    """Each policy of fused Ω, on over off, by kernel: geometric means over layers, of the
    GPU that was measured last."""
    found: list[Cell] = []
    rows = of_last(rows)
    named: dict[str, list[Row]] = {}
    for r in rows:
        if r["kind"] in FUSED_KINDS:
            named.setdefault(f"{r['kernel']}{FUSED_KINDS[r['kind']]}", []).append(r)
    for name, mine in named.items():
        for text, policy, default, paper in POLICIES:
            found += _gain(name, text, paper, list(_pairs(mine, policy, default)))
    found += _gain("all", "FP16 over FP32", FP16_OVER_FP32, list(_beside(rows)))
    return found


# What is turned on, by which policy of a plan's text, whether that turns it off, the paper's gain.
POLICIES: tuple[tuple[str, str, bool, float | None], ...] = (
    ("rows padded by 128 bits", "pad=0", True, PADDING),
    ("transforms of half2", "half2=1", False, None),
    ("columns in shared memory a step ahead", "ahead=1", False, None),
    ("columns in shared memory two steps ahead", "ahead=2", False, None),
    ("sums in FP16, and blocks as large", "sums=16", False, None),
    ("staged rows padded", "staged=0", True, STAGED),
    ("lanes stage their floats in turn, in the padding's place", "turned=0", True, STAGED),
    ("rows of points p and -p share products", "paired=0", True, PAIRED),
)
GIVEN = (
    "stages",
    "state_blocks",
    "wrap",
    "vector",
    "dwvec",
)  # follow from a policy or from the layer


def policies(plan: str) -> tuple[str, frozenset[str]]:
    """The block of a plan's text, and the policies that somebody chose.

    >>> policies("64x64x16 stages=4 pad=0 wrap=1")
    ('64x64x16', frozenset({'pad=0'}))
    """
    block, *named = plan.split()
    return block, frozenset(name for name in named if name.split("=")[0] not in GIVEN)


def _pairs(rows: Sequence[Row], policy: str, default: bool) -> Iterator[float]:
    """Times without a policy over those with it, of one block and no other policy; ``default``: it
    is one that turns off. Sums in FP16 have block shapes of their own."""
    runs: dict[tuple[str, str, str], dict[tuple[str, frozenset[str]], float]] = {}
    for r in sorted(rows, key=lambda r: r.get("run", "")):
        case = r["input"], r["filter"], r.get("run", "")
        runs.setdefault(case, {})[policies(r["plan"])] = r["cold_us"][1]
    found: dict[tuple[str, str, str], float] = {}  # of a layer and block: the last run's
    for (x, w, _), plans in runs.items():
        plain = {block: took for (block, chosen), took in plans.items() if not chosen}
        for (block, chosen), took in plans.items():
            if chosen != {policy} or not plain:
                continue
            usual = min(plain.values()) if policy == "sums=16" else plain.get(block, math.nan)
            found[x, w, block] = took / usual if default else usual / took
    yield from found.values()


def _beside(rows: Sequence[Row]) -> Iterator[float]:
    """FP32's time over the same kernel's in FP16 with its usual policies, a layer each."""
    for other in select(rows, kind="fused in FP32"):
        if policies(other["plan"])[1]:
            continue
        same = select(rows, kind="fused", kernel=other["kernel"], filter=other["filter"],
                      input=other["input"])  # fmt: skip
        if took := [r["cold_us"][1] for r in same if not policies(r["plan"])[1]]:
            yield other["cold_us"][1] / min(took)


def _gain(where: str, text: str, paper: float | None, ratios: Sequence[float]) -> Iterator[Cell]:
    known = [r for r in ratios if not math.isnan(r)]
    if known:
        mean = math.exp(sum(map(math.log, known)) / len(known))
        note = f"{len(known)} layers, {min(known):.2f} to {max(known):.2f}"
        if paper:
            yield one(where, text, paper, mean, standing=Verdict.NOT_COMPARABLE,
                      note=f"{note}; another device")  # fmt: skip
        else:
            yield one(where, text, None, mean, note=note)


TABLE2 = Table(
    PAPER, "table2_kernels", "Workspace on a GPU", none, cells_table2,
    "Ω: the paper's average lies in the 90 % interval of the sample's, and its maximum is not "
    "exceeded",
    sources=("throughput",), values=("workspace",),
)  # fmt: skip
TABLE3 = Table(
    PAPER, "table3_kernels", "Speedup over cuDNN on a GPU", none, cells_table3,
    "nothing is judged: another device",
    sources=("throughput",), values=("tflops",),
)  # fmt: skip
TABLE4 = Table(
    PAPER, "table4_kernels", "Mean relative error on a GPU", none, cells_table4,
    "nothing is judged: the kernels have other points and exact constants",
    sources=("throughput",), values=("mare_u01",),
)  # fmt: skip
ABLATIONS = Table(
    PAPER, "ablations_kernels", "What each policy of fused Ω is worth on a GPU", none,
    cells_ablations, "nothing is judged: another device",
    sources=("fused_omega",), values=("cold_us",),
)  # fmt: skip
TABLES = (TABLE2, TABLE3, TABLE4, ABLATIONS)
