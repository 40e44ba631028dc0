import numpy as np
import pytest

from tests.support.problems import integers
from winolab import Problem, arithmetic, conv_forward, parse_algorithm
from winolab.ref.algorithms import sample


@pytest.mark.parametrize(
    ("algorithm", "taps"),
    [("direct", (3, 3)), ("gamma:8:6:3", (3, 3)), ("winograd:4x4:3x3", (3, 3))],
)
def test_a_sample_is_a_part_of_the_layer(algorithm, taps):
    """Bit for bit in FP32: the sampled tiles run the same operations as the whole layer does."""
    rng = np.random.default_rng(5)
    x = rng.uniform(-1, 1, (2, 13, 17, 8)).astype(np.float32)
    w = rng.uniform(-1, 1, (6, *taps, 8)).astype(np.float32)
    problem, chosen = Problem.of(x.shape, w.shape, padding=1), parse_algorithm(algorithm)
    part = sample.draw(problem, chosen, 300, seed=1)
    values, positions = sample.forward(x, w, problem, chosen, arithmetic("fp32"), part)
    whole = conv_forward(x, w, padding=1, algorithm=algorithm).reshape(-1, 6)
    assert values.shape == (len(positions), len(part.channels))
    assert (values == whole[positions][:, part.channels]).all()
    assert len(set(positions)) == len(positions)


def test_every_region_is_sampled():
    """Width 23 of Γ8(6,3) has segments of F(6,3), F(2,3) and F(1,1)."""
    problem = Problem.of((4, 9, 25, 8), (8, 3, 3, 8))
    part = sample.draw(problem, parse_algorithm("gamma:8:6:3"), 400, seed=0)
    assert [str(r.segments[-1].tile) for r, _ in part.tiles] == ["F(6,3)", "F(2,3)", "F(1,1)"]


def test_the_oracle_at_the_sampled_positions():
    x, w = integers((2, 12, 12, 4), 1), integers((4, 3, 3, 4), 2)
    problem, chosen = Problem.of(x.shape, w.shape), parse_algorithm("gamma:8:6:3")
    part = sample.draw(problem, chosen, 100, seed=3)
    exact, positions = sample.forward(x, w, problem, chosen, arithmetic("exact"), part)
    oracle = sample.at_positions(x, w, problem, positions, part.channels, arithmetic("fp64"))
    assert (oracle == exact).all()


def test_the_same_seed_draws_the_same_sample():
    problem, chosen = Problem.of((4, 30, 30, 8), (8, 3, 3, 8)), parse_algorithm("gamma:8:6:3")
    first, again, other = (sample.draw(problem, chosen, 200, seed) for seed in (1, 1, 2))
    assert all((a == b).all() for (_, a), (_, b) in zip(first.tiles, again.tiles, strict=True))
    assert any(
        a.shape != b.shape or (a != b).any()
        for (_, a), (_, b) in zip(first.tiles, other.tiles, strict=True)
    )


def test_groups_are_refused():
    problem = Problem.of((1, 9, 9, 4), (4, 3, 3, 2), groups=2)
    part = sample.draw(problem, parse_algorithm("direct"), 10, seed=0)
    x, w = np.zeros(problem.x_shape), np.zeros(problem.w_shape)
    with pytest.raises(ValueError, match="groups = 1, not 2"):
        sample.forward(x, w, problem, parse_algorithm("direct"), arithmetic("fp64"), part)
