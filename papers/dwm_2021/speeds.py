"""DWM's Tables 5, 6, 13 and 14 from rows that a GPU wrote (papers.dwm_2021.gpu_times).

The numbers of the paper's tables did not survive; the claims of its prose are judged where both
sides were measured. Its GPU was a V100 with cuDNN 7.4; PyTorch in benchmark mode, the faster of
both memory orders, stands for cuDNN. What is said of all cases one of them refutes; it holds where
all were measured, and is open until then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.special import betaincinv

from experiments.harness.jobs import Row
from experiments.harness.missing import not_reproduced
from experiments.harness.tables import Cell, Table, claim, none, one, select, stored
from experiments.harness.verdicts import Range, Verdict, above, at_least, below
from papers.dwm_2021.costs import dwm_multiplications
from papers.dwm_2021.derived.memory import memory_claims
from papers.dwm_2021.networks import Network, networks
from papers.dwm_2021.strategies import KERNELS, grid, layers

PAPER, SOURCE = "dwm_2021", "dwm"
METHODS = ("dwm", "phases", "winograd", "direct", "winolab", "torch", "tf32", "fft")
ALMOST = 0.9  # the part that "almost every case" means at the least
LARGE = {2: (9, 11), 3: (9,)}  # "larger than 7×7 in 2-D and 5×7×7 in 3-D"
CONFIDENCE = 0.9  # of a sample's interval, as of every other


def times(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """Microseconds by case and method, PyTorch's in its faster memory order."""
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        case = found.setdefault(row["case"], {})
        case[row["method"]] = min(row["us"], case.get(row["method"], math.inf))
    return found


def _single(ndim: int, rows: Sequence[Row]) -> list[Cell]:
    """Tables 5 and 6: times of the layers, then the claims."""
    mine = [r for r in rows if r["step"] == "layers" and len(r["kernel_taps"]) == ndim]
    cells = []
    for case, us in times(mine).items():
        where = next(r["label"] for r in mine if r["case"] == case)
        cells += [one(where, f"{m}, µs", None, us[m]) for m in METHODS if m in us]
    return cells + [cell for cell in _claims(ndim, mine) if not math.isnan(cell.ours)]


def _claims(ndim: int, rows: Sequence[Row]) -> Iterator[Cell]:
    """What the prose says of Tables 5 and 6; NaN where nothing was measured."""
    larger = [row for row in rows if row["kernel_taps"][-1] > 3]
    least = min(_ratios(larger, "winograd", "dwm"), default=math.nan)
    yield claim("DWM outperforms Winograd above 3 taps: least ratio of times", 1, least, above(1))
    every = [p.filter[-1] for *_, p in layers() if p.ndim == ndim]
    if ffts := list(_ratios(rows, "fft", "dwm")):
        text = "DWM is better than FFT in almost every case: part of them"
        won = sum(ratio > 1 for ratio in ffts)
        yield sampled(text, 1, won, len(ffts), at_least(ALMOST), len(every))
    means = [_mean(_ratios(_of(rows, kernel), "torch", "dwm")) for kernel in KERNELS[ndim]]
    growth = min((b / a for a, b in pairwise(means)), default=math.nan)
    yield claim("cuDNN over DWM grows with the kernel: least growth", 1, growth, above(1))
    largest = [row for kernel in LARGE[ndim] for row in _of(rows, kernel)]
    least = min(_ratios(largest, "torch", "dwm"), default=math.nan)
    text = "DWM outperforms cuDNN for the largest kernels: least ratio of times"
    due = sum(kernel in LARGE[ndim] for kernel in every)
    left = due - len(times(largest))
    yield _of_all(text, least, above(1), f"{left} of {due} cases not measured" if left else "")
    most = max(_ratios(rows, "torch", "dwm"), default=math.nan)
    text = "DWM is even faster than cuDNN in some situations: greatest ratio of times"
    yield claim(text, 1, most, above(1))


def _of(rows: Sequence[Row], kernel: int) -> list[Row]:
    return [row for row in rows if row["kernel_taps"][-1] == kernel]


def _ratios(rows: Sequence[Row], above: str, below: str) -> Iterator[float]:
    """One method's times over another's, of every case that has both."""
    for us in times(rows).values():
        if above in us and below in us:
            yield us[above] / us[below]


