"""The kernel of thin layers' filter gradients: its source on the CPU, and on a GPU, against FP64
within the proven bound."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.gpu import hosted, random_plans
from tests.gpu.families.depthwise.cases import on_gpu, operands, too_far
from tests.gpu.families.wgrad_thin.cases import PRECISIONS, PROBLEMS, offered
from winolab.device import H100
from winolab.gpu.families.wgrad_thin import launch
from winolab.gpu.families.wgrad_thin import plan as wgrad_thin
from winolab.gpu.families.wgrad_thin.config import SLICES, Config
from winolab.gpu.families.wgrad_thin.plan import WgradThinPlan
from winolab.gpu.params import View
from winolab.ref.algorithms import convolution

GRADIENT = "backward_filter"


def on_cpu(p: WgradThinPlan, a: np.ndarray, b: np.ndarray, **how) -> np.ndarray:
    return hosted.execute(p, a, b, dtype=p.out_dtype, **how)


@pytest.mark.parametrize("name", PROBLEMS)
def test_results_are_those_of_fp64(name: str) -> None:
    """Both sides compute where both serve, by the largest blocks, or else by the smallest or the
    largest; FP32 and 16 bits take turns."""
    turn = [*PROBLEMS].index(name)
    precision = "fp32" if turn % 2 else ("fp16", "bf16")[turn // 2 % 2]
    found = offered(PROBLEMS[name], precision)
    ends = [*{p.config.wide: p for p in found}.values()]
    for p in ends if len(ends) > 1 or turn // 2 % 2 else found[:1]:
        a, b = operands(p.problem, GRADIENT, precision)
        assert too_far(p, a, b, on_cpu(p, a, b)) == 0, p


@pytest.mark.gpu
@pytest.mark.parametrize("name", PROBLEMS)
def test_results_on_a_gpu_are_those_of_fp64(name: str) -> None:
    """Within zones of NaN, and of several shares where a chunk is left for each."""
    for precision in PRECISIONS:
        for p in offered(PROBLEMS[name], precision)[::5]:
            a, b = operands(p.problem, GRADIENT, precision)
            for shared in {p, replace(p, shares=1), replace(p, shares=min(3, p.chunks))}:
                first = on_gpu(shared, a, b)
                assert too_far(shared, a, b, first) == 0, shared
                assert (on_gpu(shared, a, b).view("u1") == first.view("u1")).all()


@pytest.mark.parametrize("name", ["1x1 to 2", "stem"])
def test_every_block_shape(name: str) -> None:
    """Problems take turns with precisions."""
    for turn, precision in enumerate(("fp32", "fp16"), name == "stem"):
        for p in offered(PROBLEMS[name], precision)[turn % 2 :: 2]:
            a, b = operands(p.problem, GRADIENT, precision)
            assert too_far(p, a, b, on_cpu(p, a, b)) == 0, p


def test_shapes_that_nobody_offers() -> None:
    """Lanes, columns and slots with none; a result in FP32 of 16 bits."""
    for config in (
        Config("dy", 9, 8, 2, 5, 7),
        Config("dy", 2, 1, 4, 9, 1),
        Config("dy", 1, 8, 2, 13, 3),
    ):
        (p,) = offered(PROBLEMS["stem"], "bf16", config=config, out_dtype="float32")
        a, b = operands(p.problem, GRADIENT, "bf16")
        assert too_far(p, a, b, on_cpu(p, a, b)) == 0, p


@pytest.mark.parametrize("name", ["1x1 to 2", "stem of 7x7", "few outputs, strided"])
def test_shares_are_added_up(name: str) -> None:
    """One share, two, and as many as there are chunks, more than SLICES of the first problem."""
    p = max(offered(PROBLEMS[name], "fp32"), key=lambda p: p.chunks)
    a, b = operands(p.problem, GRADIENT, "fp32")
    assert p.chunks > (SLICES if name == "1x1 to 2" else 4)
    for shares in (1, 2, p.chunks):
        shared = replace(p, shares=shares)
        assert shared.workspace == (shares > 1) * shares * 4 * p.gradient.weights
        assert too_far(shared, a, b, on_cpu(shared, a, b)) == 0, shares


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", ["1x1 to 2", "stem of 7x7", "one channel"])
def test_threads_in_any_order_have_the_same_bits(name: str, precision: str) -> None:
    """Blocks of many chunks, whose buffers are written while others are read."""
    p = replace(max(offered(PROBLEMS[name], precision), key=lambda p: p.chunks), shares=2)
    assert p.chunks >= 8
    a, b = operands(p.problem, GRADIENT, precision)
    due = on_cpu(p, a, b)
    for seed in (1, 2, 3):
        assert (on_cpu(p, a, b, seed=seed).view("u1") == due.view("u1")).all()


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", ["1x1 to 2", "3 to 32", "stem", "8 of 72"])
def test_arrays_that_are_not_aligned_have_the_same_bits(
    name: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elements one by one, where a launch finds arrays so."""
    p = offered(PROBLEMS[name], precision)[-1]
    assert p.config.vector > 1
    a, b = operands(p.problem, GRADIENT, precision)
    due = on_cpu(p, a, b)
    monkeypatch.setattr(View, "in_vectors", lambda *given: False)
    assert (on_cpu(p, a, b) == due).all()


