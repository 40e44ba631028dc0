"""Rows as a GPU would leave them, made up, for tests of what is made of rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path

from experiments.gpu.rows import name_of, printed_errors
from experiments.harness.outputs import BINS
from experiments.measure.cases import LISTS, PLAN, cases
from experiments.training.run import FUSED, PLANS
from experiments.training.runs import Run
from experiments.training.tiles import OWN
from winolab.cli.bench import kernel_name

MACHINE = {
    "device": "NVIDIA H100 80GB HBM3", "driver": "1", "cuda": "13.0", "cudnn": "9.19.0",
    "sgemm_tflops": 50.0, "sm_mhz": 1980, "commit": "abc",
}  # fmt: skip
LIBRARY = {
    "backward_filter": (("ALGO_0", True, 20), ("ALGO_1", True, 30), ("ALGO_3", True, 31),
                        ("FFT", False, 40), ("WINOGRAD_NONFUSED", False, 60)),
    "backward_data": (("ALGO_1", True, 30), ("FFT_TILING", False, 70)),
    "forward": (("IMPLICIT_GEMM", True, 10), ("IMPLICIT_PRECOMP_GEMM", True, 30),
                ("FFT_TILING", False, 70)),
}  # fmt: skip


def throughput() -> list[dict]:
    """Every case of the plan, with a few contenders each."""
    assert PLAN
    assert LISTS
    found = []
    for case in cases():
        gradient = case.direction == "backward_filter"
        common = {"list": case.list, "case": case.key, "kernel_of": kernel_name(case.layer),
                  "direction": case.direction, "precision": case.group, **MACHINE}  # fmt: skip
        mare = "mare_u01" if gradient else "mare_u12"
        for method, kernel, products, frugal, speed, error in _who(case, gradient):
            tflops = speed * (1 + case.layer.channels / 4000)
            found.append(
                {
                    **common,
                    "method": method,
                    "kernel": kernel,
                    "products": products,
                    "points": "best",
                    "chosen": method == "winolab" and products != "fp32",
                    "layout": "NHWC",
                    "frugal": frugal,
                    "workspace": None if method == "torch" else int(speed * 1e6),
                    "cold_us": [1.0, 1.1, 1.2],
                    "warm_us": [1.0, 1.1, 1.2],
                    "rounds": 3,
                    "tflops": tflops,
                    "relative_rms_u11": error,
                    mare: error,
                }
            )
    return found


def _who(case, gradient: bool) -> Iterator[tuple]:
    half = case.group != "fp32"
    taps = case.layer.taps
    alpha = 16 if taps > 7 else 8
    mine = (
        f"Ω{alpha}({taps},{alpha + 1 - taps})" if gradient else kernel_name(case.layer) or "Γ1(1,1)"
    )
    unit = 1e-3 if half else 1e-6
    if half:
        yield "winolab", mine, case.group, None, 300, unit
    else:
        yield "winolab", mine, "fp32", None, 100, unit
        yield "winolab", mine, "fp32_split", None, 250, unit / 2
        if taps == 7 and not gradient:
            yield "winolab", "F(4×4,4×4)", "fp32_split", None, 350, unit / 2
    for kernel, frugal, speed in LIBRARY[case.direction]:
        yield "cudnn", kernel, case.group, frugal, speed * (5 if half else 1), unit
    yield "torch", "conv2d", case.group, None, 35 * (5 if half else 1), unit
    if not half:
        yield "torch", "conv2d", "tf32", None, 200, 3e-4


def errors() -> list[dict]:
    """Table 3's shapes with both sets of points."""
    found = []
    for column in printed_errors():
        name = name_of(column["algorithm"])
        for shape, (points, method, products, factor) in product(column["shapes"], (
            ("paper", "winolab", "fp32", 1.0), ("best", "winolab", "fp32", 0.8),
            ("best", "winolab", "fp32_split", 0.5), ("", "cudnn", "fp32", 2.0),
            ("", "cudnn", "tf32 allowed", 60.0),
        )):  # fmt: skip
            index = column["shapes"].index(shape)
            row = {
                "kernel_of": name,
                "shape": "x".join(map(str, shape)) + f":{shape[3]}x3x3",
                "channels": shape[3],
                "data": "u12",
                "points": points,
                "method": method,
                "kernel": name if method == "winolab" else "IMPLICIT_PRECOMP_GEMM",
                "products": products,
                "mare": column["mare"][index] * factor,
                "max_relative": column["mare"][index] * factor * 10,
                **MACHINE,
            }
            if name.startswith("Γ16") and shape[3] in (64, 128):
                row["histogram"] = [int(80 < i < 120) for i in range(len(BINS) - 1)]
            found.append(row)
            found += [
                {**row, "data": data, "relative_rms": 1e-6 * factor} for data in ("relu", "wide")
            ]
    return found


