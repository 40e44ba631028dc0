"""The error of a simulated convolution against its oracle, beside its bound and its prediction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from winolab.algorithm import Algorithm
from winolab.api import picture
from winolab.api.data import DataLike
from winolab.api.gpu_case import CaseOnGpu
from winolab.api.layer import Layer
from winolab.api.memory import check_held
from winolab.arguments.arrays import DtypeLike, flag
from winolab.arguments.shapes import padding_text
from winolab.arguments.values import Padding, Sizes, whole
from winolab.arguments.words import plural
from winolab.kind import ShowsText
from winolab.measure import DATA, FULL, Case
from winolab.problem import Direction, Layout
from winolab.ref.arithmetic.simulated import Arithmetic, Float
from winolab.ref.error.metrics import QUANTILES
from winolab.ref.kinds.registry import ENGINES
from winolab.ref.quantized.scales import Single

SAMPLE = 4096  # results that are computed where a sample can be


@dataclass(frozen=True, eq=False)
class Accuracy(ShowsText):
    """What ``winolab.accuracy`` measured; ``print`` shows it.

    ``row`` is what ``winolab accuracy --json`` prints of a case: every metric (``mare``,
    ``max_relative``, ``relative_rms``, ``max_abs``, ``mse``, ``bias``, ``relative_bias``, quantiles
    of the relative error), the largest proven ``bound``, the largest error over its bound
    (``bound_ratio``) and the ``prediction``. ``infinite`` results are not finite.
    """

    row: dict[str, Any]

    @property
    def relative_rms(self) -> float:
        """√(Σ e² / Σ y²), a number without unit."""
        return self.row["relative_rms"]

    @property
    def mare(self) -> float:
        """Mean of |e| / |y|, a number without unit."""
        return self.row["mare"]

    @property
    def max_abs(self) -> float:
        """The largest |e|, in the units of the results."""
        return self.row["max_abs"]

    @property
    def bound(self) -> float:
        """The largest proven bound of |e|, in the units of the results; infinite where there is
        none, as of "omega" and "winrs"."""
        return self.row["bound"]

    @property
    def predicted(self) -> float:
        """The relative RMS error that is predicted; NaN of quantised operands, without a model."""
        return self.row["prediction"]

    def to_dict(self) -> dict[str, Any]:
        """The row, as JSON has it; but NaN and infinity are floats."""
        return dict(self.row)

    def plot(self, axes: Any = None) -> Any:
        """The distribution of |e| / |y| by its quantiles, on matplotlib's axes or new ones."""
        made = picture.axes(axes)
        made.plot([self.row[f"q{100 * q:g}"] for q in QUANTILES], QUANTILES, marker="o")
        made.set(xlabel="|error| / |exact|", ylabel="share of the results", xscale="log")
        made.set_title(f"{self.row['algorithm']} in {self.row['precision']}")
        return made

    def __str__(self) -> str:
        row = self.row
        samples = plural(row["samples"], "result")
        predicted = "none" if math.isnan(self.predicted) else f"{self.predicted:.3g}"
        within = (
            f"largest bound {self.bound:.3g}, error over bound at most {row['bound_ratio']:.2g}"
        )
        lines = [
            f"{row['direction']} {row['input']}, filter {row['filter']}, padding {row['padding']}",
            f"{row['algorithm']} in {row['precision']}, data {row['data']}, {samples}",
            f"relative RMS   {row['relative_rms']:.3g}, predicted {predicted}",
            f"MARE           {row['mare']:.3g}",
            f"largest error  {row['max_abs']:.3g}, {'no bound' if row['unbounded'] else within}",
        ]
        if row["range"]:
            infinite = plural(row["infinite"], "result")
            lines.append(f"range          {row['range']}, {infinite} not finite")
        return "\n".join(lines)


def accuracy(
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
    sample: int | None = None,
    seed: int = 0,
    gpu: bool = False,
) -> Accuracy:
    """The error of a simulated convolution against its oracle: what ``winolab accuracy`` measures.

    The arguments are those of :func:`winolab.predict`. Named data are drawn, and of moments normal
    ones, by ``seed``; arrays count as the precision's storage format holds them. ``sample`` is
    about how many results are computed, of whole tiles, one of every kind at least, in up to 64
    channels: ``row["samples"]`` has how many. None is 4096 where a sample can be, of tiled
    algorithms forward and in one group, and otherwise all: quantised operands, as of "int8:state",
    have scales of all the data. With ``gpu`` a GPU sums the simulated products: the same bits,
    sooner; "exact", "mp", quantised products and FP64 sums stay on the CPU and are refused.

    The result prints, ``to_dict()`` has it as JSON has it, ``plot()`` draws the distribution.

    Raises ValueError, in one line, for what is unknown or does not fit, or is more than this
    machine's memory holds, TypeError for values of other types, MachineError without a GPU.

    >>> found = winolab.accuracy((1, 20, 20, 16), (8, 3, 3, 16), algorithm="winograd:4x4:3x3")
    >>> f"{found.relative_rms:.1e}", f"{found.predicted:.1e}", found.row["bound_ratio"] <= 1
    ('4.4e-07', '4.7e-07', True)
    """
    geometry = {
        "stride": stride,
        "padding": padding,
        "dilation": dilation,
        "groups": groups,
        "layout": layout,
    }
    layer = Layer.of(input_shape, filter_shape, direction, algorithm, geometry, precision, data)
    layer.data.check_finite(direction)
    p, name = layer.problem, layer.data.name
    sampled = ENGINES[layer.algorithm.kind].TILED and direction == "forward" and p.groups == 1
    sampled = sampled and not isinstance(layer.run, Single)
    if sample is None:
        sample = SAMPLE if sampled else 0
    elif whole(sample, "sample") < 1:
        raise ValueError(f"sample = {sample}; expected 1 or more, or None")
    case = Case(
        str(layer.algorithm),
        "x".join(map(str, p.x_shape)),
        "x".join(map(str, p.w_shape[:-1])),
        padding_text(p.padding),
        layer.run.name,
        name if name in DATA else "normal",
        sample=str(sample) if sample else FULL,
        seed=whole(seed, "seed"),
        direction=direction,
        stride="x".join(map(str, p.stride)),
        dilation="x".join(map(str, p.dilation)),
        groups=p.groups,
    )
    case = CaseOnGpu.of(case) if flag(gpu, "gpu") else case
    check_held(case)
    if name in DATA:
        return Accuracy(case.measure())
    first, second = (_stored(v, layer.run) for v in layer.data.drawn(p, direction, seed))
    return Accuracy(case.measured(first, second) | {"data": name})


def _stored(array: np.ndarray, run: Arithmetic) -> np.ndarray:
    """The numbers of the storage format, in float32 where that holds them."""
    if not isinstance(run, Float):
        return array
    wide = run.to_float64(run.asarray(array))
    return wide if run.storage.precision > 24 else wide.astype(np.float32)
