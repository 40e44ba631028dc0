import itertools
from fractions import Fraction

import pytest

import winolab
from winolab.algorithm import Fft, Problem, Tile, parse_algorithm
from winolab.ref.algebra.program import program
from winolab.ref.algebra.transforms import transforms
from winolab.ref.algorithms.dwm.decompose import decomposition
from winolab.ref.cost import complexity
from winolab.ref.cost.blocks import Operations
from winolab.ref.cost.count import cost

# Lavin & Gray, table 1, Winograd: α′, β′, γ′, δ′ of F(m×m, 3×3); their instructions come from
# programs made by hand. Table 1 and 2, FFT: α′ and the transforms.
WINOGRAD = {2: (4.00, 2.00, 1.75, 1.50), 4: (2.25, 4.33, 2.00, 2.78), 6: (1.78, 6.50, 2.23, 4.38)}
FOUR = {
    8: (4.44, 2.42),
    16: (2.94, 4.23),
    32: (2.42, 6.24),
    64: (2.20, 8.30),
    128: (2.10, 10.37),
    256: (2.05, 12.42),
}
THREE = {
    8: (3.33, 3.77, 4.30),
    16: (2.20, 6.23, 6.82),
    32: (1.81, 8.94, 9.57),
    64: (1.65, 11.72, 12.36),
    128: (1.57, 14.48, 15.14),
    256: (1.54, 17.22, 17.88),
}
PRINTED = 0.005  # half a unit of the last printed digit


@pytest.mark.parametrize("n", WINOGRAD)
def test_winograd_columns_of_lavin_and_gray(n):
    """Never more instructions than the paper's programs; F(2×2, 3×3) to the digit."""
    found = complexity.normalized([Tile(n, 3)] * 2)
    alpha, data, filters, inverse = WINOGRAD[n]
    assert abs(found.products - alpha) <= PRINTED
    for ours, theirs in ((found.data, data), (found.filter, filters), (found.inverse, inverse)):
        assert ours <= theirs + PRINTED
        assert n > 2 or ours == theirs


def test_tile_of_five_takes_the_papers_count_with_another_row_scale():
    """9, 7 and 7 instructions: 3.60, 2.24, 2.24. A factor of 3 moves from BT's third row to G's."""
    t = transforms(3, 3, "0,1,-1,2,inf")
    scale = (1, 1, 3, 1, 1)
    G = [[v * s for v in row] for row, s in zip(t.G, scale, strict=True)]
    BT = [[v / s for v in row] for row, s in zip(t.BT, scale, strict=True)]
    counts = [program(matrix).counts.instructions for matrix in (BT, G, t.AT)]
    assert counts == [9, 7, 7]


@pytest.mark.parametrize("size", FOUR)
def test_fft_columns_of_lavin_and_gray(size):
    four = complexity.normalized_fft([size] * 2, [3, 3], 4)
    assert abs(four.products - FOUR[size][0]) <= PRINTED
    for transform in (four.data, four.filter, four.inverse):
        assert abs(transform - FOUR[size][1]) <= PRINTED
    three = complexity.normalized_fft([size] * 2, [3, 3], 3, half=False)
    assert abs(three.products - THREE[size][0]) <= PRINTED
    assert abs(three.data - THREE[size][1]) <= PRINTED
    for transform in (three.filter, three.inverse):
        assert abs(transform - THREE[size][2]) <= PRINTED


@pytest.mark.parametrize(
    "algorithm", ["winograd:2x2:3x3@paper", "winograd:4x4:3x3@paper", "fft:8:3", "fft:8:4"]
)
def test_equation_23_is_the_cost(algorithm):
    problem = Problem.of((2, 12, 12, 5), (7, 3, 3, 5), padding=1)
    parsed = winolab.parse_algorithm(algorithm)
    if isinstance(parsed, Fft):
        closed = complexity.normalized_fft([8, 8], [3, 3], parsed.products)
    else:
        closed = complexity.normalized(parsed.tiles)
    assert closed.complexity(problem) == cost(problem, parsed).instructions


def compositions(total):
    """Every ordered cut of ``total`` taps."""
    for cuts in itertools.product([0, 1], repeat=total - 1):
        lengths = [1]
        for cut in cuts:
            if cut:
                lengths.append(1)
            else:
                lengths[-1] += 1
        yield tuple(lengths)


