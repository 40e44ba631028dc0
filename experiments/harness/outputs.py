"""Some outputs of one layer and their truth; every way of computing them sees the same data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.harness.published import published
from winolab.algorithm import Algorithm, Problem, direct, parse_algorithm
from winolab.gpu.runtime.simulation import on_gpu, oracle_on_gpu
from winolab.measure import FULL, Case
from winolab.ref.algorithms import sample as sampling
from winolab.ref.algorithms.sample import Sample
from winolab.ref.algorithms.winograd import ProgramsOf, programs_of, regions
from winolab.ref.arithmetic.simulated import Arithmetic, Float, arithmetic
from winolab.ref.error.bounds import bound
from winolab.ref.error.metrics import Comparison, compare
from winolab.ref.error.predict import Moments, Prediction, predict

Array = NDArray[np.float64]
# Relative errors are counted in bins of a twentieth of a decade, 1e-12 to 1.
BINS = np.linspace(-12, 0, 241)
DISTRIBUTIONS = (64, 128)  # channels of the layers of α = 16 whose counts are kept
# Multiply-adds of direct convolution between two additions to a tally; bounds the memory. A GPU is
# given more at once.
PIECE, PIECE_ON_GPU = 1 << 28, 1 << 34
CHUNK = 1 << 17  # outputs that are counted at a time, in the second-level cache
# Tiles on which the bound is evaluated; it varies by some 10 % over a layer.
BOUNDED = 4
ORACLE = arithmetic("fp64")
UNFUSED = arithmetic("fp64,fused=no")  # a fused one is simulated, and slow


@dataclass
class Tally:
    """What winolab.ref.error.metrics.compare says as sums, so that pieces of a layer add up.

    ``binned`` asks for the histogram; ``threads`` count chunks of a piece side by side, with the
    same sums whatever their number.
    """

    count: int = 0
    relative: float = 0.0  # Σ |error| / |truth|
    squares: float = 0.0  # Σ error²
    errors: float = 0.0  # Σ error
    truth_squares: float = 0.0  # Σ truth²
    truth: float = 0.0  # Σ |truth|
    max_abs: float = 0.0
    max_relative: float = 0.0
    histogram: NDArray[np.int64] = field(default_factory=lambda: np.zeros(len(BINS) - 1, np.int64))
    binned: bool = True
    threads: int = 1

    def add(self, y: Array, truth: Array) -> None:
        """Count these outputs. NaN stays NaN in every sum and maximum."""
        y, truth = y.reshape(-1), truth.reshape(-1)
        firsts = range(0, y.size, CHUNK)
        parts = [(y[i : i + CHUNK], truth[i : i + CHUNK]) for i in firsts]
        if self.threads > 1 and len(parts) > 1:
            with ThreadPoolExecutor(self.threads) as pool:
                found = list(pool.map(self._counted, parts))
        else:
            found = list(map(self._counted, parts))
        for sums, largest, histogram in found:
            self.count += int(sums[0])
            self.relative += sums[1]
            self.squares += sums[2]
            self.errors += sums[3]
            self.truth_squares += sums[4]
            self.truth += sums[5]
            self.max_abs = float(np.maximum(self.max_abs, largest[0]))
            self.max_relative = float(np.maximum(self.max_relative, largest[1]))
            self.histogram += histogram

    def _counted(self, part: tuple[Array, Array]) -> tuple[list[float], tuple[float, float], Any]:
        """The sums in the order of the fields, the maxima and the histogram of a chunk."""
        y, truth = part
        with np.errstate(all="ignore"):
            error = y - truth
            size, ref = np.abs(error), np.abs(truth)
            relative = np.divide(size, ref, out=np.zeros_like(size), where=size != 0)
            found = [relative.sum(), np.square(error).sum(), error.sum()]
            found += [np.square(truth).sum(), ref.sum()]
            histogram: Any = 0
            if self.binned:
                logarithms = np.log10(np.clip(relative, 10.0 ** BINS[0], 1.0))
                histogram = np.histogram(logarithms, BINS)[0]
        return [y.size, *map(float, found)], (size.max(), relative.max()), histogram

    def largest(self, kind: str) -> float:
        """The largest "relative" error, or the largest one of another name."""
        return self.max_relative if kind == "relative" else self.max_abs

    def metrics(self) -> dict[str, float]:
        """The columns of a row; they mean what compare's fields of these names mean."""
        return {
            "samples": self.count,
            "mare": self.relative / self.count,
            "relative_rms": math.sqrt(self.squares / self.truth_squares),
            "max_abs": self.max_abs,
            "max_relative": self.max_relative,
            "mse": self.squares / self.count,
            "bias": self.errors / self.count,
            "relative_bias": self.errors / self.truth,
        }


