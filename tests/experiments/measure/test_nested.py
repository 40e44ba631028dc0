"""What the measurement of nested kernels runs, planned without a GPU (issue 48, section 4)."""

from __future__ import annotations

from experiments.measure.nested import cases, fused, named
from winolab.device import H100
from winolab.gpu.families.gamma_ffma.plan import GammaFfmaPlan
from winolab.gpu.planner.request import Request


def test_squares_have_every_modulus_of_three_taps_in_three_precisions() -> None:
    found = list(cases("squares"))
    assert {problem.filter for problem, _ in found} == {(3, 3)}
    assert [group for _, group in found[:3]] == ["fp16", "fp32", "bf16"]
    assert len(found) + len(list(cases("video"))) + len(list(cases("large"))) == 24 + 9 + 20
    for problem, group in found[:3]:
        plans = list(named(Request(problem, "forward", H100, None, group)))
        kernels = {plan.kernel for plan in plans}
        assert {"F(4×4,3×3)", "F(6×6,3×3;9×9)", "F(7×7,3×3;10×10)"} <= kernels
        assert {"F(8×8,3×3;12×12)", "F(9×9,3×3;14×14)"} <= kernels
        assert all(plan.predicted > 0 for plan in plans)


def test_fp32_has_fused_tiles_beside_it_with_moduli_and_without() -> None:
    for problem, group in cases("large"):
        plans = list(fused(Request(problem, "forward", H100, None, group)))
        assert len(plans) == 2 * (group == "fp32")
        assert [plan.precision for plan in plans] == ["fp32"] * len(plans)
        tiles = [plan.tile for plan in plans if isinstance(plan, GammaFfmaPlan)]
        assert [tile.minimal for tile in tiles] == [True, False][: len(tiles)]
