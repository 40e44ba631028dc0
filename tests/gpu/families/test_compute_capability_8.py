"""Kernels for compute capability 8.x: what fits there, the bits on the CPU and on any GPU."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest

from tests.gpu import hosted
from tests.gpu.guarded import Mold, run
from winolab.algorithm import Algorithm, Problem, direct, parse_algorithm
from winolab.device import DATASHEETS, H100, REGISTERS, Device, datasheet
from winolab.gpu.families.gamma_ffma import plan as gamma_ffma
from winolab.gpu.families.gamma_ffma.config import CONFIGS, EARLIER, Config
from winolab.gpu.families.wgrad_ffma import plan as wgrad_ffma
from winolab.gpu.families.wgrad_mma.plan import WgradMmaPlan
from winolab.gpu.families.wgrad_winograd.plan import WgradWinogradPlan
from winolab.gpu.planner.correlation import CORRELATIONS
from winolab.gpu.planner.fallback import PlanWithFallback
from winolab.gpu.planner.planner import candidates, plan
from winolab.gpu.planner.request import DIRECTIONS, Plan, Request
from winolab.ref.algorithms import winograd
from winolab.ref.arithmetic.order import Order
from winolab.ref.arithmetic.simulated import arithmetic

DEVICES = [d for d in DATASHEETS.values() if d.compute_capability[0] == 8]
ADA, A100 = datasheet("rtx4090"), datasheet("a100")
ALGORITHMS = ["gamma:4:2:3", "gamma:8:6:3", "gamma:8:2:7", "gamma:16:8:9", "direct"]
ALPHAS = {1: "direct", 4: "gamma:4:2:3", 8: "gamma:8:6:3", 16: "gamma:16:8:9"}


def layer(text: str) -> tuple[Algorithm, Problem]:
    """A small problem; 20 channels are no multiple of a stage, 70 and 5 rows none of a block."""
    algorithm = parse_algorithm(text)
    width = algorithm.tiles[0].r if algorithm.kind == "gamma" else 3
    return algorithm, Problem.of((2, 5, 12, 20), (70, 3, width, 20), padding=(1, 2))


def arrays(problem: Problem, direction: str) -> tuple[np.ndarray, np.ndarray]:
    """What ``direction`` is computed from."""
    rng = np.random.default_rng(7)
    shape = problem.x_shape if direction == "forward" else problem.y_shape
    a, b = (rng.standard_normal(s, dtype=np.float32) for s in (shape, problem.w_shape))
    return a, b


def predicted(p: Plan, algorithm: Algorithm, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """What the reference says that the plan's kernel computes."""
    v = p.config
    assert isinstance(v, Config)
    order = Order(v.kc, v.share, v.split_k)
    compute = getattr(winograd, p.direction)
    return compute(a, b, p.problem, algorithm, arithmetic("fp32"), order=order)


@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)
@pytest.mark.parametrize("text", ALGORITHMS)
def test_every_plan_fits_the_gpu(device: Device, text) -> None:
    """Without clusters, bulk copies and setmaxnreg, in its shared memory, at 168 registers."""
    algorithm, problem = layer(text)
    for direction in CORRELATIONS:
        plans = candidates(Request(problem, direction, device, algorithm, "fp32_ffma")).plans
        assert plans
        for p in plans:
            assert isinstance(p, gamma_ffma.GammaFfmaPlan)
            v = p.config
            assert (v.bulk, v.split_k, v.consumer_registers, v.producer_registers) == (0, 1, 0, 0)
            assert max(p.shared().values()) <= device.shared_memory
            assert v.threads * 168 <= REGISTERS
            assert 0 < p.predicted < 1


def test_the_a100_s_163_kb_hold_more_stages() -> None:
    problem = Problem.of((8, 12, 12, 64), (64, 3, 3, 64), padding=1)
    deep, shallow = (
        plan(Request(problem, "forward", datasheet(name), None, "fp32_ffma")).config
        for name in ("a100", "a5000")
    )
    assert isinstance(deep, Config)
    assert isinstance(shallow, Config)
    assert deep.u_stages + deep.v_stages > shallow.u_stages + shallow.v_stages


def test_newer_gpus_with_small_blocks_have_the_same_plans() -> None:
    """Compute capability 12.0 has Hopper's instructions, but 99 KB."""
    problem = Problem.of((8, 12, 12, 64), (64, 3, 3, 64), padding=1)
    blackwell = replace(ADA, compute_capability=(12, 0))
    for direction in DIRECTIONS:
        older, newer = (
            plan(Request(problem, direction, d, None, "fp32_ffma")) for d in (ADA, blackwell)
        )
        assert (newer.source(), newer.predicted) == (older.source(), older.predicted)


