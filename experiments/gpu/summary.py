"""What README and docs/results.md say of the kernels: their speed beside libraries', aims."""

from __future__ import annotations

import math
from collections.abc import Iterator

from experiments.gpu import losses as gpu_losses
from experiments.gpu import samples as gpu_samples
from experiments.gpu.rows import Row, cases, devices
from experiments.gpu.rows import stored as stored_gpu
from experiments.gpu.targets import checked, layers
from experiments.gpu.targets.table import TARGETS
from experiments.harness.tables import rows_of
from experiments.networks import aims, told, waiting
from experiments.training import told as training

RERUN = "Run again by `python -m experiments.measure.throughput` on a GPU."


def readme_rows() -> Iterator[tuple[str, str, str]]:
    """A row of the README a precision: its name, the means by direction, how many are faster."""
    every = gpu_losses.compared(cases(stored_gpu()))
    for group in ("fp32", "fp16", "bf16"):
        mine = [one for one in every if one.case.group == group]
        if not mine:
            continue
        means = {
            name: gpu_losses.means_of([one for one in mine if one.case.direction == way], why=True)
            for way, name in gpu_losses.WAYS.items()
        }
        ahead = sum(one.ratio >= 1 for one in mine)
        if group == "fp32":
            told = (
                "speed over cuDNN's and PyTorch's best without TF32, papers' and ResNet's layers: "
            )
            told += ", ".join(f"{name} {value}" for name, value in means.items())
        else:
            told = "the same: " + ", ".join(means.values())
        yield (
            f"{group.upper()}, {mine[0].case.rows[0]['device'].split()[1]}",
            told,
            f"{ahead}/{len(mine)} cases faster; least {mine[0].ratio:.2f}",
        )


def sections() -> Iterator[tuple[str, list[str]]]:
    """Titles and Markdown, line by line, of docs/results.md."""
    for title, lines in (
        ("FP32 kernels, forward", _kernels()),
        ("What calls pick, beside the fastest library", _beside()),
        ("Layers of networks", gpu_samples.networks()),
        ("Layers of networks below the least", gpu_samples.reasons()),
        ("Aims by kind of layer", layers.told(rows_of(layers.LAYERS))),
        ("Whole networks", [*gpu_samples.whole(), *aims.lines()]),
        ("Memory and deviations of whole networks", told.networks()),
        ("Training", training.lines()),
        ("First calls", waiting.first_calls()),
        ("Kernels of networks", waiting.kernels()),
        ("Random problems on GPUs", checked.problems()),
        ("Aims of our own", _means()),
    ):
        if lines:
            yield title, lines


def _beside() -> list[str]:
    """What is picked beside the fastest library, by list."""
    rows = stored_gpu()
    every = gpu_losses.compared(cases(rows))
    found = gpu_losses.by_list(every)
    if not found:
        return []
    this, *others = [
        (gpu, {key: gpu_losses.means_of(mine) for key, mine in gpu_losses.by_list(each).items()})
        for gpu in devices(rows)
        for each in [gpu_losses.compared(cases(rows, gpu))]
    ]
    lines = [
        "Speed of what a call picks, over the fastest of all of cuDNN's algorithms and of PyTorch "
        "in the same precision, with any workspace and memory order, FP32 without TF32; a cold L2 "
        "cache, medians of interleaved rounds. PyTorch was not measured in some cases of FP32. "
        f"{gpu_losses.left_out(every)} The report lists every case below 1 with its reason. "
        f"{RERUN}",
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
            f"| {gpu_losses.label(*key)} | {len(mine)} | {ahead} | {this[1][key]} | {worst} |"
            + "".join(f" {each} |" if each else " |" for each in beside)
        )
    return lines


def _means() -> list[str]:
    """Geometric means that had an aim, from the targets' table."""
    means = [c for c in TARGETS.cells(rows_of(TARGETS)) if c.column == "geometric mean" and c.aim]
    known = [c for c in means if not math.isnan(c.ours)]
    if not known:
        return []
    lines = [
        "Ratios of speed, geometric means, wrong results of libraries left out as above; the "
        "report has every aim with its command.",
        "",
    ]
    lines += ["| ours over theirs | measured | aim |", "|---|---|---|"]
    return [*lines, *(f"| {c.where} | {c.ours:.2f} | {c.aim:.2f} |" for c in known)]


def _kernels() -> list[str]:
    """What the kernels reach beside cuDNN and PyTorch, forward and in FP32, and the ratios."""
    measured = [c for c in cases(stored_gpu()) if (c.direction, c.group) == ("forward", "fp32")]
    chosen = [c for c in measured if c.list in ("dragon", "resnet")]
    if not chosen:
        return []
    row = chosen[0].rows[0]
    lines = [
        f"Effective TFLOPS (direct convolution's operations over the time) on an {row['device']}, "
        f"driver {row['driver']}, CUDA {row['cuda']}, cuDNN {row['cudnn']}: a cold L2 cache, the "
        f"filter's transform counted, medians of interleaved rounds in one run. {RERUN}",
        "",
        "- FFMA: Γ on FMA units; of Φ·SGEMM: its share of "
        f"{chosen[0].sgemm:.1f} TFLOPS, the best SGEMM of all runs, times the multiplications "
        "saved.",
        "- Split products: FP32 results from FP16 parts on Tensor Cores, the faster of Γ and "
        "nested Winograd.",
        "- cuDNN without TF32: its fastest implicit GEMM, and its fastest algorithm of any "
        "workspace. TF32: the fastest implicit GEMM of cuDNN and PyTorch.",
        "- Errors are relative RMS on U[−1, 1].",
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
