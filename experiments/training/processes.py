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
    yield one(where, "ms a step, two GPUs", None, row["step_ms"])
    half = select(rows, plan="one", batch=row["batch"] // 2, **same)
    if half:
        yield one(where, "ms a step, one GPU of half of the images", None, half[0]["step_ms"])
        yield one(where, "of the speed of two", None, half[0]["step_ms"] / row["step_ms"])
    for halves in select(rows, plan="one", batch=row["batch"], steps=row["steps"], **same)[:1]:
        yield one(where, "largest difference of losses from one GPU's, of the first", None,
                  apart(row["losses"], halves["losses"]))  # fmt: skip
    if "alone_ms" in row:
        yield one(where, "ms a step without the sum of gradients", None, row["alone_ms"])
        yield one(where, "ms of the sum", None, row["sums_ms"])
        if row["sums_ms"]:
            yield one(where, "of it behind other kernels", None,
                      row["hidden_ms"] / row["sums_ms"])  # fmt: skip
            yield one(where, f"ms a step, {WIDE} GPUs, on paper", None, on_paper(row))


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
    of: dict[str, dict[str, float]] = {}
    for cell in found:
        of.setdefault(cell.where, {})[cell.column] = cell.ours
    lines = []
    for where, values in of.items():
        said = "; ".join(f"{column} {value:.3g}" for column, value in values.items())
        lines.append(f"{where}: {said}.")
    return lines


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
