"""The tolerances with which a result of a layer may be compared: predicted, and proven."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any

import numpy as np

from winolab.algorithm import Algorithm
from winolab.api import bound as bounds
from winolab.api import picture
from winolab.api.data import DataLike
from winolab.api.layer import Layer
from winolab.api.results import overflowing, rms_of
from winolab.arguments.arrays import DtypeLike, dtype_of
from winolab.arguments.values import Padding, Sizes
from winolab.arguments.words import agreeing, plural
from winolab.kind import ShowsText
from winolab.problem import NAMES, Direction, Layout, in_layout, shapes
from winolab.ref.algorithms import convolution
from winolab.ref.arithmetic.formats import FORMAT_OF, Format
from winolab.ref.arithmetic.simulated import Arithmetic, Float, arithmetic
from winolab.ref.error.expected import expected
from winolab.ref.error.moments import CONSTANT
from winolab.ref.kinds.registry import ENGINES
from winolab.ref.operands import operand
from winolab.ref.tolerance.cheapest import SURE, lost, sure
from winolab.ref.tolerance.largest import above, spread

RARE = 1e-6  # chances of an overflow below it are told to machines alone


@dataclass(frozen=True)
class Pair:
    """Arguments of ``numpy.allclose(y, exact, ...)``: |y − exact| ≤ atol + rtol·|exact|."""

    rtol: float
    atol: float

    def __str__(self) -> str:
        return f"rtol {self.rtol:.3g}, atol {self.atol:.3g}"


@dataclass(frozen=True)
class Checked(ShowsText):
    """Whether a result is what the algorithm may return; true where it is.

    ``reason``: why it is refused, or ""; ``relative_rms`` of the result against the exact one and
    the ``most`` that is accepted; ``largest``: the largest error, ``at`` its place in the result
    (None of results that are not finite), over its tolerance (``ratio``); ``outside``: how many
    results are beyond the predicted tolerance, ``impossible`` how many beyond what is proven.
    """

    accepted: bool
    reason: str
    relative_rms: float
    most: float
    largest: float
    at: tuple[int, ...] | None
    ratio: float
    outside: int
    impossible: int

    def __bool__(self) -> bool:
        return self.accepted

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return dict(vars(self))

    def __str__(self) -> str:
        verdict = "accepted" if self.accepted else f"refused: {self.reason}"
        if not math.isfinite(self.largest):
            return verdict
        return (
            f"{verdict}\nrelative RMS   {self.relative_rms:.3g}, accepted up to {self.most:.3g}\n"
            f"largest error  {self.largest:.3g} at {self.at}, {self.ratio:.2g} times its tolerance"
        )


@dataclass(frozen=True, eq=False)
class Tolerances(ShowsText):
    """What ``winolab.tolerance`` found; ``print`` shows it.

    ``predicted``: with the ``confidence`` all of the results are within it; ``proven``: all are,
    always, for operands within ``peaks``; ``relative_rms``: what the error's root mean square over
    that of the exact results is expected to be, and ``most``: what it stays below with the
    confidence. Units are those of the results, but for ``rtol`` and relative RMS, which have none.
    ``overflow``: the chance that any result is not finite, of which no tolerance tells;
    ``not_finite``: how many elements of both operands are NaN or infinite, in whose place all
    numbers but ``check`` take zeros.
    """

    layer: Layer
    confidence: float
    results: int
    result: str
    predicted: Pair
    proven: Pair
    relative_rms: float
    most: float
    peaks: tuple[float, float]
    layout: str
    overflow: float
    not_finite: tuple[int, int]
    limits: np.ndarray | None = field(default=None, repr=False, compare=False)
    bounds: np.ndarray | None = field(default=None, repr=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """The question and the answer, as JSON has it; but NaN and infinity are floats."""
        return {
            **self.layer.facts,
            "result": self.result,
            "results": self.results,
            "confidence": self.confidence,
            "predicted": vars(self.predicted),
            "proven": vars(self.proven),
            "peaks": self.peaks,
            "relative_rms": self.relative_rms,
            "most_relative_rms": self.most,
            "overflow": self.overflow,
            "not_finite": self.not_finite,
        }

    def check(self, y: Any) -> Checked:
        """Whether ``y`` is what the algorithm may return of the arrays that were given as data.

        Every result has its own tolerance, from what its own operands are expected to lose; all
        together have a root mean square, which tells small faults that no single result shows.
        Results of a NaN or an infinity have to be NaN, or the same infinity; others of its tile may
        be NaN where they are with the algorithm.
        Raises ValueError where data were no arrays, y has another shape, or a type that rounds more
        than the results' own; TypeError for complex y.
        """
        arrays = self.layer.data.arrays
        if arrays is None:
            raise ValueError("a check needs the operands; give data as the two arrays")
        layer = self.layer
        result = operand("y", y, "fp64")
        if np.iscomplexobj(result):
            raise TypeError(f"y has dtype {result.dtype}; expected real numbers")
        kind = FORMAT_OF.get(result.dtype)
        own = next((f for f in FORMAT_OF.values() if f.name == self.result), None)
        if kind and own and kind.precision < own.precision:
            raise ValueError(
                f"y has dtype {result.dtype}, whose rounding results in {self.result} do not have; "
                f"ask for the tolerance of out_dtype {result.dtype}"
            )
        result = np.asarray(result, np.float64)
        shape = in_layout(shapes(layer.direction, layer.problem)[2], self.layout)
        if result.shape != shape:
            raise ValueError(f"y has shape {result.shape}; expected {shape}")
        if self.layout == "channels_first":
            result = np.moveaxis(result, 1, -1)
        exact, wrong, free = _exact(layer), 0, False
        if not layer.data.finite:
            exact, wrong, free = _not_finite(layer, result)
        with np.errstate(all="ignore"):
            error = np.abs(result - exact)
            error = np.where(np.isfinite(error), error, np.inf)
            error = np.where(free, 0.0, error)
            size = np.abs(exact)
            atol = self.predicted.atol if self.limits is None else self.limits
            proven = self.proven.atol if self.bounds is None else self.bounds
            limit = atol + self.predicted.rtol * size
            ratio = np.where(error > 0, error / limit, 0.0)
            rms = float(np.linalg.norm(error) / np.linalg.norm(exact)) if exact.any() else 0.0
            impossible = int((error > proven + self.proven.rtol * size).sum())
        outside, lost = int((error > limit).sum()), int(np.isinf(error).sum())
        at = np.unravel_index(int(np.argmax(ratio)), ratio.shape)
        place = tuple(map(int, at))
        if self.layout == "channels_first":
            place = (place[0], place[-1], *place[1:-1])
        reason, results = "", plural(error.size, "result")
        if wrong:
            reason = (
                f"{wrong} of {results} {agreeing(wrong, 'is', 'are')} not the NaN or infinity that "
                f"{agreeing(wrong, 'its', 'their')} operands make {agreeing(wrong, 'it', 'them')}"
            )
        elif lost:
            are = agreeing(lost, "is", "are")
            reason = f"{lost} of {results} {are} not finite, the first at {place}"
        elif impossible:
            err = agreeing(impossible, "errs", "err")
            reason = f"{impossible} of {results} {err} more than any rounding does"
        elif outside:
            reason = (
                f"{outside} of {results} {agreeing(outside, 'errs', 'err')} more than rounding "
                f"does with a confidence of {self.confidence:g}"
            )
        elif rms > self.most:
            reason = f"relative RMS {rms:.2g}, where rounding leaves {self.most:.2g} at most"
        return Checked(
            not reason, reason, rms, self.most, float(error[at]),
            None if lost else place, float(ratio[at]), outside, impossible,
        )  # fmt: skip

    def plot(self, axes: Any = None) -> Any:
        """Bars of what is expected, tolerated and proven, on matplotlib's axes or new ones."""
        values = {"predicted atol": self.predicted.atol, "proven atol": self.proven.atol}
        values = {name: value for name, value in values.items() if math.isfinite(value)}
        return picture.bars(values, "|error|", self.layer.name, axes, log=True)

    def __str__(self) -> str:
        first, second = self.peaks
        proven = f"{self.proven}, for operands within ±{first:.4g} and ±{second:.4g}"
        if not math.isfinite(self.proven.atol):
            proven = "nothing"
        lines = [
            f"{self.layer}, results in {self.result}",
            f"predicted      {self.predicted}, for all {plural(self.results, 'result')} with a "
            f"confidence of {self.confidence:g}",
            f"proven         {proven}",
            f"relative RMS   {self.relative_rms:.3g} expected, {self.most:.3g} at most",
        ]
        if self.overflow >= RARE:
            lines.append(
                f"overflow       {self.overflow:.2g} of any result, of which no tolerance tells: "
                "scale the data down, or take formats of more exponents"
            )
        for name, count in zip(NAMES[self.layer.direction], self.not_finite, strict=False):
            if count:
                are = f"{agreeing(count, 'is', 'are')} NaN or infinite, and zero for these numbers"
                lines.append(f"not finite     {plural(count, 'element')} of {name} {are}")
        return "\n".join(lines)


