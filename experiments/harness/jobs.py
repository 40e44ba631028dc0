"""Jobs: one layer, its algorithms and a seed; run on the cores, one row a variant."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from experiments.harness.extremes import maximum
from experiments.harness.outputs import Outputs, Tally, Variant
from winolab.algorithm import parse_algorithm
from winolab.cli.environment import cores, provenance
from winolab.lines import Lines
from winolab.measure import EXACT, FULL, Case
from winolab.spread import spread

Row = dict[str, Any]


class Work(Protocol):
    """What a table is measured by; picklable."""

    @property
    def cost(self) -> float:
        """How long it takes beside others, in any unit."""
        ...

    def run(self) -> list[Row]:
        """The rows, each with its paper and table and all that is needed to run it again."""
        ...


@dataclass(frozen=True)
class Job:
    """Some outputs of one layer under several variants, and where in a table they belong.

    ``labels`` are the fields that name the table's cell. ``tail`` "abs" or "relative" asks for the
    maximum of that error over the whole layer: computed where all outputs are, else extrapolated;
    its interval is that of another layer drawn alike in both cases. ``batches`` asks for the upper
    end of that interval for so many such layers, too.
    ``histogram`` keeps the distribution of the relative error. ``against`` names the variant whose
    largest error other rows' ``beyond`` is a share of outputs above. ``gpu``: a GPU computes it.
    """

    labels: tuple[tuple[str, Any], ...]
    case: Case
    variants: tuple[Variant, ...]
    tiles: int = 128
    channels: int = 16
    tail: str = ""
    histogram: bool = False
    batches: int = 1
    against: str = ""
    gpu: bool = False

    def on_gpu(self) -> Job:
        """The same job on a GPU. Raises ValueError where an arithmetic is the CPU's alone."""
        variants = tuple(variant.on_gpu() for variant in self.variants)
        return replace(self, variants=variants, gpu=True)

    @property
    def cost(self) -> float:
        """Numbers drawn and multiply-adds simulated, for running the longest first."""
        problem = self.case.problem
        drawn = math.prod(problem.x_shape)
        return drawn + len(self.variants) * self.tiles * math.prod(problem.filter) * 16.0

    def run(self) -> list[Row]:
        """Compute, compare with FP64, and return the rows, one a variant."""
        started = time.perf_counter()
        outputs = Outputs(self.case, self.tiles, self.channels, self.gpu)
        threads = cores() if self.gpu else 1
        tallies = {v: Tally(binned=self.histogram, threads=threads) for v in self.variants}
        errors: dict[Variant, list[np.ndarray]] = {variant: [] for variant in self.variants}
        for variant, y, truth in outputs.run(self.variants):
            tallies[variant].add(y, truth)
            if self.tail:
                error = np.abs(y - truth)
                errors[variant].append(
                    (error / np.abs(truth) if self.tail == "relative" else error).ravel()
                )
        rows = []
        peer = [tallies[v].largest(self.tail) for v in self.variants if v.name == self.against]
        for v in self.variants:
            row = self._row(outputs, v, tallies[v])
            if self.tail:
                found = np.concatenate(errors.pop(v))
                row |= self._maximum(found)
                if peer:
                    row["beyond"] = float(np.count_nonzero(found > peer[0]) / found.size)
            if self.histogram:
                row["histogram"] = tallies[v].histogram.tolist()
            rows.append(row)
        seconds = round((time.perf_counter() - started) / len(rows), 4)
        return [row | {"seconds": seconds} for row in rows]

    def _row(self, outputs: Outputs, variant: Variant, tally: Tally) -> Row:
        return {
            **dict(self.labels),
            **asdict(self.case),
            **variant.fields(),
            "algorithm": str(variant.algorithm(parse_algorithm(self.case.algorithm))),
            "constants": str(variant.digits) if variant.digits else EXACT,
            "tiles": self.tiles,
            "channels": self.channels,
            "population": math.prod(self.case.problem.y_shape),
            **tally.metrics(),
            **(self._beforehand(outputs, variant) if self.case.seed == 0 else {}),
        }

    def _beforehand(self, outputs: Outputs, variant: Variant) -> Row:
        """Prediction and bound, which other seeds of the same layer share."""
        checked, limit, truth = outputs.bounded(variant)
        expected = outputs.predicted(variant)
        return {
            "predicted_mare": None if math.isnan(expected.mare) else expected.mare,
            "predicted_relative_rms": expected.relative_rms,
            "bound_mare": float(np.mean(limit / np.abs(truth))),
            "bound_max_abs": float(limit.max()),
            "bound_ratio": checked.worst_ratio,
        }

    def _maximum(self, errors: np.ndarray) -> Row:
        population = math.prod(self.case.problem.y_shape)
        found = maximum(errors, population, seed=self.case.seed)
        everything = self.case.sample == FULL
        return {
            "layer_max": float(errors.max()) if everything else found.median,
            "layer_max_low": found.low,
            "layer_max_high": found.high,
            "tail": found.shape,
            **({"batches_max_high": self._high(errors)} if self.batches > 1 else {}),
        }

    def _high(self, errors: np.ndarray) -> float:
        population = self.batches * math.prod(self.case.problem.y_shape)
        return maximum(errors, population, seed=self.case.seed).high


