"""Times of this tree's calls beside those of another commit's, on one GPU, in turn.

``git worktree add ../before COMMIT; python -m experiments.measure.ways.two_trees ../before`` takes
30 layers of dense convolutions with unit strides (``--list narrow``: networks' layers of at most 48
channels), in three directions and four precisions, by the public calls and what each commit picks
by default. A process of each tree keeps its arrays; a call of the one and of the other are timed in
turn, with a cold L2 cache, ROUNDS times; the host queues a call while the GPU has other work. A row
has medians in microseconds, of the GPU and of the host until a call returned (``_host_us``),
whether the results have the same bits, and in how many rounds the GPU waited for the host
(``late``), whose times are too long. Cases that were slower come first, then those without a row;
rows replace those of their cases in experiments/results/two_trees.jsonl. Without a folder both
sides are this tree, in rows of the list "wide twice": what these say is noise. ``--label`` names
the list of another comparison.
The last lines are the geometric mean and the slowest of each direction and precision, and what one
call in twenty exceeds.
"""

from __future__ import annotations

import json
import math
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.harness.facts import ROOT
from experiments.harness.machines import stored
from experiments.measure.cases import LISTS
from winolab.bench.layers import Layer
from winolab.bench.networks import BatchedLayer, distinct
from winolab.cli import bench
from winolab.cli.environment import cores
from winolab.gpu.planner.request import DIRECTIONS
from winolab.lines import rewrite
from winolab.problem import shapes

RESULTS = ROOT / "experiments" / "results" / "two_trees.jsonl"
SERVED = ROOT / "experiments" / "measure" / "ways" / "served.py"
WIDE = ("resnet", "resnet1", "pointwise", "odd", "dragon", "grid")
LAYERS, ROUNDS, NARROW = 30, 9, 48
SLOWER = 1.03  # times as long, more than which no call may take
PRECISIONS = ("fp32", "fp32_ffma", "fp16", "bf16")
Row = dict[str, Any]


def layers(which: str = "wide", count: int = LAYERS) -> list[Layer | BatchedLayer]:
    """So many of the layers of WIDE, or of networks' narrow ones, drawn."""
    found: dict[str, Layer | BatchedLayer] = {}
    if which == "wide":
        found = {str(layer): layer for name in WIDE for layer in LISTS[name]}
    else:
        for layer in distinct():
            if layer.group == "dense" and min(layer.channels, layer.filters) <= NARROW:
                found[str(layer)] = layer
    return random.Random(43).sample(list(found.values()), min(count, len(found)))


def cases(
    which: str = "wide", count: int = LAYERS, precisions: Sequence[str] = PRECISIONS
) -> Iterator[Row]:
    """What a side is asked for; the name is for rows."""
    for layer, direction, precision in product(layers(which, count), DIRECTIONS, precisions):
        if any(low != high for low, high in layer.problem.padding):
            continue
        *operands, result = shapes(direction, layer.problem)
        yield {
            "list": which, "layer": str(layer), "direction": direction, "precision": precision,
            "operands": operands, "result": result,
            "padding": [low for low, _ in layer.problem.padding],
        }  # fmt: skip