def host() -> list[dict]:
    """A way of calling with its cost, the framework's, and a graph."""
    return [
        {"call": "forward", "arrays": "CuPy", "method": "winolab", "host_us": 18.0, **MACHINE},
        {"call": "conv2d", "arrays": "torch", "method": "torch", "host_us": 16.0, **MACHINE},
        {"call": "in a CUDA graph", "of": "forward", "replayed": True, **MACHINE},
    ]


def sanitizer() -> list[dict]:
    """A tool that reported a kernel, and one that did not."""
    return [
        {"kernel": "gamma direct fp32 0", "tool": tool, "found": found, "exit": 0, **MACHINE}
        for tool, found in (("memcheck", 0), ("racecheck", 3))
    ]


def counters() -> list[dict]:
    """An FFMA plan of two kernels and a split one, at round numbers."""
    found = []
    for products, launch, seconds in (
        ("fp32", "winolab_gamma_ffma_filter", 1e-6), ("fp32", "winolab_gamma_ffma", 1e-3),
        ("fp32_split", "winolab_gamma_wgmma", 4e-4),
    ):  # fmt: skip
        flop = 0 if launch == "winolab_gamma_ffma_filter" else 4e10
        found.append(
            {
                "layer": "128x48x48x128:128x3x3", "direction": "forward", "products": products,
                "kernel": "Γ8(6,3)", "plan": "a plan", "launch": launch, "calls": 1,
                "seconds": seconds, "clock_hz": 2e9, "cycles": 100.0, "cycles_active": 90.0,
                "fma_instructions": flop / 64 + 1, "issue": 80.0, "shared_pipe": 50.0, "l2": 30.0,
                "l2_sectors": 8e7, "dram": 10.0, "dram_read": 1e8, "dram_written": 1e8,
                "shared_wavefronts": 1e6, "bank_conflicts": 0.0, "multiprocessors": 132,
                "registers": 168, "shared_bytes": 220672,
                "stalls": {"selected": 50, "not_selected": 20, "wait": 20, "long_scoreboard": 30},
                **dict.fromkeys(("wgmma_fp16", "wgmma_bf16", "mma_fp16", "mma_bf16"), 0.0),
                **({"wgmma_fp16": 1.2e11} if products == "fp32_split" else {}), **MACHINE,
            }
        )  # fmt: skip
    return found


def fused_counters() -> list[dict]:
    """Those of one launch of the fused kernel."""
    return [
        counters()[1] | {
            "layer": "128x56x56x64:64x3x3", "kernel": "F(2×2,3×3)", "launch": "winolab_fused2d",
            "plan": "64x32x8 sts64 stages=3+2 order=chwn", "bank_conflicts": 1e4,
        }
    ]  # fmt: skip


def fused2d() -> dict[str, list[dict]]:
    """By file: the fused kernel whole and without its loads, its errors, its loop on wgmma."""
    layer = {"layer": "Conv2", "batch": 128, **MACHINE}
    whole = layer | {"left_out": [], "results": "right", "share": 0.8}
    errors = layer | {
        "direction": "forward", "kernel": "F(2×2,3×3)", "products": "fp32", "data": "u12",
        "plan": "64x32x8 channels", "rms": 1e-7, "mare": 1e-7, "predicted_rms": 1e-7,
        "predicted_mare": 1e-7, "simulated_rms": 1e-7, "simulated_mare": 1e-7,
        "equal": True,
    }  # fmt: skip
    loop = {
        "layer": "Conv2 N=32", "precision": "fp16", "transforms": True, "pick": "Γ6(4,3) fp16",
        "pick_tflops": 300.0, "loop_tflops": 240.0, "gain": 0.8, **MACHINE,
    }  # fmt: skip
    return {
        "fused2d_left_out": [whole, whole | {"left_out": ["loads"], "results": "wrong"}],
        "fused2d_errors": [errors],
        "fused2d_wgmma_loop": [loop],
    }


def variants() -> list[dict]:
    """Two of one step, with times predicted in both ways that rows have."""
    common = {"step": "a step", "batch": 128, "output": 48, "channels": 128, "filter": 3,
              "direction": "forward", **MACHINE}  # fmt: skip
    return [
        {**common, "variant": "wide", "prediction": "870 µs by the planner", "tflops": 100.0},
        {**common, "variant": "narrow", "prediction": "", "predicted_us": 435.0, "tflops": 50.0},
        {**common, "variant": "small", "prediction": "", "tflops": 1.0, "batch": None},
    ]


def seeds(apart: Sequence[float] = (0.001, -0.001, 0.002, 0.0, -0.002)) -> list[dict]:
    """PyTorch's runs of plan ``seeds``, and fused Ω's, whose test accuracies are so far apart."""
    found = []
    for run in PLANS["seeds"](["torch"]):
        fused = replace(run, method="winolab", algorithm=OWN, gradients=FUSED)
        for each, less in ((run, 0.0), (fused, apart[run.seed])):
            accuracy = 0.9 + 0.01 * run.seed + less
            found.append(
                trained(each, "seeds") | {"train_accuracy": 1.0, "test_accuracy": accuracy}
            )
    return found


