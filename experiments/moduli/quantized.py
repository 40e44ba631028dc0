"""INT8 and FP8: errors of Winograd with quantised operands beside direct convolution's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from experiments.harness.jobs import Row
from experiments.harness.tables import Cell, interval
from experiments.harness.verdicts import Range, at_most, equal
from winolab.algorithm import Problem, parse_algorithm
from winolab.measure import filled
from winolab.ref.algorithms import convolution, winograd
from winolab.ref.arithmetic.simulated import arithmetic

PAPER, TABLE = "moduli", "quantized"
SEEDS, CHANNELS, FILTERS, OUTPUTS = 5, 64, 16, 12
# Uniform, after ReLU, and heavy-tailed inputs: normal times 2**U[-20, 0], of kurtosis 42.
DATA = ("u11", "relu", "wide")
INT8 = ("int8:tensor", "int8:channel", "int8:state", "int8:state_channel", "int8:state:pow2")
PRECISIONS = (
    *INT8, "int10:state", "fp8_e4m3:tensor", "fp8_e4m3:state", "fp8_e5m2:tensor",
    "fp8_e5m2:state", "rns:tensor", "fp16",
)  # fmt: skip
FOUR, SIX = "winograd:4x4:3x3", "winograd:6x6:3x3@0,3/4,-3/4,4/3,-4/3,inf,x^2+1"
EIGHT = "winograd:8x8:3x3@0,3/4,-3/4,4/3,-4/3,inf,x^2+6/7*x+1,x^2-6/7*x+1"
WIDE_FOUR = "winograd:4x4:5x5"
WIDE_SIX = "winograd:6x6:5x5@0,3/4,-3/4,4/3,-4/3,inf,x^2+x+1,x^2-x+1"
ALGORITHMS = {
    "direct, 3×3": "direct",
    "F(2×2,3×3)": "winograd:2x2:3x3",
    "F(4×4,3×3)": FOUR,
    "F(6×6,3×3), x²+1": SIX,
    "F(8×8,3×3), x²±6/7x+1": EIGHT,
    "F(6×6,3×3), points": "winograd:6x6:3x3",
    "F(4×4,5×5), points": WIDE_FOUR,
    "F(6×6,5×5), x²±x+1": WIDE_SIX,
}
# Equal saving: with factors to lose less than with points, wherever scales are a state's.
PAIRS = {
    "F(6×6,3×3), x²+1": "F(4×4,3×3)",
    "F(8×8,3×3), x²±6/7x+1": "F(6×6,3×3), x²+1",
    "F(6×6,5×5), x²±x+1": "F(4×4,5×5), points",
}
RULE = (
    "aims of our own: sums by residues are direct INT8's error exactly, and with scales per state "
    "an algorithm with more quadratic factors loses less at the same saving"
)


@dataclass(frozen=True)
class Measured:
    """One algorithm in one precision on one kind of data: an error a seed."""

    where: str
    precision: str
    data: str

    cost = 1.0

    def run(self) -> list[Row]:
        algorithm = parse_algorithm(ALGORITHMS[self.where])
        taps = algorithm.tiles[0].r if algorithm.tiles else 3
        run = arithmetic(self.precision)
        size = OUTPUTS + taps - 1
        problem = Problem.of((1, size, size, CHANNELS), (FILTERS, taps, taps, CHANNELS))
        errors = []
        for seed in range(SEEDS):
            rng = np.random.default_rng(seed)
            x = filled(rng, self.data, problem.x_shape)
            w = filled(rng, "u11" if self.data == "u11" else "normal", problem.w_shape)
            exact = convolution.forward(x, w, problem)
            if self.precision == "fp16":
                x, w = x.astype(np.float16), w.astype(np.float16)
            error = winograd.forward(x, w, problem, algorithm, run) - exact
            errors.append(float(np.sqrt((error**2).mean() / (exact**2).mean())))
        labels = {"paper": PAPER, "table": TABLE, "where": self.where, "data": self.data}
        labels |= {"algorithm": ALGORITHMS[self.where], "channels": CHANNELS}
        return [{**labels, "column": f"{self.precision} {self.data}", "ours": errors}]


def jobs(full: bool) -> list[Measured]:
    """Every algorithm in every precision on every kind of data."""
    return [Measured(w, p, d) for w in ALGORITHMS for p in PRECISIONS for d in DATA]


def cells(rows: Sequence[Row]) -> list[Cell]:
    """A cell a row, beside what it is to be no worse than."""
    known = {(row["where"], row["column"]): float(np.mean(row["ours"])) for row in rows}
    found = []
    for row in rows:
        aim, accepted = _aim(row["where"], row["column"], known)
        ours, low, high = interval(row["ours"])
        found.append(
            Cell(row["where"], row["column"], None, ours, low, high, accepted, aim=aim,
                 note=row["algorithm"])
        )  # fmt: skip
    return found


def _aim(
    where: str, column: str, known: dict[tuple[str, str], float]
) -> tuple[float | None, Range | None]:
    precision, _, data = column.partition(" ")
    if precision == "rns:tensor" and "3×3" in where:
        same = known["direct, 3×3", f"int8:tensor {data}"]
        return same, equal(same)
    if where in PAIRS and ":state" in precision:
        other = known[PAIRS[where], column]
        return other, at_most(other)
    return None, None
