"""Plans of the implicit GEMM: where it is offered, on what grid, within what workspace."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import pytest

from tests.gpu import hosted
from tests.gpu.families.depthwise.cases import operands, too_far
from tests.gpu.families.direct.cases import layer
from tests.gpu.families.implicit_gemm.cases import DIRECTIONS, PROBLEMS, offered
from winolab.algorithm import Problem, parse_algorithm
from winolab.device import H100, datasheet
from winolab.gpu import machine
from winolab.gpu.families.implicit_gemm import launch
from winolab.gpu.families.implicit_gemm import plan as implicit_gemm
from winolab.gpu.families.implicit_gemm.config import CONFIGS, WGMMA_CONFIGS, configs, sliced
from winolab.gpu.families.implicit_gemm.plan import ImplicitGemmPlan
from winolab.gpu.params import View
from winolab.gpu.planner.planner import plan
from winolab.gpu.planner.request import Request

DENSE = layer((32, 56, 56, 128), 256, (3, 3), stride=2, padding=1)
NEXT = layer((32, 56, 56, 128), 128, (3, 3), padding=1, groups=32)
STEM = layer((32, 224, 224, 3), 64, (7, 7), stride=2, padding=3)


def test_strided_gradients_are_served_everywhere() -> None:
    """Issue 45: in FP32 and 16 bits, any stride, dilation and channels, from 8.0 on. On Hopper
    sums by columns serve channels that are copied in whole vectors."""
    for problem in (DENSE, STEM, layer((4, 30, 31, 5), 7, (3, 2), stride=(2, 3), dilation=2)):
        for device in (H100, datasheet("a100"), datasheet("rtx3090")):
            for precision in ("fp32", "fp32_ffma", "fp32_split", "fp16", "bf16"):
                found = plan(Request(problem, "backward_filter", device, None, precision))
                columns = problem is DENSE and device is H100 and precision != "fp32_ffma"
                few = problem is not DENSE and precision != "fp32_split"
                due = {"Ω2(1,1)"} if columns else {"implicit GEMM", *(["thin"] if few else [])}
                assert found.kernel in due
                split = columns and precision.startswith("fp32")
                assert (found.fallback.kernel if found.fallback else "") == (
                    "implicit GEMM" * split
                )


def test_addresses_of_what_is_not_there_are_aligned() -> None:
    """Beside a dimension's only element, whose distance to others may be any, too."""
    p = offered(layer((1, 9, 1, 32), 32, (3, 3), padding=1, stride=2), "forward", "fp16")[0]
    view = View(0, (1, 0, 64, 3))
    values = launch.parameters(p, view, View(0, (288, 96, 96, 32, 1)), view, 0).values
    at = {name: i for i, (name, _) in enumerate(launch.PARAMS.fields)}
    assert [values[at[f"x_{name}"]] for name in ("batch", "depth", "row", "pixel")] == [0, 0, 64, 0]


def test_groups_are_one_launch() -> None:
    """Issue 45: 32 groups of 4 channels, in all directions; several groups a block."""
    for precision in ("fp32", "fp32_split", "fp16"):
        for direction in DIRECTIONS:
            for p in offered(NEXT, direction, precision):
                narrow = direction != "backward_filter" and not p.config.producers
                assert p.merged * 4 == (min(64, p.config.block_columns) if narrow else 64)
                launched: list[str] = []

                def note(*_: object, name: str = "", into: list[str] = launched, **__: object):
                    into.append(name)

                kernels = {n: lambda *a, n=n, **k: note(name=n) for n in p.shared()}
                x, w = views(NEXT.x_shape), views(NEXT.w_shape)
                a, b, out = (x, x, w) if p.gradient else (x, w, x)
                p.launch(kernels, a, b, out, 0, 0)
                assert launched == [p.main_kernel, "winolab_reduce"][: len(launched)]
                assert len(launched) <= 1 + p.gradient


