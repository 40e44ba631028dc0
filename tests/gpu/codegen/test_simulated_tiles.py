"""Kernels around simulated sums: what they are told, and that NVRTC compiles them."""

from __future__ import annotations

from fractions import Fraction

import pytest

from winolab.algorithm import Problem, direct, parse_algorithm
from winolab.gpu.codegen import simulated_tiles
from winolab.gpu.codegen.simulated_tiles import ALONE, FP64, IDENTITY, OUTPUTS, STATES
from winolab.gpu.runtime import nvrtc
from winolab.ref.algebra.program import Program
from winolab.ref.algebra.schedule import Op
from winolab.ref.algorithms import winograd
from winolab.ref.algorithms.engine import Engine
from winolab.ref.arithmetic.formats import FORMATS
from winolab.ref.arithmetic.simulated import arithmetic


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("text", ["gamma:16:8:9", "winograd:4x4:3x3", "direct"])
def test_kernels_compile_without_spills(text: str, wide: bool) -> None:
    algorithm = parse_algorithm(text)
    of = winograd.programs_of(algorithm)
    tiles = algorithm.tiles or direct().tiles
    programs, taps = [of(tile) for tile in tiles], [tile.r for tile in tiles]
    source = simulated_tiles.around(programs, taps, None if wide else FORMATS["fp16"], wide)
    made = nvrtc.compile_cubin(source, "sm_90a")
    assert set(made.resources) == {STATES, OUTPUTS}
    assert not any(kernel.spills for kernel in made.resources.values())


@pytest.mark.parametrize("wide", [False, True])
def test_the_oracle_compiles(wide: bool) -> None:
    made = nvrtc.compile_cubin(simulated_tiles.oracle(wide), "sm_90a")
    assert not made.resources[FP64].spills


def test_programs_of_magnitudes_subtract_nothing() -> None:
    """Path weights, and the largest register's gain by hand."""
    ops = (Op("mul", 0, None, Fraction(-1, 4)), Op("sub", 1, 2), Op("fms", 3, 0, Fraction(-3)))
    program = Program(2, ops, ((-1, 4), (1, 3), (0, 0)))
    made, gain = simulated_tiles.magnitude(program)
    assert made.exact() == program.path_weights()[0]
    assert gain == 3 * (1 + 1 / 4) + 1


def test_a_dimension_that_a_problem_lacks_comes_first_and_does_nothing() -> None:
    problem = Problem.of((2, 9, 13, 5), (6, 3, 4, 5), stride=(1, 2), padding=(1, 2), dilation=2)
    (box,) = winograd.regions(problem, direct())
    engine = Engine(problem, box, (IDENTITY, IDENTITY), arithmetic("fp32"), None, (1, 2))
    height, width = problem.output
    assert simulated_tiles.along(engine) == [
        *(1, 0, 0, 1, 1, 1, 1),
        *(height, -1, 1, 2, 9, 1, 3),
        *(width, -2, 2, 2, 13, 2, 4),
    ]
    assert ALONE.exact() == ((1,),)
    with pytest.raises(ValueError, match="tiles of 4 dimensions; expected 1 to 3"):
        simulated_tiles.around([IDENTITY] * 4, [1] * 4, None)


def test_more_terms_than_blocks_are_refused() -> None:
    depth = 8 * 65_535 + 1
    with pytest.raises(ValueError, match="the number of blocks of a simulated sum's terms"):
        simulated_tiles.launch_states({}, [0, 0, 0], (1, 4, depth, 1), [1, 0, 0, 1, 1, 1, 1] * 3)
    with pytest.raises(ValueError, match="the number of blocks of simulated outputs"):
        simulated_tiles.launch_outputs({}, [0, 0], (1 << 30, 1 << 30, 1 << 20, 1 << 20))
    with pytest.raises(ValueError, match="the number of blocks of an oracle"):
        simulated_tiles.launch_oracle({}, [0, 0, 0], (1, 1 << 30, 1 << 20, 4))
