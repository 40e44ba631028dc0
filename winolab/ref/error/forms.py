"""One dimension of a tiled algorithm as forms of second order, for the prediction of its errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from winolab.algorithm import Tile
from winolab.ref.algebra.program import Program, is_power_of_two
from winolab.ref.algebra.transforms import Programs
from winolab.ref.arithmetic.simulated import Arithmetic
from winolab.ref.error.roundings import Units, rounded_constant

Array = NDArray[np.float64]
Edge = tuple[float, Array]


def powers(forms: Array) -> Array:
    """(..., 2): ‖l‖² and (Σ l)² of the forms l along the last axis."""
    return np.stack([(forms**2).sum(axis=-1), forms.sum(axis=-1) ** 2], axis=-1)


def bilinear(s: Array, t: Array) -> Array:
    """(..., 2, 2) of forms (..., r, α) in w and x: E[s(w,x) t(w,x)]'s coefficients.

    Row: ‖·‖² or (Σ·)² over w; column: over x; products of s and t in place of squares.
    """
    over_x, over_w = s.sum(axis=-1) * t.sum(axis=-1), s.sum(axis=-2) * t.sum(axis=-2)
    whole = s.sum(axis=(-1, -2)) * t.sum(axis=(-1, -2))
    rows = [(s * t).sum(axis=(-1, -2)), over_x.sum(axis=-1), over_w.sum(axis=-1), whole]
    return np.stack(rows, axis=-1).reshape(*whole.shape, 2, 2)


def _trace(program: Program, fused: bool, held: bool = True) -> tuple[Array, Array]:
    """Rounded values as forms of the inputs (R, inputs), the outputs' slopes to them (out, R).

    ``held``: the inputs are numbers of the format, so that powers of two round none of them.
    """
    forms = list(np.eye(program.inputs))
    for op in program.ops:
        b = 0.0 if op.b is None else op.sign * forms[op.b]
        forms.append(float(op.constant) * forms[op.a] + b)
    slopes = np.zeros((len(program.outputs), len(forms)))
    for o, (sign, register) in enumerate(program.outputs):
        slopes[o, register] += sign
    values, columns = [np.zeros(program.inputs)], [np.zeros(len(program.outputs))]
    for register in reversed(range(program.inputs, len(forms))):
        op, slope = program.ops[register - program.inputs], slopes[:, register]
        q = float(op.constant)
        free = is_power_of_two(op.constant) and (held or op.a >= program.inputs)
        slopes[:, op.a] += q * slope
        if op.b is not None:
            slopes[:, op.b] += op.sign * slope
        if op.kind != "mul" or not free:
            values.append(forms[register])
            columns.append(slope.copy())
        if op.kind in ("fma", "fms") and not (fused or free):
            values.append(q * forms[op.a])
            columns.append(slope.copy())
    return np.array(values), np.array(columns).T


class Axis:
    """One dimension: tables (n, 2, 2) of second-order forms, per output, over w and x.

    Each table belongs to errors made somewhere in the algorithm, and has two factors: the powers of
    the value that is rounded and of the form that the error meets. They are the means over the
    tiles of a region, of which ``edges`` say what part has which inputs inside of the map
    (share, zeros and ones), all where there are none; and over outputs, weighted by ``kept``.
    """

    def __init__(
        self,
        tile: Tile,
        programs: Programs,
        run: Arithmetic,
        edges: Sequence[Edge] = (),
        kept: Array | None = None,
    ) -> None:
        self.edges = edges or [(1.0, np.ones(tile.inputs))]
        self.kept = np.full(tile.n, 1 / tile.n) if kept is None else kept
        self.inside = np.einsum("e,ei->i", *map(np.array, zip(*self.edges, strict=True)))
        units, of_filters = Units.of(run), Units.of(run.of_filters)
        fused = units.fused
        self.tile = tile
        self.programs = programs
        self.run = run
        exact = (p.exact() for p in (programs.AT, programs.G, programs.BT))
        self.at, self.g, self.bt = (np.array(m, np.float64) for m in exact)
        of_g, of_bt = powers(self.g), self._mean(powers, self.bt)
        self.of_bt, self.sums_bt = of_bt, self.bt @ self.inside
        # the states' products
        self.products = np.einsum("iw,ix->iwx", of_g, of_bt)
        # made in state i, or met there
        self.state = np.einsum("oi,iw,ix->owx", self.at**2, of_g, of_bt)
        # the same, where the state is an input or a tap as it is
        kept_g, kept_bt = (np.array(p.path_weights()[1]) == 0 for p in (programs.G, programs.BT))
        self.bare_g, self.bare_bt = kept_g, kept_bt
        self.kept_g = np.einsum("oi,iw,ix->owx", self.at**2, of_g * kept_g[:, None], of_bt)
        self.kept_bt = np.einsum("oi,iw,ix->owx", self.at**2, of_g, of_bt * kept_bt[:, None])
        # made before this dimension's transform, of data that are used r times
        reach = np.arange(tile.r) + np.arange(tile.n)[:, None]
        self.taps = self.inside[reach].sum(axis=1)  # of each output, that meet inputs
        self.early = np.broadcast_to(self.taps[:, None, None], (tile.n, 2, 2))
        values, slopes = _trace(programs.BT, fused, units.held)
        self.steps_bt = (slopes**2).sum(axis=1)  # a state's share of each rounding's error
        met = powers(np.einsum("oi,ik,ia->oka", self.at, slopes, self.g))
        self.inputs = np.einsum("okw,kx->owx", met, self._mean(powers, values))
        values, slopes = _trace(programs.G, fused, of_filters.held)
        self.steps_g = (slopes**2).sum(axis=1)
        met = self._mean(powers, np.einsum("oi,ik,ib->okb", self.at, slopes, self.bt))
        self.filters = np.einsum("kw,okx->owx", powers(values), met)
        values, slopes = _trace(programs.AT, fused)
        forms = np.einsum("ki,ia,ib->kab", values, self.g, self.bt)
        # values that AT rounds, as forms, and what an output gets of each error
        self.rounded, self.slopes = self.bilinear(forms, forms), slopes**2
        # an output itself: r products
        a, o = np.arange(tile.r), np.arange(tile.n)[:, None]
        self.form = np.zeros((tile.n, tile.r, tile.inputs))
        self.form[o, a, a + o] = 1.0
        self.whole = self.bilinear(self.form, self.form)

    def _mean(self, of: Callable[..., Array], *forms: Array) -> Array:
        """The mean of a function of forms in x over what of the tiles lies inside."""
        made = [share * of(*(f * mask for f in forms)) for share, mask in self.edges]
        return np.sum(made, axis=0)

    @property
    def held(self) -> bool:
        """Whether the formats of the transforms hold their constants, rounded."""
        try:
            _ = self.error
        except (OverflowError, ValueError):
            return False
        return True

    @property
    def all_outputs(self) -> Array:
        """``whole``, the mean over the outputs (1, 2, 2)."""
        return np.tensordot(self.kept, self.whole, axes=1)[None]

    def bilinear(self, s: Array, t: Array) -> Array:
        """The function of that name, the mean over the tiles."""
        return self._mean(bilinear, s, t)

    @cached_property
    def error(self) -> Array | None:
        """What rounded constants add to the bilinear form (n, r, inputs); None if exact."""
        p = self.programs
        runs = (self.run.of_outputs, self.run.of_filters, self.run)
        matrices, changes = [], []  # as float64, and by how much they are off
        for m, run in zip((p.AT, p.G, p.BT), runs, strict=True):
            rounded = m.with_constants(lambda q, run=run: rounded_constant(run, q))
            matrices.append(np.array(rounded.exact(), np.float64))
            wrong = 0 if rounded == m else np.array(rounded.exact()) - np.array(m.exact())
            changes.append(np.zeros(matrices[-1].shape) + np.asarray(wrong, np.float64))
        (_, g, bt), (at_off, g_off, bt_off) = matrices, changes
        terms = ((at_off, g, bt), (self.at, g_off, bt), (self.at, self.g, bt_off))
        error = self._typed
        for of in terms:
            error = error + np.einsum("oi,ia,ib->oab", *of)
        return error if error.any() else None

    @property
    def _typed(self) -> Array:
        """What the programs' own matrices have beside the bilinear form: 0 where they are exact."""
        p = self.programs
        wholes, scale = [], 1
        for m in (p.AT, p.G, p.BT):
            exact = m.exact()
            common = math.lcm(*(q.denominator for row in exact for q in row))
            wholes.append(np.array([[int(q * common) for q in row] for row in exact], object))
            scale *= common
        form = scale * self.form.astype(int).astype(object)
        wrong = np.einsum("oi,ia,ib->oab", *wholes) - form
        return np.array(wrong * Fraction(1, scale) if wrong.any() else wrong, np.float64)


def axis_of(
    tile: Tile, programs: Programs, run: Arithmetic, edges: Sequence[Edge], kept: Array
) -> Axis:
    """The Axis of these, made once: predictions for other depths and data share it."""
    masks = tuple((share, mask.tobytes()) for share, mask in edges)
    return _axis(tile, programs, run, masks, kept.tobytes())


@lru_cache(maxsize=1024)
def _axis(
    tile: Tile,
    programs: Programs,
    run: Arithmetic,
    edges: tuple[tuple[float, bytes], ...],
    kept: bytes,
) -> Axis:
    masks = [(share, np.frombuffer(mask)) for share, mask in edges]
    return Axis(tile, programs, run, masks, np.frombuffer(kept))
