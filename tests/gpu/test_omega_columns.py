"""Direct filter gradients of 16-bit data by columns: plans, shares, and results against FP64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from experiments.throughput_cases import winrs_sample
from tests.gpu.gradients import SMALL, asked
from tests.gpu.halves import on_cpu, on_gpu, problems, too_far
from tests.gpu.structs import c_fields
from winolab.device import H100
from winolab.gpu import nvrtc, omega_columns
from winolab.gpu.columns import COLUMN_PARAMS, ENDS, Shares
from winolab.gpu.emit import kernel
from winolab.gpu.omega_columns import (
    SOURCE,
    VARIANTS,
    WORK,
    OmegaColumnsPlan,
    Variant,
)
from winolab.gpu.plan import SLOWER, USUAL_SHARE, Request, candidates, plan, usual_limit
from winolab.layers import parse_layer
from winolab.nouns import Problem, parse_algorithm
from winolab.ref.winrs_plan import data_size

Execute = Callable[[OmegaColumnsPlan, np.ndarray, np.ndarray], np.ndarray]


def planned(problem: Problem, precision: str, variant: Variant, kind: str) -> OmegaColumnsPlan:
    return asked(omega_columns, precision, problem, variant=variant, out_dtype=kind)


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
            whole = planned(problem, precision, variant, kind)
            p = shared(whole, multiprocessors, sharing)
            assert too_far(p, x, dy, execute(p, x, dy)) <= 1


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


def test_a_gradient_without_such_products_takes_the_workspace() -> None:
    """Odd channels have no direct products but Ω's, which take a workspace too."""
    request = request_of("128x20x20x511:512x3x3", aligned=False)
    assert plan(request) == candidates(request).plans[0]


def test_parameters_are_laid_out_as_the_kernel_declares_them() -> None:
    first = ("OmegaParams sum", "i")  # a struct of omega_plan.PARAMS' fields
    assert c_fields("ColumnParams", kernel("columns")) == (first, *COLUMN_PARAMS.fields)


def test_structs_in_shared_memory_are_as_large_as_planned() -> None:
    """The engine gives a kernel as many bytes as its plan says, and no more."""
    p = planned(SMALL, "fp16", Variant(3, 64, 128, 8), "float32")
    text = p.source()
    sizes = "sizeof(Work) == {} && sizeof(Source<Element>) == {} && sizeof(Shared) == {}"
    check = f"\nstatic_assert({sizes.format(WORK, SOURCE, p.variant.shared_memory)});"
    assert nvrtc.compile_cubin(text + check, "sm_90a").resources