def _mean(values: Iterator[float]) -> float:
    logs = [math.log(v) for v in values]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def _networks(rows: Sequence[Row]) -> list[Cell]:
    """Table 13: convolutions of whole networks that were measured, each as often as it occurs;
    where a method does not serve a layer, as with strides, the direct kernels' time stands. A
    network none of whose layers it serves says nothing of it."""
    cells, totals = [], {}
    for network in networks():
        if total := _total(network, rows):
            totals[network.name] = total
            cells += [one(network.name, f"{m}, µs", None, us) for m, us in total.items()]
    return cells + list(_claims_of_networks(totals)) if totals else []


def _total(network: Network, rows: Sequence[Row]) -> dict[str, float]:
    """Microseconds of its layers by each method; none where a layer has no row."""
    mine = [r for r in rows if r["step"] == "networks" and r["label"] == network.name]
    by_shape = {case.rpartition(" ")[2]: us for case, us in times(mine).items()}
    keys = [_shapes(problem) for problem in network.layers]
    if not mine or any(key not in by_shape for key in keys):
        return {}
    return {
        m: sum(by_shape[key].get(m, by_shape[key].get("direct", math.nan)) for key in keys)
        for m in METHODS
        if any(m in us for us in by_shape.values())
    }


def _claims_of_networks(totals: dict[str, dict[str, float]]) -> Iterator[Cell]:
    """What is said of every network, from those whose layers were all measured."""
    over = {
        method: {name: us[method] / us["dwm"] for name, us in totals.items() if method in us}
        for method in ("winograd", "torch")
    }
    left = _left(totals)
    for method, text in (("winograd", "Winograd"), ("torch", "cuDNN")):
        if over[method]:
            text = f"DWM outperforms {text} on every network: least ratio of times"
            yield _of_all(text, min(over[method].values()), above(1), left)
    counted = {n.name: _counted(n) for n in networks() if n.name in over["torch"]}
    if counted:
        text = "DWM's speed over cuDNN falls short of its count on every network: greatest part"
        most = max(over["torch"][name] / saved for name, saved in counted.items())
        yield _of_all(text, most, below(1), left)
    text = f"DWM outperforms Winograd most on {MOST}: over its most elsewhere"
    others = [ratio for name, ratio in over["winograd"].items() if name != MOST]
    if MOST in over["winograd"] and others:
        ours = over["winograd"][MOST] / max(others)
        yield _of_all(text, ours, above(1), left)
    else:
        why = "none of its layers was computed by one tile of two outputs"
        yield not_reproduced("claim", text, 1.0, claim=True, note=why)


MOST = "3D-ShapeNet"
WHY = "not all of their layers were timed; networks of few layers came first"


def _counted(network: Network) -> float:
    """Direct's multiplications over DWM's."""
    return sum(p.macs for p in network.layers) / sum(map(dwm_multiplications, network.layers))


def _left(measured: Collection[str]) -> str:
    """The networks that have no rows of it, and why."""
    left = [network.name for network in networks() if network.name not in measured]
    return f"{', '.join(left)}: {WHY}" if left else ""


def _of_all(text: str, ours: float, accepted: Range, left: str) -> Cell:
    """A claim of every case, one of which refutes it; with some left, of which the note tells, what
    holds on the others is open."""
    cell = claim(text, 1, ours, accepted, left)
    return replace(cell, standing=Verdict.OPEN) if left and cell.agrees else cell


def _shapes(problem) -> str:
    """The shapes of a case, as papers.dwm_2021.gpu_times names it."""
    x, w = ("x".join(map(str, shape)) for shape in (problem.x_shape, problem.w_shape))
    return f"{x}:{w}/{'x'.join(map(str, problem.stride))}"


def _memory(rows: Sequence[Row]) -> list[Cell]:
    """Table 14, measured: what DWM holds over what direct products do, arrays counted in both."""
    mine = [r for r in rows if r["step"] == "layers" and r["stride"][-1] == 1 and r["batch"] == 1]
    cells, found = [], {}
    for case in dict.fromkeys(row["case"] for row in mine):
        held = {r["method"]: r["bytes"] + r["memory"] for r in select(mine, case=case)
                if r.get("memory") is not None}  # fmt: skip
        if {"dwm", "direct"} <= held.keys():
            row = next(r for r in mine if r["case"] == case)
            size = int(case.rpartition(" ")[2].split("x")[1])
            taps = row["kernel_taps"]
            found[len(taps), size, taps[-1]] = ratio = held["dwm"] / held["direct"]
            cells.append(one(row["label"], "memory, DWM over direct", None, ratio))
    told = memory_claims(found)
    return cells + [claim(text, 1, ours, accepted) for text, ours, accepted in told]


