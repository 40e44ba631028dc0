"""Predicted times of Γ on FFMA units."""

from __future__ import annotations

import re

import pytest

from winolab.algorithm import parse_algorithm
from winolab.bench.layers import parse_layer
from winolab.device import H100, datasheet
from winolab.gpu.families.gamma_ffma.cost import spent
from winolab.gpu.families.gamma_ffma.plan import GammaFfmaPlan, own_plans
from winolab.gpu.planner.device_model import MODEL
from winolab.gpu.planner.request import Request

# Block shapes of a layer and kernel, and by how much the first was faster than each other one side
# by side on an H100: experiments/results/throughput_variants.jsonl.
FASTER = [
    (
        ("128x37x37x192:192x2x2", "gamma:8:7:2"),
        "96x32x8 stages=4+2 passes=2 rows=2 share=2",
        {"96x32x8 stages=4+2 passes=2 split_k=2": 1.30},
    ),
    (
        ("32x20x20x256:256x7x7", "gamma:16:10:7"),
        "64x32x8 stages=2+2 passes=2 rows=8 share=7 split_k=2 xvec=2 partial=24",
        {"64x32x8 stages=2+2 passes=2 rows=4 share=7 split_k=8 xvec=2 partial=24": 1.06},
    ),
    (
        ("32x43x43x192:192x9x9", "gamma:16:8:9"),
        "64x32x8 stages=2+2 passes=2 rows=8 share=9 xvec=2 partial=18",
        {"48x32x8 stages=2+2 passes=2 rows=4 share=9 xvec=2 partial=18": 1.09},
    ),
    (
        ("32x64x64x128:128x9x9", "gamma:16:8:9"),
        "64x32x8 stages=2+2 passes=2 rows=8 share=9 xvec=2 partial=18 load_warp=1",
        {
            "64x32x8 stages=2+2 passes=2 rows=8 share=9 xvec=2": 1.065,
            "32x64x8 stages=2+2 passes=2 rows=16 share=9 xvec=2 load_warp=1": 1.04,
            "64x32x8 stages=2+2 passes=2 rows=8 share=9 split_k=2 xvec=2 partial=18 "
            "load_warp=1": 1.11,
        },
    ),
    (
        ("32x40x40x128:128x7x7", "gamma:16:10:7"),
        "64x32x8 stages=2+2 passes=2 rows=8 share=7 split_k=2 xvec=2",
        {
            "64x32x8 stages=2+2 passes=2 rows=8 share=7 split_k=2 xvec=2 partial=24 "
            "load_warp=1": 1.03
        },
    ),
    (
        ("32x96x96x96:96x8x8", "gamma:16:9:8"),
        "32x64x8 stages=2+2 passes=2 rows=16 share=8 split_k=2 xvec=2 load_warp=1",
        {"32x64x8 stages=2+2 passes=2 rows=16 share=8 xvec=2": 1.10},
    ),
]

# Plans with two-level sums, and how many times longer than without they took there.
TWO_LEVEL = [
    ("128x24x24x256:256x3x3", 32, "rows=8 share=3 fold=4", 1.072),
    ("128x24x24x256:256x3x3", 64, "rows=8 share=3 fold=8", 1.053),
    ("32x14x14x256:256x3x3", 32, "rows=2 share=3 split_k=2 fold=4", 1.093),
]


def found(layer: str, name: str, device=H100) -> dict[str, GammaFfmaPlan]:
    problem = parse_layer(layer).problem
    asked = Request(problem, "forward", device, parse_algorithm(name), "fp32_ffma")
    return {str(plan.config): plan for plan in own_plans(asked)}


@pytest.mark.parametrize(("case", "shape", "others"), FASTER, ids=[case[0][0] for case in FASTER])
def test_faster_block_shapes_are_predicted_to_be(case, shape, others) -> None:
    """Within thrice the model's spread, 4 %, and faster where they are by more than that."""
    of = found(*case)
    for other, ratio in others.items():
        predicted = of[other].predicted / of[shape].predicted
        assert predicted > 1 or ratio < 1.12
        assert predicted == pytest.approx(ratio, rel=0.125)


def two_level(
    layer: str, products: int
) -> tuple[dict[str, GammaFfmaPlan], dict[str, GammaFfmaPlan]]:
    """Plans with sums of so many products, and without."""
    name = "gamma:8:6:3"
    return found(layer, f"{name};variant=two_level:{products}"), found(layer, name)


@pytest.mark.parametrize(("layer", "products", "shape", "ratio"), TWO_LEVEL)
def test_two_level_sums_take_longer_by_what_was_measured(layer, products, shape, ratio) -> None:
    folded, plain = two_level(layer, products)
    shape = f"64x32x8 stages=4+3 passes=1 {shape}"
    without = plain[re.sub(r" fold=\d", "", shape)]
    assert folded[shape].predicted / without.predicted == pytest.approx(ratio, abs=0.03)


def test_what_is_picked_with_two_level_sums_takes_a_fifth_longer() -> None:
    """In blocks of half the size: 935 and 780 µs."""
    folded, plain = (
        min(plan.predicted for plan in plans.values())
        for plans in two_level("128x24x24x256:256x3x3", 32)
    )
    assert folded / plain == pytest.approx(935.1 / 780.1, rel=0.06)


def test_parts_add_up_and_nothing_is_negative() -> None:
    for plan in found("128x19x19x320:320x3x3", "gamma:8:6:3").values():
        parts = spent(plan)
        assert min(parts.values()) >= 0
        assert sum(parts.values()) == pytest.approx(plan.predicted)


def test_blocks_for_earlier_gpus_wait_a_share_of_their_time() -> None:
    for plan in found("128x19x19x320:320x3x3", "gamma:8:6:3", datasheet("a100")).values():
        parts = spent(plan)
        stages = parts["products"] + parts["operands"] + parts["transforms"]
        assert parts["waits"] == pytest.approx((MODEL.gamma_ffma.earlier - 1) * stages)
