"""What a kernel claims to compute, and whether a result is that."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np

from winolab.algorithm import Algorithm, parse_algorithm
from winolab.api.layer import Layer
from winolab.api.peers import peer
from winolab.api.predict import of_layer
from winolab.api.tolerance import Checked, Tolerances, tolerance
from winolab.arguments.arrays import precision_named
from winolab.problem import Problem, shapes

DTYPES = {
    "fp32": np.dtype(np.float32),
    "tf32": np.dtype(np.float32),
    "fp32_split": np.dtype(np.float32),
    "fp32_ffma": np.dtype(np.float32),
    "fp16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
}
# Direct products in FP32 may round products before they are added.
RUNS = {"fp32": "fp32,fused=no"}
PLAIN = Problem.of((1, 9, 9, 1), (1, 3, 3, 1))  # every library has its algorithms for such filters
# That no result of a trial exceeds its predicted tolerance: one right kernel in thousands is lost.
CONFIDENCE = 1 - 1e-7
LIKELY = 1e-9  # chance of an overflow that an algorithm may have


@dataclass(frozen=True)
class Claim:
    """The algorithm and precision that a kernel claims, and its results' type.

    Raises ValueError for an unknown algorithm, and for a precision whose arrays nothing here is
    more exact than.
    """

    algorithm: str = "direct"
    precision: str = "fp32"
    direction: str = "forward"

    def __post_init__(self) -> None:
        object.__setattr__(self, "precision", precision_named(self.precision))
        if self.precision.partition(",")[0] not in DTYPES:
            raise ValueError(f"precision {self.precision!r}; expected {', '.join(DTYPES)}")
        if peer(self.algorithm, PLAIN, self.direction, self.precision) is None:
            parse_algorithm(self.algorithm)

    @property
    def dtype(self) -> np.dtype:
        """The type of operands and results."""
        return DTYPES[self.precision.partition(",")[0]]

    def check(self, problem: Problem, a: Any, b: Any, y: np.ndarray) -> Checked | None:
        """Whether ``y`` may be what the algorithm returns of a and b, all channels last; direct
        products' tolerance holds where the algorithm does not serve the problem.

        None where the algorithm itself is expected to overflow.
        """
        limits = self.limits(problem, a, b)
        found = limits.check(y)
        lost = limits.layer.data.finite and not np.isfinite(y.astype(np.float64)).all()
        if lost and of_layer(limits.layer).overflow > LIKELY:
            return None
        return found

    def limits(self, problem: Problem, a: np.ndarray, b: np.ndarray) -> Tolerances:
        """What results may err."""
        operands = a.tobytes(), b.tobytes()
        try:
            return _limits(self, problem, self.algorithm, *operands)
        except ValueError:
            return _limits(self, problem, "direct", *operands)

    def named(self, problem: Problem) -> Algorithm:
        """The algorithm. Raises ValueError where it does not serve the problem."""
        return Layer.of(
            problem.x_shape, problem.w_shape, self.direction, self.algorithm, _geometry(problem),
            self.precision, "u11",
        ).algorithm  # fmt: skip

    def expected(self, problem: Problem, precision: str, a: np.ndarray, b: np.ndarray) -> float:
        """Relative RMS that direct products in another precision are predicted to have."""
        layer = Layer.of(
            problem.x_shape, problem.w_shape, self.direction, "direct", _geometry(problem),
            precision, (a, b),
        )  # fmt: skip
        return of_layer(layer).relative_rms


@lru_cache(maxsize=256)
def _limits(claim: Claim, problem: Problem, algorithm: str, a: bytes, b: bytes) -> Tolerances:
    """Those of operands that have these bytes; kept, for equal calls and other kernels."""
    a_shape, b_shape, _ = shapes(claim.direction, problem)
    operands = (np.frombuffer(a, claim.dtype), np.frombuffer(b, claim.dtype))
    return tolerance(
        problem.x_shape,
        problem.w_shape,
        direction=claim.direction,  # pyright: ignore[reportArgumentType]
        algorithm=algorithm,
        precision=RUNS.get(claim.precision, claim.precision),
        data=(operands[0].reshape(a_shape), operands[1].reshape(b_shape)),
        confidence=CONFIDENCE,
        out_dtype=claim.dtype,
        **_geometry(problem),
    )


@lru_cache(maxsize=256)
def _frozen(problem: Problem) -> tuple:
    return (
        ("stride", problem.stride),
        ("padding", problem.padding),
        ("dilation", problem.dilation),
        ("groups", problem.groups),
        ("layout", "channels_last"),
    )


def _geometry(problem: Problem) -> dict[str, Any]:
    return dict(_frozen(problem))
