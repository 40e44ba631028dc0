"""What filter gradients are picked for a workspace: the usual one, a given one, any."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from papers.winrs_2025.lists import sample
from winolab.algorithm import Tile, parse_algorithm
from winolab.arguments.tolerance import USUAL_TOLERANCE
from winolab.bench.layers import parse_layer
from winolab.device import H100
from winolab.gpu.families.wgrad_direct.plan import WgradColumnsPlan
from winolab.gpu.families.wgrad_im2col.plan import WgradIm2colPlan
from winolab.gpu.families.wgrad_winograd.plan import MODULI, WgradWinogradPlan
from winolab.gpu.planner.accuracy import incurred, predicted_rms
from winolab.gpu.planner.planner import candidates, plan, usual_limit
from winolab.gpu.planner.ranking import WORTH
from winolab.gpu.planner.request import Request
from winolab.ref.algorithms.im2col import DIRECT
from winolab.ref.error.metrics import ADMISSIBLE, error_ratio

BOTH = pytest.mark.parametrize("precision", ["fp16", "fp32"])


def request_of(layer: str, precision: str, **options) -> Request:
    return Request(parse_layer(layer).problem, "backward_filter", H100, None, precision, **options)


@pytest.mark.parametrize(
    ("layer", "precision"),
    [
        ("128x56x56x128:128x4x4", "fp16"),
        ("64x56x56x128:128x5x5", "fp16"),
        ("128x56x56x128:128x4x4", "fp32"),
    ],
)
def test_what_a_small_workspace_leaves(layer, precision) -> None:
    """With 0.18 of the data, direct products, not chunks of transforms."""
    limit = int(0.18 * request_of(layer, precision).data_size)
    request = request_of(layer, precision, workspace_limit=limit)
    chosen = plan(request)
    assert isinstance(chosen.primary, (WgradColumnsPlan, WgradIm2colPlan))
    assert chosen.workspace <= limit
    found: tuple[Any, ...] = candidates(request).plans
    chunks = [p for p in found if p.tiles[0].alpha > 1]
    assert chunks
    assert all(p.predicted > chosen.predicted for p in chunks)


@pytest.mark.parametrize(
    ("layer", "precision", "fastest"),
    [
        ("32x128x128x256:256x2x2", "fp16", "WgradColumnsPlan"),
        ("128x48x48x128:128x4x4", "fp16", "WgradColumnsPlan"),
        ("128x96x96x64:64x3x3", "fp16", "WgradNarrowPlan"),
        ("128x20x20x512:512x3x3", "fp16", "WgradWinogradPlan"),
        ("32x48x48x128:128x9x9", "fp16", "WgradWinogradPlan"),
        ("256x64x64x64:64x7x7", "fp32", "WgradWinogradPlan"),
        ("256x64x64x64:64x3x3", "fp32", "WgradSplitPlan"),
        ("128x20x20x512:512x3x3", "fp32", "WgradWinogradPlan"),
    ],
)
def test_where_transforms_take_longer_than_they_save(layer, precision, fastest) -> None:
    found = candidates(request_of(layer, precision)).plans[0]
    assert type(found.primary).__name__ == fastest


@BOTH
def test_a_gradient_takes_more_than_the_usual_workspace_where_it_is_worth_it(precision) -> None:
    """Some layers of WinRS's grid take more, and save a tenth; others would save less."""
    more = 0
    for layer in sample():
        request = request_of(str(layer), precision)
        chosen, fastest = plan(request), candidates(request).plans[0]
        limit = usual_limit(request)
        lean = plan(replace(request, workspace_limit=limit))
        if chosen.workspace > limit:
            more += 1
            assert chosen == fastest
            assert chosen.predicted <= WORTH * lean.predicted
        else:
            assert chosen.predicted <= fastest.predicted / WORTH
            assert chosen.predicted <= lean.predicted / WORTH
    assert 0 < more < len(sample())


