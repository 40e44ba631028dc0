"""Fused Ω in 16 bits: who is named how, what fits, where the planner takes it."""

from __future__ import annotations

import pytest

from winolab.algorithm import Problem, parse_algorithm
from winolab.device import REGISTERS, datasheet
from winolab.gpu.families.wgrad_ffma.plan import plans as ffma_plans
from winolab.gpu.families.wgrad_mma.config import CONFIGS, FP16_SUMS, Config
from winolab.gpu.families.wgrad_mma.plan import PAPER, WgradMmaPlan, WinrsMmaPlan, flat_plans, plans
from winolab.gpu.families.wgrad_winograd.plan import WgradWinogradPlan
from winolab.gpu.planner.planner import plan
from winolab.gpu.planner.request import Request


def request(text: str = "", precision: str = "fp16", gpu: str = "h100", taps: int = 9, **options):
    """A gradient of 128 channels."""
    problem = Problem.of((32, 56, 56, 128), (128, taps, taps, 128), padding=taps // 2)
    named = parse_algorithm(text) if text else None
    return Request(problem, "backward_filter", datasheet(gpu), named, precision, **options)


@pytest.mark.parametrize("text", ["omega:8:3:6;variant=fused", "omega:16:9:8;variant=fused:fp16"])
def test_a_variant_names_the_kernel(text) -> None:
    assert str(parse_algorithm(text)) == text
    p = plan(request(text))
    assert isinstance(p, WgradMmaPlan)
    assert isinstance(p.config, Config)
    assert p.config.sums == (16 if text.endswith("fp16") else 32)
    with pytest.raises(ValueError, match="unknown variant 'fussed'; expected 'fused'"):
        parse_algorithm("omega:8:3:6;variant=fussed")


@pytest.mark.parametrize("text", ["omega:8:3:6;variant=fused", ""])
def test_segments_of_the_flat_sum_are_what_runs_unless_winrs_is_named(text: str) -> None:
    asked = request(text)
    assert list(plans(asked)) == list(flat_plans(asked))
    (found,) = plans(request("winrs"))
    assert isinstance(found, WinrsMmaPlan)


def test_ffma_kernels_are_fused_too_and_have_no_sums_in_fp16() -> None:
    assert next(ffma_plans(request("omega:8:3:6;variant=fused", "fp32"))).kernel == "Ω8(3,6)"
    for precision, message in (("fp32", "those of kernels in fp16"), ("bf16", "not of bf16")):
        with pytest.raises(ValueError, match=message):
            plan(request("omega:8:3:6;variant=fused:fp16", precision))


def test_a_limit_that_excludes_two_launches_leaves_the_fused_kernel() -> None:
    """What the algorithm's name alone runs takes 2.25 times the data, in chunks 16 MiB at least."""
    for limit in (None, 16 << 20):
        assert isinstance(plan(request("omega:16:9:8", workspace_limit=limit)), WgradWinogradPlan)
    for limit in (0, 12 << 20):
        p = plan(request("omega:16:9:8", workspace_limit=limit))
        assert isinstance(p, WgradMmaPlan)
        assert p.workspace <= limit


@pytest.mark.parametrize(("gpu", "fused"), [("h100", False), ("a100", False), ("rtx4090", True)])
def test_the_planner_takes_it_where_its_model_says_so(gpu, fused) -> None:
    """GPUs without wgmma, where memory is far from Tensor Cores, are the paper's."""
    assert isinstance(plan(request(gpu=gpu, taps=3)), WgradMmaPlan) == fused


@pytest.mark.parametrize("gpu", ["h100", "a100", "rtx3090", "rtx4090"])
def test_every_plan_fits_the_gpu(gpu) -> None:
    for tile in PAPER:
        for variant in ("fused", "fused:fp16"):
            text = f"omega:{tile.alpha}:{tile.n}:{tile.r};variant={variant}"
            found = list(plans(request(text, gpu=gpu, taps=tile.n)))
            assert found
            for p in found:
                v = p.config
                assert p.shared()["winolab_wgrad_mma"] <= p.device.shared_memory
                asked = 256 * v.consumer_registers + v.producers * v.producer_registers
                assert asked <= REGISTERS
                assert (asked > 0) == (gpu == "h100")


def test_sums_in_fp32_fill_the_registers_and_the_paper_s_blocks_need_fp16() -> None:
    """WinRS, footnote 3: 128 × 64 channels at α = 4 and 8, 64 × 64 at 16."""
    for alpha, shapes in CONFIGS.items():
        assert max(alpha * v.bi * v.bo for v in shapes) == 32768
    assert {a: (v.bo, v.bi) for a, v in FP16_SUMS.items()} == {
        4: (128, 64),
        8: (128, 64),
        16: (64, 64),
    }
