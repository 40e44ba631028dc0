"""On a GPU: random problems of every kernel, accumulated over sessions.

    python -m tests.gpu.accumulate --problems 12 --seconds 200

goes on behind the numbers that each mold (guarded.py) has had, the molds with the fewest first, and
appends a row a mold to experiments/results/guarded_problems.jsonl; a wrong result is printed with
the line that reruns it. ``--summary`` counts what is there, without a GPU. Kernels are compiled on
all cores before.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.gpu.guarded import Mold, run
from tests.gpu.support.molds import MOLDS, algorithms
from winolab.cli.environment import provenance
from winolab.gpu import driver
from winolab.gpu.families.registry import FAMILIES
from winolab.gpu.runtime import nvrtc
from winolab.gpu.runtime.cache import cubin

ROWS = Path(__file__).resolve().parents[2] / "experiments/results/guarded_problems.jsonl"
SOME = 32  # molds that are compiled at once


def molds() -> list[Mold]:
    """Every mold that tests/gpu/every_kernel/test_guarded_problems.py runs."""
    return [
        Mold(family.name, algorithm, precision, number)
        for family in FAMILIES
        for precision in family.precisions
        for algorithm in algorithms(family.name, precision)
        for number in range(MOLDS[family.name])
    ]


def done(rows: Path) -> Counter[str]:
    """How many problems each mold has had."""
    found: Counter[str] = Counter()
    for line in rows.read_text().splitlines() if rows.exists() else ():
        row = json.loads(line)
        found[row["mold"]] = max(found[row["mold"]], row["first"] + row["count"])
    return found


def compiled(some: list[Mold], problems: dict[Mold, int]) -> None:
    """Compile what the molds' next problems launch, on all cores."""
    arch = nvrtc.architecture(driver.device(0).compute_capability)
    sources = {mold.problem(problems[mold])[0].source(): str(mold) for mold in some}
    sources.pop("", None)  # a library has those
    with ProcessPoolExecutor() as pool:
        list(pool.map(cubin, sources, [arch] * len(sources), sources.values()))


def main(arguments: list[str] | None = None) -> int:
    """The command. 1 where a result is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.accumulate", description=__doc__)
    parser.add_argument("--problems", type=int, default=12, help="of each mold")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--rows", type=Path, default=ROWS)
    parser.add_argument("--summary", action="store_true", help="count, run nothing")
    given = parser.parse_args(arguments)
    had, wrong, end = done(given.rows), 0, time.monotonic() + given.seconds
    todo = [] if given.summary else molds()
    random.Random(0).shuffle(todo)
    todo.sort(key=lambda mold: had[str(mold)])
    for at in range(0, len(todo), SOME):
        some = todo[at : at + SOME]
        if time.monotonic() > end:
            break
        compiled(some, {mold: had[str(mold)] for mold in some})
        for mold in some:
            if time.monotonic() > end:
                break
            wrong += _mold(mold, had[str(mold)], given.problems, given.rows)
    rows = [json.loads(line) for line in given.rows.read_text().splitlines()]
    problems, failed = (sum(row[name] for row in rows) for name in ("count", "wrong"))
    print(f"{problems} problems of {len({row['mold'] for row in rows})} kernels, {failed} wrong")
    return int(wrong > 0)


def _mold(mold: Mold, first: int, count: int, rows: Path) -> int:
    """Run problems of a mold and write their row; how many are wrong."""
    start, wrong, worst = time.perf_counter(), 0, 0.0
    for number in range(first, first + count):
        try:
            worst = max(worst, run(mold, number))
        except AssertionError:
            wrong += 1
            print(traceback.format_exc(), flush=True)
    seconds = round(time.perf_counter() - start, 2)
    row = {"mold": str(mold), "first": first, "count": count, "wrong": wrong, "worst": worst,
           "gpu": driver.device(0).name, "seconds": seconds}  # fmt: skip
    with rows.open("a") as file:
        file.write(json.dumps(row | provenance()) + "\n")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
