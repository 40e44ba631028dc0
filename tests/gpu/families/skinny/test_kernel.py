"""The kernel of few positions: its source on the CPU, and on a GPU, against FP64 within the proven
bound."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from tests.gpu import hosted, random_plans
from tests.gpu.families.depthwise.cases import check_adjoint, on_gpu, operands, too_far
from tests.gpu.families.skinny.cases import DIRECTIONS, PRECISIONS, PROBLEMS, offered
from tests.gpu.support.turns import turns
from winolab.algorithm import Problem
from winolab.gpu.families.skinny.config import Config, configs
from winolab.gpu.families.skinny.plan import SkinnyPlan
from winolab.gpu.families.skinny.tiling import sizes
from winolab.gpu.params import View
from winolab.ref.algorithms import convolution


def on_cpu(p: SkinnyPlan, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return hosted.execute(p, a, b, dtype=p.out_dtype)


@pytest.mark.parametrize(
    ("name", "direction", "precision"), turns(PROBLEMS, DIRECTIONS, PRECISIONS, of=3)
)
def test_results_are_those_of_fp64(name: str, direction: str, precision: str) -> None:
    found = offered(PROBLEMS[name], direction, precision)
    for p in {found[0], found[-1]}:
        a, b = operands(p.problem, direction, precision)
        assert too_far(p, a, b, on_cpu(p, a, b)) == 0, p


@pytest.mark.gpu
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("name", PROBLEMS)
def test_results_on_a_gpu_are_those_of_fp64(name: str, direction: str) -> None:
    for precision in PRECISIONS:
        for p in offered(PROBLEMS[name], direction, precision):
            a, b = operands(p.problem, direction, precision)
            assert too_far(p, a, b, on_gpu(p, a, b)) == 0, p


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_every_tile_every_number_of_lanes_and_of_warps(direction: str) -> None:
    """More rows, columns and threads than there is to do, and fewer; FP32 results of 16 bits."""
    problem = PROBLEMS["row of 49"]
    a, b = operands(problem, direction, "bf16")
    every = [*configs(direction, (1000, 1000, 4096), 2)]
    for config in every[:: 1 + len(every) // 24]:
        (p,) = offered(problem, direction, "bf16", config=config, out_dtype="float32")
        assert too_far(p, a, b, on_cpu(p, a, b)) == 0, p


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_arrays_that_are_not_aligned_have_the_same_bits(
    direction: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers one by one, where a launch finds arrays so."""
    of = sizes(direction, PROBLEMS["squeezed"])
    vector = 4 if precision == "fp32" else 8
    rows, columns = (4, vector) if direction == "backward_data" else (vector, vector)
    config = Config(rows, 4 if direction == "forward" else columns, vector, 4)
    assert config.serves(direction, of, 16 // vector)
    (p,) = offered(PROBLEMS["squeezed"], direction, precision, config=config)
    a, b = operands(p.problem, direction, precision)
    due = on_cpu(p, a, b)
    monkeypatch.setattr(View, "in_vectors", lambda *given: False)
    assert (on_cpu(p, a, b) == due).all()


def test_random_problems() -> None:
    """Any plan of the one generator's, made few positions of one tap; arrays that lie anyhow, with
    an epilogue; NaN and infinity reach what depends on them alone."""
    ran = 0
    for number in range(60):
        if not (one := random_plans.drawn("skinny", number)):
            continue
        given = one.request.problem
        positions = tuple(1 + n % 4 for n in given.input[:3])
        taps, ends = (1,) * len(positions), ((0, 0),) * len(positions)
        problem = Problem(
            1 + given.batch % 3, given.in_channels, given.out_channels, positions, taps, taps, ends,
            taps, 1,
        )  # fmt: skip
        precision = PRECISIONS[number % 3]
        request = replace(one.request, problem=problem, algorithm=None, precision=precision)
        if 0 in (problem.in_channels, problem.out_channels):
            continue
        found = offered(problem, request.direction, precision, out_dtype=request.out_dtype)
        if found:
            p = found[number % len(found)]
            random_plans.run(
                problem, p, np.random.default_rng(number), spoilt=number % 2 == 0, finished=True
            )
            ran += 1
    assert ran >= 30


def test_integers_are_exact_and_adjoint() -> None:
    """⟨dy, x ⋆ w⟩ = ⟨dx, x⟩ = ⟨dw, w⟩, of numbers whose sums FP32 holds."""
    for name, precision in product(("row of 49", "squeezed odd"), PRECISIONS[:2]):
        problem = PROBLEMS[name]
        dtype = {"fp32": "float32", "fp16": "float16"}[precision]
        check_adjoint(
            problem,
            DIRECTIONS,
            dtype,
            lambda direction, a, b, of=(problem, precision): on_cpu(
                offered(of[0], direction, of[1])[-1], a, b
            ),
        )


def test_infinities_and_nan_stay_with_their_position() -> None:
    problem = PROBLEMS["row of 49"]
    for direction in DIRECTIONS[:2]:
        p = offered(problem, direction, "fp16")[0]
        a, b = operands(problem, direction, "fp16")
        a[0, 7, 3], a[0, 20, 0] = np.inf, np.nan
        expected = np.zeros((49,), bool)
        expected[[7, 20]] = True
        assert (~np.isfinite(on_cpu(p, a, b)) == expected[None, :, None]).all()
    x, dy = operands(problem, "backward_filter", "fp16")
    x[0, 7, 3] = np.nan
    p = offered(problem, "backward_filter", "fp16")[0]
    expected = convolution.backward_filter(np.isnan(x).astype(float), np.ones(dy.shape), problem)
    assert (np.isnan(on_cpu(p, x, dy)) == (expected > 0)).all()
