"""The kernel of grouped layers: its source on the CPU, and on a GPU, against FP64 within the proven
bound."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.gpu import hosted, random_plans
from tests.gpu.families.depthwise.cases import check_adjoint, on_gpu, operands, too_far
from tests.gpu.families.grouped.cases import DIRECTIONS, PRECISIONS, PROBLEMS, layer, offered
from tests.gpu.support.turns import turns
from winolab.device import H100, REGISTERS
from winolab.gpu.families.grouped import launch
from winolab.gpu.families.grouped import plan as grouped
from winolab.gpu.families.grouped.config import WARPS, Config
from winolab.gpu.families.grouped.plan import GroupedPlan
from winolab.gpu.families.grouped.tiling import THREAD
from winolab.gpu.params import View
from winolab.ref.algorithms import convolution


def on_cpu(p: GroupedPlan, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return hosted.execute(p, a, b, dtype=p.out_dtype)


CASES = [(d, name) for d in DIRECTIONS for name in PROBLEMS]


def turn(direction: str, name: str) -> str:
    """The precision whose turn it is: both have all kinds of problems."""
    return PRECISIONS[(DIRECTIONS.index(direction) + [*PROBLEMS].index(name)) % 2]


@pytest.mark.parametrize(("direction", "name"), CASES)
def test_results_are_those_of_fp64(direction: str, name: str) -> None:
    """By the first or the last block shape that is offered, of few or of many outputs: directions
    take turns."""
    precision = turn(direction, name)
    last = (DIRECTIONS.index(direction) + [*PROBLEMS].index(name) // 2) % 2
    p = offered(PROBLEMS[name], direction, precision)[-last]
    a, b = operands(p.problem, direction, precision)
    assert too_far(p, a, b, on_cpu(p, a, b)) == 0, p


@pytest.mark.gpu
@pytest.mark.parametrize(("direction", "name"), CASES)
def test_results_on_a_gpu_are_those_of_fp64(direction: str, name: str) -> None:
    for precision in PRECISIONS:
        for p in offered(PROBLEMS[name], direction, precision):
            a, b = operands(p.problem, direction, precision)
            assert too_far(p, a, b, on_gpu(p, a, b)) == 0, p


@pytest.mark.parametrize("warps", WARPS, ids=str)
def test_every_block_shape(warps: tuple[int, int]) -> None:
    """Warps without channels and without positions; slices that are not full; the filter in
    registers and in shared memory; several products' positions at once, some beyond the map.
    Directions take turns."""
    for number, (tiles, kept) in enumerate([(1, 1), (2, 1), (3, 0), (4, 0)]):
        name = ("groups of 8", "groups of 4", "groups of 16", "groups of 4 and 8")[number]
        direction = DIRECTIONS[(number // 2 + WARPS.index(warps)) % 2]
        bundles = 1 if number > 1 else 2 - number
        config = Config(5, 6, *warps, bundles, tiles, kept)
        dtype = "float32" if number % 2 else None
        (p,) = offered(PROBLEMS[name], direction, "fp16", config=config, out_dtype=dtype)
        a, b = operands(p.problem, direction, "fp16")
        assert too_far(p, a, b, on_cpu(p, a, b)) == 0, p


def test_work_tiles_are_shared_by_blocks_that_stay() -> None:
    """Each in the other stage, and the last ones not full."""
    for name in ("groups of 4", "groups of 4, stride 2", "three dimensions", "groups of 32"):
        for direction in DIRECTIONS:
            c = offered(PROBLEMS[name], direction, "fp16")[0].config
            (p,) = offered(PROBLEMS[name], direction, "fp16", config=replace(c, rows=2, columns=3))
            few = replace(p, device=replace(p.device, multiprocessors=1, shared_memory=0))
            assert few.resident == 1
            assert few.rounds > 2 or few.phases * few.slices > 1
            assert few.work_tiles > few.workers
            a, b = operands(p.problem, direction, "fp16")
            assert too_far(few, a, b, on_cpu(few, a, b)) == 0, few
            assert (on_cpu(p, a, b) == on_cpu(few, a, b)).all()


@pytest.mark.parametrize("name", ["groups of 4", "groups of 16 and 4", "groups of 32"])
def test_filters_that_are_not_aligned_have_the_same_bits(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Channels one by one, where a launch finds them so."""
    p = offered(PROBLEMS[name], "forward", "fp16")[0]
    a, b = operands(p.problem, "forward", "fp16")
    due, view, w = on_cpu(p, a, b), View(0, (16,) * 4), View(0, (36, 36, 12, 4, 1))
    at = [name for name, _ in launch.PARAMS.fields].index("pairs")
    assert launch.parameters(p, view, w, view).values[at] == 1
    for other in (replace(w, address=2), replace(w, strides=(37, 37, 12, 4, 1))):
        assert launch.parameters(p, view, other, view).values[at] == 0
    monkeypatch.setattr(View, "in_vectors", lambda *given: False)
    assert (on_cpu(p, a, b) == due).all()


