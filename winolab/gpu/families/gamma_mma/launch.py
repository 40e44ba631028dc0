"""Launches of Γ by mma.sync: those of all Γ on Tensor Cores, with this main kernel's parameters."""

from __future__ import annotations

from winolab.gpu.codegen.structs import layout
from winolab.gpu.families.gamma.launch import Launches
from winolab.gpu.families.gamma_mma.config import Config

PARAMS = layout(Config.params, "gamma_mma/block")


class MmaLaunches(Launches):
    """Launches a call, whose workspace is laid out like that."""

    params = PARAMS
