"""Direct filter gradients of 16-bit data on wgmma: plans, and results against FP64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from tests.gpu import hosted
from winolab.device import H100, datasheet
from winolab.gpu import nvrtc
from winolab.gpu.gamma_tensor_blocks import REGISTERS
from winolab.gpu.omega_direct import CONSUMERS, VARIANTS, OmegaDirectPlan, Variant, plans
from winolab.gpu.plan import Request
from winolab.nouns import Problem, parse_algorithm
from winolab.ref import convolution

Execute = Callable[[OmegaDirectPlan, np.ndarray, np.ndarray], np.ndarray]
DTYPES = {"fp16": np.dtype("float16"), "bf16": np.dtype(ml_dtypes.bfloat16)}
UNIT = {"float32": 0.0, "float16": 2.0**-11, "bfloat16": 2.0**-8}  # of rounding the result
# x, dW, padding, precision: filters that taps divide and others, odd blocks, depths, groups
CASES = [
    ((3, 6, 9, 72), (72, 3, 3, 72), 1, "fp16"),
    ((2, 7, 11, 136), (40, 2, 4, 136), ((1, 0), (2, 1)), "bf16"),
    ((2, 3, 5, 7, 16), (32, 2, 2, 5, 8), 1, "fp16"),
    ((2, 1, 70, 8), (8, 1, 1, 8), 0, "bf16"),
    ((1, 2, 3, 8), (8, 9, 2, 8), ((6, 8), (1, 1)), "fp16"),  # rows that meet no input
]


def on_cpu(p: OmegaDirectPlan, x: np.ndarray, dy: np.ndarray) -> np.ndarray:
    return hosted.execute(p, x, dy, dtype=p.out_dtype)


def on_gpu(p: OmegaDirectPlan, x: np.ndarray, dy: np.ndarray) -> np.ndarray:
    from winolab.gpu import launch
    from winolab.gpu.call import load
    from winolab.gpu.places import Place

    cp = launch.cupy()
    stored = {"float32": "float32", "float16": "float16", "bfloat16": "uint16"}[p.out_dtype]
    bits = (cp.asarray(a.view(np.uint16)) for a in (x, dy))
    arrays = *bits, cp.full(p.problem.w_shape, 0xFFFF, "uint32").astype(stored)
    a, b, out = (
        Place.fresh(array.shape).view(array.data.ptr, filter=i == 2)
        for i, array in enumerate(arrays)
    )
    workspace = cp.full(max(4, p.workspace), 0xFF, "uint8")
    p.launch(load(p, 0), a, b, out, workspace.data.ptr, 0)
    dw = arrays[2].get()
    return dw.view(ml_dtypes.bfloat16) if p.out_dtype == "bfloat16" else dw


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
    rng = np.random.default_rng(1)
    for i, (x_shape, w_shape, padding, precision) in enumerate(CASES):
        groups = x_shape[-1] // w_shape[-1]
        problem = Problem.of(x_shape, w_shape, padding=padding, groups=groups)
        dtype = DTYPES[precision]
        x, dy = (rng.uniform(-1, 1, s).astype(dtype) for s in (problem.x_shape, problem.y_shape))
        exact = convolution.backward_filter(x.astype(float), dy.astype(float), problem)
        kind = dtype.name if i % 2 else "float32"
        for segments in (1, 3):
            p = cut(planned(problem, precision, variant, out_dtype=kind), segments)
            dw = execute(p, x, dy).astype(float)
            error = ((dw - exact) ** 2).mean() ** 0.5
            # sums of products in [-1, 1) truncated at 2^-24 of their largest, 64 products a chunk
            terms = problem.y_shape[0] * np.prod(problem.output)
            assert error <= (2.0**-22 * terms**0.5 + UNIT[kind]) * (exact**2).mean() ** 0.5


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
