"""DWM's Tables 10 and 12 and Figure 5 without their networks' weights: which layers overflow FP16.

The layers of the paper's video networks, on data whose magnitudes are as far apart as FP16 holds
and larger from row to row: where is one tile of Winograd not finite and DWM is, and what do they
lose where both are? Layers are convolutions, deformable ones apart; a stride has no Winograd.
The same of a GPU's kernels has rows of papers.dwm_2021.measure.ranges.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from experiments.harness.jobs import Row
from experiments.harness.tables import Cell, Table, claim, none, one, select
from experiments.harness.verdicts import above, at_most
from papers.dwm_2021 import networks
from papers.dwm_2021.accuracy import CLAIMS, POINTS
from winolab.algorithm import Algorithm, Problem, Tile, Winograd, direct, dwm
from winolab.ref.algorithms import convolution, winograd
from winolab.ref.algorithms.dwm import decompose
from winolab.ref.arithmetic.simulated import arithmetic

PAPER, GPU_SOURCE = "dwm_2021", "dwm_ranges"
# FP16 tensors and transforms, sums in FP32, as for Tables 1 and 2.
PRECISION = "fp16,transform=fp16"
NETWORKS: dict[str, Callable[[], Iterator[Problem]]] = {
    "SPyNet": networks.spynet,
    "TOFlow": networks.toflow,
    "GDConvNet": networks.gdconvnet,
    "V2V": networks.v2v,
    "SlowFast-R50": networks.slowfast,
    "3D-ShapeNet": networks.shapenet,
}
OUTPUTS, FILTERS = {2: 8, 3: 4}, 8  # of a block, along a dimension; no padding inside
PEAKS = (0, *range(5, 15))  # binary exponents of the scale of the data
SPREAD = 20  # its magnitudes are 2**U[-SPREAD, 0] times that
SEEDS = 2


@dataclass(frozen=True)
class Layer:
    """A block of outputs of one layer, by every algorithm and for every scale of the data."""

    network: str
    channels: int
    taps: tuple[int, ...]
    stride: tuple[int, ...]
    seed: int

    @property
    def cost(self) -> float:
        """Multiply-adds of direct convolution."""
        return float(self.problem.macs)

    @property
    def problem(self) -> Problem:
        """The block's; a dimension of one tap has one output."""
        ndim = len(self.taps)
        outputs = [OUTPUTS[ndim] if r > 1 else 1 for r in self.taps]
        size = [(o - 1) * s + r for o, s, r in zip(outputs, self.stride, self.taps, strict=True)]
        filters = (FILTERS, *self.taps, self.channels)
        return Problem.of((1, *size, self.channels), filters, stride=self.stride)

    @property
    def algorithms(self) -> dict[str, Algorithm]:
        """Those that serve it: F(2, r) along every dimension of several taps, without a stride."""
        found: dict[str, Algorithm] = {"direct": direct(), "dwm": dwm()}
        if self.problem.unit:
            tiles = tuple(Tile(2, r) if r > 1 else Tile(1, 1) for r in self.taps)
            found["winograd"] = Winograd(tiles, POINTS)
            found["winograd, scaled"] = Winograd(tiles, POINTS, "power_of_two")
        return found

    def run(self) -> list[Row]:
        """The rows, one an algorithm: the part of outputs that is not finite at every scale."""
        problem, run = self.problem, arithmetic(PRECISION)
        rng = np.random.default_rng(self.seed)
        x = rng.standard_normal(problem.x_shape) * np.exp2(-SPREAD * rng.random(problem.x_shape))
        w = rng.standard_normal(problem.w_shape)
        w *= math.sqrt(2 / (math.prod(self.taps) * self.channels))
        truth = convolution.forward(x, w, problem)
        rows = []
        for name, algorithm in self.algorithms.items():
            engine, found = decompose if name == "dwm" else winograd, []
            for peak in PEAKS:
                with np.errstate(all="ignore"):
                    y = engine.forward(2.0**peak * x, w, problem, algorithm, run)
                found.append(run.to_float64(y))
            rows.append(self._row(name, algorithm, found, truth))
        return rows

    def _row(self, name: str, algorithm: Algorithm, found: list[np.ndarray], truth) -> Row:
        plain = found[PEAKS.index(0)]
        finite = np.isfinite(plain)
        error = math.sqrt(np.mean((plain - truth)[finite] ** 2)) if finite.any() else None
        return {
            **described("ranges", self.network, self.problem, self.seed),
            "column": name,
            "algorithm": str(algorithm),
            "precision": PRECISION,
            "samples": truth.size,
            "relative_rms": error and error / math.sqrt(np.mean(truth**2)),
            "not_finite": [1 - float(np.isfinite(y).mean()) for y in found],  # at each of PEAKS
        }


