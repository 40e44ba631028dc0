"""WinRS, Table 3: the timing model's speedups beside the published ones, and time for workspace.

cuDNN is modelled by the paper's equation 8 too, T = C_time/V_comp + C_data/V_band, with two fitted
constants an algorithm: the share of the peak that its products reach, and how many times the data
move. The paper gives ratios only, so that shares are relative to the model's FILLED. All of these
are fitted to the averages (papers.winrs_2025.fits); minima and maxima are judged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.harness.facts import table
from experiments.harness.tables import Cell, Table, one, select
from experiments.harness.verdicts import Verdict, within_factor
from papers.winrs_2025.grid import MIB, PAPER, WORDS, Layer, grid
from winolab.device import Device, datasheet
from winolab.ref.algorithms.winrs.model import FILLED, seconds
from winolab.ref.algorithms.winrs.plan import Plan, data_size, plan

Row = dict[str, Any]
Array = NDArray[np.float64]

# (share of the peak, moved data in multiples of x, dy and dw), fitted to the averages of Table 3
# (papers.winrs_2025.fits). FP16 Winograd's three averages are met by its traffic alone.
CUDNN = {
    ("fp32", "gemm"): (0.903, 2.92),
    ("fp32", "winograd"): (0.85, 11.22),
    ("fp32", "fft"): (0.0952, 28.24),
    ("fp16", "gemm"): (0.789, 8.93),
    ("fp16", "winograd"): (math.inf, 13.38),
}
FP16_OVER_FP32 = 3.27  # section 6.2, average
KINDS = ("gemm", "fft", "winograd")


@cache
def spread() -> float:
    """The paper's own spread between GPUs: RMS of the logarithm of one's minimum over another's, in
    the same precision, over the same algorithm, of the same filters."""
    rows = table(PAPER, 3)["rows"]
    logs = [
        math.log(a[kind][1] / b[kind][1])
        for a, b in combinations(rows, 2)
        for kind in KINDS
        if (a["precision"], a["filter"]) == (b["precision"], b["filter"]) and kind in a
    ]
    return math.sqrt(sum(v * v for v in logs) / len(logs))


def saved(algorithm: str, taps: int) -> float:
    """What an algorithm divides the products by (section 6.2, footnote; FFT's factor is fitted)."""
    if algorithm == "gemm":
        return 1.0
    return float(taps**2) if algorithm == "fft" else {3: 4.0, 5: 6.25}[taps]


@dataclass(frozen=True)
class Predicted:
    """Plans of WinRS on the layers of one filter size, and what cuDNN's models need."""

    device: Device
    precision: str
    taps: int
    plans: tuple[Plan, ...]
    flop: Array
    data: Array

    @cached_property
    def winrs(self) -> Array:
        return self.seconds()

    def seconds(self, filled: Mapping[int, float] = FILLED) -> Array:
        """Seconds of WinRS on each layer, with these shares of issue slots."""
        return np.array([seconds(p.problem, p.segments, p.device, filled) for p in self.plans])

    def cudnn(self, algorithm: str, share: float, moves: float) -> Array:
        peak = self.device.fp32_peak if self.precision == "fp32" else self.device.fp16_peak
        products = self.flop / saved(algorithm, self.taps)
        return products / (peak * share) + moves * self.data / self.device.bandwidth

    def speedup(self, algorithm: str, share: float, moves: float) -> Array:
        """cuDNN's time over WinRS's on each layer."""
        return self.cudnn(algorithm, share, moves) / self.winrs


@cache
def predicted(device: str, precision: str, taps: int) -> Predicted:
    """Predictions for the grid's layers; in FP16 of even width, as the paper's kernels need."""
    layers = [g for g in grid() if g.taps == taps and (precision == "fp32" or g.output % 2 == 0)]
    problems = [g.problem for g in layers]
    found = datasheet(device)
    plans = [plan(p, found, precision, points="paper", admissible=False) for p in problems]
    return Predicted(
        found,
        precision,
        taps,
        tuple(plans),
        np.array([2.0 * p.macs for p in problems]),
        np.array([float(data_size(p)) for p in problems]) / (2 if precision == "fp16" else 1),
    )


@dataclass(frozen=True)
class SpeedupJob:
    """One printed row of Table 3."""

    device: str
    precision: str
    taps: int
    cost: float = 1.0

    def run(self) -> list[Row]:
        times = predicted(self.device, self.precision, self.taps)
        rows = []
        for (precision, algorithm), (share, moves) in CUDNN.items():
            if precision != self.precision or (algorithm == "winograd" and self.taps not in (3, 5)):
                continue
            ratio = times.speedup(algorithm, share, moves)
            rows.append(self._row(algorithm, [ratio.mean(), ratio.min(), ratio.max()], times))
        return rows

    def _row(self, algorithm: str, speedup: list, times: Predicted) -> Row:
        return {
            "paper": PAPER,
            "table": "table3",
            "planned_for": self.device,
            "precision": self.precision,
            "taps": self.taps,
            "algorithm": algorithm,
            "layers": len(times.winrs),
            "speedup": [float(v) for v in speedup],
            "tflops": float((times.flop / times.winrs).mean() / 1e12),
        }


def jobs_table3(full: bool) -> list[SpeedupJob]:
    return [SpeedupJob(r["device"], r["precision"], r["filter"]) for r in table(PAPER, 3)["rows"]]


def cells_table3(rows: Sequence[Row]) -> list[Cell]:
    """Minima and maxima judged, averages fitted."""
    found = []
    for printed in table(PAPER, 3)["rows"]:
        for algorithm in (kind for kind in KINDS if kind in printed):
            taps = printed["filter"]
            (row,) = select(
                rows,
                planned_for=printed["device"],
                precision=printed["precision"],
                taps=taps,
                algorithm=algorithm,
            )
            for word, ours, paper in zip(WORDS, row["speedup"], printed[algorithm], strict=True):
                found.append(
                    one(
                        place(printed),
                        over(algorithm, word),
                        paper,
                        ours,
                        accepted=within_factor(paper, math.exp(spread())),
                        standing=Verdict.FITTED if word == FITTED else None,
                    )
                )
    ratios = [
        select(rows, planned_for="RTX 4090", precision="fp16", taps=taps)[0]["tflops"]
        / select(rows, planned_for="RTX 4090", precision="fp32", taps=taps)[0]["tflops"]
        for taps in (3, 5, 7, 9)
    ]
    accepted = within_factor(FP16_OVER_FP32, math.exp(spread()))
    ours = float(np.mean(ratios))
    found.append(
        one("FP16 over FP32", "average", FP16_OVER_FP32, ours, accepted=accepted, claim=True)
    )
    return found


FITTED = "average"


def place(printed: Row) -> str:
    """A printed line, as cells name it."""
    return f"{printed['device']} {printed['precision']} {printed['filter']}×{printed['filter']}"


def over(algorithm: str, word: str) -> str:
    """A printed column, as cells name it."""
    return f"over {algorithm}, {word}"


FRONTIER = (Layer(128, 56, 128, 3), Layer(128, 28, 256, 3), Layer(64, 40, 256, 9))
COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)