def tolerance(
    input_shape: Sequence[int],
    filter_shape: Sequence[int],
    *,
    direction: Direction = "forward",
    algorithm: str | Algorithm | None = None,
    stride: Sizes = 1,
    padding: Padding = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    layout: Layout = "channels_last",
    precision: str | DtypeLike | Arithmetic | None = "fp32",
    data: DataLike = "u11",
    confidence: float = 0.999,
    out_dtype: Any = None,
) -> Tolerances:
    """``rtol`` and ``atol`` for ``allclose`` of a layer's result against the exact one.

    ``algorithm`` and ``precision`` are those of :func:`winolab.predict`, which may describe another
    library's kernel. ``confidence`` is the chance that none of
    all results exceeds the predicted tolerance, whose rounding errors are the algorithm's own.
    Results are in ``out_dtype``, by default of the precision's storage format. The other arguments
    are those of :func:`winolab.predict`. With arrays as ``data``, ``check(y)`` judges a result, and
    every result has its own tolerance.

    The result prints, ``to_dict()`` has it as JSON has it, ``plot()`` draws it. How the numbers
    come about is in the tutorial "Which tolerance".

    Raises ValueError, in one line, for what is unknown or does not fit, TypeError for values of
    other types.

    >>> found = winolab.tolerance(
    ...     (1, 32, 32, 8), (16, 3, 3, 8), padding=1, precision="fp16", data="normal",
    ...     algorithm="miopen:ConvBinWinogradRxSf2x3g1",
    ... )
    >>> f"{found.predicted.atol:.2f}", f"{found.proven.atol:.1f}", f"{found.relative_rms:.1e}"
    ('0.07', '71.9', '8.6e-04')
    """
    if isinstance(confidence, bool) or not isinstance(confidence, Real):
        raise TypeError(f"confidence is {confidence!r}; expected a number between 0 and 1")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}; expected a number between 0 and 1")
    geometry = {
        "stride": stride,
        "padding": padding,
        "dilation": dilation,
        "groups": groups,
        "layout": layout,
    }
    layer = Layer.of(input_shape, filter_shape, direction, algorithm, geometry, precision, data)
    return of_layer(layer, float(confidence), out_dtype, layout)


