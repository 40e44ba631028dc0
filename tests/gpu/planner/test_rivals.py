"""What a clock may choose from: nearly as fast as the pick, and no worse in anything else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from winolab.algorithm import direct, gamma
from winolab.arguments.tolerance import USUAL_TOLERANCE, Tolerance
from winolab.bench.contenders import unnamed
from winolab.bench.networks import parse
from winolab.device import datasheet
from winolab.gpu.planner.accuracy import incurred
from winolab.gpu.planner.planner import candidates, plan, usual_limit
from winolab.gpu.planner.ranking import NEAR, loses, loss, taken
from winolab.gpu.planner.request import DIRECTIONS, Request
from winolab.gpu.planner.rivals import MOST, rivals, what

H200 = datasheet("h200")
LAYERS = (
    "1x56x56x24>144x1x1", "32x14x14x672>128x1x1", "32x65x65x256>256x3x3p1", "2x65x65x64>64x3x3s2p1",
    "1x65x65x512>64x3x3p12d12", "32x56x56x72>72x3x3p1g72", "32x14x14x512>512x3x3p1g32",
    "1x224x224x3>64x7x7s2p3", "1x7999x512>512x3s2", "2x16x16x16x128>256x3x3x3p1",
)  # fmt: skip


def asked(layer: str, direction: str, precision: str) -> Request:
    return unnamed(direction, parse(layer).problem, precision, H200)


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_rivals_keep_to_what_the_pick_keeps_to(layer: str, precision: str, direction: str) -> None:
    request = asked(layer, direction, precision)
    pick, *others = rivals(request)
    assert pick == plan(request)
    assert len({what(p) for p in (pick, *others)}) == 1 + len(others)
    seconds, data = taken(request), request.data_size
    for p in others:
        assert seconds(p) <= NEAR * seconds(pick)
        assert p.out_dtype == pick.out_dtype
        if direction == "backward_filter":
            assert p.workspace <= max(usual_limit(request), pick.workspace)
            continue
        assert p.beside <= max(data, pick.beside)
        if p.precision == "fp32_split":
            assert not loses(p)
            least = loss(pick) if pick.precision == "fp32_split" else 1.0
            assert loss(p) <= max(1.0, least)


def test_somewhere_there_are_many_and_of_several_kernels() -> None:
    every = [rivals(asked(v, d, p)) for v in LAYERS for d in DIRECTIONS for p in ("fp32", "fp16")]
    assert max(map(len, every)) >= MOST
    assert sum(len({p.kernel for p in found}) > 1 for found in every) >= 12
    near = [candidates(asked(v, "forward", "fp16"), near=True).plans for v in LAYERS]
    assert sum(map(len, near)) > 2 * sum(len(rivals(asked(v, "forward", "fp16"))) for v in LAYERS)


def test_the_fastest_of_each_kernel_comes_before_others_of_one() -> None:
    found = rivals(asked("32x65x65x256>256x3x3p1", "forward", "fp16"))
    kernels = [p.kernel for p in found]
    first = [kernels.index(kernel) for kernel in dict.fromkeys(kernels)]
    assert first == [0, 1, 2]
    for kernel in kernels[:3]:
        mine = [p.predicted for p in found if p.kernel == kernel]
        assert mine[0] == min(mine)


def test_a_filter_apart_is_kept_by_all() -> None:
    request = asked("32x65x65x256>256x3x3p1", "forward", "fp32")
    found = rivals(request, apart=True)
    assert len(found) > 1
    assert found[0] == plan(request, apart=True)
    assert all(p.prepared_size for p in found)


def test_limits_and_tolerances_hold_for_all() -> None:
    request = asked("32x65x65x256>256x3x3p1", "forward", "fp16")
    limit = 1 << 20
    tight = rivals(replace(request, workspace_limit=limit))
    assert len(tight) > 1
    assert all(p.workspace <= limit for p in tight)
    assert {p.kernel for p in rivals(request)} > {"Γ1(1,1)"}
    exact = rivals(replace(request, tolerance=Tolerance("direct", 1.0)))
    assert all(t.alpha == 1 for p in exact for t in p.tiles)
    usual = rivals(replace(request, tolerance=USUAL_TOLERANCE))
    assert any(t.alpha > 1 for p in usual for t in p.tiles)
    assert all(incurred("direct", p) <= USUAL_TOLERANCE.most for p in usual)
    absolute = rivals(replace(request, tolerance=Tolerance("predicted", 1e-3)))
    assert all(incurred("predicted", p) <= 1e-3 for p in absolute)


def test_a_result_in_float32_shows_no_transform_beside_a_direct_pick() -> None:
    request = replace(asked("32x65x65x256>256x3x3p1", "forward", "fp16"), out_dtype="float32")
    found = rivals(request)
    assert all(t.alpha == 1 for p in found for t in p.tiles)
    assert all(p.out_dtype == "float32" for p in found)


def test_what_is_named_stays_named() -> None:
    request = asked("32x65x65x256>256x3x3p1", "forward", "fp16")
    for algorithm in (direct(), gamma(8, 6, 3)):
        found = rivals(replace(request, algorithm=algorithm))
        assert len(found) > 1
        assert {p.tiles for p in found} == {found[0].tiles}
    pick = plan(request)
    assert rivals(replace(request, config=pick.config)) == [pick]


@pytest.mark.parametrize("how", ["batch_invariant", "planes"])
def test_where_another_would_not_stand_for_the_pick_it_is_alone(how: str) -> None:
    """Bits of every batch; maps that lie channels first, which are not timed so."""
    request = asked("32x14x14x672>128x1x1", "forward", "fp16")
    assert len(rivals(request)) > 1
    assert len(rivals(replace(request, **{how: True}))) == 1  # type: ignore[arg-type]
