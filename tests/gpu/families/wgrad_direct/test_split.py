"""Direct filter gradients of split FP32 data on wgmma: plans, results against FP64, their check."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from tests.gpu import hosted
from tests.gpu.support import adversaries
from tests.gpu.support.gradients import SHARES, asked, gradient_on_gpu, shared
from winolab.algorithm import Problem
from winolab.bench.layers import parse_layer
from winolab.bench.oracle import relative_rms
from winolab.device import H100, datasheet
from winolab.gpu.families.gamma_wgmma.config import REGISTERS
from winolab.gpu.families.wgrad import PARAMS
from winolab.gpu.families.wgrad_direct.config import CONSUMERS, SPLIT, SplitConfig
from winolab.gpu.families.wgrad_direct.launch import COLUMN_PARAMS, HEADERS, SPLIT_PARAMS
from winolab.gpu.families.wgrad_direct.plan import WgradSplitPlan, split_plans
from winolab.gpu.planner.fallback import PlanWithFallback
from winolab.gpu.planner.planner import candidates, plan
from winolab.gpu.planner.request import Request
from winolab.ref.algorithms import convolution

Execute = Callable[..., np.ndarray]
THREE, FIVE = SplitConfig(3, 64, 128, 3, 4), SplitConfig(5, 32, 128, 3, 4)  # rows of 128, 64 bytes
SPILLED = {SplitConfig(2, 128, 128, 2, 2): 36}  # bytes: four loads a stage of 1,100 instructions
# Two FP16 parts err by so much, relative: both operands' roundings and what low·low would add; the
# Tensor Core's truncations of four sums that grow, of 2^-23 each.
BOUND = 2.0**-22 + 2.0**-22
# x, dW, padding: filters that taps divide and others, odd blocks, one to three dimensions, groups
CASES = [
    ((3, 6, 9, 72), (72, 3, 3, 72), 1),
    ((2, 7, 11, 132), (36, 2, 4, 132), ((1, 0), (2, 1))),
    ((2, 3, 5, 7, 8), (24, 2, 2, 5, 4), 1),
    ((2, 70, 12), (8, 3, 12), 1),
    ((1, 2, 3, 8), (8, 9, 2, 8), ((6, 8), (1, 1))),  # rows that meet no input
]

# The same for taps that share no columns, with stride and dilation: as of 16 bits
# (tests/gpu/support/halves.py), of channels that fill no block of four lines of 32.
APART = [
    ((2, 9, 11, 72), (72, 3, 3, 72), 1, 2, 1),
    ((2, 7, 7, 12), (8, 1, 1, 12), 0, (2, 3), 1),
    ((2, 3, 9, 10, 16), (16, 2, 2, 3, 8), ((2, 0), (1, 2), (3, 1)), (1, 2, 3), (2, 1, 2)),
    ((1, 6, 40, 8), (8, 3, 3, 8), (2, 12), 1, (2, 12)),
    ((2, 50, 24), (16, 3, 24), ((1, 4),), 2, 3),
    ((1, 2, 9, 8), (8, 7, 2, 8), ((6, 8), (1, 1)), (3, 2), (2, 1)),
]


def on_cpu(
    p: WgradSplitPlan | PlanWithFallback, x, dy, flags: np.ndarray | None = None
) -> np.ndarray:
    left = np.zeros(12, "uint8")
    with np.errstate(over="ignore", invalid="ignore"):
        dw = hosted.execute(p, x, dy, left=left)
    if flags is not None:
        flags[...] = left.view("int32")
    return dw


def on_gpu(
    p: WgradSplitPlan | PlanWithFallback, x, dy, flags: np.ndarray | None = None
) -> np.ndarray:
    dw, workspace = gradient_on_gpu(p, x, dy)
    if flags is not None:
        flags[...] = workspace[:12].view("int32")
    return dw


both = pytest.mark.parametrize("execute", [on_cpu, pytest.param(on_gpu, marks=pytest.mark.gpu)])


def planned(problem: Problem, config: SplitConfig = THREE) -> WgradSplitPlan:
    return asked(split_plans, "fp32_split", problem, config=config)


def drawn(problem: Problem, seed: int = 1) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.uniform(-1, 1, s).astype("f") for s in (problem.x_shape, problem.y_shape)]


def exact(problem: Problem, x: np.ndarray, dy: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore", invalid="ignore"):
        return convolution.backward_filter(x.astype(float), dy.astype(float), problem)


@both
@pytest.mark.parametrize("config", SPLIT, ids=str)
def test_gradients_are_those_of_fp64(config, execute: Execute) -> None:
    """All have the first case and another, which take turns, as ways to share do."""
    turn = SPLIT.index(config)
    ran = 0
    for i, (x_shape, w_shape, padding) in enumerate(CASES):
        if i and (turn + i) % 4:
            continue
        groups = x_shape[-1] // w_shape[-1]
        problem = Problem.of(x_shape, w_shape, padding=padding, groups=groups)
        x, dy = drawn(problem)
        flags = np.zeros(3, "int32")
        p = shared(planned(problem, config), *SHARES[(turn // 2 + i) % 4])
        assert relative_rms(execute(p, x, dy, flags), exact(problem, x, dy)) <= BOUND
        assert not flags[0]
        assert not flags[2]
        ran += 1
    assert ran == 2


@both
@pytest.mark.parametrize("case", APART, ids=str)
def test_strided_and_dilated_gradients_are_those_of_fp64(case, execute: Execute) -> None:
    """Ways to share take turns."""
    x_shape, w_shape, padding, stride, dilation = case
    problem = Problem.of(
        x_shape, w_shape, padding=padding, groups=x_shape[-1] // w_shape[-1],
        stride=stride, dilation=dilation,
    )  # fmt: skip
    x, dy = drawn(problem)
    flags = np.zeros(3, "int32")
    p = shared(planned(problem, SPLIT[0]), *SHARES[APART.index(case) % 4])
    assert relative_rms(execute(p, x, dy, flags), exact(problem, x, dy)) <= BOUND
    assert not flags[0]
    assert not flags[2]


def test_threads_in_another_order_compute_the_same() -> None:
    problem = Problem.of((2, 5, 9, 20), (72, 3, 4, 20), padding=1)
    x, dy = drawn(problem)
    for config in (THREE, FIVE):
        p = shared(planned(problem, config), 4, 3)
        assert np.array_equal(hosted.execute(p, x, dy), hosted.execute(p, x, dy, seed=3))


@both
def test_sums_of_one_sign_are_not_truncated_further_than_a_stage(execute: Execute) -> None:
    problem = Problem.of((2, 16, 40, 8), (8, 1, 3, 8), padding=((0, 0), (1, 1)))
    x, dy = (abs(v) for v in drawn(problem))
    dw = execute(planned(problem), x, dy)
    assert relative_rms(dw, exact(problem, x, dy)) <= BOUND


@pytest.mark.parametrize("config", SPLIT, ids=str)
def test_shared_memory_has_no_bank_conflicts(config) -> None:
    """Stages, and what is on its way to them, of a block that has all of its channels."""
    problem = Problem.of((1, 3, 11, config.bi), (config.bo, 1, 3, config.bi))
    x, dy = drawn(problem)
    found = hosted.requests(planned(problem, config), x, dy)["winolab_wgrad_direct_split"]
    asked = [q for q in found if q.member in ("x", "dy", "raw")]
    assert {q.member for q in asked} == {"x", "dy", "raw"}
    assert all(q.wavefronts == q.phases for q in asked)


CHANNELS = {  # factors of a channel, of x and of dy; which flags are then set
    "plain": (1.0, 1.0, 1.0, [0, 0, 0]),
    "zero channel": (0.0, 1.0, 1.0, [0, 1, 0]),
    "small channel": (2.0**-24, 1.0, 1.0, [1, 0, 0]),
    "vanishing channel": (2.0**-60, 1.0, 1.0, [0, 1, 1]),
    "large": (1.0, 2.0**60, 2.0**50, [0, 0, 0]),
    "small": (1.0, 2.0**-60, 2.0**-50, [0, 0, 0]),
    "ends of the range": (1.0, 2.0**-100, 2.0**110, [0, 0, 0]),
}


@both
@pytest.mark.parametrize("width", [3, 1])
@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("name", CHANNELS)
def test_a_channel_that_split_products_lose_is_noticed(name, side, width, execute) -> None:
    """A channel of x and one of dy, the last one by turns; with one tap as with three. Blocks take
    turns, and so does whether their work is shared: all meet one another and both sides in four
    names."""
    problem = Problem.of((2, 7, 9, 20), (24, 3, width, 20), padding=(1, width // 2))
    factor, of_x, of_dy, expected = CHANNELS[name]
    arrays = drawn(problem)
    turn = list(CHANNELS).index(name)
    arrays[side][..., (3, -1)[(turn + side + width // 2) % 2]] *= np.float32(factor)
    x, dy = arrays[0] * np.float32(of_x), arrays[1] * np.float32(of_dy)
    config = (THREE, FIVE)[(turn + side) % 2] if width > 1 else SPLIT[0]
    flags = np.zeros(3, "int32")
    p = shared(planned(problem, config), *(SHARES[0], SHARES[-1])[(turn // 2 + side) % 2])
    dw = execute(p, x, dy, flags)
    assert flags.tolist() == expected
    if not flags[0] and not flags[2]:
        assert relative_rms(dw, exact(problem, x, dy)) <= BOUND


STEPS = {"stride": (1, 2)}, {"dilation": (1, 2)}


@both
@pytest.mark.parametrize(
    ("name", "steps"),
    [(name, {}) for name in adversaries.DATA]
    + [(name, STEPS[i // 6 % 2]) for i, name in enumerate(adversaries.DATA) if i % 6 == 1],
)
def test_every_channel_has_the_accuracy_of_fp32(name, steps, execute: Execute) -> None:
    """With what computes it again where split products show a flag."""
    problem = Problem.of((2, 10, 14, 12), (16, 3, 3, 12), padding=1, **steps)
    config = SPLIT[0] if steps else THREE
    request = Request(problem, "backward_filter", H100, None, "fp32_split", config=config)
    (found,) = candidates(request).plans
    assert isinstance(found, PlanWithFallback)
    x, dy = adversaries.made(name, problem.x_shape, problem.y_shape)
    flags = np.zeros(3, "int32")
    dw = execute(found, x, dy, flags)
    expected = exact(problem, x, dy)
    finite = np.isfinite(expected)
    assert np.array_equal(np.isfinite(dw), finite)
    again = bool(flags[0] or (flags[1] and flags[2]))
    wrong, held = dw[finite] - expected[finite], np.where(finite, expected, 0)
    off = np.zeros_like(held)
    off[finite] = wrong
    for axes in ((0, 1, 2), (1, 2, 3)):
        error, size = (np.sqrt(np.mean(v**2, axis=axes, dtype=float)) for v in (off, held))
        # 0.30 u sqrt(K) of FP32 in order, and 1.3 times that of lost parts; Ω8's gain, where again
        limit = (1.64 if not again else 6) * 0.30 * 2.0**-24 * dy[..., 0].size ** 0.5
        assert (error <= limit * size + 2.0**-126).all()


def test_compiles_without_spills_but_for_those_that_are_known(compiled) -> None:
    for config in SPLIT:
        p = planned(Problem.of((2, 9, 9, 64), (64, 4, 4, 64)), config)
        resources = compiled(p.source())
        spilled = sum(r.spills for r in resources.values())
        assert spilled == SPILLED.get(config, 0), (config, resources)
        most = REGISTERS // (CONSUMERS + config.producers) // 8 * 8  # shared by the roles
        assert resources["winolab_wgrad_direct_split"].registers == most
        assert sorted(resources) == sorted(p.shared())
        assert p.shared()["winolab_wgrad_direct_split"] <= H100.shared_memory


def test_the_struct_is_passed_to_a_kernel() -> None:
    whole = PARAMS.size + COLUMN_PARAMS.size + SPLIT_PARAMS.size
    assert whole <= 4096  # what every CUDA 12 passes to a kernel


def test_what_does_not_fit_is_refused() -> None:
    split = partial(asked, split_plans, "fp32_split")
    with pytest.raises(ValueError, match=r"9\.0's"):
        split(device=datasheet("a100"))
    with pytest.raises(ValueError, match="do not compute omega:8:3:6"):
        split(text="omega:8:3:6")
    with pytest.raises(ValueError, match="multiples of 4 channels, not 10 and 64; with a"):
        split(Problem.of((2, 9, 9, 10), (64, 3, 3, 10)))
    with pytest.raises(ValueError, match="count up to"):
        split(Problem.of((1, 1, (1 << 31) - 200, 4), (4, 1, 1, 4)))
    with pytest.raises(ValueError, match="16-byte aligned"):
        split(aligned=False)
    assert split(text="direct").kernel == "Ω2(1,1)"
    assert split(out_dtype="bfloat16").out_dtype == "float32"  # the caller converts it
    assert split(workspace_limit=HEADERS).workspace == HEADERS
    with pytest.raises(ValueError, match=f"{HEADERS} B at least; .* raise it, or use precision"):
        split(workspace_limit=HEADERS - 1)


@pytest.mark.parametrize("layer", ["128x48x48x128:128x3x3", "128x20x20x256:256x6x6"])
@pytest.mark.parametrize("precision", ["fp32", "fp32_split"])
def test_what_a_small_workspace_leaves(layer, precision) -> None:
    """With 0.18 of the data, direct products and a fallback that fits too."""
    problem = parse_layer(layer).problem
    limit = int(0.18 * 4 * (np.prod(problem.x_shape) + np.prod(problem.y_shape)))
    request = Request(problem, "backward_filter", H100, None, precision, workspace_limit=limit)
    chosen = plan(request)
    assert isinstance(chosen, PlanWithFallback)
    assert isinstance(chosen.primary, WgradSplitPlan)
    assert chosen.fallback.precision == "fp32"
    assert chosen.workspace <= limit