def test_half_the_lanes_take_longer() -> None:
    """At one clock and number of multiprocessors, 64 FP32 lanes take up to twice as long as 128."""
    problem = Problem.of((64, 48, 48, 128), (128, 3, 3, 128), padding=1)
    ampere = replace(ADA, compute_capability=(8, 0))
    wide, narrow = (plan(Request(problem, "forward", d, direct())).predicted for d in (ADA, ampere))
    assert 1.5 * wide < narrow < 2 * wide


def test_what_needs_9_0_is_refused() -> None:
    algorithm, problem = layer("gamma:8:6:3")
    for config in (CONFIGS[8][0], replace(EARLIER[8][0], split_k=2)):
        with pytest.raises(ValueError, match="RTX 4090 has neither"):
            plan(Request(problem, "forward", ADA, algorithm, config=config))
    with pytest.raises(ValueError, match=r"capability 7\.5; the CUDA kernels need 8\.0"):
        plan(Request(problem, "forward", datasheet("rtx2080ti")))


SHAPES = [(alpha, shape) for alpha in EARLIER for shape in EARLIER[alpha]]
CHANGES = {}, {"rows": 4, "share": 3, "u_stages": 2, "v_stages": 2}


@pytest.mark.parametrize("direction", CORRELATIONS)
@pytest.mark.parametrize(("alpha", "shape"), SHAPES, ids=str)
def test_the_reference_s_bits_on_the_cpu(alpha, shape, direction) -> None:
    """Alone in one direction, and in the other with rows of the block sharing a stage."""
    algorithm, problem = layer(ALPHAS[alpha])
    a, b = arrays(problem, direction)
    turn = SHAPES.index((alpha, shape)) + list(CORRELATIONS).index(direction)
    changed = replace(shape, **CHANGES[turn % 2])
    p = plan(Request(problem, direction, A100, algorithm, config=changed))
    assert np.array_equal(hosted.execute(p, a, b, seed=3), predicted(p, algorithm, a, b))


GRADIENTS = ["omega:4:3:2", "omega:8:3:6", "omega:8:7:2", "omega:16:9:8", "direct"]


def gradients(text: str, device: Device) -> list[wgrad_ffma.WgradFfmaPlan]:
    """Plans of a small filter gradient, all with the summation cut in two."""
    algorithm = parse_algorithm(text)
    width = algorithm.tiles[0].n if algorithm.kind == "omega" else 3
    problem = Problem.of((2, 5, 2 * width + 5, 36), (70, 3, width, 36), padding=1)
    found = wgrad_ffma.flat_plans(Request(problem, "backward_filter", device, algorithm, "fp32"))
    return [
        replace(p, segments=2, grid=min(p.grid, 4), workspace=4 * p.gradient.weights) for p in found
    ]


def same_sums(
    p: wgrad_ffma.WgradFfmaPlan, plans: list[wgrad_ffma.WgradFfmaPlan]
) -> wgrad_ffma.WgradFfmaPlan:
    """One of ``plans`` that adds up in the same order, whatever its blocks."""
    return next(q for q in plans if (q.pitch, q.fold) == (p.pitch, p.fold))


@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)
@pytest.mark.parametrize("text", GRADIENTS)
def test_every_plan_of_a_gradient_fits_the_gpu(device: Device, text) -> None:
    plans = gradients(text, device)
    assert plans
    for p in plans:
        assert (p.config.consumer_registers, p.config.producer_registers) == (0, 0)
        assert max(p.shared().values()) <= device.shared_memory


@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)
def test_tensor_core_gradients_are_not_predicted_above_the_peak(device: Device) -> None:
    problem = Problem.of((32, 56, 56, 128), (128, 3, 3, 128), padding=1)
    for precision, products in (("fp16", 1), ("fp32_split", 3)):
        for p in candidates(Request(problem, "backward_filter", device, None, precision)).plans:
            p = p.primary if isinstance(p, PlanWithFallback) else p
            assert isinstance(p, (WgradWinogradPlan, WgradMmaPlan))
            done = problem.macs * p.tile.alpha / (p.tile.n * p.tile.r) * products
            assert done / p.predicted <= device.matrix * device.multiprocessors * device.clock


