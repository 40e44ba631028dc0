"""What is measured of direct products whose copies walk positions."""

from __future__ import annotations

from collections import Counter

from experiments.measure.ways.positions import H200, cases, parts, plans
from winolab.gpu.families.im2col.config import TF32_CONFIGS
from winolab.gpu.families.im2col.plan import Im2colPlan


def test_in_fp32_all_blocks_of_tf32_parts_stand_beside_the_pick() -> None:
    every = cases()
    first = [case for case in every if case[2] == "fp32"]
    assert every[: len(first)] == first
    assert Counter(case[1] for case in first).keys() == {"forward", "backward_data"}
    for layer, direction, group in first[::97]:
        found = plans(layer, direction, group, H200)
        assert [*found.values()] == [True, *(len(found) - 1) * [False]]
        mine = {p.config for p in found if isinstance(p, Im2colPlan)}
        widths = {v for v in TF32_CONFIGS if direction == "forward" or v.bm % 64 == 0}
        assert mine == widths == {p.config for p in parts(layer, direction)}
