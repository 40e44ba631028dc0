"""A sample of layers on a GPU, case by case: several of our plans, PyTorch and a copy in turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Annotated

import typer

from experiments.harness.machines import stored
from experiments.measure.layer_rows import Row, key
from experiments.measure.layers import added, measured, tried
from experiments.measure.throughput import compile_all
from winolab.bench.contenders import digest
from winolab.bench.networks import BatchedLayer
from winolab.cli import bench
from winolab.cli.environment import cores
from winolab.device import Device
from winolab.gpu import driver
from winolab.gpu.planner.request import Plan
from winolab.spread import pool

Case = tuple[BatchedLayer, str, str]  # with its direction and precision
Found = Mapping[Plan, bool]  # plans, and which of them is picked: the first
Plans = Callable[[BatchedLayer, str, str, Device], Found]


def firsts(plans: Iterable[Plan], but: type | tuple[type, ...]) -> list[Plan]:
    """The first of every kind ``but`` these that is predicted to take less than three times as long
    as the first of all."""
    found: dict[type, Plan] = {}
    every = list(plans)
    for p in every:
        if not isinstance(p, but) and p.predicted < 3 * every[0].predicted:
            found.setdefault(type(p), p)
    return list(found.values())


@dataclass(frozen=True)
class Sample:
    """What is measured: ``cases`` in the order of measuring, of which so many are planned and
    compiled ``ahead``, the ``plans`` of each, and what makes rows of a case."""

    cases: Sequence[Case]
    plans: Plans
    ahead: int
    rows_of: Callable[[Case, Found], Iterable[Row]] = lambda case, found: measured(*case, found)

    def planned(self, todo: Sequence[Case], device: Device) -> list[tuple[Case, Found]]:
        """Every case with its plans."""
        with pool(cores()) as processes:
            found = processes.map(_planned, repeat(self.plans), todo, repeat(device), chunksize=8)
            return list(zip(todo, found, strict=True))

    def timed(self, kept: Mapping[tuple, str], most: int, end: float) -> Iterator[Row]:
        """Rows of so many cases, until that time, but of those whose pick's source is ``kept``."""
        count = 0
        for at in range(0, len(self.cases), self.ahead):
            todo = [
                (case, found)
                for case, found in self.planned(self.cases[at : at + self.ahead], driver.device(0))
                if kept.get((str(case[0]), *case[1:])) != digest(next(iter(found)))
            ]
            compile_all(p for _, found in todo for p in found)
            for case, found in todo:
                if time.monotonic() > end or count == most:
                    print(f"{count} cases of up to {len(self.cases)}; call again to go on")
                    return
                count += 1
                made = tried(case, iter(self.rows_of(case, found)))
                if made is None:
                    return
                yield from made

    def sitting(self, output: Path, end: float, most: int, again: bool) -> list[Row]:
        """Add to a file what time allows of what is not there yet, or whose pick has changed since;
        ``again``: kernels without change, too. The latest rows of every case."""
        bench.ready()
        rows = stored(output)
        kept = {} if again else {key(row): row["source"] for row in rows if row.get("chosen")}
        return added(output, self.timed(kept, most, end))


def command(
    made: Callable[[], Sample], summarized: Callable[[Iterable[Row]], Iterable[str]], file: Path
) -> None:
    """The command that measures what is ``made``, or shows what is ``summarized`` of its rows,
    which are by default in ``file``."""

    def main(
        seconds: Annotated[float, typer.Option(help="Time that all of it may take.")] = 300,
        most: Annotated[int, typer.Option(help="Cases at most.")] = 10**6,
        again: Annotated[bool, typer.Option("--again", help="Unchanged kernels, too.")] = False,
        output: Annotated[Path, typer.Option(help="File of rows.")] = file,
        summary: Annotated[bool, typer.Option("--summary", help="Show ratios, and stop.")] = False,
    ) -> None:
        """Measure what time allows of what is not there yet, or whose pick has changed since."""
        end = time.monotonic() + seconds
        rows = stored(output) if summary else made().sitting(output, end, most, again)
        print("\n".join(summarized(rows)))

    typer.run(main)


def _planned(plans: Plans, case: Case, device: Device) -> Found:
    return plans(*case, device)