@dataclass(frozen=True)
class Variant:
    """How a layer is computed: the order of operations, the constants, the arithmetic.

    ``order`` is "program" (winolab's own programs), "published" (experiments.harness.published) or
    "direct"; ``points`` replaces the algorithm's; ``digits`` are those of typed constants, 0 exact.
    Direct variants compute every ``thin``-th position only.
    """

    name: str
    order: str = "program"
    points: str = "paper"
    digits: int = 0
    precision: str | Arithmetic = "fp32"
    thin: int = 1

    @property
    def arithmetic(self) -> Arithmetic:
        return arithmetic(self.precision)

    def on_gpu(self) -> Variant:
        """The same, computed on a GPU. Raises ValueError for what is computed on a CPU alone."""
        return replace(self, precision=on_gpu(self.arithmetic))

    def algorithm(self, tiled: Algorithm) -> Algorithm:
        """What is run where the layer's tiles are those of ``tiled``."""
        if self.order == "direct" or tiled.kind == "direct":
            return direct()
        return replace(tiled, points=self.points)

    def programs(self, tiled: Algorithm) -> ProgramsOf:
        """The programs of its transforms."""
        if self.order == "published":
            return published(self.points, self.digits or None)
        return programs_of(self.algorithm(tiled))

    def fields(self) -> dict[str, str | int]:
        """What a row says of the variant."""
        return {
            "variant": self.name,
            "order": self.order,
            "points": "" if self.order == "direct" else self.points,
            "precision": self.arithmetic.name,
        }