def of_layer(layer: Layer, confidence: float, out_dtype: Any, layout: str) -> Tolerances:
    """The same, of a layer."""
    given = layer
    if not layer.data.finite:
        layer = replace(layer, data=layer.data.cleaned())
    problem, algorithm, run, direction = layer.problem, layer.algorithm, layer.run, layer.direction
    written = _written(run, out_dtype)
    unit = floor = 0.0
    if written and isinstance(run, Float) and written.precision < run.transform.precision:
        unit, floor = written.unit_roundoff, written.underflow
    data = layer.data
    found = expected(*data.operands, problem, algorithm, run, direction=direction)
    times = sure(algorithm, run)
    results = math.prod(shapes(direction, problem)[2])
    variance = spread(
        problem, algorithm, run, direction, data.moments, data.kurtosis, found.shares,
        energy=found.errors is None,
    )  # fmt: skip
    times_largest = times * math.sqrt(found.uneven) * above(results, confidence, variance)
    exact = None if data.arrays is None else _exact(layer)
    size, limits = rms_of(layer, exact), None
    if found.errors is None:
        atol = times_largest * found.relative_rms * size if size else 0.0
    else:
        limits = times_largest * found.errors * (1 + unit) + floor
        atol = float(limits.max(initial=0.0))
    proven = bounds.of_layer(layer)
    rounded = CONSTANT * unit**2 + (lost(floor, size**2) if floor else 0.0)
    square = (times * found.relative_rms) ** 2 + SURE**2 * rounded
    counted = results if found.errors is None else _counted(found.errors)
    few = max(1, counted / math.prod(t.n for t in algorithm.tiles) if algorithm.tiles else counted)
    from scipy.special import ndtri

    slack = 1 - float(ndtri(1 - confidence)) * math.sqrt((2 + 3 * variance) / few)
    return Tolerances(
        given, confidence, results, written.name if written else "exact numbers",
        Pair(unit, atol if limits is not None else atol * (1 + unit) + floor),
        Pair(unit, proven.absolute * (1 + unit) + floor),
        math.sqrt(found.relative_rms**2 + rounded), math.sqrt(square * slack),
        proven.peaks, layout, overflowing(layer, written, exact, found.overflow),
        given.data.not_finite, limits,
        None if proven.bounds is None else proven.bounds * (1 + unit) + floor,
    )  # fmt: skip


