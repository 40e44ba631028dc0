"""How DWM cuts a convolution: pieces of a filter, phases of a stride, as values.

Along one dimension with filter taps w[k], stride s, dilation d and g = gcd(s, d), taps of equal
k mod s/g read one phase of the input (every lcm(s, d)-th element), and outputs of equal
o mod d/g belong together; within such a pair of phases the convolution has stride and dilation 1
(DWM, eq. 15 to 17, extended to dilation). A phase's taps are then cut into pieces (eq. 9), each
computed by F(tile, its own length): no piece is padded with zeros, so no multiplication is
redundant. Dimensions combine as a product.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np

from winolab.algorithm import Dwm, Problem, Tile
from winolab.arguments.words import plural
from winolab.kind import ShowsText
from winolab.points import tile_of
from winolab.ref.algebra.program import Program, program
from winolab.ref.algebra.transforms import Programs
from winolab.ref.algorithms.im2col import DIRECT
from winolab.ref.algorithms.winograd import ProgramsOf


@dataclass(frozen=True)
class Cut:
    """One dimension of a piece: some taps, the phase of the input they read, and a tile F(n, r).

    y[outputs[o]] gets Σ_j w[taps[j]] · x[start + step·(o + j)], x with its padding.
    """

    taps: range
    outputs: range
    start: int
    step: int
    tile: Tile

    @property
    def phase(self) -> int:
        """Which of the ``step`` phases of the padded input the taps read."""
        return self.start % self.step

    @property
    def direct(self) -> bool:
        """Whether F(n, r) saves nothing, so that the taps are summed without transforms."""
        return 1 in (self.tile.n, self.tile.r)

    def products(self, outputs: int) -> int:
        """Multiplications: α a tile, of which the last may reach beyond the outputs."""
        if self.direct:
            return outputs * self.tile.r
        return -(-outputs // self.tile.n) * self.tile.alpha

    def __str__(self) -> str:
        through = f"{self.taps[0]}" if len(self.taps) == 1 else f"{self.taps[0]}..{self.taps[-1]}"
        every = f":{self.taps.step}" if self.taps.step > 1 and len(self.taps) > 1 else ""
        return through + every


Piece = tuple[Cut, ...]


@dataclass(frozen=True)
class Decomposition(ShowsText):
    """A convolution cut into pieces: the product of the cuts of its dimensions.

    ``str`` gives a picture of the filter (one and two dimensions) and a line a piece.
    """

    problem: Problem
    cuts: tuple[tuple[Cut, ...], ...]

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """Every unit-stride convolution, in the order of aggregation."""
        return tuple(product(*self.cuts))

    def multiplications(self, direction: str = "forward") -> int:
        """Scalar multiplications of the products, the transforms' left out (DWM, eq. 23).

        N·OC·IC/groups · ∏ over dimensions of Σ over its cuts; forward and "backward_filter" are
        alike, "backward_data" tiles the inputs.
        """
        problem = self.problem
        total = problem.batch * problem.out_channels * problem.in_channels // problem.groups
        for d, some in enumerate(self.cuts):
            if direction == "backward_data":
                total *= sum(c.products(len(reached_inputs(problem, d, c))) for c in some)
            else:
                total *= sum(c.products(len(c.outputs)) for c in some)
        return total

    def __str__(self) -> str:
        return "\n".join(_picture(self))


def cut(
    problem: Problem, tiles: Sequence[Tile], balanced: bool = False, points: str = "best"
) -> Decomposition:
    """``problem`` in pieces of at most r taps, by tiles of n outputs, along each dimension.

    As many pieces have r taps as can (DWM, eq. 9), or, ``balanced``, none has two taps more than
    another.
    """
    dimensions = zip(
        problem.filter, problem.output, problem.stride, problem.dilation, tiles, strict=True
    )
    return Decomposition(
        problem, tuple(tuple(cuts(*sizes, balanced, points)) for sizes in dimensions)
    )


def pieces_of(problem: Problem, algorithm: Dwm) -> Decomposition:
    """The cut that a dwm with one tile a dimension states."""
    return cut(problem, algorithm.tiles, algorithm.variant == "balanced", algorithm.points)


def cuts(
    taps: int,
    outputs: int,
    stride: int,
    dilation: int,
    tile: Tile,
    balanced: bool = False,
    points: str = "best",
) -> Iterator[Cut]:
    """The cuts of one dimension: output phases, then tap phases, then pieces of at most r taps.

    Tiles have the states that they have at the ``points``.
    """
    common = math.gcd(stride, dilation)
    step = stride * dilation // common
    for phase in range(min(dilation // common, outputs)):
        for first in range(min(stride // common, taps)):
            of_phase = range(first, taps, stride // common)
            at = 0
            for length in lengths(len(of_phase), tile.r, balanced):
                some = of_phase[at : at + length]
                at += length
                yield Cut(
                    some,
                    range(phase, outputs, dilation // common),
                    stride * phase + dilation * some[0],
                    step,
                    tile_of(tile.n, length, points),
                )


def lengths(taps: int, most: int, balanced: bool = False) -> list[int]:
    """The lengths of the fewest pieces of at most ``most`` taps, longest first."""
    if not balanced:
        return [min(most, taps - at) for at in range(0, taps, most)]
    pieces = -(-taps // most)
    short, longer = divmod(taps, pieces)
    return [short + (i < longer) for i in range(pieces)]


def reached_inputs(problem: Problem, d: int, cut: Cut) -> range:
    """The i for which input first + step·i exists and is read by the piece."""
    first = cut.start - problem.padding[d][0]
    low = max(0, -(first // cut.step))
    high = min(len(cut.outputs) + cut.tile.r - 1, -((first - problem.input[d]) // cut.step))
    return range(low, max(low, high))


def exchanged(of: ProgramsOf) -> ProgramsOf:
    """The programs of F(r, n) made of those of F(n, r)."""
    return lambda tile: of(tile) if tile == DIRECT else _exchange(of(tile.exchanged))


@lru_cache(maxsize=256)
def _exchange(programs: Programs) -> Programs:
    def transposed(p: Program) -> Program:
        return program(tuple(zip(*p.exact(), strict=True)))

    return Programs(transposed(programs.G), transposed(programs.AT), programs.BT)


def _picture(whole: Decomposition) -> list[str]:
    """A letter a tap for one- and two-dimensional filters, then a line a letter."""
    parts: dict[tuple[range, ...], Piece] = {}
    for piece in whole.pieces:
        parts.setdefault(tuple(c.taps for c in piece), piece)
    names = {taps: _letters(i) for i, taps in enumerate(parts)}
    width = max(map(len, names.values()), default=0)
    lines = []
    if whole.problem.ndim <= 2:
        grid = np.full(whole.problem.filter, "", dtype=object)
        for taps, name in names.items():
            grid[np.ix_(*taps)] = name.ljust(width)
        lines = [" ".join(row).rstrip() for row in np.atleast_2d(grid)] + [""]
    phases = math.prod(cuts[-1].outputs.start + 1 for cuts in whole.cuts if cuts)
    for taps, piece in parts.items():
        line = f"{names[taps].ljust(width)}  taps {' × '.join(map(str, piece))}"
        if any(c.step > 1 for c in piece):
            line += f"  input phase {','.join(str(c.phase) for c in piece)}"
        line += "  " + "⊗".join("direct" if c.direct else str(c.tile) for c in piece)
        lines.append(line + (f"  ({plural(phases, 'phase')} of the output)" if phases > 1 else ""))
    return lines


def _letters(index: int) -> str:
    """A … Z, AA … ZZ, … as the columns of a spreadsheet."""
    name = ""
    index += 1
    while index:
        index, letter = divmod(index - 1, 26)
        name = chr(ord("A") + letter) + name
    return name