def described(table: str, network: str, problem: Problem, seed: int) -> Row:
    """What a row says of its layer."""
    return {
        "paper": PAPER,
        "table": table,
        "network": network,
        "ndim": problem.ndim,
        "taps": "x".join(map(str, problem.filter)),
        "stride": "x".join(map(str, problem.stride)),
        "in_channels": problem.in_channels,
        "seed": seed,
    }


def _jobs(full: bool) -> list[Layer]:
    found = {
        (name, p.in_channels, p.filter, p.stride)
        for name, layers in NETWORKS.items()
        for p in layers()
        if max(p.filter) > 1
    }
    return [Layer(*layer, seed) for layer in sorted(found) for seed in range(SEEDS)]


def first_peak(rows: Sequence[Row], column: str) -> float:
    """The least scale at which some output is not finite; infinite where none is."""
    broken = [peak for peak in PEAKS if _broken(rows, column, peak)]
    return 2.0 ** min(broken) if broken else math.inf


def _broken(rows: Sequence[Row], column: str, peak: int) -> float:
    """The largest part of a layer's outputs that is not finite at a scale."""
    return max((r["not_finite"][PEAKS.index(peak)] for r in select(rows, column=column)), default=0)


def _cells(rows: Sequence[Row]) -> list[Cell]:
    """The scale that overflows and what is lost where none does, by network and filter."""
    cells = []
    for name in dict.fromkeys(row["network"] for row in rows):
        mine = select(rows, network=name)
        for taps, stride in dict.fromkeys((row["taps"], row["stride"]) for row in mine):
            some = select(mine, taps=taps, stride=stride)
            where = f"{name}, {taps.replace('x', '×')} taps, stride {stride.replace('x', '×')}"
            for column in dict.fromkeys(row["column"] for row in some):
                first = first_peak(some, column)
                text = f"{column}: least scale that is not finite"
                if math.isinf(first):
                    first, text = 2.0 ** PEAKS[-1], f"{column}: finite up to scale"
                cells.append(one(where, text, None, first))
                lost = _lost(some, column)
                cells.append(one(where, f"{column}: relative RMS", None, lost))
    return [*cells, *_claims(rows)]


def _claims(rows: Sequence[Row]) -> Iterator[Cell]:
    """The claims of networks that have rows."""
    for name in ("SPyNet", "GDConvNet"):
        if not (mine := select(rows, network=name)):
            continue
        first = first_peak(mine, "winograd")
        # Beyond the largest scale nothing was seen to overflow, which says nothing of others.
        at = PEAKS[-1] if math.isinf(first) else int(math.log2(first))
        later = min(first_peak(mine, "dwm"), 2.0 ** (PEAKS[-1] + 1)) / 2.0**at
        if math.isinf(first):  # neither has overflowed, or DWM alone
            later = min(later, 1.0)
        text = f"{name}: Winograd FP16 gets NaN from smaller data on than DWM: ratio of scales"
        yield claim(text, 1.0, later, above(1))
        # Where nothing has overflowed, nobody's outputs could disagree.
        for column in ("dwm", "direct") if math.isfinite(first) else ():
            text = f"{name}: where Winograd overflows first, {column} does not: part not finite"
            yield claim(text, 0.0, _broken(mine, column, at), at_most(0))
    for name in ("SPyNet", "TOFlow"):
        if mine := [r for r in select(rows, network=name) if max(_taps(r)) > 3]:
            worse = _lost(mine, "winograd") / _lost(mine, "dwm")
            text = f"{name}: DWM FP16 loses less than Winograd FP16, kernels above 3"
            yield claim(text, 1.0, worse, above(1))


def _taps(row: Row) -> list[int]:
    return [int(r) for r in row["taps"].split("x")]


def _lost(rows: Sequence[Row], column: str) -> float:
    """Relative RMS of one column, a mean over layers and seeds; NaN where no output is finite."""
    found = [row["relative_rms"] for row in select(rows, column=column)]
    return float(np.mean([math.nan if value is None else value for value in found]))


RANGES = Table(
    PAPER, "ranges", "FP16 on the layers of video networks, data of a wide range", _jobs, _cells,
    CLAIMS, long=True, values=("not_finite", "relative_rms"),
)  # fmt: skip
MEASURED = Table(
    PAPER, "ranges_measured", "FP16 on the layers of video networks, by a GPU's kernels", none,
    _cells, CLAIMS, sources=(GPU_SOURCE,), values=("not_finite", "relative_rms"),
)  # fmt: skip
