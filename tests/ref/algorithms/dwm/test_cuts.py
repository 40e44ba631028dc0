import math

import pytest

import winolab
from winolab.algorithm import Problem
from winolab.ref.algorithms.dwm.cuts import lengths
from winolab.ref.algorithms.dwm.decompose import decomposition


@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("stride", [1, 2, 3, 4])
@pytest.mark.parametrize("dilation", [1, 2, 3, 4])
def test_every_tap_meets_every_output_once(stride, dilation, balanced):
    """Each cut reads x[stride·o + dilation·k] for its taps k and outputs o, and no pair twice."""
    problem = Problem.of((1, 60, 1), (1, 7, 1), stride=stride, dilation=dilation)
    variant = "balanced" if balanced else None
    seen = set()
    for c in decomposition(problem, winolab.dwm(3, 2, variant=variant)).cuts[0]:
        for j, k in enumerate(c.taps):
            for i, o in enumerate(c.outputs):
                assert c.start + c.step * (i + j) == stride * o + dilation * k
                seen.add((k, o))
        assert c.step == math.lcm(stride, dilation)
    assert len(seen) == 7 * problem.output[0]
    assert sum(
        len(c.taps) * len(c.outputs) for c in decomposition(problem, winolab.dwm()).cuts[0]
    ) == len(seen)


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("tile", [2, 3, 4])
@pytest.mark.parametrize("size", range(1, 12))
def test_count_is_the_papers_formula(size, tile, stride):
    """∏(S + m(t − 1)) a block of t outputs: eq. 23 for t = 2, summed over phases for a stride."""
    problem = Problem.of((1, stride * 12 + size, 1), (1, size, 1), stride=stride, padding=0)
    outputs = problem.output[0] // 12 * 12
    problem = Problem.of((1, (outputs - 1) * stride + size, 1), (1, size, 1), stride=stride)
    phases = [len(range(p, size, stride)) for p in range(min(stride, size))]
    pieces = sum(-(-s // 3) for s in phases)
    whole = decomposition(problem, winolab.dwm(3, tile))
    assert whole.multiplications() == outputs // tile * (size + pieces * (tile - 1))
    assert len(whole.pieces) == pieces


def test_five_by_five_is_the_papers_four_pieces():
    for stride in (1, 2):
        whole = decomposition(Problem.of((1, 7, 7, 1), (1, 5, 5, 1), stride=stride), winolab.dwm())
        shapes = [tuple(c.tile.r for c in piece) for piece in whole.pieces]
        assert shapes == [(3, 3), (3, 2), (2, 3), (2, 2)]


def test_picture_of_a_large_filter():
    whole = decomposition(Problem.of((1, 9, 9, 1), (1, 5, 4, 1)), winolab.dwm())
    assert str(whole).splitlines() == [
        "A A A B",
        "A A A B",
        "A A A B",
        "C C C D",
        "C C C D",
        "",
        "A  taps 0..2 × 0..2  F(2,3)⊗F(2,3)",
        "B  taps 0..2 × 3  F(2,3)⊗direct",
        "C  taps 3..4 × 0..2  F(2,2)⊗F(2,3)",
        "D  taps 3..4 × 3  F(2,2)⊗direct",
    ]


def test_picture_of_phases():
    whole = decomposition(Problem.of((1, 40, 1), (1, 7, 1), stride=2, dilation=3), winolab.dwm())
    assert str(whole).splitlines() == [
        "A C A C A C B",
        "",
        "A  taps 0..4:2  input phase 0  F(2,3)  (3 phases of the output)",
        "B  taps 6  input phase 0  direct  (3 phases of the output)",
        "C  taps 1..5:2  input phase 3  F(2,3)  (3 phases of the output)",
    ]


def test_more_pieces_than_letters_still_have_names():
    whole = decomposition(Problem.of((1, 40, 1), (1, 30, 1)), winolab.dwm(1, 2))
    assert str(whole).splitlines()[0].split()[25:28] == ["Z", "AA", "AB"]


def test_a_stride_beyond_the_filter_reads_only_the_phases_it_needs():
    whole = decomposition(Problem.of((1, 20, 1), (1, 2, 1), stride=4), winolab.dwm())
    assert [c.phase for c in whole.cuts[0]] == [0, 1]


def test_lengths():
    assert lengths(7, 3) == [3, 3, 1]
    assert lengths(7, 3, balanced=True) == [3, 2, 2]
    assert lengths(4, 4, balanced=True) == [4]
