"""DWM 2021, Tables 1, 2 and 7: mean squared errors, whose numbers did not survive in the text.

What did survive is prose; every claim of it is a cell beside what comes out here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from experiments.harness.facts import facts
from experiments.harness.jobs import Row
from experiments.harness.tables import Cell, Table, claim, interval, one, select
from experiments.harness.verdicts import above, at_least, at_most, below
from winolab.algorithm import Algorithm, Problem, Tile, direct, dwm
from winolab.ref.algorithms import winograd
from winolab.ref.algorithms.dwm import decompose
from winolab.ref.arithmetic.simulated import arithmetic

PAPER = "dwm_2021"
KERNELS = {2: (3, 5, 7, 9, 11), 3: (3, 5, 7, 9)}
# Outputs along a dimension and output channels of one simulated block; no padding inside.
OUTPUTS, CHANNELS, SEEDS = {2: 8, 3: 4}, 8, {2: 3, 3: 2}
# Half precision as a framework's fp16 tensors have it: every tensor and transform is FP16, products
# are summed in FP32.
PRECISIONS = {"fp32": "fp32", "fp16": "fp16,transform=fp16"}
# Points of Winograd's F(2, r): those of the paper's equation 8 and on, as wincnn continues them.
POINTS = "wincnn"
ALGORITHMS = ("direct", "winograd", "dwm")
HELD = 1 << 24  # elements of the windows that direct convolution holds at once
DIMENSIONS, SIZES = range(1, 7), (7, 9)


@dataclass(frozen=True)
class Block:
    """Some outputs of one layer under every algorithm and precision."""

    table: str
    ndim: int
    kernel: int
    outputs: int
    in_channels: int
    out_channels: int
    setting: str
    seed: int
    precisions: tuple[str, ...]

    @property
    def cost(self) -> float:
        """Multiply-adds of direct convolution."""
        return float(self.outputs * self.kernel) ** self.ndim * self.in_channels * self.out_channels

    @property
    def problem(self) -> Problem:
        size = self.outputs + self.kernel - 1
        return Problem.of(
            (1, *(size,) * self.ndim, self.in_channels),
            (self.out_channels, *(self.kernel,) * self.ndim, self.in_channels),
        )

    def run(self) -> list[Row]:
        """The rows, one an algorithm and precision; MSE null where outputs are not finite."""
        problem = self.problem
        rng = np.random.default_rng(self.seed)
        x, w = (rng.standard_normal(shape) for shape in (problem.x_shape, problem.w_shape))
        truth = self._direct(x, w, "fp64")
        rows = []
        for precision in self.precisions:
            for name in ALGORITHMS:
                y = self._compute(name, x, w, PRECISIONS[precision])
                finite = np.isfinite(y)
                mse = float(np.mean((y - truth) ** 2)) if finite.all() else None
                rows.append(self._row(name, precision, mse, 1 - float(finite.mean()), truth))
        return rows

    def _row(self, name: str, precision: str, mse: float | None, broken: float, truth) -> Row:
        return {
            "paper": PAPER,
            "table": self.table,
            "ndim": self.ndim,
            "kernel": self.kernel,
            "setting": self.setting,
            "seed": self.seed,
            "outputs": self.outputs,
            "in_channels": self.in_channels,
            "out_channels": self.out_channels,
            "column": f"{name} {precision}",
            "algorithm": str(self._algorithm(name)),
            "precision": PRECISIONS[precision],
            "data": "normal",
            "mse": mse,
            "not_finite": broken,
            "samples": truth.size,
            "rms_truth": math.sqrt(float(np.mean(truth**2))),
        }

    def _algorithm(self, name: str) -> Algorithm:
        if name == "winograd":
            return Algorithm("winograd", (Tile(2, self.kernel),) * self.ndim, POINTS)
        return dwm() if name == "dwm" else direct()

    def _compute(self, name: str, x, w, precision: str) -> np.ndarray:
        if name == "direct":
            return self._direct(x, w, precision)
        run = arithmetic(precision)
        engine = decompose if name == "dwm" else winograd
        return run.to_float64(engine.forward(x, w, self.problem, self._algorithm(name), run))

    def _direct(self, x, w, precision: str) -> np.ndarray:
        """One sum an output, taps first, then channels; many windows at once."""
        run = arithmetic(precision)
        axes = tuple(range(1, 1 + self.ndim))
        windows = sliding_window_view(x, (self.kernel,) * self.ndim, axes)
        windows = np.moveaxis(windows, 1 + self.ndim, -1)
        windows = windows.reshape(-1, *windows.shape[1 + self.ndim :])
        taps = run.asarray(w.reshape(len(w), -1).T)
        step = max(1, HELD // len(taps))
        y = [
            run.matmul(run.asarray(windows[at : at + step].reshape(-1, len(taps))), taps)
            for at in range(0, len(windows), step)
        ]
        y = run.to_float64(np.concatenate(y))
        return y.reshape(1, *(self.outputs,) * self.ndim, len(w))


def _layer_blocks(ndim: int, full: bool) -> list[Block]:
    return [
        Block(
            "table1" if ndim == 2 else "table2",
            ndim,
            kernel,
            OUTPUTS[ndim] * (2 if full else 1),
            row["channels"],
            CHANNELS,
            f"{row['spatial']}, {row['channels']} channels",
            seed,
            tuple(PRECISIONS),
        )
        for kernel in KERNELS[ndim]
        for row in facts(PAPER)["settings"]["rows"]
        for seed in range(SEEDS[ndim])
    ]


def _dimension_blocks(full: bool) -> list[Block]:
    first = facts(PAPER)["settings"]["seed_table7"]
    return [
        Block("table7", ndim, kernel, 2, 1, 1, "1 channel", first + more, ("fp32",))
        for kernel in SIZES
        for ndim in DIMENSIONS
        for more in range(4 if full or ndim < 5 else 1)
    ]


def _values(rows: Sequence[Row], **chosen) -> list[float]:
    return [row["mse"] for row in select(rows, **chosen) if row["mse"] is not None]


def _measured(rows: Sequence[Row]) -> list[Cell]:
    """The MSE of every layer and column, or which part of its outputs is not finite."""
    cells = []
    for where, column in dict.fromkeys((_where(row), row["column"]) for row in rows):
        mine = [row for row in rows if (_where(row), row["column"]) == (where, column)]
        broken = float(np.mean([row["not_finite"] for row in mine]))
        if broken:
            cells.append(Cell(where, f"{column}: part not finite", None, broken, broken, broken))
        else:
            cells.append(Cell(where, column, None, *interval([row["mse"] for row in mine])))
    return cells


def _where(row: Row) -> str:
    return f"{row['ndim']}-D, {row['kernel']} taps, {row['setting']}"


def _layer_cells(rows: Sequence[Row]) -> list[Cell]:
    ndim = rows[0]["ndim"]
    return [*_measured(rows), *(_claims2d(rows) if ndim == 2 else _claims3d(rows))]


def _ratio(rows: Sequence[Row], above: str, below: str, **chosen) -> float:
    """Mean MSE of one column over that of another."""
    pair = [_values(rows, column=column, **chosen) for column in (above, below)]
    return float(np.mean(pair[0]) / np.mean(pair[1]))


def _both(rows: Sequence[Row]) -> list[Cell]:
    """Claims made of two and of three dimensions alike."""
    kernels = sorted({row["kernel"] for row in rows})
    largest = max(_ratio(rows, "dwm fp32", "direct fp32", kernel=k) for k in kernels)
    broken = max(row["not_finite"] for row in select(rows, column="dwm fp16"))
    top, error = max(_values(rows, column="dwm fp32")), facts(PAPER)["claims"]["error"]
    growths = [
        _relative(rows, "winograd fp32", kernel=b) / _relative(rows, "winograd fp32", kernel=a)
        for a, b in pairwise(kernels)
    ]
    grown = {
        name: _relative(rows, f"{name} fp32", kernel=kernels[-1])
        / _relative(rows, f"{name} fp32", kernel=kernels[0])
        for name in ("dwm", "direct")
    }
    text = "DWM FP32's relative error is not amplified by larger kernels: its growth over direct's"
    return [
        *_better(rows, kernels[1:]),
        claim("Winograd FP32 loses more with every kernel: least growth", 1, min(growths),
               above(1)),
        claim(text, 1, grown["dwm"] / grown["direct"], at_most(1)),
        one(f"{rows[0]['ndim']}-D", f"DWM FP32's relative error, {kernels[-1]} taps over 3", None,
            grown["dwm"]),
        claim("DWM FP32 is no worse than FP32: its MSE over direct's", 1, largest, at_most(1)),
        claim("DWM FP16 does not overflow: part not finite", 0, broken, at_most(0)),
        claim("DWM FP32 keeps the error under this: largest MSE", error, top, below(error)),
    ]  # fmt: skip


def _better(rows: Sequence[Row], kernels: Sequence[int]) -> list[Cell]:
    """Whether DWM loses less than Winograd in every layer of the kernels, outputs that are not
    finite being the worst. With three taps they are one algorithm: "almost in all situations"."""
    cells = []
    for precision in PRECISIONS:
        some = [row for row in rows if row["kernel"] in kernels]
        least = min(
            _loss(some, f"winograd {precision}", kernel, setting)
            / _loss(some, f"dwm {precision}", kernel, setting)
            for kernel, setting in dict.fromkeys((r["kernel"], r["setting"]) for r in some)
        )
        name = precision.upper()
        text = f"DWM {name} loses less than Winograd {name}, kernels above 3"
        cells.append(claim(text, 1, least, above(1)))
    return cells


def _loss(rows: Sequence[Row], column: str, kernel: int, setting: str) -> float:
    """The mean MSE of a layer; infinite where an output is not finite."""
    mine = select(rows, column=column, kernel=kernel, setting=setting)
    return float(np.mean([math.inf if r["mse"] is None else r["mse"] for r in mine]))


def _claims2d(rows: Sequence[Row]) -> list[Cell]:
    cells = _both(rows)
    for kernel in (7, 9, 11):
        single, half = (
            _ratio(rows, "winograd fp32", f"direct {precision}", kernel=kernel)
            for precision in ("fp32", "fp16")
        )
        # "Approaches": nearer to FP16's than to FP32's, as ratios.
        nearness = abs(math.log(single)) / abs(math.log(half))
        text = f"Winograd FP32 approaches FP16, {kernel} taps: its distance to FP32 over that to it"
        cells.append(claim(text, 1, nearness, above(1)))
    return cells


def _claims3d(rows: Sequence[Row]) -> list[Cell]:
    cells = _both(rows)
    for kernel in KERNELS[3]:
        broken = min(
            row["not_finite"] for row in select(rows, column="winograd fp16", kernel=kernel)
        )
        text = f"Winograd FP16 is all NaN: part not finite, {kernel} taps"
        cells.append(claim(text, 1, broken, at_least(1)))
    better = [_ratio(rows, "dwm fp32", "direct fp32", kernel=k) for k in sorted(KERNELS[3])]
    share = float(np.mean([ratio < 1 for ratio in better]))
    text = "DWM FP32 loses less than FP32 in most convolutions: share of kernels"
    cells.append(claim(text, 1, share, above(0.5)))
    return cells


def _dimension_cells(rows: Sequence[Row]) -> list[Cell]:
    cells = _measured(rows)
    least = facts(PAPER)["claims"]["winograd_over_dwm_6d"]
    first = facts(PAPER)["settings"]["seed_table7"]
    for kernel in SIZES:
        over = [
            _ratio(rows, "winograd fp32", "dwm fp32", kernel=kernel, ndim=d) for d in DIMENSIONS
        ]
        # An order of magnitude, as the paper writes E-07.
        text = f"6-D: MSE of Winograd over DWM's, {kernel} taps"
        cells.append(claim(text, least, over[-1], (least, 10 * least)))
        worse = {
            (d, seed): _ratio(rows, "winograd fp32", "dwm fp32", kernel=kernel, ndim=d, seed=seed)
            for d, seed in dict.fromkeys((r["ndim"], r["seed"]) for r in rows)
        }
        own = min(ratio for (_, seed), ratio in worse.items() if seed == first)
        text = f"Winograd always performs worse than DWM, {kernel} taps: least ratio of MSE"
        cells.append(claim(text, 1, own, above(1), f"of the paper's seed, {first}"))
        cells.append(one(f"{kernel} taps", "least ratio of MSE, Winograd over DWM, of every seed",
                         None, min(worse.values())))  # fmt: skip
        lost = [_relative(rows, "winograd fp32", kernel=kernel, ndim=d) for d in DIMENSIONS]
        growth = min(b / a for a, b in pairwise(lost))
        text = f"Winograd worsens with every dimension, {kernel} taps: least growth"
        cells.append(claim(text, 1, growth, above(1)))
        # "Stable": from one dimension to six it grows no more than direct convolution's does.
        grown = [_growth(rows, f"{name} fp32", kernel) for name in ("dwm", "direct")]
        text = f"DWM's relative error is stable, {kernel} taps: its growth over that of direct's"
        cells.append(claim(text, 1, grown[0] / grown[1], at_most(1)))
    return cells


def _growth(rows: Sequence[Row], column: str, kernel: int) -> float:
    """Relative RMS in six dimensions over that in one, means over seeds."""
    one, six = (
        _relative(rows, column, kernel=kernel, ndim=ndim)
        for ndim in (DIMENSIONS[0], DIMENSIONS[-1])
    )
    return six / one


def _relative(rows: Sequence[Row], column: str, **chosen) -> float:
    """Mean relative RMS of a column; infinite where outputs are not finite."""
    mine = select(rows, column=column, **chosen)
    lost = [math.inf if row["mse"] is None else row["mse"] for row in mine]
    truth = [row["rms_truth"] for row in mine]
    return float(np.mean(np.sqrt(lost) / truth))


CLAIMS = "a claim of the paper's prose holds; the table's numbers did not survive"
TABLE1 = Table(
    PAPER, "table1", "MSE of 2-D convolutions", lambda full: _layer_blocks(2, full), _layer_cells,
    CLAIMS, long=True, values=("mse", "not_finite"),
)  # fmt: skip
TABLE2 = Table(
    PAPER, "table2", "MSE of 3-D convolutions", lambda full: _layer_blocks(3, full), _layer_cells,
    CLAIMS, long=True, values=("mse", "not_finite"),
)  # fmt: skip
TABLE7 = Table(
    PAPER, "table7", "MSE from 1-D to 6-D", _dimension_blocks, _dimension_cells, CLAIMS,
    long=True, values=("mse", "not_finite"),
)  # fmt: skip
