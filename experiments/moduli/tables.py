"""Moduli beyond points: states, saving, noise gain and errors, beside minimal algorithms."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from experiments.harness.jobs import Row
from experiments.harness.tables import Cell, Table, interval
from experiments.harness.verdicts import Range, at_most, equal, near, within_factor
from experiments.moduli import plane, quantized
from winolab.algorithm import Algorithm, Problem, parse_algorithm
from winolab.ref.algorithms import convolution, winograd
from winolab.ref.arithmetic.simulated import arithmetic
from winolab.ref.error.metrics import noise_gain

TITLE = "Moduli"
PAPER = "moduli"
SEEDS, CHANNELS, FILTERS = 10, 64, 16
FORMATS = ("fp32", "fp16")  # of the data; FP16's products are summed in FP32
DIGITS, ERRORS = 0.005, 1.15  # of three digits; of errors, whose seeds and shapes are others

# Karatsuba's products, their inverse in the data's transform: what the aims were computed with.
ONE, PLUS, MINUS = "x^2+1", "x^2+x+1", "x^2-x+1"
KARATSUBA = "[0:1:inf]BT"
SIX, SEVEN = "0,3/4,-3/4,4/3,-4/3,inf", "0,3/4,-3/4,5/4,-5/4,inf"
EIGHT = "0,1/2,-1/2,3/4,-3/4,5/4,-5/4,2,-2,inf"
WIDE = "1/3,-1/3,1,-1,8/5,-8/5,inf"


@dataclass(frozen=True)
class Line:
    """An algorithm, and what was known of it before: states, saving, gain, errors by format.

    What is not a number was not known; of FP16 it is the range of what was.
    """

    where: str
    algorithm: str
    states: int
    saving: float
    gain: float = math.nan
    fp32: float = math.nan
    fp16: Range | None = None

    def aims(self) -> Iterator[tuple[str, float, Range]]:
        """What was known, by column, and where ours is the same."""
        yield "states", self.states, equal(self.states)
        yield "saving", self.saving, near(self.saving, DIGITS)
        if not math.isnan(self.gain):
            yield "gain", self.gain, near(self.gain, DIGITS)
        if not math.isnan(self.fp32):
            yield "fp32", self.fp32, within_factor(self.fp32, ERRORS)
        if self.fp16:
            low, high = self.fp16
            yield "fp16", high, (low / ERRORS, high * ERRORS)


def _same(value: float) -> Range:
    return value, value


def _factors(points: str, *factors: str) -> str:
    return ",".join([points, *(factor + KARATSUBA for factor in factors)])


# The best minimal sets of 2026, by their number.
MINIMAL = {
    6: "0,5/8,-5/8,3/2,-3/2,inf",
    8: "0,1/2,-1/2,1,-1,2,-2,inf",
    10: "0,2/5,-2/5,4/5,-4/5,5/4,-5/4,7/3,-7/3,inf",
    16: "0,1,-1,1/2,-1/2,2,-2,1/4,-1/4,4,-4,3/4,-3/4,5/4,-5/4,inf",
}
NINE, TWELVE = _factors(SIX, ONE), _factors(SIX, PLUS, MINUS)
FIFTEEN, NINETEEN = (_factors(points, ONE, PLUS, MINUS) for points in (SEVEN, EIGHT))
LINES = (
    Line("Γ6(4,3), points", f"gamma:6:4:3@{MINIMAL[6]}", 6, 2.0, 4.78, 3.7e-7, _same(6.3e-4)),
    Line("F(6,3)", f"gamma:9:6:3@{NINE}", 9, 2.0, 2.92, 2.7e-7, _same(4.6e-4)),
    Line("Γ8(4,5), points", f"gamma:8:4:5@{MINIMAL[8]}", 8, 2.5, 19.1, 7.1e-7, _same(1.2e-3)),
    Line("F(6,5)", f"gamma:12:6:5@{TWELVE}", 12, 2.5, 3.25, 3.2e-7, _same(5.2e-4)),
    Line("Γ10(4,7), points", f"gamma:10:4:7@{MINIMAL[10]}", 10, 2.8, 101, 1.7e-6, _same(2.9e-3)),
    Line("F(6,7)", f"gamma:15:6:7@{FIFTEEN}", 15, 2.8, 3.52, 3.3e-7, _same(5.4e-4)),
    Line("Γ16(8,9), points", f"gamma:16:8:9@{MINIMAL[16]}", 16, 4.5, 25_700, 2.9e-5, _same(4.6e-2)),
    Line("F(8,9)", f"gamma:19:8:9@{NINETEEN}", 19, 3.79, 12.4, 5.9e-7, _same(1.0e-3)),
)
NESTED = (
    Line("F(4×4,3×3), points", f"winograd:4x4:3x3@{MINIMAL[6]}", 36, 4.0, fp16=(1.3e-3, 1.5e-3)),
    Line("F(6×6,3×3)", f"winograd:6x6:3x3@{NINE}", 81, 4.0, fp16=(8.2e-4, 8.6e-4)),
    Line("F(7×7,3×3)", f"winograd:7x7:3x3@{_factors(WIDE, ONE)}", 100, 4.41, fp16=_same(1.5e-3)),
    Line("F(4×4,5×5), points", f"winograd:4x4:5x5@{MINIMAL[8]}", 64, 6.25, fp16=(5.6e-3, 6.0e-3)),
    Line("F(6×6,5×5)", f"winograd:6x6:5x5@{TWELVE}", 144, 6.25, fp16=_same(9.1e-4)),
)
TOLD = {"lines": LINES, "nested": NESTED}


def own(line: Line) -> str:
    """The algorithm with the products of its rings that have the least noise gain."""
    return line.algorithm.replace(KARATSUBA, "")


@dataclass(frozen=True)
class Measured:
    """A line's rows: counted, and simulated on zero-mean data over 64 channels."""

    table: str
    where: str
    algorithm: str

    @property
    def cost(self) -> float:
        tiles = parse_algorithm(self.algorithm).tiles
        return float(math.prod(t.alpha * t.n for t in tiles))

    def run(self) -> list[Row]:
        algorithm = parse_algorithm(self.algorithm)
        states = math.prod(t.alpha for t in algorithm.tiles)
        saved = math.prod(t.n * t.r for t in algorithm.tiles) / states
        values = {"states": [states], "saving": [saved], "gain": [noise_gain(algorithm)]}
        values |= {name: [_error(algorithm, name, s) for s in range(SEEDS)] for name in FORMATS}
        labels = {"paper": PAPER, "table": self.table, "where": self.where}
        labels |= {"algorithm": self.algorithm, "channels": CHANNELS, "data": "u11"}
        return [
            {**labels, "column": column, "ours": [float(v) for v in some]}
            for column, some in values.items()
        ]


