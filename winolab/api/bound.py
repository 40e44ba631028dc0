"""What no rounding error of a layer exceeds, proven."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from winolab.algorithm import Algorithm
from winolab.api import picture
from winolab.api.data import DataLike
from winolab.api.layer import Layer
from winolab.arguments.arrays import DtypeLike
from winolab.arguments.values import Padding, Sizes
from winolab.kind import ShowsText
from winolab.problem import Direction, Layout
from winolab.ref.algorithms import convolution
from winolab.ref.arithmetic.simulated import Arithmetic, summed
from winolab.ref.error.proven import proven
from winolab.ref.tolerance.normwise import normwise, products


@dataclass(frozen=True, eq=False)
class Bound(ShowsText):
    """What ``winolab.bound`` found; ``print`` shows it.

    ``absolute``: no result errs more, in the units of the results; ``peaks``: the largest
    magnitudes of the operands for which that holds; ``relative``: the same over K·|a|·|b| of these
    magnitudes, the largest result that they allow, K being the products a result sums;
    ``bounds``: of arrays, the bound of each result, channels last; ``relative_rms``: of arrays, the
    largest root mean squared error over that of the exact results. Infinite where nothing is
    proven.
    """

    layer: Layer
    absolute: float
    relative: float
    peaks: tuple[float, float]
    relative_rms: float | None = None
    bounds: np.ndarray | None = None

    def to_dict(self) -> dict[str, Any]:
        """The question and the answer, as JSON has it; but NaN and infinity are floats."""
        return {
            **self.layer.facts,
            "absolute": self.absolute,
            "relative": self.relative,
            "peaks": self.peaks,
            "relative_rms": self.relative_rms,
        }

    def plot(self, axes: Any = None) -> Any:
        """A histogram of the results' bounds, on matplotlib's axes or new ones.

        Raises ValueError where there are no arrays, whose every result has one.
        """
        if self.bounds is None:
            raise ValueError("a picture of bounds is of arrays; give data as the two operands")
        made = picture.axes(axes)
        made.hist(self.bounds.ravel(), bins=50)
        made.set(xlabel="bound of |error|", ylabel="results", title=str(self.layer.algorithm))
        return made

    def __str__(self) -> str:
        if not math.isfinite(self.absolute):
            return f"{self.layer}\nnothing is proven"
        first, second = self.peaks
        lines = [
            str(self.layer),
            f"no result errs more than {self.absolute:.3g}, for operands within "
            f"±{first:.4g} and ±{second:.4g}",
            f"relative to the largest result that these allow: {self.relative:.3g}",
        ]
        if self.relative_rms is not None:
            lines.append(f"relative RMS of these arrays, at most: {self.relative_rms:.3g}")
        return "\n".join(lines)


def bound(
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
) -> Bound:
    """What no rounding error of an algorithm exceeds, proven, before anything runs.

    The arguments are those of :func:`winolab.predict`. Of arrays every result has a bound of its
    own; of a name or moments the bound is that of all data of their largest magnitudes (1 for u11).
    Data without one, as normal ones, are taken to stay below what they exceed with a chance of
    1e-3. There is none, and infinity stands for it, for "winrs" and "omega", for transforms by FFT
    of lengths that are no powers of two, and where a format might overflow.

    The result prints, ``to_dict()`` has it as JSON has it, ``plot()`` draws a histogram of arrays'.

    Raises ValueError, in one line, for what is unknown or does not fit, TypeError for values of
    other types.

    >>> found = winolab.bound((8, 56, 56, 64), (64, 3, 3, 64), padding=1, algorithm="gamma:8:6:3")
    >>> f"{found.absolute:.2f}", f"{found.relative:.1e}"
    ('0.16', '2.7e-04')
    """
    geometry = {
        "stride": stride,
        "padding": padding,
        "dilation": dilation,
        "groups": groups,
        "layout": layout,
    }
    return of_layer(
        Layer.of(input_shape, filter_shape, direction, algorithm, geometry, precision, data)
    )


def of_layer(layer: Layer) -> Bound:
    """The same, of a layer."""
    problem, algorithm, direction = layer.problem, layer.algorithm, layer.direction
    peaks = layer.data.peaks(problem, direction)
    largest = products(problem, direction) * peaks[0] * peaks[1]
    if layer.data.arrays is None:
        relative = normwise(problem, algorithm, layer.run, direction=direction, peaks=peaks)
        return Bound(layer, relative * largest, relative, peaks)
    a, b = layer.data.arrays
    run = summed(layer.run, algorithm)
    limits = proven(a, b, problem, algorithm, run, direction=direction)
    absolute = float(limits.max(initial=0.0))
    with np.errstate(all="ignore"):
        exact = getattr(convolution, direction)(
            np.asarray(a, np.float64), np.asarray(b, np.float64), problem
        )
        rms = float(np.linalg.norm(limits) / np.linalg.norm(exact)) if exact.any() else 0.0
    return Bound(layer, absolute, absolute / largest if largest else 0.0, peaks, rms, limits)