class Side:
    """A process of one tree; ``ask`` waits for its answer. Raises RuntimeError where it ended."""

    def __init__(self, tree: Path, cache: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tree), *_others()])}
        environment["WINOLAB_CACHE"] = str(cache)
        self.process = subprocess.Popen(
            [sys.executable, str(SERVED)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, env=environment, cwd=tree,
        )  # fmt: skip

    def ask(self, what: Row) -> Row:
        """What the process answers."""
        assert self.process.stdin
        assert self.process.stdout
        try:
            self.process.stdin.write(json.dumps(what) + "\n")
            self.process.stdin.flush()
            return json.loads(self.process.stdout.readline())
        except (OSError, ValueError):
            code = self.process.wait()
            raise RuntimeError(f"its process ended with exit code {code}") from None

    def close(self) -> None:
        """End the process."""
        with self.process:
            self.process.kill()


def _others() -> list[str]:
    """Folders of PYTHONPATH beside this tree's, where packages may lie."""
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return [folder for folder in given if folder and Path(folder).resolve() != ROOT]


def compiled(tree: Path, cache: Path, share: list[Row]) -> int:
    """Call some cases once, so that the cache has their kernels; how many of them ran."""
    ran, side = 0, Side(tree, cache)
    for case in share:
        try:
            side.ask(case)
            ran += 1
        except RuntimeError:
            side.close()
            side = Side(tree, cache)
    side.close()
    return ran


def timed(case: Row, sides: dict[str, Side], rounds: int = ROUNDS) -> Row:
    """The case's row."""
    bits = {name: side.ask(case)["bits"] for name, side in sides.items()}
    found: dict[str, list[Row]] = {name: [] for name in sides}
    for i in range(rounds):
        for name in sorted(sides, reverse=bool(i % 2)):
            found[name].append(sides[name].ask({}))
    us = {
        f"{name}_{what}": round(statistics.median(answer[what] for answer in answers), 2)
        for what in ("us", "host_us")
        for name, answers in found.items()
    }
    late = sum(answer["late"] for answers in found.values() for answer in answers)
    row = {name: case[name] for name in ("list", "layer", "direction", "precision")}
    return {**row, **us, "late": late, "same_bits": len(set(bits.values())) == 1}


def left(every: Iterable[Row], kept: Iterable[Row]) -> list[Row]:
    """Cases in a random order, so that what time allows is a sample: first those whose row says
    that they are over SLOWER times as long, which may be noise or mended, then those without."""
    known = {_key(row): row["after_us"] / row["before_us"] for row in kept}
    shuffled = list(every)
    random.Random(0).shuffle(shuffled)
    return sorted(shuffled, key=lambda case: _first(known.get(_key(case))))


def _first(ratio: float | None) -> int:
    return 1 if ratio is None else 0 if ratio > SLOWER else 2


def _key(row: Row) -> tuple[str, ...]:
    return tuple(row[name] for name in ("list", "layer", "direction", "precision"))


def main(
    before: Annotated[
        Path | None, typer.Argument(help="Folder of the other commit's tree; else this one.")
    ] = None,
    which: Annotated[str, typer.Option("--list", help="wide or narrow.")] = "wide",
    count: Annotated[int, typer.Option("--layers", help="How many layers.")] = LAYERS,
    seconds: Annotated[float, typer.Option(help="Time that all of it may take.")] = 300,
    jobs: Annotated[int, typer.Option(help="Processes that compile a tree's kernels.")] = 0,
    precisions: Annotated[str, typer.Option(help="With commas.")] = ",".join(PRECISIONS),
    most: Annotated[int, typer.Option(help="Calls at most.")] = 10**6,
    label: Annotated[str, typer.Option(help="Name of the list in rows.")] = "",
    output: Annotated[Path, typer.Option(help="File of rows.")] = RESULTS,
) -> None:
    """Measure, and write the rows."""
    end, jobs = time.monotonic() + seconds, jobs or max(1, cores() // (2 if before else 1))
    name = label or (which if before else f"{which} twice")
    old = stored(output)
    asked_for = cases(which, count, precisions.split(","))
    every = left(({**case, "list": name} for case in asked_for), old)[:most]
    folder = ROOT / "build" / "two_trees"
    trees = {"after": (ROOT, folder / "after")}
    if before:
        trees["before"] = before.resolve(), folder / (label or "before")
    with ThreadPoolExecutor(2 * jobs) as pool:
        asked = [(*tree, every[i::jobs]) for tree in trees.values() for i in range(jobs)]
        ran = sum(pool.map(lambda each: compiled(*each), asked))
    calls = len(trees) * len(every)
    print(f"{ran} of {calls} calls run, {end - time.monotonic():.0f} s left", flush=True)
    trees.setdefault("before", trees["after"])
    machine, rows = bench.context(), []
    sides = {name: Side(*tree) for name, tree in trees.items()}
    for case in every:
        if time.monotonic() > end:
            break
        try:
            rows.append({**timed(case, sides), **machine})
        except RuntimeError as error:
            print("failed", case["layer"], case["direction"], case["precision"], error, flush=True)
            for side in sides.values():
                side.close()
            sides = {name: Side(*tree) for name, tree in trees.items()}
    for side in sides.values():
        side.close()
    new = {_key(row) for row in rows}
    rewrite(output, [row for row in old if _key(row) not in new] + rows)
    print("\n".join(summarized(rows)))


def summarized(rows: Iterable[Row]) -> Iterator[str]:
    """How much longer this tree's calls take, by direction and precision."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(f"{row['direction']} {row['precision']}", []).append(row)
    if groups:
        groups["all"] = [row for found in list(groups.values()) for row in found]
    for name, found in groups.items():
        ratios = {row["layer"]: row["after_us"] / row["before_us"] for row in found}
        every = [row["after_us"] / row["before_us"] for row in found]
        mean = math.exp(statistics.fmean(map(math.log, every)))
        worst = max(ratios, key=ratios.__getitem__)
        exceeded = sorted(every)[math.ceil(0.95 * len(every)) - 1]
        same = sum(row["same_bits"] for row in found)
        late = sum(row["late"] > 0 for row in found)
        yield (
            f"{name}: {mean:.3f} of {len(found)}, slowest {max(every):.3f} ({worst}), "
            f"one in twenty over {exceeded:.3f}, "
            f"{same} with the same bits" + f", {late} with time of the host" * bool(late)
        )


if __name__ == "__main__":
    typer.run(main)