class Outputs:
    """Sampled (or all) outputs of a case's layer; the tensors are drawn once, at full size.

    ``gpu``: their truth is computed on a GPU, for variants that are, too.
    """

    def __init__(self, case: Case, tiles: int, channels: int, gpu: bool = False) -> None:
        self.case = case
        self.problem = case.problem
        self.x, self.w = case.tensors()
        self.x.flags.writeable = False  # a GPU keeps a copy
        self.oracle = oracle_on_gpu() if gpu else ORACLE
        self.piece = PIECE_ON_GPU if gpu else PIECE
        self.algorithm = parse_algorithm(case.algorithm)
        self.sample = self._draw(tiles, channels)

    def _draw(self, tiles: int, channels: int) -> Sample:
        """About ``tiles`` random tiles of all regions, and ``channels`` output channels.

        Errors of the channels of one tile are correlated through its input transform, so that
        many tiles and few channels give the narrower interval.
        """
        rng = np.random.default_rng(np.random.SeedSequence(self.case.seed).spawn(3)[2])
        boxes = regions(self.problem, self.algorithm)
        sizes = [self.problem.batch * math.prod(box.tiles) for box in boxes]
        if self.case.sample == FULL:
            ids = [np.arange(size) for size in sizes]
            return Sample(tuple(zip(boxes, ids, strict=True)), np.arange(self.problem.out_channels))
        ids = [
            np.sort(rng.choice(s, min(s, max(1, round(tiles * s / sum(sizes)))), replace=False))
            for s in sizes
        ]
        channels = min(channels, self.problem.out_channels)
        chosen = np.sort(rng.choice(self.problem.out_channels, channels, replace=False))
        return Sample(tuple(zip(boxes, ids, strict=True)), chosen)

    def pieces(self) -> Iterator[Sample]:
        """The sample in parts of about ``piece`` multiply-adds of direct convolution."""
        taps = math.prod(self.problem.filter) * self.problem.in_channels
        for box, ids in self.sample.tiles:
            each = math.prod(s.tile.n for s in box.segments) * len(self.sample.channels) * taps
            step = max(1, self.piece // each)
            for first in range(0, len(ids), step):
                yield Sample(((box, ids[first : first + step]),), self.sample.channels)

    def run(self, variants: Sequence[Variant]) -> Iterator[tuple[Variant, Array, Array]]:
        """(variant, its outputs, their truth), piece by piece; the first variant has the tiles.

        The truth is the FP64 convolution of the data as it was before a storage format rounded it.
        """
        layer = (self.x, self.w, self.problem)
        for piece in self.pieces():
            where = truth = np.empty(0)
            for i, v in enumerate(variants):
                if i and v.order == "direct":
                    at = where[:: v.thin]
                    y = sampling.at_positions(*layer, at, piece.channels, v.arithmetic)
                else:
                    programs = v.programs(self.algorithm)
                    y, found = sampling.forward(
                        *layer, self.algorithm, v.arithmetic, piece, programs
                    )
                    if not i:
                        where = found
                        truth = sampling.at_positions(*layer, where, piece.channels, self.oracle)
                yield v, v.arithmetic.to_float64(y), truth[:: v.thin]

    @cached_property
    def _few(self) -> tuple[NDArray, Problem, Sample, Sample, Array]:
        """A few tiles as a layer of their own: the images that they lie in; truth too.

        The sample of tiles, and of the same outputs one by one.
        """
        box, ids = self.sample.tiles[0]
        ids = ids[:: max(1, len(ids) // BOUNDED)][:BOUNDED]
        images, batch = np.unique(ids // math.prod(box.tiles), return_inverse=True)
        there = batch * math.prod(box.tiles) + ids % math.prod(box.tiles)
        x, channels = self.x[images], self.sample.channels[:8]
        problem = replace(self.problem, batch=len(images))
        tiled = Sample(((box, there),), channels)
        _, where = sampling.forward(x, self.w, problem, self.algorithm, UNFUSED, tiled)
        truth = sampling.at_positions(x, self.w, problem, where, channels, ORACLE)
        (everything,) = regions(problem, direct())
        return x, problem, tiled, Sample(((everything, where),), channels), truth

    def bounded(self, v: Variant) -> tuple[Comparison, Array, Array]:
        """Some outputs against their proven bounds: the comparison, the bounds, the truth."""
        x, problem, tiled, single, truth = self._few
        run, algorithm = v.arithmetic, v.algorithm(self.algorithm)
        few = single if algorithm.kind == "direct" else tiled
        programs = v.programs(self.algorithm)
        y, _ = sampling.forward(x, self.w, problem, algorithm, run, few, programs)
        limit = bound(x, self.w, problem, algorithm, run, programs=programs, sample=few)
        return compare(run.to_float64(y), truth, limit), limit, truth

    def predicted(self, v: Variant) -> Prediction:
        """The errors that the moments of the data lead to expect."""
        return _predicted(v, self.algorithm, self.problem, self.case.data)


@lru_cache(maxsize=1024)
def _predicted(v: Variant, tiled: Algorithm, problem: Problem, data: str) -> Prediction:
    x, w = MOMENTS[data], MOMENTS["normal" if data in ("relu", "wide") else data]
    run = v.arithmetic
    stored = not isinstance(run, Float) or run.storage.precision >= 24
    programs = v.programs(tiled)
    return predict(x, w, problem, v.algorithm(tiled), run, programs=programs, stored=stored)


# The distributions that winolab.measure.DATA names have these; "relu" and "wide" are the inputs'.
MOMENTS = {
    "u12": Moments(1.5, 1 / 12),
    "u01": Moments(0.5, 1 / 12),
    "u11": Moments(0.0, 1 / 3),
    "normal": Moments(0.0, 1.0),
    "relu": Moments(1 / math.sqrt(2 * math.pi), 1 / 2 - 1 / (2 * math.pi)),
    "wide": Moments(0.0, (1 - 2.0**-40) / (40 * math.log(2))),
}