def views(shape: tuple[int, ...]) -> View:
    _, *sizes, c = shape
    filled = (1,) * (3 - len(sizes)) + tuple(sizes)
    steps = [c * math.prod(filled[i:]) for i in range(4)]
    return View(0, (*steps, 1) if c < 16 else tuple(steps))


def test_other_kernels_serve_what_they_are_better_at() -> None:
    dense = replace(DENSE, stride=(1, 1))
    assert not offered(dense, "forward", "fp16")
    assert not offered(DENSE, "forward", "fp32")  # direct/ffma.cuh
    alone = Problem.of((1, 9, 9, 8), (8, 3, 3, 1), groups=8)
    assert not offered(alone, "forward", "fp16")


def test_gradients_keep_to_the_workspace() -> None:
    def fastest(limit: int) -> ImplicitGemmPlan:
        request = Request(DENSE, "backward_filter", H100, None, "fp16", workspace_limit=limit)
        return min(implicit_gemm.plans(request), key=lambda p: p.predicted)

    none = fastest(0)
    assert none.workspace == 0
    limit = 8 << 20
    some = fastest(limit)
    assert 0 < some.workspace <= limit
    assert some.predicted < none.predicted


def test_blocks_fit_into_shared_memory() -> None:
    for name in ("h100", "a100", "rtx3090"):
        device = datasheet(name)
        for role in range(3):
            for size in CONFIGS:
                found = configs(device, role, size, 1 << 20, 1 << 20)
                assert found
                assert all(v.shared_memory(role, size) <= device.shared_memory for v in found)
                assert all(v.stages >= 2 for v in found)


def test_sixteen_bits_of_even_channels_have_producers_on_hopper() -> None:
    """Issue 45: the strided, dilated and grouped gradients that mma.sync had at half of PyTorch's
    speed. FP32, odd channels and other GPUs stay there."""
    dilated = layer((4, 33, 33, 2048), 256, (3, 3), padding=12, dilation=12)
    for problem in (DENSE, NEXT, dilated):
        for precision in ("fp16", "bf16"):
            found = offered(problem, "backward_filter", precision)
            best = min(found, key=lambda p: p.predicted)
            assert best.shared().keys() == {"winolab_implicit_gemm_wgmma", "winolab_reduce"}
        for device, precision in ((H100, "fp32_split"), (datasheet("a100"), "fp16")):
            found = offered(problem, "backward_filter", precision, device)
            assert not any(p.config.producers for p in found)
    odd = layer((2, 9, 10, 7), 9, (3, 3), stride=2)
    assert not any(p.config.producers for p in offered(odd, "backward_data", "fp16"))
    with pytest.raises(ValueError, match="no wgmma on"):
        offered(odd, "backward_data", "fp16", config=WGMMA_CONFIGS[-1])


def test_slices_of_merged_groups() -> None:
    """Products of wgmma have the columns that a slice of the channels meets, 16 at least."""
    shape = WGMMA_CONFIGS[-1]
    assert sliced(shape, 0, 16, 4, 4) == (16, 16)
    assert sliced(shape, 1, 2, 32, 32) == (32, 32)
    assert sliced(shape, 0, 8, 2, 8) == (64, 16)  # all
    assert sliced(shape, 2, 16, 4, 4) == (64, 16)  # a gradient's rows are groups, too
    assert sliced(shape, 0, 4, 8, 4) == (64, 16)  # 8 columns: wgmma has no such width here


def test_what_cannot_run_is_refused() -> None:
    asked = Request(DENSE, "backward_filter", H100, None, "fp16")
    with pytest.raises(ValueError, match="needs something to sum"):
        list(implicit_gemm.plans(replace(asked, problem=replace(DENSE, batch=0))))
    far = layer((1, 5, 5, 8), 8, (3, 3), padding=1, stride=1 << 40)
    with pytest.raises(ValueError, match="the stride is 109"):
        list(implicit_gemm.plans(replace(asked, problem=far)))


