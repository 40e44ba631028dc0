"""What ncu, NVIDIA's profiler, is asked for, and its table as rows."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import Any

TENSOR = "sm__ops_path_tensor_op_"
# What a row calls it -> ncu's name. Rates are percent of what the unit can sustain while the kernel
# runs; tensor operations count a multiplication and an addition as two.
METRICS = {
    "seconds": "gpu__time_duration.sum",
    "clock_hz": "sm__cycles_elapsed.avg.per_second",
    "cycles": "sm__cycles_elapsed.max",
    "cycles_active": "sm__cycles_active.avg",
    "fma_instructions": "smsp__inst_executed_pipe_fma.sum",
    "ffma_per_cycle": "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum.per_cycle_elapsed",
    "wgmma_fp16": TENSOR + "hgmma_src_fp16_sparsity_off.sum",
    "wgmma_bf16": TENSOR + "hgmma_src_bf16_dst_fp32_sparsity_off.sum",
    "mma_fp16": TENSOR + "hmma_src_fp16_dst_fp32_sparsity_off.sum",
    "mma_bf16": TENSOR + "hmma_src_bf16_dst_fp32_sparsity_off.sum",
    "issue": "sm__inst_issued.avg.pct_of_peak_sustained_elapsed",
    "shared_pipe": "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed",
    "shared_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "bank_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "l2": "lts__t_sectors.avg.pct_of_peak_sustained_elapsed",
    "l2_sectors": "lts__t_sectors.sum",
    "dram": "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "dram_read": "dram__bytes_read.sum",
    "dram_written": "dram__bytes_write.sum",
    "warps_active": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "multiprocessors": "launch__sm_count",
    "registers": "launch__registers_per_thread",
    "shared_bytes": "launch__shared_mem_per_block_allocated",
}
SCALES = {"seconds": 1e-9}  # of ncu's base unit
# The profiler samples every warp and says what it waits for: "selected" issues an instruction.
STALLS = (
    "selected", "not_selected", "barrier", "branch_resolving", "dispatch_stall", "drain",
    "imc_miss", "lg_throttle", "long_scoreboard", "math_pipe_throttle", "membar", "mio_throttle",
    "misc", "no_instructions", "short_scoreboard", "sleeping", "tex_throttle", "wait",
    "warpgroup_arrive",
)  # fmt: skip
STALL = "smsp__pcsamp_warps_issue_stalled_"
NAMES = (*METRICS.values(), *(STALL + reason for reason in STALLS))


def read(text: str) -> Iterator[dict[str, Any]]:
    """Rows of ncu's raw CSV; its first line after the names has units."""
    table = list(csv.reader(line for line in text.splitlines() if line.startswith('"')))
    if len(table) < 3:
        raise RuntimeError(f"ncu gave no table: {text[-500:]}")
    names = table[0]
    for line in table[2:]:
        values = dict(zip(names, line, strict=True))
        found = {
            short: number(values.get(name, "")) for short, name in METRICS.items()
        }  # counters that the device lacks stay None
        stalls = {reason: number(values.get(STALL + reason, "")) for reason in STALLS}
        yield {
            "kernel_name": values["Kernel Name"],
            **{k: v * SCALES.get(k, 1) if v is not None else None for k, v in found.items()},
            "stalls": {reason: int(count) for reason, count in stalls.items() if count},
        }


def number(text: str) -> float | None:
    """A number as ncu prints it, None of anything else."""
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None
