"""DWM: a convolution of any filter, stride and dilation as a sum of small unit-stride ones.

Along one dimension with filter taps w[k], stride s, dilation d and g = gcd(s, d), taps of equal
k mod s/g read one phase of the input (every lcm(s, d)-th element), and outputs of equal
o mod d/g belong together; within such a pair of phases the convolution has stride and dilation 1
(DWM, eq. 15 to 17, extended to dilation). A phase's taps are then cut into pieces (eq. 9), each
computed by F(tile, its own length): no piece is padded with zeros, so no multiplication is
redundant. Dimensions combine as a product.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product

import numpy as np

from winolab.nouns import Algorithm, Problem, Tile
from winolab.ref.arithmetic import Arithmetic
from winolab.ref.im2col import DIRECT, masked
from winolab.ref.program import Program, program
from winolab.ref.tiles import Region
from winolab.ref.transforms import Programs
from winolab.ref.winograd import ProgramsOf, compute, group_slices, programs_of, rotated


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
class Decomposition:
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
        for d, cuts in enumerate(self.cuts):
            if direction == "backward_data":
                total *= sum(c.products(len(reached_inputs(problem, d, c))) for c in cuts)
            else:
                total *= sum(c.products(len(c.outputs)) for c in cuts)
        return total

    def __str__(self) -> str:
        return "\n".join(_picture(self))


def decomposition(problem: Problem, algorithm: Algorithm) -> Decomposition:
    """How ``algorithm`` (a dwm) cuts ``problem``.

    Raises ValueError where its pieces and tiles are for another number of dimensions.
    """
    tiles = algorithm.tiles * (problem.ndim if len(algorithm.tiles) == 1 else 1)
    if len(tiles) != problem.ndim:
        raise ValueError(
            f"{algorithm} has {len(tiles)} dimensions; the problem has {problem.ndim}: give one "
            f"piece and tile, or {problem.ndim}"
        )
    cuts = (
        tuple(_cuts(*sizes))
        for sizes in zip(
            problem.filter, problem.output, problem.stride, problem.dilation, tiles, strict=True
        )
    )
    return Decomposition(problem, tuple(cuts))


def _cuts(taps: int, outputs: int, stride: int, dilation: int, tile: Tile) -> Iterator[Cut]:
    """The cuts of one dimension: output phases, then tap phases, then pieces of at most tile.r."""
    common = math.gcd(stride, dilation)
    step = stride * dilation // common
    for phase in range(min(dilation // common, outputs)):
        for first in range(min(stride // common, taps)):
            of_phase = range(first, taps, stride // common)
            for at in range(0, len(of_phase), tile.r):
                some = of_phase[at : at + tile.r]
                yield Cut(
                    some,
                    range(phase, outputs, dilation // common),
                    stride * phase + dilation * some[0],
                    step,
                    Tile(tile.n, len(some)),
                )


def forward(
    x: np.ndarray,
    w: np.ndarray,
    problem: Problem,
    algorithm: Algorithm,
    arithmetic: Arithmetic,
    programs: ProgramsOf | None = None,
) -> np.ndarray:
    """y (N, *output, OC): split, transform, multiply, transform back, aggregate (DWM, section 4).

    Aggregation adds the pieces' outputs in the transform format, in the order of ``pieces``.
    """
    y = arithmetic.asarray(np.zeros(problem.y_shape, dtype=np.int64))
    for piece in decomposition(problem, algorithm).pieces:
        box = Region(tuple(_segment(len(c.outputs), c.tile, c.direct) for c in piece))
        taps = w[_index(c.taps for c in piece)]
        part = _forward_problem(problem, piece)
        z = compute(x, taps, part, (box,), programs or programs_of(algorithm), arithmetic)
        where = _index(c.outputs for c in piece)
        y[where] = arithmetic.add(y[where], z)
    return y


def backward_data(
    dy: np.ndarray,
    w: np.ndarray,
    problem: Problem,
    algorithm: Algorithm,
    arithmetic: Arithmetic,
    programs: ProgramsOf | None = None,
) -> np.ndarray:
    """dx (N, *input, IC), the sum of the pieces' gradients (DWM, eq. 21).

    A piece's gradient is the correlation of one phase of dy with the rotated piece, by the same
    F(n, r) (Lavin & Gray, section 4.2): where eq. 6 scatters overlapping tiles, this gathers, with
    as many multiplications. A stride spreads no zeros into dy.
    """
    dx = arithmetic.asarray(np.zeros(problem.x_shape, dtype=np.int64))
    for piece in decomposition(problem, algorithm).pieces:
        reached = [reached_inputs(problem, d, c) for d, c in enumerate(piece)]
        if not all(map(len, reached)):
            continue
        box = Region(
            tuple(_segment(len(i), c.tile, c.direct) for i, c in zip(reached, piece, strict=True))
        )
        taps = rotated(w[_index(c.taps for c in piece)], problem.groups)
        part = _data_problem(problem, piece, reached)
        z = compute(dy, taps, part, (box,), programs or programs_of(algorithm), arithmetic)
        where = _index(
            range(first + c.step * i.start, first + c.step * i.stop, c.step)
            for first, i, c in zip(_firsts(problem, piece), reached, piece, strict=True)
        )
        dx[where] = arithmetic.add(dx[where], z)
    return dx


def backward_filter(
    x: np.ndarray,
    dy: np.ndarray,
    problem: Problem,
    algorithm: Algorithm,
    arithmetic: Arithmetic,
    programs: ProgramsOf | None = None,
) -> np.ndarray:
    """dw (OC, *filter, IC/groups): every piece's own taps, summed over the phases of the output.

    Each is Gᵀ[(A dy) ⊙ (BT x)] summed over tiles (DWM, eq. 6), which is F(r, n) by the transforms
    of F(n, r) with AT and G in each other's place.
    """
    of = programs or programs_of(algorithm)
    dw = arithmetic.asarray(np.zeros(problem.w_shape, dtype=np.int64))
    for piece in decomposition(problem, algorithm).pieces:
        box = Region(tuple(_segment(c.tile.r, Tile(c.tile.r, c.tile.n), c.direct) for c in piece))
        part = _filter_problem(problem, piece)
        where = _index(c.taps for c in piece)
        some = dy[_index(c.outputs for c in piece)]
        for i, o in group_slices(problem):
            x_g, dy_g = x[..., i].swapaxes(0, -1), some[..., o].swapaxes(0, -1)
            z = compute(x_g, dy_g, part, (box,), exchanged(of), arithmetic).swapaxes(0, -1)
            taps = dw[o]
            taps[where] = arithmetic.add(taps[where], z)
    return dw


def exchanged(of: ProgramsOf) -> ProgramsOf:
    """The programs of F(r, n) made of those of F(n, r)."""
    return lambda tile: of(tile) if tile == DIRECT else _exchange(of(Tile(tile.r, tile.n)))


@lru_cache(maxsize=256)
def _exchange(programs: Programs) -> Programs:
    def transposed(p: Program) -> Program:
        return program(tuple(zip(*p.exact(), strict=True)))

    return Programs(transposed(programs.G), transposed(programs.AT), programs.BT)


def _segment(size: int, tile: Tile, direct: bool):
    (segment,) = masked(size, DIRECT if direct else tile)
    return segment


def _index(ranges) -> tuple[slice, ...]:
    """What selects the product of ranges from an array with batch or output channels in front."""
    return (slice(None), *(slice(r.start, r.stop, r.step) for r in ranges))


def _firsts(problem: Problem, piece: Piece) -> list[int]:
    """Per dimension, the input that tap 0 of output 0 reads; negative in the padding."""
    return [c.start - lo for c, (lo, _) in zip(piece, problem.padding, strict=True)]


def _paddings(inputs, outputs, filters, firsts, steps) -> tuple[tuple[int, int], ...]:
    """The padding with which windows start at ``firsts`` and number ``outputs``."""
    return tuple(
        (-first, step * (o + f - 2) + 1 - i + first)
        for i, o, f, first, step in zip(inputs, outputs, filters, firsts, steps, strict=True)
    )


def _forward_problem(problem: Problem, piece: Piece) -> Problem:
    steps = tuple(c.step for c in piece)
    taps = tuple(len(c.taps) for c in piece)
    outputs = [len(c.outputs) for c in piece]
    return replace(
        problem,
        filter=taps,
        stride=steps,
        dilation=steps,
        padding=_paddings(problem.input, outputs, taps, _firsts(problem, piece), steps),
    )


def reached_inputs(problem: Problem, d: int, cut: Cut) -> range:
    """The i for which input first + step·i exists and is read by the piece."""
    first = cut.start - problem.padding[d][0]
    low = max(0, -(first // cut.step))
    high = min(len(cut.outputs) + cut.tile.r - 1, -((first - problem.input[d]) // cut.step))
    return range(low, max(low, high))


def _data_problem(problem: Problem, piece: Piece, reached: list[range]) -> Problem:
    """From dy to the inputs that a piece reaches, with rotated taps."""
    steps = tuple(c.outputs.step for c in piece)
    taps = tuple(len(c.taps) for c in piece)
    firsts = [
        c.outputs.start + c.outputs.step * (i.start - len(c.taps) + 1)
        for c, i in zip(piece, reached, strict=True)
    ]
    return replace(
        problem,
        in_channels=problem.out_channels,
        out_channels=problem.in_channels,
        input=problem.output,
        filter=taps,
        stride=steps,
        dilation=steps,
        padding=_paddings(problem.output, map(len, reached), taps, firsts, steps),
    )


def _filter_problem(problem: Problem, piece: Piece) -> Problem:
    """From x, with one phase of dy as the filter, to the taps of a piece; one group."""
    steps = tuple(c.step for c in piece)
    outputs = tuple(len(c.outputs) for c in piece)
    taps = [len(c.taps) for c in piece]
    return replace(
        problem,
        batch=problem.in_channels // problem.groups,
        in_channels=problem.batch,
        out_channels=problem.out_channels // problem.groups,
        groups=1,
        filter=outputs,
        stride=steps,
        dilation=steps,
        padding=_paddings(problem.input, taps, outputs, _firsts(problem, piece), steps),
    )


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
        lines.append(line + (f"  ({phases} phases of the output)" if phases > 1 else ""))
    return lines


def _letters(index: int) -> str:
    """A … Z, AA … ZZ, … as the columns of a spreadsheet."""
    name = ""
    index += 1
    while index:
        index, letter = divmod(index - 1, 26)
        name = chr(ord("A") + letter) + name
    return name
