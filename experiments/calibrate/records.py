"""Search algorithms for every (n, r, states), and record the best where the library reads them.

    python -m experiments.calibrate.records [--r 3] [--outputs 16] [--workers 2] [--dask ADDRESS]

A task is an F(n, r) with so many states: the optimum of the noise gain by structure, its nearest
rationals, and the named and published sets beside them, all simulated. Its rows go to
experiments/results/records.jsonl before the next task counts as done, so the same call goes on
where it stopped; rows that lack a format's errors get them, and sets found by hand get rows; then
winolab/ref/algebra/data/records.json is written from all of them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from experiments.harness.facts import ROOT
from winolab.cli.environment import provenance
from winolab.lines import Lines
from winolab.points import text_of, tile_of
from winolab.ref.algebra.points import named_points, published
from winolab.ref.records.frontier import search as searched
from winolab.ref.records.frontier import structures
from winolab.ref.records.protocols import PRECISIONS, simulated
from winolab.ref.records.table import Record, factors
from winolab.spread import spread
from winolab.tile import MAX_ALPHA

Row = dict[str, Any]
ROWS = ROOT / "experiments" / "results" / "records.jsonl"
TABLE = ROOT / "winolab" / "ref" / "algebra" / "data" / "records.json"
NAMES = {"best": "winolab", "paper": "Im2col-Winograd 2024", "wincnn": "winolab, after wincnn"}
OURS = tuple(who for who in NAMES.values() if who.startswith("winolab"))
# Found by hand (docs/records.md): they stand beside what the search finds.
BEFORE = (
    (10, 3, "0,1/3,-1/3,2/3,-2/3,1,-1,11/8,-11/8,11/4,-11/4,inf"),
    (11, 3, "1/5,-1/5,1/2,-1/2,3/4,-3/4,9/8,-9/8,13/8,-13/8,3,-3,inf"),
    (14, 3, "0,1/4,-1/4,1/2,-1/2,3/4,-3/4,1,-1,5/4,-5/4,2,-2,7/2,-7/2,inf"),
    (14, 3, "0,1/4,-1/4,1/2,-1/2,13/16,-13/16,1,-1,4/3,-4/3,2,-2,15/4,-15/4,inf"),
    (15, 3, "1/8,-1/8,3/8,-3/8,5/8,-5/8,7/8,-7/8,1,-1,11/8,-11/8,2,-2,18/5,-18/5,inf"),
    (6, 3, "0,3/4,-3/4,4/3,-4/3,inf,x^2+1"),
    (7, 3, "1/3,-1/3,1,-1,8/5,-8/5,inf,x^2+1"),
    (6, 5, "0,3/4,-3/4,4/3,-4/3,inf,x^2+x+1,x^2-x+1"),
    (6, 7, "0,3/4,-3/4,5/4,-5/4,inf,x^2+1,x^2+x+1,x^2-x+1"),
    (8, 9, "0,1/2,-1/2,3/4,-3/4,5/4,-5/4,2,-2,inf,x^2+1,x^2+x+1,x^2-x+1"),
)
AFTER = ((7, 3, "sfc:6", "winolab, after SFC"),)  # constructions beside what they are after
WIDTHS = [3, 5, 7, 9, 2, 4, 6, 8]
SEEDS, SEED = 5, 0
PAIRS_AND_ONE = 2  # pairs ±p beside a lone point, which loses to 0 or none where there are more
SIMULATED = 3  # of what a search finds, the least gains
MARGIN = 1.05  # about the spread of a score over seeds
NEAR = 1.05  # times the optimum
EVEN, USEFUL = 1.2, 0.05  # times a format's least error; relative errors that anyone can use
BETTER = 0.9  # states more have to leave at most so much of the gain


@dataclass(frozen=True)
class Task:
    """F(n, r) with so many states."""

    n: int
    r: int
    states: int

    @classmethod
    def of(cls, row: Row) -> Task:
        return cls(row["n"], row["r"], row["states"])


def tasks(widths: Sequence[int], outputs: int, more: int) -> Iterator[Task]:
    """Every n from 2 to ``outputs`` while a tile has no more inputs than matrices are made of, with
    up to ``more`` states beyond n + r − 1; fewer first."""
    for extra in range(more + 1):
        for r in widths:
            for n in range(2, min(outputs, MAX_ALPHA - r + 1) + 1):
                if next(structures(n, r, n + r - 1 + extra), None):
                    yield Task(n, r, n + r - 1 + extra)


def rows(task: Task) -> list[Row]:
    """A row a candidate: its gain, and its errors by protocol and format, the mean of the seeds."""
    n, r = task.n, task.r
    shapes = [s for s in structures(n, r, task.states) if not s.lone or s.pairs <= PAIRS_AND_ONE]
    found = sorted((f for s in shapes for f in searched(n, r, s, SEED)), key=lambda f: f.gain)
    known = candidates(task, [f.points for f in found[:SIMULATED]])
    optimum = float(f"{min(f.optimum for f in found):.4g}")
    return [
        {
            **asdict(task),
            "candidates": len(known),
            "points": points,
            "found": who,
            "optimum": optimum,
            **measured(task, points),
            "seeds": SEEDS,
            "seed": SEED,
        }
        for points, who in known.items()
    ]


def candidates(task: Task, searched: Sequence[str]) -> dict[str, str]:
    """What is simulated: modulus -> who found it, the first where several did."""
    n, r = task.n, task.r
    known: dict[frozenset, tuple[str, str]] = {}  # by what sets in any order share

    def add(points: str, who: str) -> None:
        text, before = known.get(key := factors(points), (text_of(points), who))
        known[key] = text, who if before in OURS else before

    named: dict[str, str] = {}
    if task.states == n + r - 1:
        named = {name: text_of(named_points(name, task.states)) for name in NAMES}
        add(named["best"], NAMES["best"])
    for of, points, sets in quoted():
        if of == task:
            add(points, finder(sets))
    for name, points in named.items():
        add(points, NAMES[name])
    mine = [(p, who) for of, p, who in by_hand() if of == task]
    for points, who in mine + [(p, "winolab") for p in searched]:
        known.setdefault(factors(points), (text_of(points), who))
    return dict(known.values())


def quoted() -> Iterator[tuple[Task, str, Row]]:
    """Sets that others published: the task that each belongs to, the points, where they are."""
    for sets in published()["sets"]:
        for n, points in sets["points"].items():
            states = tile_of(int(n), sets["r"], points).alpha
            yield Task(int(n), sets["r"], states), text_of(points), sets


def finder(sets: Row) -> str:
    """Who found a published set."""
    return f"{sets['authors']}, {sets['source']}"


def by_hand() -> Iterator[tuple[Task, str, str]]:
    """Sets in BEFORE and AFTER: the task that each belongs to, the points, who found them."""
    for n, r, points, who in (*((*of, "winolab") for of in BEFORE), *AFTER):
        yield Task(n, r, tile_of(n, r, points).alpha), text_of(points), who


def later(known: Sequence[Row]) -> list[Row]:
    """Rows of sets found by hand and of others', whose task was searched without them."""
    found = []
    for task, points, who in [*by_hand(), *((of, p, finder(sets)) for of, p, sets in quoted())]:
        others = [row for row in known if Task.of(row) == task]
        if others and factors(points) not in {factors(row["points"]) for row in others}:
            of = {"points": points, "found": who, "candidates": len(others) + 1}
            found.append({**others[0], **of, **measured(task, points), **provenance()})
    return found


