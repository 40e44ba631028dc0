"""What an algorithm costs before it runs: multiplications, transforms, memory.

Transforms are counted from their programs, an FMA being one instruction (Lavin & Gray's count) and
multiplications by powers of two apart (DWM's). Transformed operands count once each, as the
reference computes them; a fused kernel that transforms again for every block pays more.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from winolab.algorithm import Algorithm, Dwm, Fft, Problem, Tile, parse_algorithm
from winolab.ref.algebra.program import Program
from winolab.ref.algorithms import fft, winograd
from winolab.ref.algorithms.dwm.cuts import Cut, exchanged, reached_inputs
from winolab.ref.algorithms.dwm.decompose import decomposition
from winolab.ref.algorithms.im2col import DIRECT
from winolab.ref.algorithms.winrs import gradient as winrs
from winolab.ref.algorithms.winrs.plan import partition
from winolab.ref.arithmetic.simulated import arithmetic

DIRECTIONS = ("forward", "backward_data", "backward_filter")
WINRS = ("omega", "winrs")
KAHAN = 4  # additions of a compensated sum for every term after the first


@dataclass(frozen=True)
class Operations:
    """Floating-point instructions; ``shifts`` are multiplications by powers of two."""

    additions: int = 0
    multiplications: int = 0
    shifts: int = 0
    fmas: int = 0

    @property
    def instructions(self) -> int:
        return self.additions + self.multiplications + self.shifts + self.fmas

    @property
    def flops(self) -> int:
        """An FMA being two."""
        return self.instructions + self.fmas

    def __add__(self, other: Operations) -> Operations:
        return Operations(
            self.additions + other.additions,
            self.multiplications + other.multiplications,
            self.shifts + other.shifts,
            self.fmas + other.fmas,
        )

    def __mul__(self, times: int) -> Operations:
        return Operations(
            self.additions * times,
            self.multiplications * times,
            self.shifts * times,
            self.fmas * times,
        )


@dataclass(frozen=True)
class Axis:
    """One dimension of a block of outputs: its tile, how many tiles, and pieces of the filter."""

    tile: Tile
    tiles: int
    pieces: int
    outputs: int


@dataclass(frozen=True)
class Block:
    """Outputs that one kind of tile computes, and what transforming one tile of each kind takes.

    ``states`` are the real multiplications of a tile, a channel and a filter; ``left``, ``right``
    and ``result`` the numbers that a transformed tile of filter, data and outputs holds.
    """

    axes: tuple[Axis, ...]
    states: int
    data: Operations
    filter: Operations
    inverse: Operations
    left: int
    right: int
    result: int


@dataclass(frozen=True)
class Cost:
    """Of one convolution in one direction; memory in elements.

    ``products`` are the multiplications of the element-wise products (each with an addition),
    ``transformed`` the elements of the transformed filters, data and results, all pieces at once:
    the workspace of an algorithm that does not fuse its stages (WinRS does: its buckets);
    ``compulsory`` is the traffic of one that does, every tensor once.
    """

    algorithm: Algorithm
    direction: str
    products: int
    data: Operations
    filter: Operations
    inverse: Operations
    transformed: tuple[int, int, int]
    compulsory: int

    @property
    def transforms(self) -> Operations:
        return self.data + self.filter + self.inverse

    @property
    def flops(self) -> int:
        """Everything, a multiply-add being two."""
        return 2 * self.products + self.transforms.flops

    @property
    def instructions(self) -> int:
        """Everything, a multiply-add being one: L of Lavin & Gray, eq. 23."""
        return self.products + self.transforms.instructions

    @property
    def workspace(self) -> int:
        """Elements, stages not fused."""
        return sum(self.transformed)

    @property
    def traffic(self) -> int:
        """Elements read and written, stages not fused: what is transformed goes out and in."""
        return self.compulsory + 2 * self.workspace


def cost(problem: Problem, algorithm: str | Algorithm, direction: str = "forward") -> Cost:
    """The cost of ``algorithm``, a value or its text, for ``problem``.

    Raises ValueError where the algorithm does not serve the problem, and for transforms by FFT
    whose length is no power of two, for which there is no count.
    """
    if direction not in DIRECTIONS:
        raise ValueError(f"direction {direction!r}; expected one of {', '.join(DIRECTIONS)}")
    algorithm = parse_algorithm(algorithm)
    images, channels, columns = operands(problem, direction)
    products, computed = 0, 0
    transforms = [Operations()] * 3
    memory = [0] * 3
    for block in blocks(problem, algorithm, direction):
        tiles = images * math.prod(a.tiles for a in block.axes) * problem.groups
        pieces = math.prod(a.pieces for a in block.axes) * channels
        filters = problem.groups * pieces * columns
        products += tiles * pieces * columns * block.states
        computed += images * math.prod(a.outputs for a in block.axes) * columns * problem.groups
        for i, (one, size, times) in enumerate(
            (
                (block.data, block.right, tiles * pieces),
                (block.filter, block.left, filters),
                (block.inverse, block.result, tiles * columns),
            )
        ):
            transforms[i] += one * times
            memory[i] += size * times
    if algorithm.kind in WINRS:
        buckets = _buckets(problem, algorithm)
        transforms[2] += Operations(additions=KAHAN * buckets)
        memory = [0, 0, buckets]
    if isinstance(algorithm, Dwm):
        computed -= images * columns * problem.groups * _results(problem, algorithm, direction)
        transforms[2] += Operations(additions=computed)
    compulsory = sum(math.prod(s) for s in (problem.x_shape, problem.w_shape, problem.y_shape))
    return Cost(
        algorithm,
        direction,
        products,
        transforms[0],
        transforms[1],
        transforms[2],
        (memory[1], memory[0], memory[2]),
        compulsory,
    )


def operands(problem: Problem, direction: str) -> tuple[int, int, int]:
    """Images, channels summed over and output channels, of a group (section 5 of DESIGN)."""
    i, o = problem.in_channels // problem.groups, problem.out_channels // problem.groups
    return {
        "forward": (problem.batch, i, o),
        "backward_data": (problem.batch, o, i),
        "backward_filter": (i, problem.batch, o),
    }[direction]


def _results(problem: Problem, algorithm: Dwm, direction: str) -> int:
    """Results, of an image and a channel, that at least one piece adds to."""
    if direction != "backward_data":
        return math.prod(problem.output if direction == "forward" else problem.filter)
    reached = []
    for d, cuts in enumerate(decomposition(problem, algorithm, direction=direction).cuts):
        phases = [(cut.start, cut.step, reached_inputs(problem, d, cut)) for cut in cuts]
        reached.append(len({start + step * i for start, step, some in phases for i in some}))
    return math.prod(reached)


def _buckets(problem: Problem, algorithm: Algorithm) -> int:
    """Elements of WinRS's buckets beside dw itself."""
    total = 0
    for phase in winrs.phases(problem):
        segments = partition(phase.problem, algorithm, arithmetic("fp32"))
        total += (len(segments) - 1) * math.prod(phase.problem.w_shape)
    return total


