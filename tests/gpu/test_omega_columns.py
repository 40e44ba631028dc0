"""Direct filter gradients of 16-bit data by columns: plans, shares, and results against FP64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from experiments.throughput_cases import winrs_sample
from tests.gpu.halves import on_cpu, on_gpu, problems, too_far
from tests.gpu.structs import c_fields
from winolab.device import H100, datasheet
from winolab.gpu import nvrtc
from winolab.gpu.columns import COLUMN_PARAMS, ENDS, Shares
from winolab.gpu.emit import kernel
from winolab.gpu.gamma_tensor_blocks import REGISTERS
from winolab.gpu.omega_columns import (
    CONSUMERS,
    PRODUCERS,
    SOURCE,
    VARIANTS,
    WORK,
    OmegaColumnsPlan,
    Variant,
    plans,
)
from winolab.gpu.plan import SLOWER, USUAL_SHARE, Request, candidates, plan, usual_limit
from winolab.layers import parse_layer
from winolab.nouns import Problem, parse_algorithm
from winolab.ref.winrs_plan import data_size

Execute = Callable[[OmegaColumnsPlan, np.ndarray, np.ndarray], np.ndarray]


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
    for problem, precision, kind, x, dy in problems():
        for multiprocessors, sharing in ((4, 0), (1 << 20, 50), (4, 3), (4, -2)):
            whole = planned(problem, precision, variant, out_dtype=kind)
            p = shared(whole, multiprocessors, sharing)
            assert too_far(p, x, dy, execute(p, x, dy)) <= 1


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


def test_parameters_are_laid_out_as_the_kernel_declares_them() -> None:
    first = ("OmegaParams sum", "i")  # a struct of omega_plan.PARAMS' fields
    assert c_fields("ColumnParams", kernel("columns")) == (first, *COLUMN_PARAMS.fields)


def test_structs_in_shared_memory_are_as_large_as_planned() -> None:
    """The engine gives a kernel as many bytes as its plan says, and no more."""
    p = planned(Problem.of((2, 9, 9, 64), (64, 3, 3, 64)), "fp16", Variant(3, 64, 128, 8))
    text = p.source()
    sizes = "sizeof(Work) == {} && sizeof(Source<Element>) == {} && sizeof(Shared) == {}"
    check = f"\nstatic_assert({sizes.format(WORK, SOURCE, p.variant.shared_memory)});"
    assert nvrtc.compile_cubin(text + check, "sm_90a").resources