def measured(task: Task, points: str) -> Row:
    """Gain, instructions and errors."""
    made = Record.of(task.n, task.r, points, "")
    return {
        "gain": float(f"{made.gain:.4g}"),
        "instructions": made.instructions,
        "errors": errors(task, points, {}),
    }


def errors(task: Task, points: str, known: Row) -> Row:
    """By protocol and format, the mean of the seeds; those known before as they are."""
    wanted = [("u11", p) for p in PRECISIONS] + [("u12", "fp32")]
    wanted += [("1803.10986", "fp32")] * (task.r == 3)
    told = {sets["protocol"] for of, _, sets in quoted() if of == task and "protocol" in sets}
    wanted += [(name, "fp32") for name in sorted(told) if (name, "fp32") not in wanted]
    found = dict(known)
    for protocol, precision in wanted:
        name = f"{protocol} {precision}"
        if name not in known:
            some = simulated(task.n, task.r, points, protocol, precision, SEEDS)
            error = float(f"{np.mean(some):.3g}")
            found[name] = error if np.isfinite(error) else None  # it overflows
    return found


def score(row: Row, precision: str) -> float:
    """In FP32 the errors of zero-mean data, twice, and positive ones; in 16 bits zero-mean ones."""
    errors = {name: np.inf if e is None else e for name, e in row["errors"].items()}
    found = errors[f"u11 {precision}"]
    return (found**2 * errors["u12 fp32"]) ** (1 / 3) if precision == "fp32" else found


def best(known: Sequence[Row], precision: str) -> Row:
    """Within the margin of the least error what takes the fewest instructions, of those whose gain
    is near the optimum where there are such."""
    least = min(score(row, precision) for row in known)
    close = [row for row in known if score(row, precision) <= MARGIN * least]
    near = [row for row in close if row["gain"] <= NEAR * row["optimum"]]
    return min(near or close, key=lambda row: (row["instructions"], score(row, precision)))


def kernels(n: int, r: int) -> bool:
    """Whether CUDA kernels have F(n, r) unasked, with the points by alpha, whose bits they keep:
    but of F(8,3), where those lost to a published set (1803.10986 on U[1,2), 16 %)."""
    return (n + r - 1 <= 10 and (n, r) != (8, 3)) or (n + r - 1 == 16 and 7 <= r <= 12)


