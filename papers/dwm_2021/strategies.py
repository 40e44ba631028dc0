"""DWM's "best on about a quarter of around 2,000 kinds of convolutions", over a grid of our own.

The paper's shapes did not survive; ours are every combination of KERNELS, STRIDES, SIZES, CHANNELS
and BATCHES, 2,000 of them, forward in FP32. The strategy is chosen by the planner's model of an
H100 here, and by measurement on a GPU (papers.dwm_2021.gpu_times), which knows cuDNN too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product

from experiments.harness.jobs import Row
from experiments.harness.tables import Cell, Table, one, select
from experiments.harness.verdicts import Verdict
from winolab.algorithm import Algorithm, Direct, Dwm, Gamma, Problem, Tile, Winograd, dwm
from winolab.device import H100
from winolab.gpu.planner.planner import plan
from winolab.gpu.planner.recast.pieces import plan_of
from winolab.gpu.planner.request import Plan, Request
from winolab.ref.algorithms.dwm.parts import Part, parts

PAPER = "dwm_2021"
POINTS = "best"
STRATEGIES = ("direct", "winograd", "dwm")
COPY = 2.86e12  # bytes a second that an H100 copies
ADDED = 12  # bytes that adding a float32 output of a piece moves
KERNELS = {2: (3, 5, 7, 9, 11), 3: (3, 5, 7, 9)}
STRIDES, CHANNELS = (1, 2), (16, 32, 64, 128, 256)
SIZES = {2: (7, 14, 28, 56, 112), 3: (7, 14, 20, 28, 40)}
BATCHES = {2: (1, 8, 32, 128), 3: (1, 2, 4, 8, 16)}
SETTINGS = ((28, 128), (14, 256))  # sizes and channels, as of Tables 1 and 2
Case = tuple[str, str, Problem]  # of a measurement: step, label, shapes


@dataclass(frozen=True)
class Shape:
    """A layer of as many filters as channels, padded to keep its size but for the stride."""

    ndim: int
    kernel: int
    stride: int
    size: int
    channels: int
    batch: int

    @property
    def problem(self) -> Problem:
        return Problem.of(
            (self.batch, *(self.size,) * self.ndim, self.channels),
            (self.channels, *(self.kernel,) * self.ndim, self.channels),
            stride=self.stride,
            padding=self.kernel // 2,
        )


def grid() -> Iterator[Shape]:
    """The 2,000 shapes, 1,000 of each dimension."""
    for ndim, kernels in KERNELS.items():
        for rest in product(kernels, STRIDES, SIZES[ndim], CHANNELS, BATCHES[ndim]):
            yield Shape(ndim, *rest)


def layers() -> Iterator[Case]:
    """Tables 5, 6 and 14: kernels and strides at the sizes of Tables 1 and 2, one image and 16; all
    kernels of both tables before the next stride, size or batch: each claim soon has some."""
    for batch, (size, channels), stride in product((1, 16), SETTINGS, (1, 2)):
        for ndim, kernel in ((n, k) for n in (3, 2) for k in KERNELS[n]):
            x = (batch, *(size,) * ndim, channels)
            w = (channels, *(kernel,) * ndim, channels)
            problem = Problem.of(x, w, stride=stride, padding=kernel // 2)
            label = f"{ndim}-D, {kernel} taps, stride {stride}, {batch}×{size}, {channels} ch."
            yield "layers", label, problem


def single(problem: Problem, points: str = POINTS) -> Iterator[Algorithm]:
    """What computes a layer of unit stride by one tile of two outputs: nested, or along a row."""
    if problem.unit:
        tiles = tuple(Tile(2, r) for r in problem.filter[-2:])
        yield Winograd(tiles, points)
        yield Gamma(tiles[-1:], points)


@dataclass(frozen=True)
class Some:
    """The shapes of one kernel, stride and size."""

    ndim: int
    kernel: int
    stride: int
    size: int

    @property
    def cost(self) -> float:
        """Pieces of the filter."""
        return float((-(-self.kernel // 3)) ** self.ndim)

    def run(self) -> list[Row]:
        """A row a shape: microseconds that the model predicts of every strategy."""
        mine = (s for s in grid() if (s.ndim, s.kernel, s.stride, s.size) == self._key)
        return [{"paper": PAPER, "table": "strategies", "gpu": H100.name, **vars(shape),
                 **predicted(shape.problem)} for shape in mine]  # fmt: skip

    @property
    def _key(self) -> tuple[int, int, int, int]:
        return self.ndim, self.kernel, self.stride, self.size


def predicted(problem: Problem) -> Row:
    """Predicted times in µs, None where nothing computes it so.

    ``phases``: a stride's phases alone, each by what the planner takes; ``picked``: what it takes
    for the whole.
    """
    request = Request(problem, "forward", H100)
    picked = plan(request)
    found: dict[str, float | None] = {
        "picked": picked.predicted,
        "direct": plan(replace(request, algorithm=Direct())).predicted,
        "winograd": None,
        "dwm": _summed(request, dwm()),
        "phases": None if problem.unit else _phases(request),
    }
    for algorithm in single(problem):
        with suppress(ValueError):
            found["winograd"] = plan(replace(request, algorithm=algorithm)).predicted
            break
    times = {f"{k}_us": v and round(1e6 * v, 2) for k, v in found.items()}
    return {**times, "kernel_picked": picked.kernel}


def _summed(request: Request, algorithm: Dwm) -> float:
    """Seconds of a dwm: its pieces' kernels, and the additions."""
    asked = replace(request, out_dtype="float32")
    return _each(request, algorithm, lambda part: plan_of(part, algorithm, asked)[1])


