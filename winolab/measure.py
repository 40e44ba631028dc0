"""One accuracy case: its data, its convolution in a simulated arithmetic, its errors as a row.

A case is flat text and numbers, so that a row of a table holds it and it can be run again:
``Case.of_row(row).measure()`` gives the same numbers wherever and in whatever order it runs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from decimal import ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from winolab.algorithm import Algorithm, Problem, direct, parse_algorithm
from winolab.arguments import shapes
from winolab.arguments.values import counted
from winolab.points import shortened
from winolab.ref.algebra.transforms import Programs
from winolab.ref.algorithms import convolution, sample, winograd
from winolab.ref.algorithms.winograd import ProgramsOf
from winolab.ref.arithmetic.exact import MOST_BITS
from winolab.ref.arithmetic.formats import FORMATS
from winolab.ref.arithmetic.simulated import Arithmetic, Float, Mp, arithmetic, summed
from winolab.ref.error.bounds import Magnitude, bound
from winolab.ref.error.expected import expected
from winolab.ref.error.metrics import compare
from winolab.ref.error.predict import Moments, Prediction, predict
from winolab.ref.error.proven import proven
from winolab.ref.error.roundings import DIRECTIONS
from winolab.ref.kinds.registry import ENGINES
from winolab.ref.quantized import bounds as quantized
from winolab.ref.quantized.residues import Residues
from winolab.ref.quantized.scales import Quantized, Single

FULL = "full"
# Fields that a row may lack, because rows were written before cases had them.
LATER = ("direction", "stride", "dilation", "groups")
EXACT = "exact"
DIGITS = 50  # of typed constants, at most: far beyond any arithmetic that they could be told in
# What `--data` accepts: the inputs' distribution, and the filters'.
DATA = {
    "u12": "inputs and filters uniform on [1, 2]",
    "u01": "inputs and filters uniform on [0, 1]",
    "u11": "inputs and filters uniform on [-1, 1]",
    "normal": "inputs and filters standard normal",
    "relu": "inputs after ReLU (half of them 0), filters standard normal",
    "wide": "inputs, or dy, normal times 2**U[-20, 0], as gradients are; the others normal",
}
# The operands' shapes, and the result's.
OPERANDS = {
    "forward": ("x_shape", "w_shape"),
    "backward_data": ("y_shape", "w_shape"),
    "backward_filter": ("x_shape", "y_shape"),
}
RESULTS = {"forward": "y_shape", "backward_data": "x_shape", "backward_filter": "w_shape"}
PART = 1 << 26  # multiply-adds between two steps of a progress bar; bounds the memory too
# Elements from which the moments of a tensor are taken: enough for three digits.
MOMENTS = 1 << 20
# Computed outputs and their oracle as carriers, their bounds, and the part of the case they are.
Piece = tuple[np.ndarray, np.ndarray, np.ndarray, float]


@dataclass(frozen=True)
class Case:
    """A convolution, the arithmetic it is simulated in, its data and how many outputs are computed.

    ``input`` (N, *spatial, IC) and ``filter`` (OC, *taps) are texts such as "128x96x96x64" and
    "64x3x3"; ``padding`` is "1", "1x2", "0:1x2", "same" or "valid", ``stride`` and ``dilation``
    are "1" or "1x2"; ``sample`` is about how many outputs or "full", which more than one of
    ``groups`` need; ``constants`` is "exact" or the significant digits that hand-typed decimals
    keep, as in the kernels published with α = 16.

    Raises ValueError where a text does not parse or the parts do not fit.
    """

    algorithm: str
    input: str
    filter: str
    padding: str = "0"
    precision: str = "fp32"
    data: str = "u11"
    constants: str = EXACT
    sample: str = "4096"
    seed: int = 0
    direction: str = "forward"
    stride: str = "1"
    dilation: str = "1"
    groups: int = 1
    MAGNITUDE = Magnitude  # what computes bounds

    @property
    def _outputs(self) -> int:
        """How many outputs are sampled, by a text of fewer than 1000 digits; 0 of another text."""
        digits = self.sample.isascii() and self.sample.isdecimal() and len(self.sample) < 1000
        return int(self.sample) if digits else 0

    def __post_init__(self) -> None:
        if self.data not in DATA:
            raise ValueError(f"unknown data {self.data!r}; expected one of {', '.join(DATA)}")
        if self.direction not in DIRECTIONS:
            raise ValueError(
                f"unknown direction {self.direction!r}; expected one of {', '.join(DIRECTIONS)}"
            )
        if self.sample != FULL and not self._outputs:
            raise ValueError(
                f"sample {shortened(self.sample)!r}; expected a positive number of outputs or "
                f"{FULL!r}"
            )
        if self.constants != EXACT and not 0 < (counted(self.constants) or 0) <= DIGITS:
            raise ValueError(
                f"constants {shortened(self.constants)!r}; expected {EXACT!r} or a number of "
                f"digits, 1 to {DIGITS}"
            )
        if self.seed < 0:
            raise ValueError(f"seed {self.seed}; expected 0 or more")
        for name, value in (
            ("algorithm", str(self._algorithm)),
            ("precision", arithmetic(self.precision).name),
            ("input", "x".join(map(str, self.problem.x_shape))),
            ("filter", "x".join(map(str, self.problem.w_shape[:-1]))),
            ("stride", _same(self.problem.stride)),
            ("dilation", _same(self.problem.dilation)),
        ):
            object.__setattr__(self, name, value)
        if self.groups != 1 and self.sample != FULL:
            raise ValueError(
                f"groups = {self.groups} and sample {self.sample!r}; expected sample {FULL!r}, "
                "because a sample is of one group"
            )
        if isinstance(self._arithmetic, Single) and self.sample != FULL:
            raise ValueError(f"{self.precision} has scales of all data; expected sample {FULL!r}")
        if self._tiled and self.direction == "forward":
            winograd.regions(self.problem, self._algorithm)
        elif (self.sample, self.constants) != (FULL, EXACT):
            if self.problem.macs:
                self._try_on_nothing()
            raise ValueError(
                f"{self.algorithm} {self.direction} is computed whole and with exact constants; "
                f"use sample {FULL!r}"
            )

    def _try_on_nothing(self) -> None:
        """Raise ValueError where no sample helps: what the engine would, of an empty batch."""
        problem = replace(self.problem, batch=0)
        a, b = (np.zeros(getattr(problem, shape)) for shape in OPERANDS[self.direction])
        engine = ENGINES[self._algorithm.kind]
        getattr(engine, self.direction)(a, b, problem, self._algorithm, self._arithmetic)

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Case:
        """The case that a row of a table holds. Raises KeyError, ValueError where it holds none."""
        names = {field.name for field in fields(cls)}
        return cls(**{name: row[name] for name in names if name in row or name not in LATER})

    @cached_property
    def problem(self) -> Problem:
        """The shapes; IC of the filter is the input's over the groups."""
        return shapes.problem(
            self.input,
            self.filter,
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
            groups=self.groups,
        )

    @property
    def _algorithm(self) -> Algorithm:
        return parse_algorithm(self.algorithm)

    @property
    def _arithmetic(self) -> Arithmetic:
        return summed(arithmetic(self.precision), self._algorithm)

    @property
    def _tiled(self) -> bool:
        """Whether the tiled engine computes it, which has samples and typed constants."""
        return ENGINES[self._algorithm.kind].TILED

    @property
    def programs(self) -> ProgramsOf:
        """The transforms' programs, with their constants as the case has them."""
        exact = winograd.programs_of(self._algorithm)
        if self.constants == EXACT:
            return exact
        digits = int(self.constants)

        def typed(q: Fraction) -> Fraction:
            return significant(q, digits)

        return lambda tile: Programs(
            *(getattr(exact(tile), name).with_constants(typed) for name in ("AT", "G", "BT"))
        )

    @property
    def _simulated(self) -> bool:
        """Whether FP64 is an oracle for it: simulated, in at most 32 bits."""
        run = self._arithmetic
        narrow = isinstance(run, Float) and run.accumulate.precision <= 24
        return narrow or isinstance(run, Single)

    @property
    def oracle(self) -> Arithmetic:
        """The arithmetic of the exact values: FP64, 200 bits or more, or exact as the case is."""
        run = self._arithmetic
        if isinstance(run, Mp):
            return Mp(min(max(200, 2 * run.bits), MOST_BITS))
        return run if run.exact else arithmetic("fp64" if self._simulated else "mp:200")

    def _errors(self, y: np.ndarray, reference: np.ndarray) -> np.ndarray:
        """y − reference in the oracle's arithmetic, which may tell more than FP64; then as FP64."""
        run, oracle = self._arithmetic, self.oracle
        if isinstance(run, Float):
            y = run.to_float64(y)
        with np.errstate(all="ignore"):
            return oracle.to_float64(oracle.sub(oracle.asarray(y), reference))

    def _bound(
        self, x: np.ndarray, w: np.ndarray, problem: Problem, part: sample.Sample | None = None
    ) -> np.ndarray:
        """Bounds of the outputs; tensors() has the storage format, so storing rounds no more."""
        run = self._arithmetic
        how = (x, w, problem, self._algorithm)
        if isinstance(run, Quantized | Residues) and self._tiled:
            return quantized.bound(*how, run, direction=self.direction, programs=self.programs)
        if isinstance(run, Float) and not (run.scale and run.filters):  # which stores scaled data
            run = replace(run, storage=FORMATS["fp32"])
        if not self._tiled or self.direction != "forward":
            return proven(*how, run, direction=self.direction)
        return bound(*how, run, programs=self.programs, sample=part, magnitude=self.MAGNITUDE())

    def _prediction(self, x: np.ndarray, w: np.ndarray) -> Prediction:
        """What the model expects of such data, whose moments some of the elements tell."""
        if isinstance(self._arithmetic, Single):
            return Prediction(math.nan, math.nan, math.nan, {})
        if not x.size:
            return Prediction(0.0, 0.0, 0.0, {})
        how = (self.problem, self._algorithm, self._arithmetic)
        if not self._tiled:
            return expected(x, w, *how, direction=self.direction)
        first, second = (
            replace(Moments.measured(v.reshape(-1)[:MOMENTS]), peak=float(max(v.max(), -v.min())))
            for v in (x, w)
        )
        return predict(first, second, *how, direction=self.direction, programs=self.programs)

    def tensors(self) -> tuple[np.ndarray, np.ndarray]:
        """The direction's operands: float32 values of the storage format.

        Algorithm and sample leave them alone. Data "relu" are x, data "wide" x or dy.
        """
        streams = np.random.SeedSequence(self.seed).spawn(2)
        x_rng, w_rng = map(np.random.default_rng, streams)
        first, second = OPERANDS[self.direction]
        kinds = [self.data, "normal" if self.data in ("relu", "wide") else self.data]
        if (self.direction, self.data) == ("backward_filter", "wide"):
            kinds.reverse()
        x = filled(x_rng, kinds[0], getattr(self.problem, first))
        w = filled(w_rng, kinds[1], getattr(self.problem, second))
        run = self._arithmetic
        if isinstance(run, Float):
            for block in (*x, w):
                block[...] = run.to_float64(run.asarray(block))
        return x, w

    def measure(self, advance: Callable[[float], None] = lambda fraction: None) -> dict[str, Any]:
        """What is ``measured`` of the tensors that the case draws."""
        return self.measured(*self.tensors(), advance)

    @np.errstate(all="ignore")
    def measured(
        self,
        x: np.ndarray,
        w: np.ndarray,
        advance: Callable[[float], None] = lambda fraction: None,
    ) -> dict[str, Any]:
        """Compute the outputs and their oracle; the case's fields and its metrics as a flat row.

        ``infinite`` outputs are not finite though their exact values are; ``range`` says that
        there are some or that some are predicted ("overflow"), or that most of the predicted error
        is that of numbers too small for a format ("underflow"); otherwise "".
        ``advance`` is called with the part of the case that was done since the last call.
        """
        started = time.perf_counter()
        computed = self._images if self.sample == FULL else self._tiles
        if self.direction == "backward_filter" or isinstance(self._arithmetic, Single):
            computed = self._whole
        got, expected, bounds, errors = ([np.empty(0)] for _ in range(4))
        for y, reference, limit, part in computed(x, w):
            got.append(self._arithmetic.to_float64(y).ravel())
            expected.append(self.oracle.to_float64(reference).ravel())
            bounds.append(limit.ravel())
            errors.append(self._errors(y, reference).ravel())
            advance(part)
        y, reference, limit, error = map(np.concatenate, (got, expected, bounds, errors))
        outputs = getattr(self.problem, RESULTS[self.direction])
        found = compare(y, reference, limit, error).row()
        expectation = self._prediction(x, w)
        infinite = int((np.isfinite(reference) & ~np.isfinite(y)).sum())
        return {
            **asdict(self),
            "samples": found.pop("count"),
            "bound_ratio": found.pop("worst_ratio"),
            "bound": float(limit.max(initial=0.0)),
            "prediction": expectation.relative_rms,
            "predicted_mare": expectation.mare,
            "range": "overflow" if infinite else expectation.range,
            "infinite": infinite,
            **found,
            "multiply_adds": y.size * (self.problem.macs // max(1, math.prod(outputs))),
            "seconds": time.perf_counter() - started,
        }

    def _images(self, x: np.ndarray, w: np.ndarray) -> Iterator[Piece]:
        """All outputs, an image at a time."""
        image = replace(self.problem, batch=1)
        for i in range(len(x)):
            yield *self._results(x[i : i + 1], w, image), 1 / len(x)

    def _whole(self, a: np.ndarray, b: np.ndarray) -> Iterator[Piece]:
        """All outputs at once."""
        yield *self._results(a, b, self.problem), 1.0

    def _results(
        self, a: np.ndarray, b: np.ndarray, problem: Problem
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Computed outputs, their oracle and their bounds."""
        engine = ENGINES[self._algorithm.kind]
        run = (a, b, problem, self._algorithm, self._arithmetic)
        if self._tiled and self.direction == "forward":
            y = winograd.forward(*run, self.programs)
        else:
            y = getattr(engine, self.direction)(*run)
        return y, self._reference(a, b, problem), self._bound(a, b, problem)

    def _reference(self, a: np.ndarray, b: np.ndarray, problem: Problem) -> np.ndarray:
        """The oracle of the results."""
        if self._simulated:
            return getattr(convolution, self.direction)(a, b, problem)
        return getattr(winograd, self.direction)(a, b, problem, direct(), self.oracle)

    def _tiles(self, x: np.ndarray, w: np.ndarray) -> Iterator[Piece]:
        """The sample's outputs, some tiles at a time."""
        drawn = sample.draw(self.problem, self._algorithm, self._outputs, self.seed)
        parts = list(_parts(self.problem, drawn, PART if self._simulated else PART >> 3))
        for part in parts:
            y, where = sample.forward(
                x, w, self.problem, self._algorithm, self._arithmetic, part, self.programs
            )
            reference = sample.at_positions(x, w, self.problem, where, part.channels, self.oracle)
            limit = self._bound(x, w, self.problem, part)
            yield y, reference, limit, 1 / len(parts)


def significant(q: Fraction, digits: int) -> Fraction:
    """q as typed in decimal with so many significant digits, ties to even."""
    context = Context(prec=digits, rounding=ROUND_HALF_EVEN)
    return Fraction(context.divide(Decimal(q.numerator), Decimal(q.denominator)))


def _parts(problem: Problem, drawn: sample.Sample, macs: int) -> Iterator[sample.Sample]:
    """The sample in parts of about ``macs`` multiply-adds of direct convolution."""
    taps = math.prod(problem.filter) * problem.in_channels * len(drawn.channels)
    for box, ids in drawn.tiles:
        outputs = math.prod(s.tile.n for s in box.segments)
        step = max(1, macs // max(1, outputs * taps))
        for first in range(0, len(ids), step):
            yield replace(drawn, tiles=((box, ids[first : first + step]),))


def filled(rng: np.random.Generator, data: str, shape: tuple[int, ...]) -> np.ndarray:
    """A float32 array of the named distribution (DATA)."""
    if data in ("u12", "u01", "u11"):
        x = rng.random(shape, dtype=np.float32)
        if data == "u12":
            x += 1
        elif data == "u11":
            x = 2 * x - 1
        return x
    x = rng.standard_normal(shape, dtype=np.float32)
    if data == "relu":
        np.maximum(x, 0, out=x)
    elif data == "wide":
        x *= np.exp2(-20 * rng.random(shape, dtype=np.float32))
    return x


def _same(values: tuple[int, ...]) -> str:
    """One number where all are the same, as a text that means the same has it."""
    return "x".join(map(str, values if len(set(values)) > 1 else values[:1]))
