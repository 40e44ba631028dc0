"""Blocks of outputs and what one takes: what kinds of algorithms state of their cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from winolab.algorithm import Problem, Tile
from winolab.ref.algebra.program import Program
from winolab.ref.algorithms.im2col import DIRECT
from winolab.ref.algorithms.winograd import ProgramsOf


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
class Work:
    """What a kind computes for a problem: its blocks, and what they do not show.

    ``additions`` of results; ``workspace``, elements of results that replace the transformed ones
    of the blocks where the stages are fused.
    """

    blocks: Sequence[Block]
    additions: int = 0
    workspace: int | None = None


def operands(problem: Problem, direction: str) -> tuple[int, int, int]:
    """Images, channels summed over and output channels, of a group (section 5 of DESIGN)."""
    i, o = problem.in_channels // problem.groups, problem.out_channels // problem.groups
    return {
        "forward": (problem.batch, i, o),
        "backward_data": (problem.batch, o, i),
        "backward_filter": (i, problem.batch, o),
    }[direction]


def tiled(axes: tuple[Axis, ...], of: ProgramsOf) -> Block:
    """The block of these axes, whose tiles' transforms are nested programs."""
    tiles = [a.tile for a in axes]
    programs = [of(tile) for tile in tiles]
    alphas = [tile.alpha for tile in tiles]
    states = math.prod(alphas)
    plain = all(tile == DIRECT for tile in tiles)
    size = 0 if plain else states
    return Block(
        axes,
        states,
        nested([p.BT for p in programs], [t.inputs for t in tiles], alphas),
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
