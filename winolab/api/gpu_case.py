"""An accuracy case whose simulated products a GPU sums."""

from __future__ import annotations

from dataclasses import asdict

from winolab.gpu.runtime.simulation import on_gpu
from winolab.measure import Case
from winolab.ref.arithmetic.simulated import Arithmetic


class CaseOnGpu(Case):
    """The same case with the same numbers.

    Raises as Case, ValueError where the arithmetic is none that a GPU simulates, MachineError where
    there is no GPU.
    """

    @property
    def _arithmetic(self) -> Arithmetic:
        return on_gpu(super()._arithmetic)

    @classmethod
    def of(cls, case: Case) -> CaseOnGpu:
        """That case on a GPU."""
        return cls(**asdict(case))
