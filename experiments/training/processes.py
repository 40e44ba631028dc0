"""Two processes beside one: equal losses, and how far the gradients' all-reduce is hidden.

Plan ``two`` trains by two processes, plan ``one`` the same on one GPU, which takes the batch in the
same halves, so that normalization and gradients are the same but for rounding, and half of the
batch alone, whose step has no sum to wait for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from matplotlib.figure import Figure

from experiments.harness.jobs import Row
from experiments.harness.tables import Cell, Table, none, one, select
from experiments.report.figures import panels_of, with_legend
from experiments.report.texts import Text
from experiments.training.runs import latest

NAMES = {"winolab": "winolab", "torch": "PyTorch, FP32", "tf32": "PyTorch, TF32"}
BACKWARD = 2 / 3  # of a step's products, which an all-reduce can hide behind
WIDE = 8  # GPUs of one host
LONGEST = 6
KEPT = (30.2, 31.1)  # ms of VGG-16's step on one GPU and on two, by hand-made modules
# Columns.
BOTH, ALONE = "ms a step, two GPUs", "ms a step, one GPU of half of the images"
BARE = "ms a step without the sum of gradients"
SUM, HIDDEN = "ms of the sum", "of it behind other kernels"
Span = tuple[float, float]


def profile(step: Callable[[], Any], steps: int = 3) -> dict[str, Any]:
    """Milliseconds of a step's kernels, of those that sum up gradients, and of both at a time."""
    import torch
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiler

    with profiler(activities=[ProfilerActivity.CUDA]) as found:
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
    spans = [(e.name, (e.time_range.start, e.time_range.end)) for e in found.events() or ()
             if str(e.device_type).endswith("CUDA")]  # fmt: skip
    return shares(spans, steps)


def shares(spans: Iterable[tuple[str, Span]], steps: int) -> dict[str, Any]:
    """``profile`` of kernels' names and microseconds from beginning to end, of so many steps."""
    every = list(spans)
    sums = merged(span for name, span in every if "nccl" in name.lower())
    others = merged(span for name, span in every if "nccl" not in name.lower())
    took: dict[str, float] = {}
    for name, (begin, end) in every:
        took[name[:80]] = took.get(name[:80], 0.0) + (end - begin)
    longest = sorted(took.items(), key=lambda each: -each[1])[:LONGEST]

    def milliseconds(microseconds: float) -> float:
        return round(microseconds / 1e3 / steps, 4)

    return {
        "kernels_ms": milliseconds(length(others)),
        "sums_ms": milliseconds(length(sums)),
        "hidden_ms": milliseconds(length(common(sums, others))),
        "longest": {name: milliseconds(us) for name, us in longest},
    }


def merged(spans: Iterable[Span]) -> list[Span]:
    """The same times as spans that do not overlap, in order."""
    found: list[Span] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((begin, end))
    return found


def common(first: Sequence[Span], second: Sequence[Span]) -> list[Span]:
    """What two lists of ``merged`` spans have in common."""
    pairs = ((max(a, c), min(b, d)) for a, b in first for c, d in second)
    return [(begin, end) for begin, end in pairs if begin < end]


def length(spans: Iterable[Span]) -> float:
    return sum(end - begin for begin, end in spans)


def on_paper(row: Row, count: int = WIDE) -> float:
    """Milliseconds of a step by so many GPUs of one host.

    A ring sends every GPU's gradients 2(n − 1)/n times over the same links: once by two. What is
    not hidden by two is not by more, and what takes longer than gradients' products is not either.
    """
    sums = row["sums_ms"] * 2 * (count - 1) / count
    bare = max(0.0, row["sums_ms"] - row["hidden_ms"]) * sums / row["sums_ms"]
    return row["alone_ms"] + max(bare, sums - BACKWARD * row["kernels_ms"])


def cells(rows: Sequence[Row]) -> list[Cell]:
    """A network and method by two processes: beside one, and what the sum of gradients takes."""
    rows = latest(rows)
    return [cell for row in select(rows, plan="two") for cell in _cells(row, rows)]


def _cells(row: Row, rows: Sequence[Row]) -> Iterator[Cell]:
    where = f"{row['network']}, {NAMES[row['method']]}"
    same = {name: row[name] for name in ("network", "method", "device")}
    yield one(where, BOTH, None, row["step_ms"])
    if alone := half(row, rows):
        yield one(where, ALONE, None, alone["step_ms"])
        yield one(where, "of the speed of two", None, alone["step_ms"] / row["step_ms"])
    for halves in select(rows, plan="one", batch=row["batch"], steps=row["steps"], **same)[:1]:
        yield one(where, "largest difference of losses from one GPU's, of the first", None,
                  apart(row["losses"], halves["losses"]))  # fmt: skip
    if "alone_ms" in row:
        yield one(where, BARE, None, row["alone_ms"])
        yield one(where, SUM, None, row["sums_ms"])
        if row["sums_ms"]:
            yield one(where, HIDDEN, None,
                      row["hidden_ms"] / row["sums_ms"])  # fmt: skip
            yield one(where, f"ms a step, {WIDE} GPUs, on paper", None, on_paper(row))