@BOTH
def test_a_limit_or_a_name_decides_the_workspace(precision) -> None:
    asked = request_of("64x20x20x1024:1024x3x3", precision)
    limit = usual_limit(asked)
    usual, lean = plan(asked), plan(replace(asked, workspace_limit=limit))
    assert lean.workspace <= limit < usual.workspace
    assert usual.predicted <= WORTH * lean.predicted
    named = replace(asked, algorithm=parse_algorithm("omega:9:3:7"))
    assert plan(named).workspace > limit


@pytest.mark.parametrize("tolerance", [None, USUAL_TOLERANCE])
def test_tiles_in_more_states_are_picked_for_large_filters(tolerance) -> None:
    """They err a third to a tenth of what minimal tiles of as many taps do."""
    for layer, precision, tile in (
        ("32x28x28x256:256x7x7", "fp32", Tile(7, 6, 15)),
        ("32x28x28x256:256x9x9", "fp32", Tile(9, 8, 19)),
        ("32x28x28x256:256x7x7", "fp16", Tile(7, 6, 15)),
        ("32x28x28x256:256x9x9", "fp16", Tile(5, 6, 12)),  # Ω19(9,8) errs more than four times
    ):
        chosen = plan(request_of(layer, precision, tolerance=tolerance)).primary
        assert chosen.tiles == (tile,)
        assert chosen.points == MODULI[tile]
        assert predicted_rms(chosen) < (5e-4 if precision == "fp16" else 1e-6)


def test_no_gradient_in_16_bits_errs_more_than_four_times_what_direct_does_unasked() -> None:
    for layer in sample():
        for plan_ in candidates(request_of(str(layer), "fp16")).plans:
            if plan_.primary.tiles[0].alpha > 1 and isinstance(plan_.primary, WgradWinogradPlan):
                assert incurred("direct", plan_) <= USUAL_TOLERANCE.most


@BOTH
def test_a_gradient_without_such_products_takes_the_workspace(precision) -> None:
    """Odd channels have no direct products on Tensor Cores but Ω's, which take a workspace too."""
    request = request_of("128x20x20x511:512x3x3", precision, aligned=False)
    assert plan(request) == candidates(request).plans[0]


@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("more", [0, 255, 256])
def test_limits_of_a_few_results_leave_what_takes_nothing(times, more) -> None:
    """A fallback with buckets of that size, behind the flags, does not fit into these."""
    layer = "32x56x56x64:64x3x3"
    limit = times * 4 * 64 * 9 * 64 + more
    for precision in ("fp32", "fp32_split"):
        request = request_of(layer, precision, workspace_limit=limit)
        direct = parse_algorithm("direct")
        assert plan(request).workspace <= limit
        assert plan(replace(request, algorithm=direct)).primary.precision == "fp32_split"


@pytest.mark.parametrize("precision", ["fp16", "fp32", "fp32_ffma"])
@pytest.mark.parametrize("points", ["0,1,2,3,4,5,6,inf", "0,1,-1,inf", "paper"])
def test_winrs_is_admissible_at_any_points(points, precision) -> None:
    """Where points err too much, other tiles are left, which take their own best, or, of the
    paper's plan, none that the points serve."""
    request = request_of("32x56x56x64:64x3x3", precision)
    if points.endswith("6,inf"):
        with pytest.raises(ValueError, match=r"as many as Ω4\(3,2\) of the plan has states"):
            plan(replace(request, algorithm=parse_algorithm(f"winrs@{points}")))
        return
    chosen = plan(replace(request, algorithm=parse_algorithm(f"winrs@{points}"))).primary
    (tile,) = chosen.tiles
    assert tile == DIRECT or error_ratio(tile, points) <= ADMISSIBLE
    chosen.source()


@pytest.mark.parametrize("precision", ["fp16", "fp32", "fp32_ffma"])
def test_winrs_refuses_points_that_serve_no_kernel(precision) -> None:
    request = request_of("32x56x56x64:64x3x3", precision)
    with pytest.raises(ValueError, match=r"3 points given; .* as many as a kernel of winrs"):
        plan(replace(request, algorithm=parse_algorithm("winrs@0,1,-1")))