def _phases(request: Request) -> float:
    whole = dwm(max(request.problem.filter), 2)
    return _each(request, whole, lambda part: plan(replace(request, problem=part.problem)))


def _each(request: Request, algorithm: Dwm, planned: Callable[[Part], Plan]) -> float:
    """Seconds of all pieces and their additions; pieces of as many taps, which differ in how much
    of the padding they meet, take as long as the first of them."""
    some = list(parts(request.problem, algorithm))
    first = {part.problem.filter: part for part in reversed(some)}
    seconds = {taps: planned(part).predicted for taps, part in first.items()}
    adding = ADDED * math.prod(request.problem.y_shape) / COPY
    return sum(seconds[part.problem.filter] + adding for part in some)


def _jobs(full: bool) -> list[Some]:
    return [Some(*key) for key in dict.fromkeys((s.ndim, s.kernel, s.stride, s.size)
                                                for s in grid())]  # fmt: skip


def best(row: Row, strategies: Sequence[str] = STRATEGIES) -> str:
    """The strategy that takes the least time."""
    return min((s for s in strategies if row[f"{s}_us"]), key=lambda s: row[f"{s}_us"])


def share(
    rows: Sequence[Row], strategy: str = "dwm", strategies: Sequence[str] = STRATEGIES
) -> float:
    """The part of shapes on which a strategy is the best of several."""
    return sum(best(row, strategies) == strategy for row in rows) / len(rows)


def ratio(rows: Sequence[Row], above: str, below: str) -> float:
    """Geometric mean of one strategy's times over another's, where there are both."""
    logs = [
        math.log(row[f"{above}_us"] / row[f"{below}_us"])
        for row in rows
        if row[f"{above}_us"] and row[f"{below}_us"]
    ]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def _cells(rows: Sequence[Row]) -> list[Cell]:
    """Shares and ratios of times, by dimension, kernel and stride; nothing is judged."""
    cells = [
        one("all shapes", "part on which DWM is the best", 0.25, share(rows),
            standing=Verdict.NOT_COMPARABLE, claim=True,
            note="another GPU, by model; our direct products in cuDNN's place"),
        one("all shapes", "part on which a stride's phases, by the planner's tiles, are the best",
            None, share(rows, "phases", (*STRATEGIES, "phases"))),
        one("all shapes", "shapes", None, len(rows)),
    ]  # fmt: skip
    for ndim, stride in product((2, 3), (1, 2)):
        mine = select(rows, ndim=ndim, stride=stride)
        for kernel in dict.fromkeys(row["kernel"] for row in mine):
            some = select(mine, kernel=kernel)
            where = f"{ndim}-D, {kernel} taps, stride {stride}"
            cells.append(one(where, "part on which DWM is the best", None, share(some)))
            for above, below in (("direct", "dwm"), ("winograd", "dwm"), ("direct", "phases")):
                value = ratio(some, above, below)
                if not math.isnan(value):
                    cells.append(one(where, f"time of {above} over {below}", None, value))
    return cells


STRATEGY = Table(
    PAPER, "strategies", "Which strategy is the fastest, by model", _jobs, _cells,
    "nothing is judged: predictions are of another GPU", long=True,
    values=("direct_us", "winograd_us", "dwm_us"),
)  # fmt: skip
