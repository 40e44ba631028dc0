"""Direct filter gradients of 16-bit data by columns: plans, shares, and results against FP64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from experiments.throughput_cases import winrs_sample
from tests.gpu import hosted
from winolab.device import H100, datasheet
from winolab.gpu import nvrtc
from winolab.gpu.columns import ENDS, Shares
from winolab.gpu.gamma_tensor_blocks import REGISTERS
from winolab.gpu.omega_columns import (
    CONSUMERS,
    PRODUCERS,
    VARIANTS,
    OmegaColumnsPlan,
    Variant,
    plans,
)
from winolab.gpu.plan import SLOWER, USUAL_SHARE, Request, candidates, plan, usual_limit
from winolab.layers import parse_layer
from winolab.nouns import Problem, parse_algorithm
from winolab.ref import convolution
from winolab.ref.winrs_plan import data_size

Execute = Callable[[OmegaColumnsPlan, np.ndarray, np.ndarray], np.ndarray]
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


def on_cpu(p: OmegaColumnsPlan, x: np.ndarray, dy: np.ndarray) -> np.ndarray:
    return hosted.execute(p, x, dy, dtype=p.out_dtype)


def on_gpu(p: OmegaColumnsPlan, x: np.ndarray, dy: np.ndarray) -> np.ndarray:
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


def planned(problem: Problem, precision: str, variant: Variant, **options) -> OmegaColumnsPlan:
    options = {"out_dtype": "float32", **options}
    found = plans(
        Request(problem, "backward_filter", H100, None, precision, variant=variant, **options)
    )
    return next(iter(found))


def shared(p: OmegaColumnsPlan, multiprocessors: int, sharing: int) -> OmegaColumnsPlan:
    """The same on so many multiprocessors, so many of which share what is left; 0: none does;
    below 0: all items are shared, in so many parts each."""
    items = p.shares.items
    if sharing == 0:
        return replace(p, shares=Shares(multiprocessors, items, items, 0, 0, 0, 0.0))
    if sharing < 0:
        sharing, parts, rest = -sharing * items, -sharing, items
    else:
        rest, parts = items % multiprocessors, 0
        stages = [n for n in p.columns.stages for _ in range(items // len(p.columns.stages))]
        sharing = min(sharing, sum(stages[items - rest :]))  # a block has a stage at least
    sums = 4 * p.variant.n * p.variant.bi * p.variant.bo * (sharing + rest) + ENDS * rest
    shares = Shares(multiprocessors, items, items - rest, sharing, parts, rest and sums, 0.0)
    return replace(p, shares=shares)


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
        for multiprocessors, sharing in ((4, 0), (1 << 20, 50), (4, 3), (4, -2)):
            p = shared(
                planned(problem, precision, variant, out_dtype=kind), multiprocessors, sharing
            )
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
    dw = on_cpu(planned(problem, "fp16", Variant(2, 128, 128, 5)), x, dy)
    assert not np.isfinite(dw[..., 5]).any()
    assert np.isfinite(np.delete(dw, 5, axis=-1)).all()


def test_compiles_without_spills() -> None:
    for variant in VARIANTS:
        p = planned(Problem.of((2, 9, 9, 64), (64, 4, 4, 64)), "fp16", variant)
        resources = nvrtc.compile_cubin(p.source(), "sm_90a").resources
        assert all(r.spills == 0 for r in resources.values()), (variant, resources)
        shared = REGISTERS // (CONSUMERS + PRODUCERS) // 8 * 8  # by the roles
        assert resources["winolab_omega_columns"].registers == shared
        assert p.shared()["winolab_omega_columns"] <= H100.shared_memory


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


def request_of(layer: str, **options) -> Request:
    return Request(parse_layer(layer).problem, "backward_filter", H100, None, "fp16", **options)


@pytest.mark.parametrize("layer", ["128x56x56x128:128x4x4", "64x56x56x128:128x5x5"])
def test_what_a_small_workspace_leaves(layer) -> None:
    """With 0.18 of the data, direct products without a workspace, not chunks of transforms."""
    limit = int(0.18 / USUAL_SHARE * usual_limit(request_of(layer)))
    request = request_of(layer, workspace_limit=limit)
    chosen = plan(request)
    assert isinstance(chosen, OmegaColumnsPlan)
    assert chosen.workspace <= limit
    chunks = [p for p in candidates(request).plans if p.tile.alpha > 1]
    assert chunks
    assert all(p.predicted > chosen.predicted for p in chunks)


@pytest.mark.parametrize(
    ("layer", "family"),
    [
        ("32x128x128x256:256x2x2", "omega_columns"),
        ("128x48x48x128:128x4x4", "omega_columns"),
        ("128x96x96x64:64x3x3", "omega_direct"),
        ("128x20x20x512:512x3x3", "omega_tensor_launch"),
        ("32x48x48x128:128x9x9", "omega_tensor_launch"),
    ],
)
def test_where_transforms_take_longer_than_they_save(layer, family) -> None:
    fastest = candidates(request_of(layer)).plans[0]
    assert type(fastest).__module__ == f"winolab.gpu.{family}"


def test_a_gradient_keeps_to_the_usual_workspace() -> None:
    """Of WinRS's grid on average 0.18 of the data, no layer at more than twice the time."""
    shares = []
    for layer in winrs_sample():
        request = request_of(str(layer))
        chosen, fastest = plan(request), candidates(request).plans[0]
        assert chosen.workspace <= usual_limit(request)
        assert chosen.predicted <= SLOWER * fastest.predicted
        shares.append(chosen.workspace / (data_size(layer.problem) / 2))
    assert sum(shares) / len(shares) <= 0.18


def test_a_larger_limit_or_a_name_takes_more() -> None:
    layer = "64x20x20x1024:1024x3x3"
    usual, free = plan(request_of(layer)), plan(request_of(layer, workspace_limit=1 << 40))
    assert free.predicted < usual.predicted
    assert free.workspace > usual_limit(request_of(layer)) >= usual.workspace
    named = replace(request_of(layer), algorithm=parse_algorithm("omega:9:3:7"))
    assert plan(named).workspace > usual_limit(named)


def test_a_gradient_that_would_take_much_longer_takes_the_workspace() -> None:
    """Odd channels have no direct products but Ω's, which take a workspace too."""
    request = request_of("128x20x20x511:512x3x3", aligned=False)
    assert plan(request) == candidates(request).plans[0]
