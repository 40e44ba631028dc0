"""Where products of few positions are planned, what their plans say, what is refused."""

from __future__ import annotations

import pytest

from tests.gpu.families.skinny.cases import DIRECTIONS, PRECISIONS, PROBLEMS, offered
from winolab.algorithm import Problem, gamma
from winolab.arguments.epilogue import Epilogue
from winolab.bench.contenders import unnamed
from winolab.bench.networks import distinct
from winolab.device import datasheet
from winolab.gpu.families.skinny import cost
from winolab.gpu.families.skinny.config import POSITIONS, VALUES, Config
from winolab.gpu.families.skinny.plan import SkinnyPlan
from winolab.gpu.planner.planner import candidates, plan
from winolab.gpu.planner.request import Request

LAYERS = {str(found): found.problem for found in distinct()}  # of networks
H200 = datasheet("h200")
SHAPES = (2, 5, 16), (8, 1, 16)
SQUEEZED = "1x1x1x240>10x1x1", "32x1x1x32>120x1x1", "1x1x1x72>24x1x1"


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("name", SQUEEZED)
def test_squeezed_images_of_networks_are_of_few_positions(name: str, direction: str) -> None:
    for precision in PRECISIONS:
        assert isinstance(plan(unnamed(direction, LAYERS[name], precision, H200)), SkinnyPlan)


def test_what_is_served() -> None:
    """One tap, one group, steps of one, and few positions, unless a config is named."""
    most = Problem.of((POSITIONS, 1, 16), (8, 1, 16))
    more = Problem.of((POSITIONS + 1, 1, 16), (8, 1, 16))
    for direction in DIRECTIONS:
        found = offered(most, direction, "fp16")
        assert found
        assert offered(more, direction, "fp16") == []
        assert offered(more, direction, "fp16", config=found[0].config)
        assert offered(most, direction, "fp16", algorithm=gamma(6, 4, 3)) == []
        for strided in (Problem.of(*SHAPES, stride=2), Problem.of(*SHAPES, padding=1)):
            assert offered(strided, direction, "fp16") == []
        assert offered(Problem.of((2, 5, 16), (8, 1, 8), groups=2), direction, "fp16") == []
        assert offered(Problem.of((2, 5, 16), (8, 2, 16)), direction, "fp16") == []


def test_tiles_cover_the_result() -> None:
    for direction, precision in zip(DIRECTIONS, PRECISIONS, strict=True):
        for problem in PROBLEMS.values():
            for p in offered(problem, direction, precision):
                v, (rows, columns, depth) = p.config, p.sizes
                assert v.values <= VALUES
                assert p.grid * v.tiles >= p.count == -(-rows // v.rows) * -(-columns // v.columns)
                assert p.steps * v.slices * p.step >= depth
                assert 0 < p.predicted < 1e-3
                assert p.predicted > cost.data(p) / H200.bandwidth


def test_threads_read_as_much_at_once_as_lies_side_by_side() -> None:
    """Sums forward, results of the other directions; of a gradient also rows, if these are 16 B."""
    odd, even = Problem.of((2, 1, 1, 12), (15, 1, 1, 12)), Problem.of((2, 1, 1, 16), (24, 1, 1, 16))
    for direction in DIRECTIONS:
        assert {p.config.vector for p in offered(odd, direction, "fp16")} == {1}
        assert {p.config.vector for p in offered(odd, direction, "fp32")} == {4}
        assert {p.config.vector for p in offered(even, direction, "fp16")} == {8}
    whole = Config(8, 8, 8, 1)
    assert offered(even, "backward_filter", "fp16", config=whole)
    uneven = Problem.of((2, 1, 1, 16), (15, 1, 1, 16))
    with pytest.raises(ValueError, match=r"does not serve 15 × 16 sums of 2"):
        offered(uneven, "backward_filter", "fp16", config=whole)


def test_tiles_are_counted() -> None:
    """Others serve a gradient of more, single numbers each."""
    wide = Problem.of((1, 1, 1, 2**30 - 1), (3, 1, 1, 2**30 - 1))
    with pytest.raises(ValueError, match="the number of tiles is 3221225469"):
        offered(wide, "backward_filter", "fp32")
    assert not isinstance(plan(Request(wide, "backward_filter", H200)), SkinnyPlan)
    assert max(p.count for p in offered(wide, "forward", "fp32")) < 2**30


def test_compute_capability_8_runs_them() -> None:
    request = Request(PROBLEMS["squeezed"], "forward", datasheet("a100"), None, "bf16")
    assert any(isinstance(p, SkinnyPlan) for p in candidates(request).plans)


def test_what_is_refused() -> None:
    config = Config(1, 1, 8, 16)
    with pytest.raises(
        ValueError, match=r"one tap with stride 1, .* not \(1,\) with stride \(2,\)"
    ):
        offered(Problem.of((2, 5, 16), (8, 1, 16), stride=2), "forward", "fp16", config=config)
    with pytest.raises(ValueError, match="needs something to sum"):
        offered(Problem.of((0, 5, 16), (8, 1, 16)), "forward", "fp16")
    for wrong in (
        Config(3, 1, 8, 8),
        Config(1, 1, 4, 8),
        Config(1, 1, 8, 64),
        Config(1, 1, 8, 4, 2),
    ):
        with pytest.raises(ValueError, match=f"{wrong} does not serve 1 × 24 sums of 72"):
            offered(PROBLEMS["squeezed"], "forward", "fp16", config=wrong)


def test_a_plan_says_what_it_is() -> None:
    p = offered(PROBLEMS["squeezed"], "forward", "fp16", config=Config(1, 4, 8, 16))[0]
    text = str(p)
    assert "kernel     skinny fp16, nothing transformed" in text
    assert "product    1 × 24 results, sums of 72" in text
    assert "grid       2 blocks of 64 threads, 6 tiles" in text
    assert p.with_epilogue(Epilogue(bias=True)) is not None
    assert (
        offered(PROBLEMS["squeezed"], "backward_data", "fp16")[0].with_epilogue(Epilogue()) is None
    )
    (of,) = offered(PROBLEMS["row of 49"], "backward_filter", "fp16", config=Config(8, 8, 8, 4))[
        0
    ].sums
    assert (of.products, of.count) == (49 / 4, 4)


def test_every_batch_can_have_the_same_bits() -> None:
    """A config says in which order an output is summed."""
    for direction in ("forward", "backward_data"):
        request = unnamed(direction, LAYERS["32x1x1x48>1152x1x1"], "fp16", H200)
        found = {
            plan(Request(of, direction, H200, None, "fp16", batch_invariant=True)).config
            for of in (request.problem, LAYERS["1x1x1x48>1152x1x1"])
        }
        assert len(found) == 1