def written(path: Path, rows: Sequence[dict]) -> None:
    """Write rows as a file of them."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def trained(run: Run, plan: str) -> dict:
    """What was measured of a run, at round numbers; ours takes half of the time."""
    ours = run.method == "winolab"
    return {
        **asdict(run), "plan": plan, **MACHINE, "losses": [2.0, 0.5 if ours else 0.6], "every": 10,
        "diverged": None, "memory_mb": 100.0, "step_ms": 10.0 / (1 + ours),
    }  # fmt: skip


def training() -> list[dict]:
    """Runs of the plans that take a GPU."""
    plans = ("fp16", "two")
    both = ["winolab", "torch"]
    return [trained(run, plan) for plan in plans for run in PLANS[plan](both)] + seeds()


def winrs_fused() -> list[dict]:
    """Fused Ω beside what it is compared with, on a layer of each filter; one result overflows."""
    found = []
    kinds = (
        ("fused", "Ω8(3,6)", 200.0, 0.3), ("fused", "Ω16(9,8)", 100.0, 0.4),
        ("fused, FP16 sums", "Ω16(9,8)", 80.0, 0.4), ("fused in 0.18", "Ω8(3,6)", 220.0, 0.1),
        ("two launches", "Ω8(3,6)", 50.0, 2.0), ("picked", "Ω2(1,1)", 40.0, 0.0),
        ("cuDNN", "ALGO_1", 160.0, 0.0), ("cuDNN", "WINOGRAD_NONFUSED", 60.0, 3.0),
        ("PyTorch", "conv2d", 90.0, None),
    )  # fmt: skip
    for taps in (3, 5, 7, 9):
        for kind, kernel, took, share in kinds:
            lost = (taps, kind) == (9, "fused, FP16 sums")
            space = {} if share is None else {"of_data": share}
            found.append(
                {
                    "input": "32x56x56x128", "filter": f"128x{taps}x{taps}x128",
                    "precision": "fp16", "kind": kind, "kernel": kernel, "cold_us": [took] * 3,
                    "workspace": share and share * 1e8, "tflops": 1e4 / took, "run": "1", **space,
                    "mare_u01": "nan" if lost else 1e-3, "relative_rms_u11": 2e-2, **MACHINE,
                }
            )  # fmt: skip
    return found


def winrs_plans() -> list[dict]:
    """Both plans of a small layer and of a large one, in two precisions; one run is repeated."""
    times = {"winrs": 100.0, "omega, picked": 80.0, "direct": 160.0}
    found = []
    for precision, scale, run in (("fp32", 1, "1"), ("fp32", 2, "2"), ("fp16", 1, "1")):
        for x, gflop in (("32x56x56x64", 100), ("256x56x56x64", 800)):
            for kind, took in times.items():
                took = took * (1.5 if kind == "winrs" and gflop > 600 else 1) * scale
                found.append(
                    {
                        "input": x, "filter": "64x3x3x64", "precision": precision, "kind": kind,
                        "cold_us": [took] * 3, "tflops": gflop * 1e3 / took, "of_data": 0.2,
                        "predicted_us": took + 75 * (kind == "omega, picked"),
                        "kernel": "Ω8(3,6) and Ω4(3,2)" if kind == "winrs" else "Ω2(1,1)",
                        "points": "best",
                        "run": run, **MACHINE,
                    }
                )  # fmt: skip
    return found


def winrs_remedies() -> list[dict]:
    """Two lengths of a kernel; without scaling a result is not finite."""
    found = []
    for layer, length, scale in (("64:16:16:1024", 16384, 1), ("64:160:160:64", 1638400, 2)):
        for variant, error in (("all", 1e-3), ("one segment", 0.5), ("no scaling", "nan")):
            lost = error == "nan" and scale == 2
            mare = error * scale if isinstance(error, float) else 0.01
            found.append(
                {
                    "layer": layer, "taps": 3, "accumulation": length, "variant": variant,
                    "kernel": "Ω8(3,6)", "finite": not lost, "mare": "nan" if lost else mare,
                    "run": "1", **MACHINE,
                }
            )  # fmt: skip
    return found


def winrs_recorded() -> list[dict]:
    """Two records of a layer, of which one's dy is not finite, and an older run."""
    found = []
    for run, step, fine in (("1", 60, True), ("2", 60, True), ("2", 0, False)):
        for kind, error in (("fused", 2e-3), ("fused, no scaling", "nan"), ("picked", 1e-3)):
            lost = not fine or error == "nan"
            found.append(
                {
                    "step": step, "name": "layer1.0.conv1", "loss_scale": 65536.0, "kind": kind,
                    "dy_finite": fine, "dw_max": 100.0 if fine else "inf", "finite": not lost,
                    "relative_rms": "nan" if lost else error, "run": run, **MACHINE,
                }
            )  # fmt: skip
    return found
