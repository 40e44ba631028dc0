"""Direct filter gradients of 16-bit data on wgmma: plans, and results against FP64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tests.gpu.halves import on_cpu, on_gpu, problems, too_far
from winolab.device import H100, datasheet
from winolab.gpu import nvrtc
from winolab.gpu.gamma_tensor_blocks import REGISTERS
from winolab.gpu.omega_direct import CONSUMERS, VARIANTS, OmegaDirectPlan, Variant, plans
from winolab.gpu.plan import Request
from winolab.nouns import Problem, parse_algorithm

Execute = Callable[[OmegaDirectPlan, np.ndarray, np.ndarray], np.ndarray]


def planned(problem: Problem, precision: str, variant: Variant, **options) -> OmegaDirectPlan:
    options = {"out_dtype": "float32", **options}
    found = plans(
        Request(problem, "backward_filter", H100, None, precision, variant=variant, **options)
    )
    return next(iter(found))


def cut(p: OmegaDirectPlan, segments: int) -> OmegaDirectPlan:
    bucket = 4 * p.gradient.weights
    return replace(p, segments=segments, workspace=bucket * segments if segments > 1 else 0)


@pytest.mark.parametrize("execute", [on_cpu, pytest.param(on_gpu, marks=pytest.mark.gpu)])
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_gradients_are_those_of_fp64(variant, execute: Execute) -> None:
    for problem, precision, kind, x, dy in problems():
        for segments in (1, 3):
            p = cut(planned(problem, precision, variant, out_dtype=kind), segments)
            assert too_far(p, x, dy, execute(p, x, dy)) <= 1


def test_nothing_but_the_result_holds_infinity() -> None:
    """An infinity in x is in every tap that meets it, and in no other channel."""
    rng = np.random.default_rng(2)
    problem = Problem.of((1, 5, 6, 16), (8, 3, 3, 16), padding=1)
    x, dy = (rng.uniform(-1, 1, s).astype("f2") for s in (problem.x_shape, problem.y_shape))
    x[0, 2, 3, 5] = np.inf
    dw = on_cpu(planned(problem, "fp16", Variant(3, 64, 64, 6, 128, 256)), x, dy)
    assert not np.isfinite(dw[..., 5]).any()
    assert np.isfinite(np.delete(dw, 5, axis=-1)).all()


def test_compiles_without_spills() -> None:
    for variant in VARIANTS:
        p = planned(Problem.of((2, 9, 9, 64), (64, 4, 4, 64)), "fp16", variant)
        resources = nvrtc.compile_cubin(p.source(), "sm_90a").resources
        assert all(r.spills == 0 for r in resources.values()), (variant, resources)
        shared = REGISTERS // (CONSUMERS + variant.producers) // 8 * 8  # by the roles
        assert resources["winolab_omega_direct"].registers == shared
        assert p.shared()["winolab_omega_direct"] <= H100.shared_memory


def test_what_does_not_fit_is_refused() -> None:
    problem = Problem.of((2, 9, 9, 64), (64, 3, 3, 64))

    def asked(problem=problem, device=H100, text=None, aligned=True):
        algorithm = parse_algorithm(text) if text else None
        return next(
            plans(Request(problem, "backward_filter", device, algorithm, "fp16", aligned=aligned))
        )

    with pytest.raises(ValueError, match=r"9\.0's"):
        asked(device=datasheet("a100"))
    with pytest.raises(ValueError, match="do not compute omega:8:3:6"):
        asked(text="omega:8:3:6")
    with pytest.raises(ValueError, match="multiples of 8 channels, not 12 and 64"):
        asked(Problem.of((2, 9, 9, 12), (64, 3, 3, 12)))
    with pytest.raises(ValueError, match="16-byte aligned"):
        asked(aligned=False)
    assert asked(text="direct").kernel == "Ω2(1,1)"
