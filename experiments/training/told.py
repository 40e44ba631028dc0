"""What docs/results.md says of training: times, memory, accuracies and how far repeats lie apart,
WinRS's claim, two processes, and what has no rows yet."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from experiments.harness.jobs import Row
from experiments.harness.tables import select, stored
from experiments.training import processes, seeds
from experiments.training.runs import (
    EARLIER,
    METHODS,
    OF_CIFAR,
    OF_ILSVRC,
    earlier,
    key,
    lacks,
    latest,
)

PLANS = {"cifar": OF_CIFAR, "ilsvrc": OF_ILSVRC}
RUN = "python -m experiments.training.run --plan"
NAMES = {"winolab": "ours", "torch": "PyTorch", "tf32": "TF32"}
FALLBACK = "wgrad_ffma_fallback"
OPTIMIZERS = {"adam": "Adam", "sgdm": "SGD"}


def lines() -> list[str]:
    """The section; nothing without rows of a GPU."""
    rows = [row for row in stored("training") if row["device"] != "CPU"]
    mine = [row for row in rows if row["plan"] in PLANS]
    if not mine:
        return []
    return [*_times(mine), *_scatter(mine), *_claim(rows), *_left(mine), *_two(rows)]


def _times(rows: Sequence[Row]) -> Iterator[str]:
    gpus = ", ".join(sorted({row["device"] for row in rows}))
    yield from (
        f"Im2col-Winograd's networks on generated images, FP32, one seed, on an {gpus}: `cifar` is "
        "200 steps of 512 images of 32² in ten classes, `ilsvrc` 50 of 256 images of 128². "
        "Milliseconds of a step; the most memory that steps behind the first take; accuracy on "
        "images of their own after the last step, of all times that the run was repeated, ours by "
        f"kernels of different commits. Run again by `{RUN} cifar` and `{RUN} ilsvrc`.",
        "",
        "| plan, network, optimizer | ours | PyTorch | TF32 | MB: ours, PyTorch, TF32 | test "
        "accuracy: ours | PyTorch | TF32 |",
        "|---|---|---|---|---|---|---|---|",
    )
    for plan, network, optimizer, of in _by_network(latest(rows)):
        if not of:
            continue
        every = select(rows, plan=plan, network=network, optimizer=optimizer)
        times = [f"{of[who]['step_ms']:.1f}" if who in of else "" for who in METHODS]
        memory = [f"{of[who].get('memory_mb') or math.nan:,.0f}" if who in of else "nan"
                  for who in METHODS]  # fmt: skip
        right = [", ".join(f"{v:.4g}" for v in _accuracies(every, who)) for who in METHODS]
        cells = (*times, ", ".join(memory).replace("nan", "–"), *right)
        yield f"| {plan}, {network}, {OPTIMIZERS[optimizer]} | {' | '.join(cells)} |"
    pairs = [of for plan, *_, of in _by_network(latest(rows)) if plan == "cifar"]
    for peer in METHODS[1:]:
        both = [of for of in pairs if {"winolab", peer} <= of.keys()]
        ahead = sum(of["winolab"]["step_ms"] < of[peer]["step_ms"] for of in both)
        if both:
            yield from ("", f"Of {len(both)} steps of `cifar` {ahead} are faster than "
                        f"{NAMES[peer]}'s.")  # fmt: skip


def _by_network(rows: Sequence[Row]) -> Iterator[tuple[str, str, str, dict[str, Row]]]:
    """Every network and optimizer of the plans, with its rows by method."""
    for plan, networks in PLANS.items():
        for network, optimizer in networks:
            mine = select(rows, plan=plan, network=network, optimizer=optimizer)
            yield plan, network, optimizer, {row["method"]: row for row in mine}


def _accuracies(rows: Sequence[Row], who: str) -> list[float]:
    return [row["test_accuracy"] for row in rows
            if row["method"] == who and row.get("test_accuracy") is not None]  # fmt: skip


def repeats(rows: Sequence[Row]) -> dict[tuple[str, str], dict[str, list[float]]]:
    """Test accuracies of runs that were repeated, by optimizer and method, then by network."""
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    of: dict[tuple, list[Row]] = {}
    for row in rows:
        of.setdefault((row["plan"], *key(row)), []).append(row)
    for mine in of.values():
        first = mine[0]
        values = _accuracies(mine, first["method"])
        if len(values) > 1:
            where = found.setdefault((first["optimizer"], first["method"]), {})
            where[first["network"]] = values
    return found


def _scatter(rows: Sequence[Row]) -> Iterator[str]:
    """How far repeats of one seed lie apart, and what that leaves of a comparison."""
    said = []
    for (optimizer, who), networks in sorted(repeats(rows).items()):
        apart = {name: max(values) - min(values) for name, values in networks.items()}
        most = max(apart, key=apart.__getitem__)
        values = ", ".join(f"{v:.4g}" for v in networks[most])
        said.append(f"{NAMES[who]} by {OPTIMIZERS[optimizer]} {apart[most]:.3f} ({most}: {values})")
    if said:
        yield from (
            "",
            "A run that is repeated, with the same seed, weights and images, ends elsewhere, "
            "because sums on a GPU are added in no fixed order. By up to so much accuracies of the "
            f"same run lie apart: {'; '.join(said)}. So those by Adam tell nothing of who "
            "multiplied, and so few repeats not whose lie furthest apart "
            f"(`{RUN} cifar --again` adds one). WinRS's claim is judged by five seeds of a small "
            "network that converges.",
        )


def _claim(rows: Sequence[Row]) -> Iterator[str]:
    """WinRS's claim by optimizer, and what decides it where it is open."""
    for cell in seeds.claims(rows):
        if not cell.where.startswith(seeds.WAYS["fused"][0]):
            continue
        verdict = "open" if cell.note else "held" if cell.verdict == "agrees" else "failed"
        behind = f": {cell.note}" * bool(cell.note)
        yield from ("", f"{cell.where}: {cell.ours:+.2f} % of accuracy from PyTorch's "
                    f"({cell.low:+.2f} to {cell.high:+.2f}; ± {seeds.PRINTED} is the claim), "
                    f"{verdict}{behind}.")  # fmt: skip