@pytest.mark.parametrize("text", GRADIENTS)
def test_gradients_have_hopper_s_bits_on_the_cpu(text) -> None:
    """What is the same kernel on both GPUs, on the same grid, runs once."""
    hopper, rng = gradients(text, H100), np.random.default_rng(0)
    x, dy = (
        rng.standard_normal(s, dtype=np.float32)
        for s in (hopper[0].problem.x_shape, hopper[0].problem.y_shape)
    )
    found = [p for device in (A100, ADA) for p in gradients(text, device)]
    own = {(p.source(), p.grid, p.pitch, p.fold): p for p in found}
    assert own
    due = {q.config: hosted.execute(q, x, dy) for q in (same_sums(p, hopper) for p in own.values())}
    for p in own.values():
        assert np.array_equal(hosted.execute(p, x, dy, seed=3), due[same_sums(p, hopper).config])


@pytest.mark.gpu
@pytest.mark.parametrize("direction", CORRELATIONS)
@pytest.mark.parametrize("text", ALGORITHMS)
def test_the_reference_s_bits_on_any_gpu(text, direction) -> None:
    """Kernels of an A100 and an RTX 4090, compiled for the GPU that is there; over and over."""
    from tests.gpu.support.convolved import convolved
    from winolab.gpu import driver

    cp = driver.cupy()
    algorithm, problem = layer(text)
    a, b = arrays(problem, direction)
    on_gpu = [cp.asarray(v) for v in (a, b)]
    call = partial(convolved, direction)
    for device in (A100, ADA):
        # one in four: all have one of two sources but for rows and what shares them
        for p in candidates(Request(problem, direction, device, algorithm, "fp32_ffma")).plans[::4]:
            expected = cp.asarray(predicted(p, algorithm, a, b))
            for _ in range(20):
                y = call(*on_gpu, problem=problem, algorithm=algorithm, config=p.config)
                assert bool((y == expected).all())


@pytest.mark.gpu
@pytest.mark.parametrize("text", GRADIENTS)
def test_gradients_have_hopper_s_bits_on_any_gpu(text) -> None:
    from winolab.gpu import driver
    from winolab.gpu.params import View
    from winolab.gpu.runtime import loader

    cp = driver.cupy()
    driver.make_current(0)

    def run(p: wgrad_ffma.WgradFfmaPlan):
        dw = cp.full(p.problem.w_shape, cp.nan, "float32")
        a, b = (View(v.data.ptr, hosted._strides(v, 4)) for v in (x, dy))
        out = View(dw.data.ptr, hosted._strides(dw, 5))
        workspace = cp.full(p.workspace, 255, "uint8")
        kernels = loader.load(p.source(), f"{p.kernel} {p.config}", p.shared(), 0)
        p.launch(kernels, a, b, out, workspace.data.ptr, 0)
        return dw

    here = driver.device(0)
    for device in (A100, ADA):
        for p in gradients(text, device):
            shapes = p.problem.x_shape, p.problem.y_shape
            x, dy = (cp.random.default_rng(0).standard_normal(s, dtype="float32") for s in shapes)
            expected = run(same_sums(p, gradients(text, here)))
            assert not bool(cp.isnan(expected).any())
            for _ in range(20):
                assert bool((run(p) == expected).all())


RANDOM = [
    *(("gamma_ffma", text, "fp32") for text in ALGORITHMS),
    *(("wgrad_ffma", text, "fp32") for text in GRADIENTS),
    *(("gamma_mma", "gamma:8:6:3", precision) for precision in ("fp32_split", "fp16")),
    *(("wgrad_winograd", "omega:8:3:6", precision) for precision in ("fp32_split", "fp16")),
]


@dataclass(frozen=True)
class EarlierMold(Mold):
    """A kernel that was planned for another GPU than the one that runs it."""

    planned_for: str = "rtx4090"

    def __str__(self) -> str:
        return f"{super().__str__()} {self.planned_for}"

    @property
    def device(self) -> Device:
        return datasheet(self.planned_for)


@pytest.mark.gpu
@pytest.mark.parametrize("gpu", ["a100", "rtx4090"])
@pytest.mark.parametrize(("family", "algorithm", "precision"), RANDOM)
def test_random_problems(family, algorithm, precision, gpu) -> None:
    """Kernels of 8.x between guard zones and against FP64, on any GPU."""
    mold = EarlierMold(family, algorithm, precision, 0, gpu)
    for number in range(6, 14):  # the last is a large one
        run(mold, number)
