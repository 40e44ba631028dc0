"""An accuracy case that a GPU simulates, with its oracle."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace

import numpy as np

from winolab.algorithm import Problem, direct
from winolab.gpu.runtime.simulation import MagnitudeOnGpu, on_gpu, oracle_on_gpu
from winolab.measure import Case, Piece
from winolab.ref.algorithms import convolution, winograd
from winolab.ref.algorithms.sample import Sample
from winolab.ref.arithmetic.simulated import Arithmetic

# Multiply-adds of direct convolution that are computed at once; bounds the memory.
PART = 1 << 36


class CaseOnGpu(Case):
    """The same case with the same bits, beside FP64 summed in another order: an oracle that sums
    K products is off by at most γ_K of FP64 in either.

    Raises as Case, ValueError where the arithmetic is none that a GPU simulates, MachineError where
    there is no GPU.
    """

    MAGNITUDE = MagnitudeOnGpu

    @property
    def _arithmetic(self) -> Arithmetic:
        return on_gpu(super()._arithmetic)

    @property
    def oracle(self) -> Arithmetic:
        """FP64 on the GPU, where it is the oracle of the case."""
        return oracle_on_gpu() if self._simulated else super().oracle

    def _reference(self, a: np.ndarray, b: np.ndarray, problem: Problem) -> np.ndarray:
        if self.direction == "backward_filter":
            return convolution.backward_filter(a, b, problem)
        return getattr(winograd, self.direction)(a, b, problem, direct(), self.oracle)

    def _bound(
        self, x: np.ndarray, w: np.ndarray, problem: Problem, part: Sample | None = None
    ) -> np.ndarray:
        found = super()._bound(x, w, problem, part)
        if np.isfinite(found).all():
            return found
        return Case(**asdict(self))._bound(x, w, problem, part)  # by the magnitudes that it meets

    def _images(self, x: np.ndarray, w: np.ndarray) -> Iterator[Piece]:
        """All outputs, several images at a time."""
        step = max(1, PART // max(1, self.problem.macs // max(1, len(x))))
        for i in range(0, len(x), step):
            some = x[i : i + step]
            problem = replace(self.problem, batch=len(some))
            yield *self._results(some, w, problem), len(some) / len(x)

    @classmethod
    def of(cls, case: Case) -> CaseOnGpu:
        """That case on a GPU."""
        return cls(**asdict(case))
