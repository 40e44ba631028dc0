"""What is measured of direct products whose copies walk positions."""

from __future__ import annotations

from collections import Counter

from experiments.measure.ways.positions import H200, cases, parts, plans
from winolab.gpu.families.im2col.config import TF32_CONFIGS
from winolab.gpu.families.im2col.plan import Im2colPlan
from winolab.gpu.families.wgrad_im2col.config import TF32_CONFIGS as GRADIENTS_TF32_CONFIGS
from winolab.gpu.families.wgrad_im2col.plan import WgradIm2colPlan
from winolab.gpu.planner.request import DIRECTIONS


def test_in_fp32_all_blocks_of_tf32_parts_stand_beside_the_pick() -> None:
    every = cases()
    first = [case for case in every if case[2] == "fp32"]
    assert every[: len(first)] == first
    assert Counter(case[1] for case in first).keys() == {*DIRECTIONS}
    gradients = [case[1] == "backward_filter" for case in first]
    assert gradients == sorted(gradients, reverse=True)
    for layer, direction, group in first[::97]:
        found = plans(layer, direction, group, H200)
        assert [*found.values()] == [True, *(len(found) - 1) * [False]]
        mine = {p.config for p in found if isinstance(p, Im2colPlan | WgradIm2colPlan)}
        every = {v for v in TF32_CONFIGS if direction == "forward" or v.bm % 64 == 0}
        if direction == "backward_filter":
            every = {*GRADIENTS_TF32_CONFIGS}
        assert mine == every == {p.config for p in parts(layer, direction)}