def test_a_plan_says_what_it_does() -> None:
    text = str(offered(NEXT, "backward_filter", "fp16")[0])
    assert "kernel     implicit GEMM fp16, nothing transformed" in text
    assert "16 groups a block" in text
    assert "segments" in text


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_kernels_spill_nothing(direction: str, compiled) -> None:
    for problem, precision in ((DENSE, "fp16"), (DENSE, "fp32_split"), (NEXT, "fp16")):
        found = offered(problem, direction, precision)
        for p in (found[-1], next(p for p in reversed(found) if not p.config.producers)):
            resources = compiled(p.source())
            assert not any(kernel.spills for kernel in resources.values())


def test_every_problem_has_a_plan() -> None:
    """The two of 16 bits take turns."""
    for number, (problem, direction) in enumerate(product(PROBLEMS.values(), DIRECTIONS)):
        for precision in ("fp32", ("fp16", "bf16")[number % 2]):
            plan(Request(problem, direction, H100, None, precision))


@pytest.mark.parametrize("direction", ["forward", "backward_data"])
@pytest.mark.parametrize(
    ("device", "aligned"), [("a100", True), ("rtx4090", True), ("h100", False)]
)
@pytest.mark.parametrize(("taps", "named"), [((1, 1), None), ((7, 1), None), ((3, 3), "direct")])
def test_dense_layers_of_16_bits_that_nobody_else_serves(
    direction, device, aligned, taps, named, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 45, by tests.gpu.random_plans: 1×1 in FP16 had no kernel before 9.0, nor on 9.0 where
    pixels are not aligned, on a machine without cuBLASLt."""
    monkeypatch.setattr(machine, "driver_cuda", lambda: (13, 0))
    monkeypatch.setattr(machine, "has_cublaslt", lambda: False)
    plan.cache_clear()
    # more channels than patches serve
    problem = Problem.of((2, 9, 9, 72), (72, *taps, 72), padding=[r // 2 for r in taps])
    algorithm = parse_algorithm(named) if named else None
    asked = Request(problem, direction, datasheet(device), algorithm, "bf16", aligned=aligned)
    found = plan(asked)
    plan.cache_clear()
    assert isinstance(found, ImplicitGemmPlan)
    a, b = operands(problem, direction, "bf16")
    assert too_far(found, a, b, hosted.execute(found, a, b, dtype=found.out_dtype)) == 0


def test_several_results_that_are_no_whole_vectors_are_not_the_librarys_alone() -> None:
    """32 results of 10 channels took 11.8 µs by cuBLASLt, 6.1 by these, which more positions are
    left to than `skinny` has; results of backward data are the library's."""

    def found(batch: int, direction: str) -> str:
        problem = Problem.of((batch, 1, 1, 240), (10, 1, 1, 240))
        return plan(Request(problem, direction, datasheet("h200"), None, "fp16")).kernel

    assert found(96, "forward") == "implicit GEMM"
    assert found(96, "backward_data") == "cuBLASLt"
    assert found(32, "forward") == "skinny"


def test_picks_of_two_taps_and_more_stay() -> None:
    problem = Problem.of((2, 9, 9, 16), (24, 3, 3, 16), padding=1)
    for device, aligned in (("a100", True), ("h100", True), ("h100", False)):
        found = plan(Request(problem, "forward", datasheet(device), None, "fp16", aligned=aligned))
        assert not isinstance(found, ImplicitGemmPlan)


def test_configs_that_no_kernel_has_are_refused() -> None:
    """Before a compiler says so, or warps leave columns out."""
    problem = layer((2, 9, 9, 64), 64, (3, 3), stride=2)
    for usual in (CONFIGS[2][3], WGMMA_CONFIGS[-1]):
        assert offered(problem, "forward", "fp16", config=usual)
        for wrong in (
            {"block_rows": 72}, {"block_columns": 65}, {"depth": 24}, {"warp_rows": 3},
            {"warp_columns": 3}, {"stages": 1}, {"stages": 40}, {"blocks": 0}, {"fill": 2},
            {"producers": 136},
        ):  # fmt: skip
            with pytest.raises(ValueError, match=r"no kernel of an|does not fill up|no wgmma on"):
                offered(problem, "forward", "fp16", config=replace(usual, **wrong))