@pytest.mark.parametrize("tile", [2, 3, 4])
def test_every_cut_into_as_many_pieces_costs_the_same(tile):
    """DWM's claim (section 4.5) in one and two dimensions, all cuts of up to 8 and 4 taps."""
    for size in range(1, 9):
        for cut in compositions(size):
            total = sum(Tile(tile, piece).alpha for piece in cut)
            assert total == complexity.decomposed([size], [len(cut)], tile)
    for sizes in itertools.product(range(1, 5), repeat=2):
        for cuts in itertools.product(*map(compositions, sizes)):
            pieces = itertools.product(*cuts)
            total = sum(Tile(tile, a).alpha * Tile(tile, b).alpha for a, b in pieces)
            assert total == complexity.decomposed(sizes, list(map(len, cuts)), tile)


@pytest.mark.parametrize("size", [3, 5, 7, 11])
@pytest.mark.parametrize("tile", [2, 4])
def test_memory_expansion_is_what_the_cost_model_holds(size, tile):
    """Sizes without a piece of a single tap, which is not transformed and expands nothing."""
    size -= size % 3 == 1
    pieces = [-(-size // 3)] * 2
    problem = Problem.of((1, 7 + size, 7 + size, 3), (5, size, size, 3))
    assert set(problem.output) == {8}
    found = complexity.expansion(problem, pieces, tile)
    filters, data, _ = cost(problem, winolab.dwm(3, tile)).transformed
    assert found.filters == Fraction(filters, 5 * 3 * size**2)
    assert found.patches == Fraction(data, 3 * 64 * size**2)
    assert found.inputs == Fraction(data, 3 * (7 + size) ** 2)
    assert len(decomposition(problem, winolab.dwm(3, tile)).pieces) == pieces[0] ** 2


def test_strassen():
    """Each level: 7/8 of the multiplications, 15 additions of half-size matrices."""
    once = complexity.strassen(8, 8, 8, 1)
    assert once.fmas == 7 * 4**3
    assert once.additions == 15 * 4 * 4
    assert complexity.strassen(16, 8, 4, 2).fmas == 49 * 4 * 2 * 1
    assert complexity.strassen(6, 5, 4, 0).fmas == 120
    with pytest.raises(ValueError, match="not divisible by 2"):
        complexity.strassen(6, 4, 4, 2)


@pytest.mark.parametrize(
    ("algorithm", "direction"),
    [
        ("direct", "forward"),
        ("direct", "backward_filter"),
        ("winograd:4x4:3x3", "backward_data"),
        ("gamma:8:6:3", "forward"),
        ("dwm:2:3", "forward"),
        ("dwm:2:3", "backward_filter"),
        ("fft:8:3", "forward"),
        ("winrs", "backward_filter"),
    ],
)
def test_products_are_all_that_cost_counts(algorithm, direction):
    problem = Problem.of((2, 9, 11, 6), (4, 3, 3, 3), padding=1, groups=2)
    chosen = parse_algorithm(algorithm)
    found = list(complexity.products(problem, chosen, direction))
    assert sum(count * m * k * n for count, (m, k, n) in found) == (
        cost(problem, chosen, direction).products
    )
    none = complexity.recursed(problem, chosen, 0, direction)
    assert none == Operations(fmas=cost(problem, chosen, direction).products)


def test_strassen_in_an_algorithm():
    """As in Table 3 of Lavin & Gray: each of the 16 products of F(2×2,3×3) recurses by itself."""
    problem = Problem.of((1, 8, 8, 4), (6, 3, 3, 4), padding=1)
    found = complexity.recursed(problem, parse_algorithm("winograd:2x2:3x3"), 1)
    assert found == complexity.strassen(16, 4, 6, 1) * 16
    with pytest.raises(ValueError, match=r"16×4 by 4×6.*levels up to 1"):
        complexity.recursed(problem, parse_algorithm("winograd:2x2:3x3"), 10**9)


def test_intensities_of_the_papers():
    """Im2col-Winograd 5.6: 10.24, 15.06 and 12.19; openCNN 3: a third more for 64 filters."""
    tile = [Tile(8, 9)]
    assert float(complexity.intensity(tile, 32, 32)) == pytest.approx(10.24, abs=PRINTED)
    assert float(complexity.intensity(tile, 64, 32)) == pytest.approx(15.06, abs=PRINTED)
    reused = complexity.intensity(tile, 32, 32, reused=True)
    assert float(reused) == pytest.approx(12.19, abs=PRINTED)
    square = [Tile(2, 3)] * 2
    larger, smaller = (complexity.intensity(square, k, 32, external=True) for k in (64, 32))
    assert larger / smaller == Fraction(4, 3)