def _measured_share(rows: Sequence[Row]) -> list[Cell]:
    """The part of the sampled shapes on which DWM is faster than PyTorch, Winograd and FFT."""
    mine = [us for us in times([r for r in rows if r["step"] == "grid"]).values() if "dwm" in us]
    if not mine:
        return []
    others = ("torch", "winograd", "fft")
    best = sum(us["dwm"] <= min(us.get(m, math.inf) for m in others) for us in mine)
    text = "DWM performs best on about a quarter of some 2,000 shapes: part of ours"
    return [
        sampled(text, 0.25, best, len(mine), (0.2, 0.3), sum(1 for _ in grid())),
        one("the sample", "shapes", None, len(mine)),
        *_phases(mine),
    ]


def sampled(text: str, paper: float, yes: int, of: int, accepted: Range, every: int) -> Cell:
    """A claim on a part of ``every`` cases, of which ``of`` were drawn: judged where the sample's
    interval (Clopper & Pearson's) lies in the range or beside it, and open elsewhere.

    Its note says of how many cases the interval would do so if the part stayed as it is.
    """
    part = yes / of
    low, high = (float(end) for end in part_interval(part, of))
    cell = Cell("claim", text, paper, part, low, high, accepted, claim=True)
    if of >= every or decides(low, high, accepted):
        return cell
    counts = np.arange(of, every)
    enough = counts[decides(*part_interval(part, counts), accepted)]
    due = f"about {enough[0]}" if len(enough) else f"all {every}"
    note = (
        f"{yes} of {of}, {100 * CONFIDENCE:.0f} % interval {low:.2f} to {high:.2f}: {due} cases "
        "would decide it if the part stayed"
    )
    return replace(cell, standing=Verdict.OPEN, note=note)


def part_interval(part: float, of: Any) -> tuple[Any, Any]:
    """Clopper & Pearson's interval of a part of cases drawn, for one number of them or many."""
    yes, tail = part * of, (1 - CONFIDENCE) / 2
    low = betaincinv(yes, of - yes + 1, tail) if part > 0 else 0 * yes
    high = betaincinv(yes + 1, of - yes, 1 - tail) if part < 1 else 1 + 0 * yes
    return low, high


def decides(low: Any, high: Any, accepted: Range) -> Any:
    """Whether an interval lies in a range or beside it; of arrays, which do."""
    least, most = accepted
    return ((least <= low) & (high <= most)) | (high < least) | (low > most)


def _phases(mine: Sequence[dict[str, float]]) -> Iterator[Cell]:
    """Beside the paper's pieces, a stride's phases by the planner's tiles."""
    ratios = [us["direct"] / us["phases"] for us in mine if {"direct", "phases"} <= us.keys()]
    if ratios:
        yield one("strided shapes", "time of direct over phases", None, _mean(iter(ratios)))


def _table(name: str, title: str, cells: Callable[[Sequence[Row]], list[Cell]]) -> Table:
    rule = ("a claim of the paper's prose holds on the GPU that wrote the rows; "
            "it is open where the cases measured do not decide it")  # fmt: skip
    values = ("us", "memory")
    return Table(PAPER, name, title, none, cells, rule, sources=(SOURCE,), values=values)


ALL = (
    _table("table5", "Wall clock time of 2-D convolutions", partial(_single, 2)),
    _table("table6", "Wall clock time of 3-D convolutions", partial(_single, 3)),
    _table("table13", "Wall clock time of networks' convolutions", _networks),
    _table("table14_measured", "Memory, measured", _memory),
    _table("strategies_measured", "Which strategy is the fastest, measured", _measured_share),
)
# Until a GPU has measured them the report says that they are not reproduced.
TABLES = tuple(table for table in ALL if table.cells(stored(SOURCE)))