def table(every: Sequence[Row]) -> list[Row]:
    """The records: the best by format, the named sets, others' sets, and which is the default."""
    by_task: dict[Task, list[Row]] = {}
    for row in every:
        by_task.setdefault(Task.of(row), []).append(row)
    found, least = [], {}
    before = {text_of(points) for _, _, points in BEFORE}
    for task in sorted(by_task, key=lambda t: (t.r, t.n, t.states)):
        known, where = by_task[task], (task.n, task.r)
        minimal = task.states == sum(where) - 1
        named = {text_of(named_points(name, task.states)) for name in NAMES} if minimal else set()
        told = [row for row in known if row["points"] in before | named or row["found"] not in OURS]
        gain = min(row["gain"] for row in known)
        told += [row for row in known if row["gain"] == gain and minimal]
        if gain > BETTER * least.get(where, np.inf) and not told:
            continue
        least[where] = min(gain, least.get(where, np.inf))
        winners = {p: best(known, p) for p in PRECISIONS}
        default = _default(task, known) if minimal else None
        for row in known:
            formats = tuple(p for p in PRECISIONS if winners[p] is row)
            if formats or row in told or row is default:
                known_of = {"optimum": row["optimum"], "errors": row["errors"], "best": formats}
                record = Record.of(*where, row["points"], row["found"], **known_of)
                made = asdict(record) | {"gain": row["gain"], "default": row is default}
                found.append(made)
    return found


def uneven(row: Row, known: Sequence[Row]) -> float:
    """The most error of zero-mean data in a format over that of the format's best set, where that
    one's is below USEFUL."""
    worst = 1.0
    for name in (f"u11 {p}" for p in PRECISIONS):
        least, mine = (
            min(some["errors"][name] or np.inf for some in rows) for rows in (known, [row])
        )
        worst = max(worst, mine / least if least < USEFUL else 1.0)
    return worst


def loses(row: Row, others: Sequence[Row]) -> bool:
    """Whether a set of others' has less error in a protocol and format, by the means of seeds."""
    return any(
        (row["errors"][name] or np.inf) > error
        for other in others
        for name, error in other["errors"].items()
        if error
    )


def _default(task: Task, known: Sequence[Row]) -> Row | None:
    """The best in FP32, or a less uneven one, of ours that lose to no published set; None where a
    kernel has the set by states, or that one loses nowhere, is even and no worse in FP32."""
    if kernels(task.n, task.r):
        return None
    own = text_of(named_points("best", task.states))
    usual = next(row for row in known if row["points"] == own)
    others = [row for row in known if row["found"] not in OURS]
    sets = [row for row in others if row["found"] != NAMES["paper"]]  # quoted, of one F(n, r)
    fair = [row for row in known if row["found"] in OURS and not loses(row, sets)] or known
    least = min(row["gain"] for row in known)
    even = [row for row in fair if max(uneven(row, known), row["gain"] / least) <= EVEN]
    winner = best(even or fair, "fp32")
    if not even:
        winner = min(fair, key=lambda row: (uneven(row, known), score(row, "fp32")))
    worse = score(usual, "fp32") > MARGIN * score(winner, "fp32")
    worse |= loses(usual, others) or max(uneven(usual, known), usual["gain"] / least) > EVEN
    return winner if worse else None


def main(
    r: Annotated[list[int] | None, typer.Option(help="Filter widths.")] = None,
    outputs: Annotated[int, typer.Option(help="Outputs of a tile, at most.")] = 16,
    more: Annotated[int, typer.Option(help="States beyond n + r - 1, at most.")] = 8,
    workers: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
    dask: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help='A scheduler of Dask, or "local".')
    ] = None,
    file: Annotated[Path, typer.Option(help="Rows.")] = ROWS,
    output: Annotated[Path, typer.Option(help="The table.")] = TABLE,
    search: Annotated[bool, typer.Option(help="Search what has no rows yet.")] = True,
) -> None:
    """Search what has no rows yet, then write the table."""
    with Lines(file).checked() as lines:
        known = [json.loads(line) for _, line in lines.read() if line.strip()]
    had = Counter(Task.of(row) for row in known)
    known = [row for row in known if had[Task.of(row)] >= row["candidates"]]
    before = json.dumps(known)
    for row in known:
        row["errors"] = errors(Task.of(row), row["points"], row["errors"])
    known += later(known)
    if json.dumps(known) != before:
        text = "".join(f"{json.dumps(row)}\n" for row in known)
        file.with_suffix(".new").write_text(text)
        file.with_suffix(".new").replace(file)
    done, where = {Task.of(row) for row in known}, provenance()
    todo = [task for task in tasks(r or WIDTHS, outputs, more) if task not in done]
    with Lines(file).checked() as lines:
        for found in _run(todo if search else [], workers, dask):
            for row in found:
                lines.append(row | where)
            known += found
            print(f"F({found[0]['n']},{found[0]['r']}) in {found[0]['states']} states", flush=True)
    texts = ",\n".join(f" {json.dumps(row)}" for row in table(known))
    output.write_text(f"[\n{texts}\n]\n")


def _run(todo: Sequence[Task], workers: int, dask: str | None) -> Iterator[list[Row]]:
    if workers == 1 and not dask:
        yield from map(rows, todo)
    else:
        yield from (found for _, found in spread(rows, todo, workers, dask))


if __name__ == "__main__":
    typer.run(main)