@dataclass(frozen=True)
class FrontierJob:
    """One layer with more and more segments, and the planner's own choice."""

    layer: Layer
    device: str
    cost: float = 1.0

    def run(self) -> list[Row]:
        rows = []
        for count in (None, *COUNTS):
            made = plan(self.layer.problem, self.device, segments=count)
            rows.append(
                {
                    "paper": PAPER,
                    "table": "frontier",
                    "layer": f"{self.layer} {self.layer.taps}×{self.layer.taps}",
                    "planned": count is None,
                    "workspace_mib": made.workspace / MIB,
                    **made.as_dict(),
                    "planned_for": self.device,
                }
            )
        return rows


def jobs_frontier(full: bool) -> list[FrontierJob]:
    return [FrontierJob(g, device) for g in FRONTIER for device in ("rtx4090", "h100")]


def cells_frontier(rows: Sequence[Row]) -> list[Cell]:
    """The planner's time over the best of all counts."""
    found = []
    for layer, device in dict.fromkeys((r["layer"], r["planned_for"]) for r in rows):
        mine = select(rows, layer=layer, planned_for=device)
        least = min(r["predicted_us"] for r in mine)
        (chosen,) = select(mine, planned=True)
        ratio = chosen["predicted_us"] / least
        note = f"{chosen['segments']} segments, {chosen['workspace_mib']:.1f} MiB"
        found.append(one(f"{layer} {device}", "chosen over fastest", None, ratio, note=note))
    return found


TABLE3 = Table(
    PAPER,
    "table3",
    "Speedup over cuDNN by the timing model",
    jobs_table3,
    cells_table3,
    f"averages are fitted; minima and maxima within a factor of {math.exp(spread()):.2f}, by which "
    "the paper's minima differ between GPUs",
    values=("speedup", "tflops"),
)
FRONTIER_TABLE = Table(
    PAPER,
    "frontier",
    "Predicted time against workspace",
    jobs_frontier,
    cells_frontier,
    "nothing is judged: the paper has no such table",
)
