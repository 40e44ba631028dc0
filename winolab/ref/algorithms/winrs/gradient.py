"""WinRS: filter gradients by segments of dy, reduced to rows, split into units, summed in buckets.

dy is partitioned into segments; a segment's rows are one-dimensional filters (Dimension Reduction)
cut into units of r elements (Filter Split); Ωα(n, r) computes n taps of dw from a unit and sums the
α products over rows, units and images before its output transform (WinRS, section 3, eq. 6). Every
segment fills a bucket of dw's size; a compensated sum of the buckets is dw. Strides and dilation
are taken apart into phases first (DWM, eq. 15 to 17), between which both are 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from winolab.algorithm import Algorithm, Problem
from winolab.kind import gradients_alone
from winolab.ref.algorithms.engine import Region
from winolab.ref.algorithms.im2col import DIRECT, masked
from winolab.ref.algorithms.winograd import ProgramsOf, compute, group_slices, programs_of
from winolab.ref.algorithms.winrs.plan import partition
from winolab.ref.algorithms.winrs.segments import Segment
from winolab.ref.arithmetic.simulated import Arithmetic


@dataclass(frozen=True)
class Phase:
    """A part of a gradient with stride and dilation 1: some taps, some outputs, some inputs.

    The slices select from x, dy and w (batch or output channels first, channels last).
    """

    problem: Problem
    x: tuple[slice, ...]
    dy: tuple[slice, ...]
    w: tuple[slice, ...]


def phases(problem: Problem) -> Iterator[Phase]:
    """The phases of ``problem``: their gradients, added where their taps meet, are dw.

    Along a dimension with stride s, dilation d and g = gcd(s, d), taps of equal k mod s/g and
    outputs of equal o mod d/g read every (s·d/g)-th input. Phases without inputs are left out.
    """
    cuts = [_cuts(problem, d) for d in range(problem.ndim)]
    for cut in product(*cuts):
        inputs, pads, xs, dys, ws = zip(*cut, strict=True)
        unit = replace(
            problem,
            input=inputs,
            filter=tuple(len(range(s.start, s.stop, s.step)) for s in ws),
            stride=(1,) * problem.ndim,
            dilation=(1,) * problem.ndim,
            padding=pads,
        )
        everything = slice(None)
        yield Phase(unit, (everything, *xs), (everything, *dys), (everything, *ws))


def _cuts(problem: Problem, d: int) -> list[tuple[int, tuple[int, int], slice, slice, slice]]:
    """Per phase of dimension d: inputs, padding, and what to take of x, dy and w."""
    stride, dilation, low = problem.stride[d], problem.dilation[d], problem.padding[d][0]
    size, taps, outputs = problem.input[d], problem.filter[d], problem.output[d]
    common = math.gcd(stride, dilation)
    step = stride * dilation // common
    cuts = []
    for o in range(min(dilation // common, outputs)):
        for k in range(min(stride // common, taps)):
            first = stride * o + dilation * k - low
            some_o = range(o, outputs, dilation // common)
            some_k = range(k, taps, stride // common)
            reads = len(some_o) + len(some_k) - 1
            begin = max(0, -(first // step))
            end = min(reads, -((first - size) // step))
            if begin < end:
                x = slice(first + step * begin, first + step * (end - 1) + 1, step)
                dy, w = (slice(s.start, s.stop, s.step) for s in (some_o, some_k))
                cuts.append((end - begin, (begin, reads - end), x, dy, w))
    return cuts


def backward_filter(
    x: np.ndarray,
    dy: np.ndarray,
    problem: Problem,
    algorithm: Algorithm,
    arithmetic: Arithmetic,
    programs: ProgramsOf | None = None,
) -> np.ndarray:
    """dw (OC, *filter, IC/groups) of x (N, *input, IC) and dy (N, *output, OC), as carriers.

    Raises ValueError where no kernel of ``algorithm`` fits the filter's width, saying what would.
    """
    of = programs or programs_of(algorithm)
    arithmetic = arithmetic.of_data(x, dy)
    dw = arithmetic.asarray(np.zeros(problem.w_shape, dtype=np.int64))
    for phase in phases(problem):
        segments = partition(phase.problem, algorithm, arithmetic)
        part = run(x[phase.x], dy[phase.dy], phase.problem, segments, arithmetic, of)
        dw[phase.w] = arithmetic.add(dw[phase.w], part)
    return dw


def forward(*_) -> np.ndarray:
    """Refused: WinRS computes filter gradients. Raises ValueError."""
    raise gradients_alone("forward")


def backward_data(*_) -> np.ndarray:
    """Refused: WinRS computes filter gradients. Raises ValueError."""
    raise gradients_alone("backward_data")


def run(
    x: np.ndarray,
    dy: np.ndarray,
    problem: Problem,
    segments: Sequence[Segment],
    arithmetic: Arithmetic,
    programs: ProgramsOf,
    *,
    compensated: bool = True,
    stored: Arithmetic | None = None,
) -> np.ndarray:
    """dw of a problem with stride and dilation 1, by these segments of dy.

    Buckets are kept in the transform format, or rounded to the storage format of ``stored``, and
    summed by Kahan's compensated sum, or plainly.
    """
    arithmetic = arithmetic.of_data(x, dy)
    parts = []
    for i, o in group_slices(problem):
        images, gradients = x[..., i].swapaxes(0, -1), dy[..., o].swapaxes(0, -1)
        buckets = []
        for segment in segments:
            bucket = _bucket(images, gradients, problem, segment, arithmetic, programs)
            buckets.append(stored.asarray(bucket) if stored else bucket)
        parts.append(reduce(buckets, arithmetic, compensated))
    return np.concatenate(parts)


@np.errstate(all="ignore")
def reduce(buckets: Sequence[np.ndarray], run: Arithmetic, compensated: bool = True) -> np.ndarray:
    """The sum of the buckets in order, in the transform format (Kahan's, or plain)."""
    total, *rest = buckets
    lost = run.asarray(np.zeros(total.shape, np.int64))
    for bucket in rest:
        term = run.sub(bucket, lost) if compensated else bucket
        new = run.add(total, term)
        if compensated:
            lost = run.sub(run.sub(new, total), term)
            lost[lost - lost != 0] = 0  # an infinite sum has lost nothing
        total = new
    return total


def clipped(problem: Problem, segment: Segment, taps: Sequence[int]) -> tuple[range, ...]:
    """Per leading dimension, the outputs of ``segment`` that these taps multiply with inputs.

    A block serves one tap of every leading dimension, so it skips the outputs that would meet only
    padding (WinRS, Figure 7). The last dimension, whose taps a tile shares, is not clipped.
    """
    boxes = []
    for d, tap in enumerate(taps):
        first = problem.padding[d][0] - tap  # this output reads input 0
        low = max(segment.start[d], first)
        high = min(segment.start[d] + segment.size[d], first + problem.input[d])
        boxes.append(range(low, max(low, high)))
    return tuple(boxes)


def clipped_share(problem: Problem, segments: Sequence[Segment]) -> float:
    """The share of the multiplications that clipping saves.

    With stride 1, one leading dimension and a padding p ≤ min(F, O) on both sides it is
    p(p+1)/(F·O) (WinRS, section 5.1).
    """
    whole = done = 0
    for segment in segments:
        *leading, width = segment.size
        cost = width * segment.tile.alpha * problem.filter[-1]
        cost = cost // (segment.tile.n * segment.tile.r)
        for taps in product(*map(range, problem.filter[:-1])):
            whole += cost * math.prod(leading)
            done += cost * math.prod(map(len, clipped(problem, segment, taps)))
    return 1 - done / whole if whole else 0.0


def _bucket(
    x: np.ndarray,
    dy: np.ndarray,
    problem: Problem,
    segment: Segment,
    arithmetic: Arithmetic,
    programs: ProgramsOf,
) -> np.ndarray:
    """∇W(z): x (IC, *input, N) correlated with a segment of dy (OC, *output, N), one group."""
    d = problem.ndim
    channels, out_channels = len(x), len(dy)
    bucket = arithmetic.asarray(np.zeros((out_channels, *problem.filter, channels), dtype=np.int64))
    region = Region(
        (*(masked(1, DIRECT)[0] for _ in range(d - 1)), *masked(problem.filter[-1], segment.tile))
    )
    width = range(segment.start[-1], segment.start[-1] + segment.size[-1])
    for taps in product(*map(range, problem.filter[:-1])):
        box = (*clipped(problem, segment, taps), width)
        if not all(map(len, box)):
            continue
        some = dy[(slice(None), *(slice(b.start, b.stop) for b in box))]
        part = _adjoint(problem, box, taps, channels, out_channels)
        y = compute(x, some, part, (region,), programs, arithmetic)
        where = (slice(None), *taps, slice(None), slice(None))
        bucket[where] = y.reshape(channels, -1, out_channels).swapaxes(0, -1)
    return bucket


def _adjoint(problem: Problem, box, taps, channels: int, out_channels: int) -> Problem:
    """The forward problem from x to one row of taps, with a box of dy as its filter."""
    outputs = (*(1 for _ in taps), problem.filter[-1])
    pads = []
    for i, o, b, tap, (lo, _) in zip(
        problem.input, outputs, box, (*taps, 0), problem.padding, strict=True
    ):
        low = lo - b.start - tap
        pads.append((low, len(b) + o - 1 - i - low))
    return Problem(
        batch=channels,
        in_channels=problem.batch,
        out_channels=out_channels,
        input=problem.input,
        filter=tuple(map(len, box)),
        stride=(1,) * problem.ndim,
        padding=tuple(pads),
        dilation=(1,) * problem.ndim,
    )
