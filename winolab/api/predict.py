"""The rounding errors that an algorithm is expected to make of a layer, and what its formats do."""

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
from winolab.problem import Direction, Layout, shapes
from winolab.ref.arithmetic.simulated import Arithmetic, Float
from winolab.ref.error.expected import expected
from winolab.ref.error.predict import Prediction
from winolab.ref.error.states import Stage, stages
from winolab.ref.kinds.registry import ENGINES

SHOWN = 1e-12  # chances below it are told to machines alone


@dataclass(frozen=True, eq=False)
class Predicted(ShowsText):
    """What ``winolab.predict`` found; ``print`` shows it.

    ``relative_rms``: root of the mean squared error over that of the results; ``mare``: mean error
    over the mean result, NaN where results may vanish; ``relative_bias``: mean of the signed error
    over the mean result; ``shares``: the part of the squared error that each source has;
    ``overflow``: chance that any result of the layer is not finite; ``underflow``: chance that a
    transformed number is not 0 and too small for its format's digits, of the state where it is
    largest (``shares`` has what that adds to the error); ``stages``: of tiled algorithms, the
    chances of every state; ``errors``: of arrays, the expected absolute error of each result,
    channels last.
    """

    layer: Layer
    prediction: Prediction
    stages: tuple[Stage, ...]

    @property
    def relative_rms(self) -> float:
        """√(E e² / E y²), a number without unit."""
        return self.prediction.relative_rms

    @property
    def mare(self) -> float:
        """E|e| / |E y|, a number without unit."""
        return self.prediction.mare

    @property
    def relative_bias(self) -> float:
        """E e / |E y|, a number without unit."""
        return self.prediction.relative_bias

    @property
    def shares(self) -> dict[str, float]:
        """The part of the squared error that each source has; they sum to 1."""
        return {name: part for name, part in self.prediction.shares.items() if part}

    @property
    def overflow(self) -> float:
        """Chance that any result of the layer is not finite."""
        each = min(1.0, self.prediction.overflow)
        results = math.prod(shapes(self.layer.direction, self.layer.problem)[2])
        return -math.expm1(results * math.log1p(-each)) if each < 1 else 1.0

    @property
    def underflow(self) -> float:
        """The largest chance of a state to be not 0 and below its format's normal numbers; NaN
        where the algorithm has no states."""
        return max((stage.worst("underflow")[0] for stage in self.stages), default=math.nan)

    @property
    def errors(self) -> np.ndarray | None:
        """The expected absolute error of each result, of arrays."""
        return self.prediction.errors

    def to_dict(self) -> dict[str, Any]:
        """The question and the answer, as JSON has it; but NaN and infinity are floats."""
        return {
            **self.layer.facts,
            "relative_rms": self.relative_rms,
            "mare": self.mare,
            "relative_bias": self.relative_bias,
            "overflow": self.overflow,
            "underflow": self.underflow,
            "shares": self.shares,
            "stages": [stage.to_dict() for stage in self.stages],
        }

    def plot(self, axes: Any = None) -> Any:
        """Bars of the sources' shares of the squared error, on matplotlib's axes or new ones."""
        title = f"{self.layer.algorithm} in {self.layer.run.name}: {self.relative_rms:.2g}"
        return picture.bars(self.shares, "share of the squared error", title, axes)

    def __str__(self) -> str:
        lines = [str(self.layer), f"relative RMS   {self.relative_rms:.3g}"]
        if math.isfinite(self.mare):
            lines.append(f"MARE           {self.mare:.3g}, bias {self.relative_bias:.2g}")
        made = sorted(self.shares.items(), key=lambda item: -item[1])
        if parts := [f"{name} {part:.0%}" for name, part in made if part >= 0.005]:
            lines.append(f"made by        {', '.join(parts)}")
        lost = self.prediction.shares.get("underflow", 0.0)
        lines.append(f"overflow       {self._range('overflow', self.overflow, 'of any result')}")
        lines.append(f"underflow      {self._range('underflow', lost, 'of the error')}")
        return "\n".join(lines)

    def _range(self, what: str, part: float, of: str) -> str:
        """A chance or a share, and the state that is the likeliest to leave its format."""
        found = [(*stage.worst(what), stage) for stage in self.stages]
        chance, state, stage = max(found, key=lambda each: each[0], default=(0.0, (), None))
        text = f"{part:.2g} {of}"
        if not stage or chance < SHOWN:
            return text
        at = f"({', '.join(map(str, state))}) of the {stage.name}, in {stage.format}"
        return f"{text}; the likeliest state is {at}: {chance:.2g}"


def predict(
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
) -> Predicted:
    """The rounding errors that an algorithm is expected to make, before anything runs.

    ``input_shape`` and ``filter_shape`` are x's and w's in ``layout`` in every ``direction``.
    ``algorithm`` is one of ours, or another library's by its name there
    ("miopen:ConvBinWinogradRxSf2x3g1", "cudnn:winograd_nonfused", "acl:winograd",
    "onednn:jit_wino_4x3"), or its tile, "F(4x4,3x3)"; None is direct. ``precision`` is any
    arithmetic of the reference, None is fp32, and may state formats and the order of sums:
    "fp16,transform=fp16,accumulate=fp16,accumulation=pairwise".

    ``data`` is a name (u12, u01, u11, normal, relu, wide), the direction's two operands as arrays,
    or their :class:`winolab.Moments`, one for both or a pair; they are numbers of the precision's
    storage format. A result's rounding to a narrower type than its transforms' does not count. The
    other arguments are those of :func:`winolab.conv_forward`.

    The result prints; ``relative_rms`` is a number without unit, ``overflow`` the chance that any
    result is not finite, ``to_dict()`` has all as JSON has it, ``plot()`` draws what makes the
    error. Predictions are within 15 to 25 % of simulated errors (``winolab accuracy``); of data of
    one sign in 16 bits, and of FFTs of maps much smaller than they are, within 1.6 times, at most
    2.4 where both meet.

    Raises ValueError, in one line, for what is unknown or does not fit, TypeError for values of
    other types.

    >>> found = winolab.predict((8, 56, 56, 64), (64, 3, 3, 64), padding=1, algorithm="gamma:8:6:3")
    >>> f"{found.relative_rms:.1e}", max(found.shares, key=found.shares.get)
    ('1.1e-06', 'accumulation')
    """
    geometry = {
        "stride": stride,
        "padding": padding,
        "dilation": dilation,
        "groups": groups,
        "layout": layout,
    }
    layer = Layer.of(input_shape, filter_shape, direction, algorithm, geometry, precision, data)
    return of_layer(layer)


def of_layer(layer: Layer) -> Predicted:
    """The same, of a layer."""
    layer.data.check_finite(layer.direction)
    how = layer.problem, layer.algorithm
    found = expected(*layer.data.operands, *how, layer.run, direction=layer.direction)
    told: tuple[Stage, ...] = ()
    if ENGINES[layer.algorithm.kind].TILED and isinstance(layer.run, Float):
        told = stages(*layer.data.moments, *how, layer.run, layer.direction)
    return Predicted(layer, found, told)
