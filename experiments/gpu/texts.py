"""What the report says of the tables that a GPU measured."""

from __future__ import annotations

import math
from collections.abc import Sequence

from experiments.gpu import bounds, counters, devices, frontier, gradients, losses, variants
from experiments.gpu.rows import Row, cases, stored
from experiments.gpu.targets.tensor import wide
from experiments.harness.tables import Cell
from experiments.measure.cases import DRAWN, GFLOP
from experiments.report.texts import Text
from papers.winrs_2025.grid import grid
from winolab.gpu.families.gamma_ffma.config import PRODUCTS

RUN = (
    "All that a line compares was run in one process, in interleaved rounds, on random data, with "
    "a cold L2 cache and the filter transform counted; effective TFLOPS are direct convolution's "
    "operations over the median time. Φ·SGEMM has the fastest SGEMM of all runs on the GPU: it is "
    "measured once a run, and what else is on the GPU can only slow it down."
)

LARGE = sum(2 * layer.problem.macs > GFLOP * 1e9 for layer in grid())
LEFT_OUT = (
    f"Layers above {GFLOP} GFLOP, {LARGE} of the {len(grid()):,} of the reconstructed grid, are "
    "left out of the sample."
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


def _counted(cells: Sequence[Cell]) -> list[str]:
    judged = [c for c in cells if c.agrees is not None]
    if not judged:
        return [f"{len(cells)} numbers."]
    return [f"{sum(bool(c.agrees) for c in judged)} of {len(judged)} agree.", machine()]


def _targets(cells: Sequence[Cell]) -> list[str]:
    judged = [c for c in cells if c.agrees is not None]
    told = [f"{sum(bool(c.agrees) for c in judged)} of {len(judged)} aims reached."]
    parts: dict[str, list[Cell]] = {}
    for c in judged:
        parts.setdefault(c.where.partition(": ")[0], []).append(c)
    for part, mine in parts.items():
        missed = [c for c in mine if not c.agrees and not math.isnan(c.ours)]
        line = f"{part}: {sum(bool(c.agrees) for c in mine)} of {len(mine)} reached."
        told.append(f"{line} Missed: {'; '.join(map(_missed, missed))}." if missed else line)
    absent = [f"{c.where}, {c.column}" for c in judged if math.isnan(c.ours)]
    told += [f"Not measured: {'; '.join(absent)}."] if absent else []
    return [*told, *wide(cases(stored())), machine()]


def _missed(c: Cell) -> str:
    what = c.where.partition(": ")[2]
    why = c.note.partition("python -m")[0].rstrip("; ")
    told = f"{what}, {c.column}, {c.ours:.3g} where {c.paper:.3g} was the aim"
    return f"{told} ({why})" if why else told


TEXTS = {
    "gpu targets": Text(
        "Aims that were set, for an H100, before the kernels were written.",
        RUN,
        "paper: the aim.",
        _targets,
    ),
    "im2col_winograd_2024 table2": Text(
        "Zhang et al. compare nine kernels with cuDNN's memory-frugal algorithms on an RTX 3060 Ti "
        "and an RTX 4090: the least and the greatest ratio of the shapes in their Figures 8 and 9, "
        "whose lists did not survive.",
        f"Ten shapes a kernel at equal work: those of its Table 3, and in between. {RUN} cuDNN has "
        "TF32 forbidden (FMA) where nothing else is said; the errors of the paper's own cuDNN "
        "column are those of TF32. cuDNN's fused Winograd does not run on Hopper.",
        "paper: RTX 4090 and RTX 3060 Ti, in the columns that name them.",
        _counted,
    ),
    "im2col_winograd_2024 table3_kernels": Text(
        "The mean relative errors of Table 3.",
        "The CUDA kernels on the paper's shapes and U[1,2], with the papers' points, which the "
        "simulation predicts, and the best. The whole batch is computed, as it is planned; images "
        "of 20 GFLOP, spread over it, are held against FP64 on the GPU. At α = 16 the kernels cut "
        f"sums of more than {PRODUCTS} products in pieces, which y adds up; the simulation does "
        "not: with 256 and 512 channels Γ16 errs less than predicted.",
        "prediction: the simulation of the same points.",
        _counted,
    ),
    "im2col_winograd_2024 figure10_kernels": Text(
        "The distribution of Γ16's relative error and of cuDNN's GEMM's.",
        "The same images as above, all their outputs; maxima are those of these images.",
        "ours: mean and maximum.",
        _counted,
    ),
    "winrs_2025 table2_kernels": Text(
        "Workspace of WinRS and of cuDNN 9.8 over the grid.",
        f"A sample of the grid, {DRAWN} layers a filter size, drawn with a stated seed. {LEFT_OUT} "
        "Judged is what conv_backward_filter picks by itself; FP16's data have half the bytes, so "
        "that the paper's MB, of FP32, do not stand beside it. FFMA and split products are the "
        "fastest of any workspace; of cuDNN's algorithms stands what each asks for.",
        "paper and ours: average, minimum, maximum.",
        _counted,
    ),
    "winrs_2025 table3_kernels": Text(
        "Speedups over cuDNN 9.8's GEMM class (algorithms 0, 1 and 3), FFT and non-fused Winograd.",
        f"The sample above. {LEFT_OUT} {RUN} The average is geometric. FFMA and split products are "
        "FP32, each the fastest of any workspace; what is picked keeps to the usual one and is "
        "admissible; in 16 bits stands the fastest of any error beside it. "
        "Transforms allow what device memory does, which reads the data and writes and reads what "
        "they become, each once; products what Tensor Cores at 1980 MHz do.",
        "paper: RTX 4090.",
        _counted,
    ),
    "winrs_2025 table4_kernels": Text(
        "Mean relative errors on U[0,1], minimum and maximum over the grid.",
        f"The sample above. {LEFT_OUT} The whole gradient is held against FP64 of the same rounded "
        "data; in 16 bits dy is scaled by 0.01, as in the paper.",
        "paper: its minimum and maximum; Ω's maxima are judged by this package's own aims, in the "
        "note. ours: over the layers of the sample; cuDNN in FP32 is that without TF32, except "
        "Cu-Algo1, which the paper has in TF32.",
        _counted,
    ),
}
for _part in (bounds, counters, devices, frontier, gradients, losses, variants):
    TEXTS |= _part.TEXTS
