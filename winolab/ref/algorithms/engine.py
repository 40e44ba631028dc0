"""The tiled engine: gather input tiles, transform, multiply, transform back, region by region."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np

from winolab.algorithm import Problem
from winolab.ref.algebra.program import Program
from winolab.ref.algebra.transforms import Programs
from winolab.ref.algorithms.im2col import Segment
from winolab.ref.arithmetic.order import Order, add
from winolab.ref.arithmetic.simulated import Arithmetic
from winolab.ref.arithmetic.split import halves

# Gathered input elements a block: bounds the memory, and amortises NumPy's call overhead.
BLOCK = 1 << 21


@dataclass(frozen=True)
class Region:
    """A box of outputs covered by one kind of tile a dimension: the unit that is evaluated."""

    segments: tuple[Segment, ...]

    @property
    def tiles(self) -> tuple[int, ...]:
        """Tiles along each spatial dimension."""
        return tuple(s.tiles for s in self.segments)

    def pieces(self, problem: Problem) -> tuple[int, ...]:
        """Pieces of r taps that each dimension of the filter is cut into."""
        return tuple(-(-f // s.tile.r) for f, s in zip(problem.filter, self.segments, strict=True))


@dataclass(frozen=True)
class Engine:
    """Evaluates tiles of a region of a problem (one group) in an arithmetic.

    Along each dimension stand a tile F(n, r) and its ``programs``; arrays put the dimensions of
    the states (α0, α1, …) first, so that a transform runs along a leading axis. Products are summed
    in the order pieces, then channels, or in a kernel's own ``order``. The elements of the input
    lie ``spread`` apart, zeros between, by default side by side.
    """

    problem: Problem
    region: Region
    programs: tuple[Programs, ...]
    arithmetic: Arithmetic
    order: Order | None = None
    spread: tuple[int, ...] = ()

    def blocks(
        self, x: np.ndarray, w: np.ndarray, ids: np.ndarray
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """(positions, values) of the tiles ``ids``, flat in (N, *tiles), block by block.

        Values are (Q, OC); positions (Q,) are flat in (N, *output). Outputs that a last tile
        computes beyond the edge are cut.
        """
        elsewhere = self.arithmetic.tiles(self, x, w, ids)
        if elsewhere is not None:
            yield from elsewhere
            return
        rows = np.ascontiguousarray(x).reshape(math.prod(x.shape[:-1]), x.shape[-1])
        u = self.filters(w)
        every = np.arange(self.problem.batch * math.prod(self.region.tiles))
        whole = u.reshape(math.prod(u.shape[:-2]), *u.shape[-2:])
        run = self.arithmetic.of_states(self._every_state(rows, u, every), whole)
        engine = self if run is self.arithmetic else replace(self, arithmetic=run)
        for batch, at in self._steps(u, ids):
            values = engine._outputs(u, self._patches(rows, batch, at))
            values = self._scaled(values, *halves(sum(self.exponents)))
            positions = self.positions(batch, at)
            inside = positions >= 0
            yield (positions, values) if inside.all() else (positions[inside], values[inside])

    def _steps(
        self, u: np.ndarray, ids: np.ndarray
    ) -> Iterator[tuple[np.ndarray, list[np.ndarray]]]:
        """Some of the tiles at a time: their images, and where they are along each dimension."""
        gathered = u.shape[-2] * math.prod(s.tile.alpha for s in self.region.segments)
        step = max(1, BLOCK // max(1, gathered))
        for first in range(0, len(ids), step):
            some = ids[first : first + step]
            batch, *at = np.unravel_index(some, (self.problem.batch, *self.region.tiles))
            yield batch, at

    def _every_state(
        self, rows: np.ndarray, u: np.ndarray, ids: np.ndarray
    ) -> Iterator[np.ndarray]:
        for batch, at in self._steps(u, ids):
            yield self._states(u, self._patches(rows, batch, at))

    @cached_property
    def _ndim(self) -> int:
        return self.problem.ndim

    @property
    def gains(self) -> tuple[Fraction, Fraction]:
        """Largest absolute row sums of the transforms of the input and of the filter."""
        return gains(self.programs)

    @cached_property
    def exponents(self) -> tuple[int, int]:
        """Exponents of the powers of two that scale the input and the filter."""
        return self.arithmetic.exponents(self.gains)

    def _scaled(self, x: np.ndarray, *exponents: int) -> np.ndarray:
        for e in exponents:
            if e:
                x = self.arithmetic.mul(self.arithmetic.constant(Fraction(2) ** e), x)
        return x

    def filters(self, w: np.ndarray) -> np.ndarray:
        """G along every dimension of the pieces of w: (α0, α1, …, K, OC)."""
        u, run = self._pieces(w), self.arithmetic.of_filters
        if run is not self.arithmetic:
            u = run.asarray(u)
        for axis, programs in enumerate(self.programs):
            u = programs.G.evaluate(u, run, axis)
        return u

    def _pieces(self, w: np.ndarray) -> np.ndarray:
        """w (OC, *filter, IC) cut into pieces: (r0, r1, …, K, OC).

        K runs over the pieces of each dimension, then over the input channels: the order in which
        the fused kernels accumulate (Im2col-Winograd, Algorithms 1 and 2).
        """
        d = self._ndim
        sizes, fill = [], [(0, 0)]
        pieces = self.region.pieces(self.problem)
        for q, s, f in zip(pieces, self.region.segments, self.problem.filter, strict=True):
            sizes += [q, s.tile.r]
            fill.append((0, q * s.tile.r - f))
        cut = np.pad(w, [*fill, (0, 0)]).reshape(len(w), *sizes, self.problem.in_channels)
        order = (*range(2, 2 * d + 2, 2), *range(1, 2 * d + 1, 2), 2 * d + 1, 0)
        u = self.arithmetic.asarray(np.ascontiguousarray(cut.transpose(order)))
        u = self._scaled(u, self.exponents[1])
        depth = math.prod(pieces) * self.problem.in_channels
        return u.reshape(*u.shape[:d], depth, len(w))

    def _patches(self, rows: np.ndarray, batch: np.ndarray, at: list[np.ndarray]) -> np.ndarray:
        """The tiles' inputs (i0, i1, …, P, pieces0, pieces1, …, IC), zero outside of the input."""
        problem, d = self.problem, self._ndim
        axes = 2 * d + 1
        index = _along(batch, d, axes)
        outside = np.zeros((1,) * axes, dtype=bool)
        pieces = self.region.pieces(problem)
        for i, (s, q) in enumerate(zip(self.region.segments, pieces, strict=True)):
            taps = _along(np.arange(q) * s.tile.r, d + 1 + i, axes)
            taps = taps + _along(np.arange(s.tile.inputs), i, axes)
            first = _along(s.start + s.tile.n * at[i], d, axes) * problem.stride[i]
            where = first + taps * problem.dilation[i] - problem.padding[i][0]
            beyond = (where < 0) | (where >= problem.input[i])
            size = problem.input[i]
            if self.spread and self.spread[i] > 1:
                beyond |= where % self.spread[i] != 0
                where, size = where // self.spread[i], -(-size // self.spread[i])
            outside = outside | beyond
            index = index * size + np.where(beyond, 0, where)
        patches = np.take(rows, index, axis=0)
        if outside.any():
            patches[np.broadcast_to(outside, index.shape)] = 0
        return self._scaled(self.arithmetic.asarray(patches), self.exponents[0])

    def _states(self, u: np.ndarray, v: np.ndarray) -> np.ndarray:
        """BT v: (states, tiles, K)."""
        for axis, programs in enumerate(self.programs):
            v = programs.BT.evaluate(v, self.arithmetic, axis)
        d = self._ndim
        return v.reshape(math.prod(v.shape[:d]), v.shape[d], u.shape[-2])

    def _outputs(self, u: np.ndarray, v: np.ndarray) -> np.ndarray:
        """AT [U · (BT v)], the outputs (n0·n1·…·P, OC)."""
        d, run = self._ndim, self.arithmetic
        states, channels = u.shape[:d], u.shape[-1]
        v = self._states(u, v)
        tiles, u = v.shape[1], u.reshape(len(v), *u.shape[d:])
        if self.order is None:
            sums = [run.matmul(v, u)]
        else:
            pieces = self.region.pieces(self.problem)
            sums = self.order.matmuls(v, u, pieces, self.problem.in_channels, run)
        outputs = []
        for m in sums:
            m = m.reshape(*states, tiles, channels)
            for axis, programs in enumerate(self.programs):
                m = programs.AT.evaluate(m, run.of_outputs, axis)
            outputs.append(m.reshape(-1, channels))
        return add(outputs, run)

    def positions(self, batch: np.ndarray, at: list[np.ndarray]) -> np.ndarray:
        """Flat positions in (N, *output) of what _outputs returns, −1 beyond the output."""
        d = self._ndim
        flat = _along(batch, d, d + 1)
        inside = np.ones((1,) * (d + 1), dtype=bool)
        for i, (s, size) in enumerate(zip(self.region.segments, self.problem.output, strict=True)):
            first = _along(s.start + s.tile.n * at[i], d, d + 1)
            output = first + _along(np.arange(s.tile.n), i, d + 1)
            inside = inside & (output < size)
            flat = flat * size + output
        return np.where(inside, flat, -1).ravel()


def gains(programs: Sequence[Programs]) -> tuple[Fraction, Fraction]:
    """Largest absolute row sums of nested transforms, of the input and of the filter."""
    of_x, of_w = ([gain(getattr(p, name)) for p in programs] for name in ("BT", "G"))
    return math.prod(of_x, start=Fraction(1)), math.prod(of_w, start=Fraction(1))


@lru_cache(maxsize=256)
def gain(program: Program) -> Fraction:
    """The largest absolute row sum of the program's matrix: what it enlarges a vector by."""
    return max(sum(map(abs, row), start=Fraction(0)) for row in program.exact())


def _along(values: np.ndarray, axis: int, axes: int) -> np.ndarray:
    """The vector along one axis of an array of ``axes`` axes, ready to broadcast."""
    return values.reshape([-1 if i == axis else 1 for i in range(axes)])