def _error(algorithm: Algorithm, precision: str, seed: int) -> float:
    """Relative RMS error of some tiles, of data in the format."""
    rng = np.random.default_rng(seed)
    sizes = [(8 if len(algorithm.tiles) == 1 else 4) * t.n + t.r - 1 for t in algorithm.tiles]
    taps = [t.r for t in algorithm.tiles]
    problem = Problem.of((1, *sizes, CHANNELS), (FILTERS, *taps, CHANNELS))
    run, kind = arithmetic(precision), "float16" if precision == "fp16" else "float32"
    x, w = (rng.uniform(-1, 1, s).astype(kind) for s in (problem.x_shape, problem.w_shape))
    exact = convolution.forward(x, w, problem)
    error = winograd.forward(x, w, problem, algorithm, run) - exact
    return float(np.sqrt((error**2).mean() / (exact**2).mean()))


def jobs(table: str, full: bool) -> list[Measured]:
    """Each line twice where its rings have products to choose."""
    found = []
    for line in TOLD[table]:
        found.append(Measured(table, line.where, line.algorithm))
        if own(line) != line.algorithm:
            found.append(Measured(table, ours_of(line), own(line)))
    return found


def ours_of(line: Line) -> str:
    """What the line with products of least noise is called."""
    return f"{line.where}, least noise"


def cells(table: str, rows: Sequence[Row]) -> list[Cell]:
    """A cell a row, beside what was known of its line; with other products it is to be no worse."""
    aims: dict[tuple[str, str], tuple[float, Range]] = {}
    for line in TOLD[table]:
        for column, known, accepted in line.aims():
            aims[line.where, column] = known, accepted
            if column == "gain":
                aims[ours_of(line), column] = known, at_most(known)
    found = []
    for row in rows:
        aim, accepted = aims.get((row["where"], row["column"]), (None, None))
        ours, low, high = interval(row["ours"])
        found.append(
            Cell(row["where"], row["column"], None, ours, low, high, accepted, aim=aim,
                 note=row["algorithm"])
        )  # fmt: skip
    return found


RULE = (
    "aims of our own, known before from other programs: equal states, saving and gain to three "
    "digits, errors within 15 %; with products of least noise the gain is no larger"
)
TABLES = (
    *(
        Table(PAPER, name, title, partial(jobs, name), partial(cells, name), RULE)
        for name, title in (
            ("lines", "Algorithms in one dimension with quadratic factors, and minimal ones"),
            ("nested", "Nested algorithms with quadratic factors, and minimal ones"),
        )
    ),
    Table(
        PAPER, quantized.TABLE, "INT8 and FP8, simulated: errors by scales, data and algorithm",
        quantized.jobs, quantized.cells, quantized.RULE,
    ),
    Table(
        PAPER, plane.TABLE, "The frontier of nested algorithms: error against saving, by format",
        plane.jobs, plane.cells, plane.RULE,
    ),
)  # fmt: skip
