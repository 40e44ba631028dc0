"""Closed forms of the papers: normalized complexity, DWM's product, Strassen, intensities.

Each states what cost.py counts, for shapes that the tiles divide, and is tested against it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from winolab.algorithm import Algorithm, Problem, Tile, Winograd
from winolab.ref.algorithms import winograd
from winolab.ref.cost.blocks import Operations, hermitian, nested, operands, real_fft
from winolab.ref.cost.count import work


@dataclass(frozen=True)
class Normalized:
    """α′, β′, γ′, δ′ of Lavin & Gray, eq. 20 and 22.

    ``products``: multiplications an output, channel and filter; ``data``, ``filter``, ``inverse``:
    instructions of a tile's transform over the multiplications of a tile (α of eq. 20).
    ``outputs`` of a tile: m².
    """

    products: Fraction
    data: Fraction
    filter: Fraction
    inverse: Fraction
    outputs: int

    def complexity(self, problem: Problem) -> Fraction:
        """L of eq. 23, forward, where the tiles divide the outputs: instructions."""
        outputs = problem.batch * math.prod(problem.output)
        tiles = Fraction(outputs, self.outputs)
        share = (
            1
            + self.data / problem.out_channels
            + self.filter / tiles
            + self.inverse / problem.in_channels
        )
        return self.products * share * outputs * problem.in_channels * problem.out_channels


def normalized(tiles: Sequence[Tile], points: str = "paper") -> Normalized:
    """Complexity of nested Winograd with one tile a dimension, counted from its programs."""
    of = winograd.programs_of(Winograd(tuple(tiles), points))
    programs = [of(t) for t in tiles]
    alphas = [t.alpha for t in tiles]
    states, outputs = math.prod(alphas), math.prod(t.n for t in tiles)
    data = nested([p.BT for p in programs], [t.inputs for t in tiles], alphas)
    filters = nested([p.G for p in programs], [t.r for t in tiles], alphas)
    inverse = nested([p.AT for p in programs], alphas, [t.n for t in tiles])
    return Normalized(
        Fraction(states, outputs),
        *(Fraction(o.instructions, states) for o in (data, filters, inverse)),
        outputs=outputs,
    )


def normalized_fft(
    lengths: Sequence[int], taps: Sequence[int], products: int = 3, half: bool = True
) -> Normalized:
    """Complexity of tiled FFT convolution (Lavin & Gray, section 4.4).

    Three products add one operation to the data's and two to the filter's and the inverse
    transform, for each complex state. ``half=False`` counts them for each of the α² elements
    instead, as the paper's Table 2 does although it multiplies only half of the states.
    """
    states = hermitian(lengths)
    outputs = math.prod(a - r + 1 for a, r in zip(lengths, taps, strict=True))
    extra = (states if half else math.prod(lengths)) if products == 3 else 0
    transform = real_fft(lengths)
    multiplications = products * states
    return Normalized(
        Fraction(multiplications, outputs),
        *(Fraction(transform + k * extra, multiplications) for k in (1, 2, 2)),
        outputs=outputs,
    )


def decomposed(sizes: Sequence[int], pieces: Sequence[int], tile: int = 2) -> int:
    """∏(Sᵢ + mᵢ(t − 1)): multiplications of a block of t outputs a dimension, for any cut.

    DWM's claim for t = 2 (section 4.5); pieces of one tap cost as much as F(t, 1).
    """
    return math.prod(s + m * (tile - 1) for s, m in zip(sizes, pieces, strict=True))


@dataclass(frozen=True)
class Expansion:
    """DWM's memory over direct convolution's (its eq. 24 to 27, rederived for any tile).

    ``filters``: transformed over given filters. ``patches``: transformed data over the patches
    that im2col holds, ``inputs``: over the input itself.
    """

    filters: Fraction
    patches: Fraction
    inputs: Fraction


def expansion(problem: Problem, pieces: Sequence[int], tile: int = 2) -> Expansion:
    """Expansion of a unit-stride problem whose outputs ``tile`` divides.

    A tile of t outputs holds Sᵢ + mᵢ(t − 1) inputs a dimension, over all pieces; so does a filter.
    """
    states = decomposed(problem.filter, pieces, tile)
    taps, tiles = math.prod(problem.filter), tile**problem.ndim
    return Expansion(
        Fraction(states, taps),
        Fraction(states, taps * tiles),
        Fraction(states * math.prod(problem.output), tiles * math.prod(problem.input)),
    )


def strassen(m: int, k: int, n: int, levels: int) -> Operations:
    """One m×k by k×n product after ``levels`` of Winograd's form of Strassen's recursion.

    Seven half-size products and 15 half-size additions a level: 4 on each operand, 7 on the
    result. Raises ValueError where a size is not divisible by 2^levels.
    """
    if any(size % 2**levels for size in (m, k, n)):
        raise ValueError(f"{m}×{k}×{n} is not divisible by 2^{levels}; pad it or recurse less")
    if levels == 0:
        return Operations(fmas=m * k * n)
    half = strassen(m // 2, k // 2, n // 2, levels - 1) * 7
    return half + Operations(additions=m * k + k * n + 7 * (m * n // 4))


def products(
    problem: Problem, algorithm: Algorithm, direction: str = "forward"
) -> Iterator[tuple[int, tuple[int, int, int]]]:
    """The matrix products of ``algorithm``: how many of m×k by k×n, and (m, k, n).

    m tiles, k channels times the pieces or taps that are summed before the inverse transform, n
    filters; one product a state and group. Together they take cost()'s ``products``.
    """
    images, channels, columns = operands(problem, direction)
    for block in work(problem, algorithm, direction).blocks:
        tiles = images * math.prod(axis.tiles for axis in block.axes)
        depth = channels * math.prod(axis.pieces for axis in block.axes)
        if block.states and tiles and depth and columns:
            yield problem.groups * block.states, (tiles, depth, columns)


def recursed(
    problem: Problem, algorithm: Algorithm, levels: int, direction: str = "forward"
) -> Operations:
    """The products of ``algorithm`` after ``levels`` of Strassen's recursion in each.

    Raises ValueError where one of their sizes is not divisible by 2^levels.
    """
    found = list(products(problem, algorithm, direction))
    for _, (m, k, n) in found:
        if levels > _halvings(m, k, n):
            most = min(_halvings(*sizes) for _, sizes in found)
            raise ValueError(
                f"{algorithm} multiplies {m}×{k} by {k}×{n}: Strassen's level {levels} needs sizes "
                f"divisible by 2^{levels}; this layer's products allow levels up to {most}"
            )
    return sum((strassen(*sizes, levels) * count for count, sizes in found), Operations())


def _halvings(*sizes: int) -> int:
    """How often all of the sizes, above 0, can be halved."""
    return min((size & -size).bit_length() - 1 for size in sizes)


def intensity(
    tiles: Sequence[Tile],
    filters: int,
    data: int,
    *,
    external: bool = False,
    reused: bool = False,
    element: int = 4,
) -> Fraction:
    """FLOP a byte of a fused kernel's block of ``filters`` × ``data`` tiles (B_N × B_M).

    2·α·B_N·B_M over the bytes of B_N filters (r elements, or α where they were transformed
    ``external``ly) and B_M input tiles (n + r − 1 elements, less half of the overlap r − 1
    where two neighbours are loaded together, ``reused``). Im2col-Winograd 5.4 and 5.6, openCNN 3;
    WinRS eq. 4, which as printed lacks α and the bytes.
    """
    states = math.prod(t.alpha for t in tiles)
    taps = states if external else math.prod(t.r for t in tiles)
    inputs = math.prod(t.inputs for t in tiles)
    loaded = Fraction(inputs)
    if reused:
        loaded -= Fraction(tiles[-1].r - 1, 2) * (inputs // tiles[-1].inputs)
    return Fraction(2 * states * filters * data) / (element * (filters * taps + data * loaded))