def test_addresses_of_what_is_not_there_are_aligned() -> None:
    """Beside a dimension's only element, whose distance to others may be any, too."""
    p = offered(layer((1, 9, 1, 32), 32, (3, 3), padding=1, groups=8), "forward", "fp16")[0]
    view = View(0, (1, 0, 64, 3))
    values = launch.parameters(p, view, View(0, (36, 36, 12, 4, 1)), view).values
    at = {name: i for i, (name, _) in enumerate(launch.PARAMS.fields)}
    assert [values[at[f"x_{name}"]] for name in ("batch", "depth", "row", "pixel")] == [0, 0, 64, 0]


def test_random_problems() -> None:
    """Any plan of the one generator's; NaN and infinity reach what may depend on them alone."""
    ran = 0
    for number in range(400):
        if not (one := random_plans.drawn("grouped", number)):
            continue
        request = replace(one.request, algorithm=None, device=H100, aligned=True)
        request = replace(request, precision=PRECISIONS[number % 2], out_dtype=None)
        problem = request.problem
        if problem.macs > 1e6 or problem.ndim > 3 or request.direction not in DIRECTIONS:
            continue
        found = [*grouped.plans(request)]
        if found and problem.batch and min(problem.output) > 0:
            p = found[number % len(found)]
            random_plans.run(problem, p, np.random.default_rng(number), spoilt=True)
            ran += 1
        if ran == 16:
            break
    assert ran == 16


def test_integers_are_exact_and_adjoint() -> None:
    for name in ("groups of 4, stride 2", "groups of 24", "dilation and stride", "causal"):
        problem = PROBLEMS[name]

        def computed(direction: str, a: Any, b: Any, problem: Any = problem) -> Any:
            return on_cpu(offered(problem, direction, "fp16")[-1], a, b)

        check_adjoint(problem, DIRECTIONS, "float16", computed)


@pytest.mark.parametrize(("name", "others"), [("groups of 4", 1), ("groups of 8", 0)])
def test_infinities_and_nan_stay_in_their_windows(name: str, others: int) -> None:
    """And in their bundle's groups: a tap that there is not meets zeros, not a pixel."""
    problem = PROBLEMS[name]
    p = offered(problem, "forward", "fp16")[0]
    a, b = operands(problem, "forward", "fp16")
    mark = np.zeros(problem.x_shape)
    for at, value in (((0, 2, 4, 2), np.inf), ((0, 7, 9, 13), np.nan)):
        a[at], mark[at] = value, 1
    mark = mark.reshape(*mark.shape[:-1], -1, 8).max(axis=-1, keepdims=True)
    mark = np.broadcast_to(mark, (*mark.shape[:-1], 8)).reshape(problem.x_shape)
    reached = convolution.forward(mark, np.ones(problem.w_shape), problem) > 0
    y = on_cpu(p, a, b)
    assert (~np.isfinite(y) == reached).all()
    with np.errstate(all="ignore"):
        exact = convolution.forward(a.astype(float), b.astype(float), problem)
    own = ~np.isfinite(exact)
    assert (own == reached).all() == (not others)
    assert (np.isnan(y) >= np.isnan(exact))[own].all()
    assert (np.isposinf(y) == np.isposinf(exact))[own].all()


@pytest.mark.parametrize(
    ("name", "direction", "precision", "config"),
    [
        ("groups of 4", "forward", "fp16", Config(8, 8, 2, 2, 4, 1, 1)),
        ("groups of 4", "backward_data", "bf16", Config(8, 8, 4, 2, 4, 1, 1)),
        ("groups of 4, stride 2", "backward_data", "fp16", Config(8, 8, 2, 4, 4, 2, 1)),
        ("groups of 16", "forward", "bf16", Config(8, 8, 2, 2, 2, 4, 0)),
        ("groups of 32", "forward", "fp16", Config(8, 8, 2, 4, 1, 4, 0)),
        ("causal", "forward", "bf16", Config(1, 64, 2, 2, 4, 2, 1)),
        ("groups of 24", "backward_data", "fp16", Config(8, 8, 2, 1, 1, 1, 1)),
    ],
)
def test_the_kernels_spill_nothing(
    name: str, direction: str, precision: str, config: Config, compiled
) -> None:
    """And a multiprocessor holds as many blocks as the model has."""
    (p,) = offered(PROBLEMS[name], direction, precision, config=config)
    view, w = View(0, (16,) * 4), View(0, (16,) * 5)
    size = len(launch.parameters(p, view, w, view).data)
    found = compiled(p.source() + f"\nstatic_assert(sizeof(GroupedParams) == {size});")
    (used,) = found.values()
    assert not used.spills
    granted = -(-used.registers // 8) * 8
    assert granted <= THREAD
    assert REGISTERS // (config.threads * granted) >= p.resident


@pytest.mark.parametrize(("direction", "name"), turns(DIRECTIONS, PROBLEMS))
def test_shared_memory_has_no_conflicts(direction: str, name: str) -> None:
    """Matrices' rows lie in all banks, where outputs of two rows of a patch meet, too, and where
    there are no more of them."""
    for p in offered(PROBLEMS[name], direction, "fp16")[-1:]:
        a, b = operands(p.problem, direction, "fp16")
        vectors = [r for r in hosted.requests(p, a, b)["winolab_grouped"] if r.bytes == 16]
        assert sum(r.requests for r in vectors if not r.write)
        assert all(r.phases == r.wavefronts for r in vectors)