def _counted(errors: np.ndarray) -> float:
    """How many equal errors have the mean square that varies as that of these."""
    with np.errstate(all="ignore"):
        squares = (errors / errors.max(initial=0.0)) ** 2
        count = squares.sum() ** 2 / (squares**2).sum()
    return float(count) if math.isfinite(count) else float(errors.size)


def _written(run: Arithmetic, out_dtype: Any) -> Format | None:
    """The results' format. Raises TypeError for a dtype that is of no floating-point numbers."""
    if out_dtype is None:
        return run.storage if isinstance(run, Float) else None
    dtype = dtype_of(out_dtype)
    if dtype not in FORMAT_OF:
        names = ", ".join(str(known) for known in FORMAT_OF)
        raise TypeError(f"out_dtype is {dtype}; expected one of {names}")
    return FORMAT_OF[dtype]


def _exact(layer: Layer) -> np.ndarray:
    """The result in FP64. Raises ValueError without arrays."""
    a, b = (np.asarray(v, np.float64) for v in layer.data.arrays or ())
    with np.errstate(all="ignore"):
        return getattr(convolution, layer.direction)(a, b, layer.problem)


def _not_finite(layer: Layer, y: np.ndarray) -> tuple[np.ndarray, int, np.ndarray]:
    """Where operands hold NaN or infinity: the exact results, 0 if they are not finite; how
    many of ``y`` are wrong there; and which of y are right and no numbers, so that none errs.

    A product with such an element is not finite, and neither are the sums that it is in, whatever
    the order; it meets zeros of the padding too, of which kernels may know nothing.
    """
    problem, kind, data = layer.problem, layer.algorithm.kind, layer.data
    arrays = [np.asarray(v, np.float64) for v in data.arrays or ()]
    bad = [(~np.isfinite(v)).astype(np.float64) for v in arrays]
    clean = replace(layer, data=data.cleaned())
    direct, engine = getattr(convolution, layer.direction), ENGINES[kind]
    with np.errstate(all="ignore"):
        touched = direct(bad[0], np.ones_like(bad[1]), problem)
        touched = touched + direct(np.ones_like(bad[0]), bad[1], problem) > 0
        found = _exact(layer)
        spread = getattr(engine, layer.direction)(
            *arrays, problem, layer.algorithm, arithmetic("fp64")
        )
    mixed = kind != "direct" and any(np.isinf(v).any() for v in arrays)
    right = np.isnan(y) | np.isinf(y) & (mixed | (y == found))
    free = right & (touched | ~np.isfinite(spread))
    return _exact(clean) * ~touched, int((touched & ~right).sum()), free
