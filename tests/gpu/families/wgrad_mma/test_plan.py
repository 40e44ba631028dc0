"""Fused Ω in 16 bits: who is named how, what fits, where the planner takes it."""

from __future__ import annotations

import pytest

from winolab.algorithm import Problem, parse_algorithm
from winolab.arguments.tolerance import Tolerance
from winolab.device import REGISTERS, datasheet
from winolab.gpu.families.wgrad_ffma.plan import plans as ffma_plans
from winolab.gpu.families.wgrad_mma.config import CONFIGS, FP16_SUMS, Config
from winolab.gpu.families.wgrad_mma.plan import PAPER, WgradMmaPlan, WinrsMmaPlan, flat_plans, plans
from winolab.gpu.families.wgrad_winograd.plan import WgradWinogradPlan
from winolab.gpu.planner.accuracy import predicted_rms
from winolab.gpu.planner.planner import candidates, plan
from winolab.gpu.planner.request import Request
from winolab.ref.tolerance.cheapest import U11


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


@pytest.mark.parametrize("text", ["omega:8:3:6;variant=fused", "winrs"])
@pytest.mark.parametrize("gpu", ["h100", "h200", "rtx4090"])
def test_columns_come_ahead_where_blocks_are_large(text, gpu) -> None:
    """By fused_omega.jsonl that is faster on each of its layers, for the same bits."""
    p = plan(request(text, gpu=gpu, taps=3))
    assert isinstance(p, WgradMmaPlan | WinrsMmaPlan)
    assert p.config.ahead == (gpu != "rtx4090")
    assert p.config.half2 == 0


def test_channels_that_eight_does_not_divide_have_each_shape_once() -> None:
    problem = Problem.of((2, 12, 12, 36), (40, 3, 3, 36), padding=1)
    named = parse_algorithm("omega:8:3:6;variant=fused")
    found = list(flat_plans(Request(problem, "backward_filter", datasheet("h100"), named, "fp16")))
    assert {p.config.ahead for p in found} == {0}
    assert len({(str(p.config), p.pitch) for p in found}) == len(found)


@pytest.mark.parametrize("most", [1e-3, 4e-3])
def test_pairs_are_transformed_in_16_bits_where_a_tolerance_admits_the_error(most) -> None:
    """Ω8(3,6) errs 1.3e-3 in FP32 and 2.6e-3 by pairs; Ω4(3,2) errs the same either way."""
    asked = request(gpu="rtx4090", taps=3, tolerance=Tolerance("predicted", most))
    found = [p for p in candidates(asked).plans if isinstance(p, WgradMmaPlan)]
    pairs = {p.kernel for p in found if p.config.half2}
    assert "Ω4(3,2)" in pairs
    assert ("Ω8(3,6)" in pairs) == (most > 2.6e-3)
    assert all(predicted_rms(p, U11) <= most for p in found)
    assert not any(p.config.half2 for p in flat_plans(request(gpu="rtx4090", taps=3)))