def test_random_problems() -> None:
    """Any plan of the one generator's; NaN and infinity reach no other channel."""
    ran = 0
    for number in range(400):
        if not (one := random_plans.drawn("wgrad_thin", number)):
            continue
        request = replace(one.request, algorithm=None, device=H100, direction=GRADIENT)
        request = replace(request, precision=PRECISIONS[number % 3], out_dtype=None)
        problem = request.problem
        if problem.macs > 3e5 or problem.ndim > 3 or not problem.batch or min(problem.output) < 1:
            continue
        if found := [*wgrad_thin.plans(request)]:
            p = found[number % len(found)]
            random_plans.run(problem, p, np.random.default_rng(number), spoilt=True)
            ran += 1
        if ran == 12:
            break
    assert ran == 12


def test_integers_are_exact() -> None:
    """Sums that FP32 holds, whatever their order, are those of the definition."""
    for name in ("stem", "dilation and stride", "8 of 72", "stride beyond the filter"):
        problem = PROBLEMS[name]
        rng = np.random.default_rng(1)
        x, dy = (
            rng.integers(-1, 2, shape).astype("float16")
            for shape in (problem.x_shape, problem.y_shape)
        )
        exact = convolution.backward_filter(x.astype(float), dy.astype(float), problem)
        for p in offered(problem, "fp16")[::5]:
            assert (on_cpu(p, x, dy).astype(float) == exact).all()


@pytest.mark.parametrize(
    ("name", "precision", "config"),
    [
        ("1x1 to 2", "bf16", Config("x", 8, 8, 8, 2, 1)),
        ("3 to 32", "fp32", Config("x", 8, 4, 8, 3, 1)),
        ("stem", "fp32", Config("dy", 6, 4, 4, 27, 1)),
        ("stem", "bf16", Config("dy", 3, 8, 4, 14, 2)),
        ("stem of 7x7", "fp32", Config("dy", 16, 4, 8, 25, 6)),
        ("few outputs, strided", "fp32", Config("x", 6, 4, 4, 18, 2)),
    ],
)
def test_the_kernel_spills_nothing(name: str, precision: str, config: Config, compiled) -> None:
    """And its parameters lie as a launch packs them."""
    (p,) = offered(PROBLEMS[name], precision, config=config)
    maps, w = View(0, (16,) * 4), View(0, (16,) * 5)
    size = len(launch.parameters(p, maps, maps, w, 0).data)
    text = f"\nstatic_assert(sizeof(WgradThinParams) == {size});"
    text += f"\nstatic_assert(sizeof(WgradThinShared) <= {config.shared_memory});"
    for used in compiled(p.source() + text).values():
        assert not used.spills
