"""One tap, forward, in FP32, dense arrays: the least family that the planner can pick."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from winolab.algorithm import Algorithm, Problem, Tile, direct
from winolab.device import Device
from winolab.gpu.codegen.emit import unit
from winolab.gpu.codegen.structs import layout
from winolab.gpu.params import Kernels, View
from winolab.gpu.planner.base_plan import BasePlan
from winolab.gpu.planner.request import Request
from winolab.options import KernelConfig


@dataclass(frozen=True)
class Config(KernelConfig):
    """Threads of a block."""

    threads: int = 128

    def __str__(self) -> str:
        return f"{self.threads} threads"


@dataclass(frozen=True)
class TrialPlan(BasePlan):
    """One call."""

    direction: str
    problem: Problem
    device: Device
    precision: str
    out_dtype: str
    config: Config
    predicted: float = 1e-9  # seconds: less than any other

    kernel = "trial"
    tiles: tuple[Tile, ...] = ()
    points = "best"
    simulated = "fp32"
    workspace = 0

    @property
    def algorithm(self) -> Algorithm:
        return direct()

    @property
    def positions(self) -> int:
        return self.problem.batch * math.prod(self.problem.output)

    def source(self) -> str:
        constants = {"CHANNELS": self.problem.in_channels, "THREADS": self.config.threads}
        return unit("trial", constants, {}, ("trial_family/kernel",))

    def shared(self) -> dict[str, int]:
        return {"winolab_trial": 0}

    def launch(
        self, kernels: Kernels, a: View, b: View, out: View, workspace: int, index: int
    ) -> None:
        m = self.problem.out_channels
        blocks = -(-self.positions * m // self.config.threads)
        params = layout("TrialParams", "trial_family/kernel").pack(
            a.address, b.address, out.address, self.positions, m
        )
        kernels["winolab_trial"]((blocks, 1, 1), self.config.threads, params)

    def __str__(self) -> str:
        return f"kernel     trial {self.config}"


def plans(request: Request) -> Iterator[Any]:
    """The plan. Raises ValueError for more than one tap, groups, strides and padding."""
    p = request.problem
    if math.prod(p.filter) > 1 or p.groups > 1 or not p.unit or any(map(any, p.padding)):
        raise ValueError("trial kernels have one tap")
    yield TrialPlan(
        request.direction, p, request.device, request.precision, request.stored, Config()
    )
