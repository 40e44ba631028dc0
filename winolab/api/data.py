"""The data that an answer is about: a name, two arrays, or their moments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np

from winolab.arguments.values import nearest
from winolab.arguments.words import agreeing, plural
from winolab.measure import DATA, filled
from winolab.problem import NAMES, Problem, in_layout, shapes
from winolab.ref.arithmetic.simulated import Arithmetic
from winolab.ref.error.moments import Moments
from winolab.ref.operands import operand

DataLike = str | Moments | Sequence[Any]
NORMAL = 3.0  # kurtosis of normal data
# Moments, and kurtosis, of the named distributions; relu's and wide's other operand is normal.
UNIFORM_ROUNDOFF = 1 / 7
NAMED: dict[str, tuple[Moments, float]] = {
    "u12": (Moments(1.5, 1 / 12, roundoff=UNIFORM_ROUNDOFF, peak=2.0), 1.8),
    "u01": (Moments(0.5, 1 / 12, roundoff=UNIFORM_ROUNDOFF, peak=1.0), 1.8),
    "u11": (Moments(0.0, 1 / 3, roundoff=UNIFORM_ROUNDOFF, peak=1.0), 1.8),
    "normal": (Moments(0.0, 1.0), NORMAL),
    "relu": (Moments(1 / math.sqrt(2 * math.pi), 0.5 - 0.5 / math.pi, zeros=0.5), 6.0),
    # 2**U[-20, 0] has mean square 1/(40 ln 2), mean fourth power 1/(80 ln 2)
    "wide": (Moments(0.0, 1 / (40 * math.log(2))), NORMAL * 20 * math.log(2)),
}
SURELY = 1e-3  # chance that data without a largest magnitude have one above what is taken as it


@dataclass(frozen=True)
class Data:
    """Both operands of a direction: moments, kurtosis, and the arrays, channels last, if given."""

    name: str
    moments: tuple[Moments, Moments]
    kurtosis: tuple[float, float]
    arrays: tuple[np.ndarray, np.ndarray] | None = None

    @classmethod
    def of(cls, data: Any, problem: Problem, direction: str, layout: str, run: Arithmetic) -> Data:
        """What a caller gives: a name of ``winolab accuracy --data``, Moments of both operands or a
        pair of them, or the direction's two operands as arrays in the layout.

        Raises ValueError for another name and arrays of other shapes, TypeError for other values.
        """
        if isinstance(data, str):
            return _named(data, direction)
        if isinstance(data, Moments):
            data = data, data
        names = NAMES[direction][:2]
        if not isinstance(data, Sequence) or len(data) != 2:
            raise TypeError(
                f"data is of type {type(data).__name__}; expected one of {', '.join(DATA)}, the "
                f"arrays ({', '.join(names)}), or their winolab.Moments"
            )
        first, second = data
        if isinstance(first, Moments) and isinstance(second, Moments):
            for m in (first, second):
                if not (isinstance(m.mean, Real) and isinstance(m.variance, Real)):
                    raise TypeError(
                        f"data has mean {m.mean!r} and variance {m.variance!r}; expected numbers"
                    )
                if not (math.isfinite(m.mean) and 0 <= m.variance < math.inf):
                    raise ValueError(
                        f"data has mean {m.mean:g} and variance {m.variance:g}; expected finite "
                        "numbers, the variance 0 or more"
                    )
            return cls("moments", (first, second), (NORMAL, NORMAL))
        arrays = []
        for name, array, shape in zip(names, data, shapes(direction, problem), strict=False):
            made = operand(name, array, run)
            if made.shape != in_layout(shape, layout):
                raise ValueError(
                    f"{name} of data has shape {made.shape}; expected {in_layout(shape, layout)}"
                )
            if made.dtype.kind == "c":
                raise ValueError(f"{name} of data is complex; expected real numbers")
            arrays.append(np.moveaxis(made, 1, -1) if layout == "channels_first" else made)
        a, b = arrays
        moments = Moments.of(a), Moments.of(b)
        return cls("arrays", moments, (_kurtosis(a, moments[0]), _kurtosis(b, moments[1])), (a, b))

    @property
    def operands(self) -> tuple[Any, Any]:
        """What a prediction takes: the arrays, or else the moments."""
        return self.arrays or self.moments

    def peaks(self, problem: Problem, direction: str) -> tuple[float, float]:
        """Largest magnitudes: known, or what normal data of so many elements surely stay below."""
        found = []
        for m, shape in zip(self.moments, shapes(direction, problem), strict=False):
            from scipy.special import ndtri

            quantile = -float(ndtri(SURELY / 2 / max(1, math.prod(shape))))
            found.append(m.peak or abs(m.mean) + quantile * math.sqrt(m.variance))
        return found[0], found[1]

    @cached_property
    def not_finite(self) -> tuple[int, int]:
        """How many elements of each array are NaN or infinite."""
        first, second = (int((~np.isfinite(v)).sum()) for v in self.arrays or ((), ()))
        return first, second

    @property
    def finite(self) -> bool:
        """Whether no array holds NaN or infinity."""
        return not any(self.not_finite)

    def check_finite(self, direction: str) -> None:
        """Raise ValueError where an array holds NaN or infinity, of which nothing is known, or
        numbers whose squares FP64 does not hold."""
        known = zip(NAMES[direction], self.not_finite, self.moments, strict=False)
        for name, count, moments in known:
            if count:
                raise ValueError(
                    f"{name} of data holds {plural(count, 'element')} that "
                    f"{agreeing(count, 'is', 'are')} NaN or infinite; expected finite numbers"
                )
            if not math.isfinite(moments.variance):
                raise ValueError(f"{name} of data holds numbers whose squares FP64 does not hold")

    def cleaned(self) -> Data:
        """Zeros in the place of NaN and infinity."""
        a, b = (np.where(np.isfinite(v), v, v.dtype.type(0)) for v in self.arrays or ())
        moments = Moments.of(a), Moments.of(b)
        kurtosis = _kurtosis(a, moments[0]), _kurtosis(b, moments[1])
        return replace(self, moments=moments, kurtosis=kurtosis, arrays=(a, b))

    def drawn(self, problem: Problem, direction: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """The arrays, or random ones in float32 that have the moments: normal, as far as known."""
        if self.arrays:
            return self.arrays
        streams = np.random.SeedSequence(seed).spawn(2)
        made = []
        for stream, m, shape in zip(
            streams, self.moments, shapes(direction, problem)[:2], strict=True
        ):
            x = filled(np.random.default_rng(stream), "normal", shape)
            made.append((m.mean + math.sqrt(m.variance) * x).astype(np.float32))
        return made[0], made[1]


def _named(name: str, direction: str) -> Data:
    if name not in NAMED:
        near = nearest(name, DATA)
        hint = f"; did you mean {near!r}?" if near else ""
        raise ValueError(f"unknown data {name!r}; expected one of {', '.join(DATA)}{hint}")
    both = [NAMED[name], NAMED["normal" if name in ("relu", "wide") else name]]
    if (direction, name) == ("backward_filter", "wide"):
        both.reverse()
    (first, k), (second, other) = both
    return Data(name, (first, second), (k, other))


def _kurtosis(array: np.ndarray, m: Moments) -> float:
    """Mean fourth power about the mean over the squared variance; 3 where there is none."""
    if not m.variance or not math.isfinite(m.variance):
        return NORMAL
    some = np.asarray(array, np.float64).reshape(-1)[: 1 << 20]
    with np.errstate(all="ignore"):
        found = float((((some - m.mean) ** 2 / m.variance) ** 2).mean())
    return max(1.0, found) if math.isfinite(found) else NORMAL
