"""What the tests of Γ on Tensor Cores ask of errors and of plans."""

from __future__ import annotations

from dataclasses import asdict

from winolab.gpu.families.gamma_wgmma.plan import GammaWgmmaPlan

BOUND = 16 * 2**-24  # relative RMS: FP32's with the noise gain of Γ8


def has(plan: GammaWgmmaPlan, **policies: int) -> bool:
    """Whether a plan has these policies."""
    return {**asdict(plan.config), **policies} == asdict(plan.config)
