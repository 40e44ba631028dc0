import math
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import winolab
from tests.support.problems import integers, options, problems
from winolab.algorithm import Problem, parse_algorithm
from winolab.ref.algebra.program import is_power_of_two
from winolab.ref.arithmetic.simulated import PRESETS, Float
from winolab.ref.cost.blocks import hermitian, real_fft
from winolab.ref.cost.count import DIRECTIONS, Cost, cost


@dataclass(frozen=True, eq=False)
class Counting(Float):
    """FP64 that counts what it does: products, and operations of transforms and aggregation.

    Equal arithmetics share a call that was made ready; each of these is equal to itself alone.
    """

    seen: dict = field(default_factory=dict)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def count(self, kind, *arrays):
        size = math.prod(np.broadcast_shapes(*(np.shape(a) for a in arrays)))
        self.seen[kind] = self.seen.get(kind, 0) + size

    def add(self, a, b):
        self.count("additions", a, b)
        return super().add(a, b)

    def sub(self, a, b):
        self.count("additions", a, b)
        return super().sub(a, b)

    def mul(self, a, b):
        self.count("shifts" if is_power_of_two(Fraction(float(a))) else "multiplications", a, b)
        return super().mul(a, b)

    def fma(self, a, b, c):
        self.count("fmas", a, b, c)
        return a * b + c

    def matmul(self, a, b):
        self.seen["products"] = self.seen.get("products", 0) + math.prod(a.shape) * b.shape[-1]
        return super().matmul(a, b)


def counting() -> Counting:
    base = PRESETS["fp64"]
    return Counting(base.storage, base.transform, base.product, base.accumulate, base.accumulation)


def executed(problem, algorithm, direction) -> dict:
    x, w, y = (integers(s, 0) for s in (problem.x_shape, problem.w_shape, problem.y_shape))
    run = counting()
    a, b, shape = {
        "forward": (x, w, ()),
        "backward_data": (y, w, (x.shape,)),
        "backward_filter": (x, y, (w.shape,)),
    }[direction]
    function = getattr(winolab, f"conv_{direction}")
    function(a, b, *shape, **options(problem), algorithm=algorithm, precision=run)
    return run.seen


def stated(found: Cost) -> dict:
    work = found.transforms
    counts = {
        "products": found.products,
        "additions": work.additions,
        "multiplications": work.multiplications,
        "shifts": work.shifts,
        "fmas": work.fmas,
    }
    return {kind: count for kind, count in counts.items() if count}


@settings(max_examples=20, deadline=None)
@given(
    problems(unit=True, filter_=(3, 3), ndim=2),
    st.sampled_from(DIRECTIONS),
    st.sampled_from(["winograd:4x2:3x3", "gamma:4:2:3@paper", "winograd:6x6:3x3@wincnn"]),
)
def test_winograd_does_what_is_stated(problem, direction, text):
    algorithm = parse_algorithm(text)
    if direction == "backward_filter":
        algorithm = winolab.winograd((3, 3), (2, 4))
    assert stated(cost(problem, algorithm, direction)) == {
        kind: count for kind, count in executed(problem, algorithm, direction).items() if count
    }


@settings(max_examples=40, deadline=None)
@given(problems(), st.sampled_from(DIRECTIONS), st.integers(1, 3), st.integers(1, 4))
def test_dwm_does_what_is_stated(problem, direction, piece, tile):
    """The reference also adds the first piece, to zeros."""
    algorithm = winolab.dwm(piece, tile)
    found = stated(cost(problem, algorithm, direction))
    done = executed(problem, algorithm, direction)
    first = {"forward": problem.y_shape, "backward_filter": problem.w_shape}.get(direction)
    if first is None:
        ones = np.ones(problem.y_shape), np.ones(problem.w_shape)
        dx = winolab.conv_backward_data(*ones, problem.x_shape, **options(problem))
        done["additions"] = done.get("additions", 0) - np.count_nonzero(dx)
    else:
        done["additions"] = done.get("additions", 0) - math.prod(first)
    assert found == {kind: count for kind, count in done.items() if count}


@pytest.mark.parametrize("text", ["omega:8:3:6", "omega:4:3:2;segments=4", "winrs"])
def test_winrs_does_what_is_stated(text):
    """The reference also adds the only phase of a unit stride, to zeros."""
    problem = Problem.of((2, 13, 14, 3), (4, 3, 3, 3), padding=1)
    found = cost(problem, parse_algorithm(text), "backward_filter")
    done = executed(problem, text, "backward_filter")
    done["additions"] -= math.prod(problem.w_shape)
    assert stated(found) == {kind: count for kind, count in done.items() if count}
    assert found.workspace % math.prod(problem.w_shape) == 0


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_direct_multiplies_as_often_as_its_macs(direction):
    problem = Problem.of((2, 9, 8, 4), (6, 3, 2, 2), stride=(2, 1), padding=1, groups=2)
    found = cost(problem, winolab.direct(), direction)
    assert found.products == problem.macs
    assert found.instructions == problem.macs
    assert found.flops == 2 * problem.macs
    assert found.workspace == 0
    tensors = (problem.x_shape, problem.w_shape, problem.y_shape)
    assert found.traffic == sum(map(math.prod, tensors))


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("products", [3, 4])
def test_fft_multiplies_as_often_as_stated(direction, products):
    problem = Problem.of((2, 9, 11, 3), (4, 3, 3, 3), padding=1)
    algorithm = winolab.fft(8, products=products)
    done = executed(problem, algorithm, direction)
    assert cost(problem, algorithm, direction).products == done["products"]


def test_workspace_holds_every_transformed_operand():
    problem = Problem.of((1, 8, 8, 5), (7, 3, 3, 5), padding=1)
    found = cost(problem, winolab.winograd((2, 2), (3, 3)))
    assert found.transformed == (16 * 5 * 7, 16 * 16 * 5, 16 * 16 * 7)
    fourier = cost(problem, winolab.fft(8, products=3))
    assert fourier.transformed[0] == 3 * 8 * 5 * 5 * 7


def test_split_radix_counts():
    assert [real_fft([n]) for n in (2, 4, 8, 16)] == [2, 6, 22, 70]
    assert [real_fft([n, n]) for n in (8, 16)] == [388, 2436]
    assert hermitian([8, 8]) == 40
    with pytest.raises(ValueError, match="expected a power of two"):
        real_fft([12])


def test_errors_say_what_is_possible():
    problem = Problem.of((1, 9, 1), (1, 3, 1), stride=2)
    with pytest.raises(ValueError, match="expected one of forward"):
        cost(problem, winolab.direct(), "sideways")
    for direction in DIRECTIONS:
        with pytest.raises(ValueError, match="needs stride 1"):
            cost(problem, winolab.winograd((2,), (3,)), direction)
    with pytest.raises(ValueError, match="serves forward and backward data"):
        cost(problem, winolab.gamma(4, 2, 3), "backward_filter")
    with pytest.raises(ValueError, match="filter gradients only"):
        cost(problem, winolab.omega(4, 3, 2), "forward")
    with pytest.raises(ValueError, match="alpha 1, 4, 8, 16 only"):
        cost(problem, winolab.omega(5, 2, 4), "backward_filter")