def half(row: Row, rows: Sequence[Row]) -> Row | None:
    """One GPU's run of as many images as one of two processes has."""
    same = {name: row[name] for name in ("network", "method", "device")}
    return next(iter(select(latest(rows), plan="one", batch=row["batch"] // 2, **same)), None)


def kept(cells: Sequence[Cell]) -> Iterator[str]:
    """What two processes were to keep of one's step, and what is known of what they do not."""
    of = _by_run(cells)
    mine = of.get(f"vgg16, {NAMES['winolab']}", {})
    if not {ALONE, BARE} <= mine.keys():
        return
    before, bare, both = mine[ALONE], mine[BARE], mine[BOTH]
    reached = both / before <= KEPT[1] / KEPT[0]
    yield (
        f"VGG-16 was to take {KEPT[1]:g} ms where one GPU takes {KEPT[0]:g}, as hand-made modules "
        f"did: {KEPT[1] / KEPT[0]:.2f} times as long. It takes {both:.1f} and {before:.1f}, "
        f"{both / before:.2f} times: {'kept' if reached else 'not kept'}. {bare - before:.1f} ms "
        f"more are taken without any sum of gradients, {both - bare:.1f} with it."
    )
    grown = [f"{run} {values[BOTH] - values[BARE]:.1f} ms by a sum of {values[SUM]:.1f}, of which "
             f"{values[HIDDEN]:.0%} are" for run, values in of.items()
             if HIDDEN in values and run.startswith("vgg16")]  # fmt: skip
    if grown:
        yield (
            "Steps with the sum take longer although it is behind other kernels: "
            f"{'; '.join(grown)}. It may take multiprocessors or memory's bandwidth from them; no "
            "run has told."
        )


def apart(some: Sequence[float | None], others: Sequence[float | None]) -> float:
    """The largest difference of two curves, in shares of the second's first value."""
    first = others[0]
    assert first
    pairs = zip(some, others, strict=False)
    return max(abs(p - q) for p, q in pairs if p is not None and q is not None) / first


def curves(rows: Sequence[Row]) -> Figure:
    """A panel a network: losses by two processes over those of one, which cover them if equal."""
    rows = latest(rows)
    mine = select(rows, plan="two")
    networks = list(dict.fromkeys(row["network"] for row in mine))
    figure, panels = panels_of(1, len(networks), (4 * len(networks) + 1, 3.6), sharey=False)
    for panel, network in zip(panels, networks, strict=True):
        for row in select(mine, network=network):
            at = [row["every"] * i for i in range(len(row["losses"]))]
            (line,) = panel.plot(at, row["losses"], marker=".", label=NAMES[row["method"]])
            same = {name: row[name] for name in ("network", "method", "batch", "device", "steps")}
            for halves in select(rows, plan="one", **same):
                panel.plot(at[: len(halves["losses"])], halves["losses"], "x",
                           color=line.get_color(), label="_one")  # fmt: skip
        panel.set_title(network)
        panel.set_xlabel("step")
    panels[0].set_ylabel("loss")
    return with_legend(figure, panels[0])


def _told(found: Sequence[Cell]) -> list[str]:
    lines = []
    for where, values in _by_run(found).items():
        said = "; ".join(f"{column} {value:.3g}" for column, value in values.items())
        lines.append(f"{where}: {said}.")
    return [*lines, *kept(found)]


def _by_run(cells: Sequence[Cell]) -> dict[str, dict[str, float]]:
    """Numbers of a network and method by column."""
    of: dict[str, dict[str, float]] = {}
    for cell in cells:
        of.setdefault(cell.where, {})[cell.column] = cell.ours
    return of


TWO = Table(
    "training", "two", "Two processes on generated images", none, cells,
    "nothing is judged", sources=("training",), values=("step_ms", "losses"),
)  # fmt: skip
TEXT = Text(
    "No paper asks it.",
    "VGG-16 and ResNet-50 of 224², 32 images a process, 30 steps, gradients summed by PyTorch's "
    "distributed data parallelism (`torchrun --nproc-per-node 2 -m experiments.training.run --plan "
    "two`), and on one GPU (`--plan one`) the same images in the same halves, whose losses are the "
    "same but for rounding. On paper: a ring moves gradients 2(n − 1)/n times over links of the "
    "same speed; what two processes do not hide is not hidden by more.",
    "ours: medians of a step; the sum's kernels by PyTorch's profiler; crosses are one GPU's.",
    _told,
)
