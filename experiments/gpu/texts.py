"""What the report says of the tables that a GPU measured."""

from __future__ import annotations

import math
from collections.abc import Sequence

from experiments.gpu import bounds, counters, devices, frontier, gradients, losses, variants
from experiments.gpu.rows import Row, cases, stored
from experiments.gpu.targets.tensor import wide
from experiments.harness.tables import Cell
from experiments.harness.verdicts import AIMS, Verdict
from experiments.report.counts import counts
from experiments.report.texts import Text

RUN = (
    "All that a line compares was run in one process, in interleaved rounds, on random data, with "
    "a cold L2 cache and the filter transform counted; effective TFLOPS are direct convolution's "
    "operations over the median time. Φ·SGEMM has the fastest SGEMM of all runs on the GPU: it is "
    "measured once a run, and what else is on the GPU can only slow it down."
)


def machine() -> str:
    """The GPU and its software, by the rows."""
    found = (_machine(row) for c in cases(stored()) for row in c.rows)
    return "; ".join(dict.fromkeys(found))


def _machine(row: Row) -> str:
    clock = f" at {row['sm_mhz']} MHz" if row.get("sm_mhz") else ""  # nvidia-smi may not say it
    return (
        f"{row['device']}{clock}, driver {row['driver']}, CUDA {row['cuda']}, "
        f"cuDNN {row['cudnn']}, SGEMM {row['sgemm_tflops']:.1f} TFLOPS, commit {row['commit']}"
    )


def told(cells: Sequence[Cell]) -> list[str]:
    """How many agree, and what was measured on."""
    return [f"{len(cells)} numbers: {counts(cells).text}.", machine()]


def _targets(cells: Sequence[Cell]) -> list[str]:
    return [*_aims(cells), *wide(cases(stored())), machine()]


def _aims(cells: Sequence[Cell]) -> list[str]:
    """How many are reached, part by part, and which are not."""
    aims = [c for c in cells if c.verdict in AIMS]
    told = [f"{_reached(aims)} of {len(aims)} aims reached."]
    parts: dict[str, list[Cell]] = {}
    for c in aims:
        parts.setdefault(c.where.partition(": ")[0], []).append(c)
    for part, mine in parts.items():
        missed = [c for c in mine if c.verdict is Verdict.MISSED and not math.isnan(c.ours)]
        line = f"{part}: {_reached(mine)} of {len(mine)} reached."
        told.append(f"{line} Missed: {'; '.join(map(_missed, missed))}." if missed else line)
    absent = [f"{c.where}, {c.column}" for c in aims if math.isnan(c.ours)]
    told += [f"Not measured: {'; '.join(absent)}."] if absent else []
    return told


def _reached(aims: Sequence[Cell]) -> int:
    return sum(c.verdict is Verdict.REACHED for c in aims)


def _missed(c: Cell) -> str:
    what = c.where.partition(": ")[2]
    why = c.note.partition("python -m")[0].rstrip("; ")
    told = f"{what}, {c.column}, {c.ours:.3g} where {c.aim:.3g} was the aim"
    return f"{told} ({why})" if why else told


TEXTS = {
    "gpu targets": Text(
        "Aims that were set, for an H100, before the kernels were written.",
        RUN,
        "aim: ours, set beforehand; no paper's.",
        _targets,
    ),
    "gpu layer targets": Text(
        "Aims of layers of networks, kind by kind, that were set beforehand.",
        "Every layer once, as calls pick it: cold L2 cache, medians of interleaved rounds, over "
        "PyTorch in benchmark mode and a copy of as many bytes.",
        "aim: ours, set beforehand; no paper's.",
        _aims,
    ),
}
for _part in (bounds, counters, devices, frontier, gradients, losses, variants):
    TEXTS |= _part.TEXTS
