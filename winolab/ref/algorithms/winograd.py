"""Nested Winograd convolution in any number of dimensions, three directions, any arithmetic.

One engine runs every bilinear algorithm of the package. Along each spatial dimension stands a tile
F(n, r); a dimension that is summed directly has the tile F(1, 1), whose transforms are identities.
So direct convolution is F(1, 1) everywhere, Im2col-Winograd's Γ is F(n, r) along the last dimension
and F(1, 1) elsewhere, and nested Winograd has its own tile in each. A filter longer than r is cut
into pieces of r taps, the last filled up with zeros. Pieces and input channels form the summation
of α independent matrix products (Lavin & Gray, Algorithm 1), in the order pieces first, then
channels, as the fused kernels have it (Im2col-Winograd, Algorithms 1 and 2).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product

import numpy as np

from winolab.algorithm import Algorithm, Problem, Tile
from winolab.arguments.words import plural
from winolab.ref.algebra.program import program
from winolab.ref.algebra.transforms import Programs, transforms
from winolab.ref.algorithms.engine import Engine, Region
from winolab.ref.algorithms.im2col import DIRECT, masked, segments
from winolab.ref.algorithms.integral import Integral
from winolab.ref.arithmetic.exact import Exact
from winolab.ref.arithmetic.order import Order
from winolab.ref.arithmetic.simulated import Arithmetic
from winolab.ref.quantized.residues import Residues

ProgramsOf = Callable[[Tile], Programs]


def regions(
    problem: Problem, algorithm: Algorithm, order: Order | None = None
) -> tuple[Region, ...]:
    """The boxes of outputs that ``algorithm`` computes; together they cover each output once.

    In a kernel's ``order`` a tile of Γ that reaches beyond the edge is masked, not replaced.
    Raises ValueError where the algorithm cannot serve the problem, saying what would.
    """
    if algorithm.kind != "direct" and not problem.unit:
        raise ValueError(
            f"{algorithm} needs stride 1 and dilation 1, not stride {problem.stride} and dilation "
            f"{problem.dilation}; use dwm, such as 'dwm:3:2', or direct"
        )
    if algorithm.kind == "direct":
        cuts = [masked(size, DIRECT) for size in problem.output]
    elif algorithm.kind == "gamma":
        _fits(problem.filter[-1], algorithm.tiles[0], problem.ndim - 1, algorithm)
        cuts = [masked(size, DIRECT) for size in problem.output[:-1]]
        cover = segments if order is None else masked
        cuts.append(cover(problem.output[-1], algorithm.tiles[0]))
    elif algorithm.kind == "winograd":
        _one_tile_a_dimension(problem, algorithm)
        for d, tile in enumerate(algorithm.tiles if order is None else ()):
            _fits(problem.filter[d], tile, d, algorithm)
        cuts = [masked(s, t) for s, t in zip(problem.output, algorithm.tiles, strict=True)]
    else:
        raise ValueError(f"{algorithm} is not a tiled algorithm")
    return tuple(map(Region, product(*cuts)))


def _one_tile_a_dimension(problem: Problem, algorithm: Algorithm) -> None:
    if len(algorithm.tiles) != problem.ndim:
        raise ValueError(
            f"{algorithm} has {plural(len(algorithm.tiles), 'dimension')}; "
            f"the problem has {plural(problem.ndim, 'spatial dimension')}"
        )


def _fits(taps: int, tile: Tile, dimension: int, algorithm: Algorithm) -> None:
    if taps < tile.r:
        raise ValueError(
            f"{algorithm} serves {plural(tile.r, 'tap')} or more in spatial dimension {dimension}; "
            f"the filter has {taps}: choose a tile F(n, {taps}), or use dwm or direct"
        )


@lru_cache(maxsize=256)
def _programs(algorithm: Algorithm, tile: Tile) -> Programs:
    if tile == DIRECT:
        return Programs(*(program([[1]]),) * 3)
    return transforms(tile.n, tile.r, algorithm.points_of(tile), algorithm.scaling).programs


def programs_of(algorithm: Algorithm) -> ProgramsOf:
    """The programs of any tile under the points and the scaling of ``algorithm``."""
    return lambda tile: _programs(algorithm, tile)


def forward(
    x: np.ndarray,
    w: np.ndarray,
    problem: Problem,
    algorithm: Algorithm,
    arithmetic: Arithmetic,
    programs: ProgramsOf | None = None,
    order: Order | None = None,
) -> np.ndarray:
    """y (N, *output, OC) of x (N, *input, IC) and w (OC, *filter, IC/groups), as carriers.

    With a kernel's ``order`` every bit is the kernel's, by its programs and in its arithmetic.
    """
    boxes = regions(problem, algorithm, order)
    return compute(x, w, problem, boxes, programs or programs_of(algorithm), arithmetic, order)


def backward_data(
    dy: np.ndarray,
    w: np.ndarray,
    problem: Problem,
    algorithm: Algorithm,
    arithmetic: Arithmetic,
    programs: ProgramsOf | None = None,
    order: Order | None = None,
) -> np.ndarray:
    """dx (N, *input, IC) of dy (N, *output, OC) and w: the forward algorithm on rotated filters.

    A stride is undone by zeros between the elements of dy, which only direct convolution accepts;
    they are read where a tile meets them and stored nowhere.
    """
    if algorithm.kind != "direct":
        regions(problem, algorithm, order)
    adjoint, w = data_adjoint(problem), rotated(w, problem.groups)
    boxes, of = regions(adjoint, algorithm, order), programs or programs_of(algorithm)
    return compute(dy, w, adjoint, boxes, of, arithmetic, order, spread=problem.stride)


def no_gradient(algorithm: Algorithm) -> ValueError:
    """The error for a filter gradient by Γ."""
    return ValueError(
        f"{algorithm} serves forward and backward data; for the filter gradient use "
        "winograd, such as 'winograd:3x3:2x2', or direct"
    )


def backward_filter(
    x: np.ndarray,
    dy: np.ndarray,
    problem: Problem,
    algorithm: Algorithm,
    arithmetic: Arithmetic,
    programs: ProgramsOf | None = None,
) -> np.ndarray:
    """dw (OC, *filter, IC/groups): x convolved with dy as a large filter, summed over images.

    A tile F(n, r) computes n gradient taps from pieces of r elements of dy, summed over pieces
    (Lavin & Gray, section 4.2: F(3×3, 2×2) for 3×3 filters). "gamma" is refused: it is a forward
    and backward-data algorithm.
    """
    if algorithm.kind == "gamma":
        raise no_gradient(algorithm)
    if algorithm.kind == "winograd" and not problem.unit:
        regions(problem, algorithm)
    arithmetic = arithmetic.of_data(x, dy)
    adjoint, boxes = gradient_regions(problem, algorithm)
    parts = []
    for i, o in group_slices(problem):
        x_g, dy_g = x[..., i].swapaxes(0, -1), dy[..., o].swapaxes(0, -1)
        dw = compute(x_g, dy_g, adjoint, boxes, programs or programs_of(algorithm), arithmetic)
        parts.append(dw.swapaxes(0, -1))
    return np.concatenate(parts)


def data_adjoint(problem: Problem) -> Problem:
    """The forward problem whose output is dx: its input is dy with stride − 1 zeros between its
    elements, its filter ``rotated``."""
    sizes, pads = [], []
    for o, s, e, i, (lo, _) in zip(
        problem.output, problem.stride, problem.extent, problem.input, problem.padding, strict=True
    ):
        size = max(0, (o - 1) * s + 1)
        sizes.append(size)
        pads.append((e - 1 - lo, i - size + lo))
    return replace(
        problem,
        in_channels=problem.out_channels,
        out_channels=problem.in_channels,
        input=tuple(sizes),
        stride=(1,) * problem.ndim,
        padding=tuple(pads),
    )


def rotated(w: np.ndarray, groups: int) -> np.ndarray:
    """w (OC, *filter, IC/groups) with its taps reversed and its channels exchanged per group."""
    taps = tuple(range(1, w.ndim - 1))
    parts = np.flip(w, taps).reshape(groups, w.shape[0] // groups, *w.shape[1:])
    swapped = np.moveaxis(np.moveaxis(parts, 1, -1), -2, 1)
    return swapped.reshape(groups * w.shape[-1], *w.shape[1:-1], w.shape[0] // groups)


def gradient_regions(problem: Problem, algorithm: Algorithm) -> tuple[Problem, tuple[Region, ...]]:
    """``filter_adjoint``, and the boxes of dw that direct's or winograd's tiles compute of it."""
    adjoint, tiles = filter_adjoint(problem), (DIRECT,) * problem.ndim
    if algorithm.kind == "winograd":
        _one_tile_a_dimension(problem, algorithm)
        tiles = algorithm.tiles
    cuts = [masked(size, tile) for size, tile in zip(adjoint.output, tiles, strict=True)]
    return adjoint, tuple(map(Region, product(*cuts)))


def filter_adjoint(problem: Problem) -> Problem:
    """The forward problem, a group's, whose output is dw: stride and dilation change places."""
    pads = []
    for i, o, f, s, d, (lo, _) in zip(
        problem.input,
        problem.output,
        problem.filter,
        problem.stride,
        problem.dilation,
        problem.padding,
        strict=True,
    ):
        pads.append((lo, d * (f - 1) + s * (o - 1) + 1 - i - lo))
    return Problem(
        batch=problem.in_channels // problem.groups,
        in_channels=problem.batch,
        out_channels=problem.out_channels // problem.groups,
        input=problem.input,
        filter=problem.output,
        stride=problem.dilation,
        padding=tuple(pads),
        dilation=problem.stride,
    )