def _segments(problem: Problem, algorithm: Algorithm, of: winograd.ProgramsOf) -> Iterator[Block]:
    """WinRS's: a block a segment and a tap of the leading dimensions, without what is clipped."""
    for phase in winrs.phases(problem):
        unit = phase.problem
        width = unit.filter[-1]
        for segment in partition(unit, algorithm, arithmetic("fp32")):
            tile = segment.tile
            last = Axis(tile, -(-width // tile.n), -(-segment.size[-1] // tile.r), width)
            for taps in product(*map(range, unit.filter[:-1])):
                boxes = winrs.clipped(unit, segment, taps)
                if all(map(len, boxes)):
                    leading = (Axis(DIRECT, 1, len(box), 1) for box in boxes)
                    yield _tiled((*leading, last), of)


def blocks(problem: Problem, algorithm: Algorithm, direction: str) -> Iterator[Block]:
    """The blocks that ``algorithm`` computes, as its engine does."""
    if isinstance(algorithm, Fft):
        yield _fourier(problem, algorithm, direction)
        return
    of = winograd.programs_of(algorithm)
    if isinstance(algorithm, Dwm):
        whole = decomposition(problem, algorithm, direction=direction)
        if direction == "backward_filter":
            of = exchanged(of)
        for piece in whole.pieces:
            axes = tuple(_cut_axis(problem, d, cut, direction) for d, cut in enumerate(piece))
            if all(axis.outputs for axis in axes):
                yield _tiled(axes, of)
        return
    if algorithm.kind in WINRS:
        if direction != "backward_filter":
            raise ValueError(f"{algorithm} computes filter gradients only")
        yield from _segments(problem, algorithm, of)
        return
    if direction == "backward_filter":
        outputs, taps = problem.filter, problem.output
        tiles = algorithm.tiles or (DIRECT,) * problem.ndim
        if algorithm.kind == "gamma":
            raise ValueError(f"{algorithm} serves forward and backward data")
        if algorithm.kind == "winograd" and not problem.unit:
            winograd.regions(problem, algorithm)
        pairs = zip(outputs, taps, tiles, strict=True)
        yield _tiled(tuple(Axis(t, -(-o // t.n), -(-r // t.r), o) for o, r, t in pairs), of)
        return
    if direction == "backward_data":
        winograd.regions(problem, algorithm)
        if algorithm.kind == "direct":
            axes = zip(problem.output, problem.filter, strict=True)
            yield _tiled(tuple(Axis(DIRECT, o, r, 0) for o, r in axes), of)
            return
        adjoint = Problem(
            problem.batch,
            problem.out_channels,
            problem.in_channels,
            problem.output,
            problem.filter,
            problem.stride,
            tuple(
                (r - 1 - lo, i - o + lo)
                for r, i, o, (lo, _) in zip(
                    problem.filter, problem.input, problem.output, problem.padding, strict=True
                )
            ),
            problem.dilation,
            problem.groups,
        )
        problem = adjoint
    for region in winograd.regions(problem, algorithm):
        pieces = region.pieces(problem)
        axes = zip(region.segments, pieces, problem.output, strict=True)
        yield _tiled(
            tuple(Axis(s.tile, s.tiles, q, min(s.outputs, o)) for s, q, o in axes),
            of,
        )


def _cut_axis(problem: Problem, d: int, cut: Cut, direction: str) -> Axis:
    n, r, outputs = cut.tile.n, cut.tile.r, len(cut.outputs)
    if direction == "backward_filter":
        if cut.direct:
            return Axis(DIRECT, r, outputs, r)
        return Axis(Tile(r, n), 1, -(-outputs // n), r)
    if direction == "backward_data":
        outputs = len(reached_inputs(problem, d, cut))
    if cut.direct:
        return Axis(DIRECT, outputs, r, outputs)
    return Axis(cut.tile, -(-outputs // n), 1, outputs)


def _tiled(axes: tuple[Axis, ...], of: winograd.ProgramsOf) -> Block:
    tiles = [a.tile for a in axes]
    programs = [of(tile) for tile in tiles]
    alphas = [tile.alpha for tile in tiles]
    states = math.prod(alphas)
    plain = all(tile == DIRECT for tile in tiles)
    size = 0 if plain else states
    return Block(
        axes,
        states,
        nested([p.BT for p in programs], alphas, alphas),
        nested([p.G for p in programs], [t.r for t in tiles], alphas),
        nested([p.AT for p in programs], alphas, [t.n for t in tiles]),
        size,
        size,
        size,
    )


def nested(
    programs: Sequence[Program], inputs: Sequence[int], outputs: Sequence[int]
) -> Operations:
    """Operations of programs applied one dimension after the other, the first first."""
    total = Operations()
    for d, program in enumerate(programs):
        counts = program.counts
        times = math.prod(outputs[:d]) * math.prod(inputs[d + 1 :])
        total += (
            Operations(counts.additions, counts.multiplications, counts.shifts, counts.fmas) * times
        )
    return total


def _fourier(problem: Problem, algorithm: Fft, direction: str) -> Block:
    windows = fft.windows(problem, algorithm, direction)
    outputs, taps = {
        "forward": (problem.output, (1,) * problem.ndim),
        "backward_data": (problem.input, (1,) * problem.ndim),
        "backward_filter": (problem.filter, problem.output),
    }[direction]
    axes = tuple(
        Axis(w, -(-o // w.n), -(-t // w.r), o)
        for w, o, t in zip(windows, outputs, taps, strict=True)
    )
    lengths = [w.alpha for w in windows]
    states = hermitian(lengths)
    transform = Operations(additions=real_fft(lengths))
    three = algorithm.products == 3
    held = algorithm.products if three else 2
    return Block(
        axes,
        algorithm.products * states,
        transform + Operations(additions=states * three),
        transform + Operations(additions=2 * states * three),
        transform + Operations(additions=2 * states * three),
        held * states,
        held * states,
        held * states,
    )


def hermitian(lengths: Sequence[int]) -> int:
    """Complex states of a real transform: α0·α1·…·(⌊α/2⌋ + 1) (Lavin & Gray, section 4.4)."""
    return math.prod(lengths[:-1]) * (lengths[-1] // 2 + 1)


def complex_fft(lengths: Sequence[int]) -> int:
    """Operations of a complex split-radix transform: 4N·log2 N − 6N + 8 a row, row by column."""
    size = math.prod(lengths)
    return sum(size // n * (4 * n * _log2(n) - 6 * n + 8) for n in lengths if n > 1)


def real_fft(lengths: Sequence[int]) -> int:
    """Operations of a real split-radix transform: 2N·log2 N − 4N + 6 a row.

    Of the N/2 + 1 columns that the rows leave, the first and the last are real again. The counts
    are those that Lavin & Gray take from the DSP handbook; they give their Table 1 back.
    """
    *others, last = lengths
    rows = 0 if last == 1 else 2 * last * _log2(last) - 4 * last + 6
    if not others:
        return rows
    total = math.prod(others) * rows + real_fft(others)
    if last > 1:
        total += real_fft(others) + (last // 2 - 1) * complex_fft(others)
    return total


def _log2(n: int) -> int:
    if n & (n - 1):
        raise ValueError(f"no operation count for an FFT of {n}; expected a power of two")
    return n.bit_length() - 1
