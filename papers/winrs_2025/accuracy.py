"""WinRS's errors, simulated in its kernels' order: one tap row and some channels of a layer's dw.

dw's channels are independent, and so are the taps of a leading dimension, so that a few of each are
a filter gradient of their own, with the whole layer's segments and its whole accumulation.
"""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from experiments.harness.published import published
from papers.winrs_2025.grid import Layer
from winolab.algorithm import Algorithm, Problem, Tile, direct, omega, winrs
from winolab.ref.algorithms import convolution
from winolab.ref.algorithms.im2col import DIRECT
from winolab.ref.algorithms.winograd import ProgramsOf, programs_of
from winolab.ref.algorithms.winrs import gradient as reference
from winolab.ref.algorithms.winrs.kernels import Kernel
from winolab.ref.algorithms.winrs.plan import TENSOR_CORE, plan
from winolab.ref.arithmetic.simulated import arithmetic
from winolab.ref.error.metrics import compare

Row = dict[str, Any]

DEVICE = "rtx4090"
# Tensor Core sums of mma.m16n8k8. In FP16 the exact sum of 8 products and the accumulator is
# rounded once: the adder's 24 bits are FP16's 11 and 13 more (Fasi et al. 2021 find FP16 results
# rounded to nearest). In FP32 it truncates, with one bit more than the accumulator.
FP16_SUMS = "accumulate=fp16,accumulation=tensor_core:8:13:nearest"
FP16_TRUNCATED = "accumulate=fp16,accumulation=tensor_core:8:13:truncate"
FP32_SUMS = "accumulate=fp32,accumulation=tensor_core:8:1:truncate"
FP32_NEAREST = "accumulate=fp32,accumulation=tensor_core:8:1:nearest"
# dy is scaled by it, against overflow (section 6.3).
SCALE_OF_16_BITS = 0.01
# Outputs of a sample: input and output channels for short sums, and for those beyond LONG products.
CHANNELS, FEW, LONG = (4, 8), (2, 8), 1 << 17


@dataclass(frozen=True)
class Variant:
    """How a gradient is computed.

    ``order`` "program" runs winolab's transforms, "published" those of published kernels with
    constants of ``digits`` significant digits; "direct" sums directly. ``stored`` rounds buckets
    and result to the storage format. ``segments`` None lets the planner decide.
    """

    name: str
    precision: str = "fp32"
    order: str = "program"
    points: str = "paper"
    scaling: str | None = None
    digits: int | None = None
    segments: int | None = None
    compensated: bool = True
    stored: bool = False

    def algorithm(self, tile: Tile) -> Algorithm:
        """The text form of what is run."""
        if self.order == "direct":
            return direct()
        return omega(
            tile.alpha, tile.n, tile.r,
            points=self.points, scaling=self.scaling, segments=self.segments,
        )  # fmt: skip

    def programs(self) -> ProgramsOf:
        if self.order == "published":
            return published(self.points, self.digits)
        return programs_of(winrs(points=self.points, scaling=self.scaling))


@dataclass(frozen=True)
class Gradient:
    """One layer's gradient by one kernel under several variants, on the same data.

    The truth is that of the data before they are rounded to the storage format.

    ``data``: "u01", uniform on [0, 1], or "normal", zero-mean. 16-bit variants get dy scaled.
    """

    labels: tuple[tuple[str, Any], ...]
    layer: Layer
    tile: Tile
    variants: tuple[Variant, ...]
    data: str = "u01"
    seed: int = 0

    @property
    def channels(self) -> tuple[int, int]:
        """Input and output channels of the sample."""
        return FEW if self.layer.accumulation > LONG else CHANNELS

    @property
    def cost(self) -> float:
        """Multiply-adds simulated."""
        each = self.layer.accumulation * math.prod(self.channels) * self.layer.taps
        return float(each * len(self.variants))

    @property
    def sampled(self) -> Problem:
        """The middle row of taps of some channels."""
        problem = self.layer.problem
        inputs, outputs = self.channels
        low = problem.padding[0][0] - problem.filter[0] // 2
        rows = (low, problem.output[0] - problem.input[0] - low)
        return replace(
            problem,
            in_channels=inputs,
            out_channels=outputs,
            filter=(1, problem.filter[1]),
            padding=(rows, problem.padding[1]),
        )

    def run(self) -> list[Row]:
        """The rows, one a variant."""
        rng = np.random.default_rng(self.seed)
        draw = rng.random if self.data == "u01" else rng.standard_normal
        x, dy = draw(self.sampled.x_shape), draw(self.sampled.y_shape)
        return [self._row(variant, x, dy) for variant in self.variants]

    def _row(self, variant: Variant, x: np.ndarray, dy: np.ndarray) -> Row:
        started = time.perf_counter()
        run = arithmetic(variant.precision)
        narrow = variant.precision.split(",")[0] in TENSOR_CORE
        dy = dy * SCALE_OF_16_BITS if narrow else dy
        truth = convolution.backward_filter(x, dy, self.sampled)
        x, dy = run.asarray(x), run.asarray(dy)
        tile = DIRECT if variant.order == "direct" else self.tile
        made = plan(
            self.layer.problem,
            DEVICE,
            "fp16" if narrow else "fp32",
            points="paper",
            admissible=False,
            kernel=Kernel(tile, "fp16" if narrow else "fp32"),
            segments=variant.segments,
        )
        y = reference.run(
            x,
            dy,
            self.sampled,
            made.segments,
            run,
            variant.programs(),
            compensated=variant.compensated,
            stored=run if variant.stored else None,
        )
        y = run.to_float64(run.asarray(y) if variant.stored else y)
        found = compare(y, truth)
        metrics = ("mare", "max_relative", "relative_rms", "max_abs", "mse", "relative_bias")
        return {
            **dict(self.labels),
            "layer": str(self.layer),
            "taps": self.layer.taps,
            "accumulation": self.layer.accumulation,
            "kernel": str(Kernel(self.tile)),
            "alpha": self.tile.alpha,
            "algorithm": str(variant.algorithm(self.tile)),
            "data": self.data,
            "seed": self.seed,
            "variant": variant.name,
            **{k: v for k, v in asdict(variant).items() if k not in ("name", "segments")},
            "planned_for": DEVICE,
            "segments": len(made.segments),
            "samples": found.count,
            "finite": bool(np.isfinite(y).all()),
            **{name: getattr(found, name) for name in metrics},
            "seconds": round(time.perf_counter() - started, 3),
        }