def _left(rows: Sequence[Row]) -> Iterator[str]:
    """What the next sitting trains: what has no row, and rows that lack something."""
    for plan in PLANS:
        found: dict[tuple[str, ...], list[str]] = {}
        for of_plan, network, optimizer, of in _by_network(latest(rows)):
            for who in METHODS if of_plan == plan else ():
                why = lacks(of[who]) if who in of else "rows"
                if why:
                    found.setdefault((why, network, optimizer), []).append(NAMES[who])
        said = [f"{network} ({OPTIMIZERS[optimizer]}), {why} by {', '.join(names)}"
                for (why, network, optimizer), names in found.items()]  # fmt: skip
        if said:
            yield from ("", f"Missing of `{plan}`, which `{RUN} {plan}` trains: "
                        f"{'; '.join(said)}.")  # fmt: skip


def _two(rows: Sequence[Row]) -> Iterator[str]:
    """Two processes of 32 images beside one of 32."""
    found = [row for row in latest(rows) if row["plan"] == "two"]
    if not found:
        return
    yield from (
        "",
        "Two GPUs, 32 images each, milliseconds of a step (`torchrun --nproc-per-node 2 -m "
        f"{RUN.removeprefix('python -m ')} two`, `{RUN} one`):",
        "",
        "| network | one GPU, 32 images | two | without the sum of gradients | the sum | of it "
        "behind other kernels | kernels of a step |",
        "|---|---|---|---|---|---|---|",
    )
    for row in found:
        fields = ("step_ms", "alone_ms", "sums_ms", "hidden_ms", "kernels_ms")
        one = processes.half(row, rows)
        cells = [f"{one['step_ms']:.2f}" if one else ""]
        cells += [f"{row[name]:.2f}" if name in row else "" for name in fields]
        name = f"{row['network']}, {NAMES[row['method']]}"
        yield f"| {name} | {' | '.join(cells)} |"
    again = [f"{ms:.1f} of {row['step_ms']:.1f} ms of {row['network']} ({row['commit'][:8]})"
             for row in found if earlier(row) and row["method"] == "winolab"
             for name, ms in row.get("longest", {}).items() if name.endswith(FALLBACK)]  # fmt: skip
    yield from ("", *processes.kept(processes.cells(rows)))
    if again:
        yield (f"Ours were measured before {EARLIER}, when gradients' results were checked; now "
               f"operands are (note 113). Gradients that were computed again took "
               f"{', '.join(again)}.")  # fmt: skip
