"""What the README says of the kernels: their speed, beside libraries, and the aims' means."""

from __future__ import annotations

import math

from experiments.gpu import devices as gpu_devices
from experiments.gpu import losses as gpu_losses
from experiments.gpu.rows import Row, cases, mean
from experiments.gpu.rows import stored as stored_gpu
from experiments.gpu.targets.table import TARGETS
from experiments.harness.tables import rows_of


def lines() -> list[str]:
    """Markdown, line by line."""
    return [*_kernels(), *_beside(), *_means()]


def _beside() -> list[str]:
    """What is picked beside the fastest library, by list."""
    rows = stored_gpu()
    found = gpu_losses.by_list(gpu_losses.compared(cases(rows)))
    if not found:
        return []
    this, *others = gpu_devices.means(rows).items()
    lines = [
        "",
        "What the calls pick by themselves, in speed over the fastest of all of cuDNN's algorithms "
        "(any workspace and layout) in the same precision, FP32 without TF32, and of PyTorch but "
        "for some of FP32 (the report says how many). It lists every case below 1 with its reason, "
        "and the commits of each GPU's rows:",
        "",
        f"| {this[0]}: arrays, direction, layers | cases | faster in | geometric mean | least |"
        + "".join(f" mean on {gpu} |" for gpu, _ in others),
        "|---|---|---|---|---|" + "---|" * len(others),
    ]
    for key, mine in found.items():
        ratios = [one.ratio for one in mine]
        ahead = sum(value >= 1 for value in ratios)
        worst = f"{ratios[0]:.2f} ({mine[0].case.name})"
        beside = [means.get(key) for _, means in others]
        lines.append(
            f"| {gpu_losses.label(*key)} | {len(mine)} | {ahead} | {mean(ratios):.2f} | {worst} |"
            + "".join(f" {each[0]:.2f} |" if each else " |" for each in beside)
        )
    return lines


def _means() -> list[str]:
    """Geometric means that had an aim, from the targets' table."""
    means = [c for c in TARGETS.cells(rows_of(TARGETS)) if c.column == "geometric mean" and c.paper]
    known = [c for c in means if not math.isnan(c.ours)]
    if not known:
        return []
    lines = [
        "",
        "Ratios of speed, geometric means (the report has every aim with its command):",
        "",
    ]
    lines += ["| ours over theirs | measured | aim |", "|---|---|---|"]
    return [*lines, *(f"| {c.where} | {c.ours:.2f} | {c.paper:.2f} |" for c in known)]


def _kernels() -> list[str]:
    """What the kernels reach beside cuDNN and PyTorch, forward and in FP32, and the ratios."""
    measured = [c for c in cases(stored_gpu()) if (c.direction, c.group) == ("forward", "fp32")]
    chosen = [c for c in measured if c.list in ("dragon", "resnet")]
    if not chosen:
        return []
    row = chosen[0].rows[0]
    lines = [
        f"FP32 on an {row['device']} (driver {row['driver']}, CUDA {row['cuda']}, cuDNN "
        f"{row['cudnn']}), forward, effective TFLOPS with a cold L2 cache and the filter transform "
        "counted, medians of interleaved rounds in one run. cuDNN without TF32: the fastest "
        "implicit GEMM, and the fastest algorithm of any workspace; TF32: the fastest implicit "
        f"GEMM, cuDNN's or PyTorch's. Φ·SGEMM: {chosen[0].sgemm:.1f} TFLOPS, the best SGEMM of all "
        "runs, times the multiplications saved. Split products: the faster of Γ and nested "
        "Winograd (`python -m experiments.measure.throughput`):",
        "",
        "| kernel | output : filter | FFMA | of Φ·SGEMM | split products | cuDNN GEMM | cuDNN any "
        "| TF32 | error FFMA, split, GEMM, TF32 |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for c in chosen:
        rows = (c.ffma, c.split, c.frugal, c.tf32)
        errors = ", ".join(f"{r['relative_rms_u11']:.1e}" if r else "–" for r in rows)
        share = f"{c.ffma['tflops'] / c.limit:.2f}" if c.ffma else ""
        cells = [_tflops(r) for r in (c.split, c.frugal, c.any, c.tf32)]
        first = f"| {c.kernel_of} | {c.name} | {_tflops(c.ffma)} | {share} |"
        lines.append(f"{first} {' | '.join(cells)} | {errors} |")
    return lines


def _tflops(row: Row | None) -> str:
    return f"{row['tflops']:.1f}" if row else ""