def run(
    jobs: Sequence[Work],
    workers: int = 1,
    advance: Callable[[float], None] = lambda jobs: None,
    dask: str | None = None,
    kept: Path | None = None,
    gpu: bool = False,
) -> list[Row]:
    """The rows of all jobs in their order, each with where it was computed.

    With ``gpu`` this process runs the Jobs among them on a GPU, and then the workers the others.

    ``kept``: a file that has each job's rows as soon as they are there, so that the same call goes
    on where it stopped; who has made of the rows what he wants removes it.
    """
    found: dict[int, list[Row]] = {}
    jobs = [job.on_gpu() if gpu and isinstance(job, Job) else job for job in jobs]
    if kept is None:
        for i, rows in _done(jobs, range(len(jobs)), workers, dask):
            found[i] = rows
            advance(1)
        return [row for i in range(len(jobs)) for row in found[i]]
    names = [_name(job) for job in jobs]
    kept.parent.mkdir(parents=True, exist_ok=True)
    with Lines(kept).checked() as lines:
        known = dict(filter(None, (_known(line) for _, line in lines.read())))
        found = {i: known[name] for i, name in enumerate(names) if name in known}
        advance(len(found))
        todo = [i for i in range(len(jobs)) if i not in found]
        for i, rows in _done(jobs, todo, workers, dask):
            lines.append({"job": names[i], "rows": rows})
            found[i] = rows
            advance(1)
    return [row for i in range(len(jobs)) for row in found[i]]


def _name(job: Work) -> str:
    """What tells a job, and the sources that run it, from others."""
    return hashlib.sha256(f"{job!r} {provenance()['commit']}".encode()).hexdigest()


def _known(line: bytes) -> tuple[str, list[Row]] | None:
    """The job and the rows of a line; None of what an interruption left."""
    try:
        row = json.loads(line)
        return row["job"], row["rows"]
    except (ValueError, KeyError, TypeError):
        return None


def _done(
    jobs: Sequence[Work], todo: Sequence[int], workers: int, dask: str | None
) -> Iterator[tuple[int, list[Row]]]:
    for i in [i for i in todo if getattr(jobs[i], "gpu", False)]:
        yield i, _run(jobs[i])
    todo = [i for i in todo if not getattr(jobs[i], "gpu", False)]
    longest_first = sorted(todo, key=lambda i: -jobs[i].cost)
    if workers <= 1 and not dask:
        for i in longest_first:
            yield i, _run(jobs[i])
        return
    for i, rows in spread(_run, [jobs[i] for i in longest_first], workers, dask):
        yield longest_first[i], rows


def _run(job: Work) -> list[Row]:
    where = provenance()
    return [row | where for row in job.run()]
