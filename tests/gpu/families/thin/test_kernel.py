"""Kernels of thin layers: their source on the CPU, and on a GPU, against FP64 within the proven
bound."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.gpu import hosted, random_plans
from tests.gpu.families.depthwise.cases import check_adjoint, on_gpu, operands, too_far
from tests.gpu.families.thin.cases import DIRECTIONS, PRECISIONS, PROBLEMS, offered
from winolab.device import H100, REGISTERS
from winolab.gpu.families.thin import launch
from winolab.gpu.families.thin import plan as thin
from winolab.gpu.families.thin.config import THREADS, Config
from winolab.gpu.families.thin.plan import ThinPlan
from winolab.gpu.params import View
from winolab.ref.algorithms import convolution


def served(direction: str) -> list[str]:
    return [name for name in PROBLEMS if offered(PROBLEMS[name], direction, "fp32")]


def on_cpu(p: ThinPlan, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return hosted.execute(p, a, b, dtype=p.out_dtype)


CASES = [(d, name) for d in DIRECTIONS for name in served(d)]


@pytest.mark.parametrize(("direction", "name"), CASES)
def test_results_are_those_of_fp64(direction: str, name: str) -> None:
    """Both kinds compute where both serve, by the most lanes, or else one by the fewest or by the
    most; FP32 in one direction, 16 bits in the other."""
    turn = [*PROBLEMS].index(name) + DIRECTIONS.index(direction)
    precision = "fp32" if turn % 2 else ("fp16", "bf16")[len(name) % 2]
    found = offered(PROBLEMS[name], direction, precision)
    ends = [*{p.config.kind: p for p in found}.values()]
    for p in ends if len(ends) > 1 or turn // 2 % 2 else found[:1]:
        a, b = operands(p.problem, direction, precision)
        assert too_far(p, a, b, on_cpu(p, a, b)) == 0, p


@pytest.mark.gpu
@pytest.mark.parametrize(("direction", "name"), CASES)
def test_results_on_a_gpu_are_those_of_fp64(direction: str, name: str) -> None:
    for precision in PRECISIONS:
        for p in offered(PROBLEMS[name], direction, precision):
            a, b = operands(p.problem, direction, precision)
            assert too_far(p, a, b, on_gpu(p, a, b)) == 0, p


def test_every_block_shape() -> None:
    """Fewer positions and more than lanes; lanes without channels; more outputs than there are."""
    forward, data = PROBLEMS["1x1 to 2"], PROBLEMS["stem"]
    for problem, direction, precision in ((forward, "forward", "fp16"), (data, "forward", "fp32")):
        for p in offered(problem, direction, precision):
            a, b = operands(problem, direction, precision)
            assert too_far(p, a, b, on_cpu(p, a, b)) == 0, p
    for config in (Config("outputs", 32, 1, 8, 5), Config("channels", 16, 1, 2, 5)):
        for problem in (PROBLEMS["both few"], PROBLEMS["stem"]):
            if config.kind == "channels" or problem.out_channels <= config.few:
                (p,) = offered(problem, "forward", "bf16", config=config, out_dtype="float32")
                a, b = operands(problem, "forward", "bf16")
                assert too_far(p, a, b, on_cpu(p, a, b)) == 0, p


@pytest.mark.parametrize("name", ["1x1 to 2", "3 to 32", "stem", "8 of 72"])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_arrays_that_are_not_aligned_or_not_dense_have_the_same_bits(
    direction: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elements one by one, and rows and taps one by one, where a launch finds arrays so."""
    p = offered(PROBLEMS[name], direction, "fp16")[-1]
    assert p.config.vector == 8
    a, b = operands(p.problem, direction, "fp16")
    due = on_cpu(p, a, b)
    for where, found in ((View, "in_vectors"), (View, "even"), (launch, "in_order")):
        assert getattr(where, found)
        monkeypatch.setattr(where, found, lambda *given: False)
        assert (on_cpu(p, a, b) == due).all()


def test_work_tiles_are_shared_by_blocks_that_stay() -> None:
    """Fewer blocks than work tiles, the last of which are not full."""
    for name, direction in (
        ("1x1 to 2", "forward"),
        ("stem", "forward"),
        ("stem", "backward_data"),
    ):
        for p in offered(PROBLEMS[name], direction, "fp32")[-1:]:
            few = replace(p, device=replace(p.device, multiprocessors=1, shared_memory=0))
            assert few.resident == 1
            assert few.work_tiles > few.workers or p.work_tiles == 1
            a, b = operands(p.problem, direction, "fp32")
            assert (on_cpu(few, a, b) == on_cpu(p, a, b)).all()


def test_random_problems() -> None:
    """Any plan of the one generator's; NaN and infinity reach what depends on them alone."""
    ran = 0
    for number in range(160):
        if not (one := random_plans.drawn("thin", number)):
            continue
        request = replace(one.request, algorithm=None, device=H100, precision="fp32")
        request = replace(request, precision=PRECISIONS[number % 3], out_dtype=None)
        problem = request.problem
        if problem.macs > 3e5 or problem.ndim > 3 or request.direction not in DIRECTIONS:
            continue
        found = [*thin.plans(request)]
        if found and problem.batch and min(problem.output) > 0:
            p = found[number % len(found)]
            random_plans.run(problem, p, np.random.default_rng(number), spoilt=True)
            ran += 1
        if ran == 16:
            break
    assert ran == 16


def test_integers_are_exact_and_adjoint() -> None:
    for name in ("stem", "dilation and stride", "8 of 72", "stride beyond the filter"):
        problem = PROBLEMS[name]

        def computed(direction: str, a: Any, b: Any, problem: Any = problem) -> Any:
            return on_cpu(offered(problem, direction, "fp16")[-1], a, b)

        check_adjoint(problem, DIRECTIONS, "float16", computed)


@pytest.mark.parametrize("name", ["stem", "8 of 72"])
def test_infinities_and_nan_stay_in_their_windows(name: str) -> None:
    problem = PROBLEMS[name]
    p = offered(problem, "forward", "fp16")[0]
    a, b = operands(problem, "forward", "fp16")
    mark = np.zeros(problem.x_shape)
    for at, value in (((0, 2, 4, 2), np.inf), ((0, 7, 11, 0), np.nan)):
        a[at], mark[at] = value, 1
    expected = convolution.forward(mark, np.ones(problem.w_shape), problem) > 0
    assert (~np.isfinite(on_cpu(p, a, b)) == expected).all()


@pytest.mark.parametrize(
    ("name", "direction", "precision", "config"),
    [
        ("3 to 32", "forward", "bf16", Config("outputs", 4, 8, 8, 3)),
        ("stem", "backward_data", "fp32", Config("outputs", 2, 4, 4, 3)),
        ("3 to 32", "backward_data", "bf16", Config("channels", 4, 8, 8, 3)),
        ("stem", "forward", "fp32", Config("channels", 2, 4, 4, 3)),
    ],
)
def test_the_kernels_spill_nothing(
    name: str, direction: str, precision: str, config: Config, compiled
) -> None:
    """And a multiprocessor holds as many blocks as the model has."""
    (p,) = offered(PROBLEMS[name], direction, precision, config=config)
    view, w = View(0, (16,) * 4), View(0, (16,) * 5)
    size = len(launch.parameters(p, view, w, view).data)
    found = compiled(p.source() + f"\nstatic_assert(sizeof(ThinParams) == {size});")
    (used,) = found.values()
    assert not used.spills
    granted = -(-used.registers // 8) * 8
    assert REGISTERS // (THREADS * granted) >= p.resident