def group_slices(problem: Problem) -> list[tuple[slice, slice]]:
    """Per group, the slices of its input and of its output channels."""
    i, o = problem.in_channels // problem.groups, problem.out_channels // problem.groups
    return [(slice(g * i, (g + 1) * i), slice(g * o, (g + 1) * o)) for g in range(problem.groups)]


def compute(
    x: np.ndarray,
    w: np.ndarray,
    problem: Problem,
    boxes: Sequence[Region],
    programs: ProgramsOf,
    arithmetic: Arithmetic,
    order: Order | None = None,
    spread: tuple[int, ...] = (),
) -> np.ndarray:
    """Every output y (N, *output, OC) of the boxes, groups one after the other.

    The elements of x lie ``spread`` apart in the problem's input, by default side by side.
    """
    if isinstance(arithmetic, Residues):
        used = {programs(s.tile) for box in boxes for s in box.segments}
        of = (op.constant.denominator for m in used for p in (m.AT, m.G, m.BT) for op in p.ops)
        depth = problem.in_channels // problem.groups * math.prod(problem.filter)
        return arithmetic.convolved(
            x, w, depth, of,
            lambda a, b, run: compute(a, b, problem, boxes, programs, run, order, spread),
        )  # fmt: skip
    arithmetic = arithmetic.of_data(x, w)
    scale = 0
    if type(arithmetic) is Exact:  # others may look at each operation
        (x, of_x), (w, of_w) = map(arithmetic.whole, (x, w))
        scale = of_x * of_w

    def engine(group: Problem, box: Region) -> Engine:
        of = tuple(programs(s.tile) for s in box.segments)
        made = Engine(group, box, of, arithmetic, order, spread)
        return Integral.of(made, scale) if scale else made

    return evaluate(x, w, problem, boxes, engine, arithmetic)


def evaluate(
    x: np.ndarray,
    w: np.ndarray,
    problem: Problem,
    boxes: Sequence[Region],
    engine: Callable[[Problem, Region], Engine],
    arithmetic: Arithmetic,
) -> np.ndarray:
    """Every output y (N, *output, OC) of the boxes, each evaluated by its engine, by groups."""
    y = arithmetic.asarray(np.zeros(problem.y_shape, dtype=np.int64))
    rows = y.reshape(-1, problem.out_channels)
    group = replace(
        problem,
        in_channels=problem.in_channels // problem.groups,
        out_channels=problem.out_channels // problem.groups,
        groups=1,
    )
    for i, o in group_slices(problem):
        for box in boxes:
            ids = np.arange(problem.batch * math.prod(box.tiles))
            for positions, values in engine(group, box).blocks(x[..., i], w[o], ids):
                rows[positions, o] = values
    return y
