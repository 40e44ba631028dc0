"""Rows as a GPU would leave them, made up, for tests of what is made of rows."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from experiments.facts import table
from experiments.gpu_tables import IM2COL, name_of
from experiments.outputs import BINS
from experiments.throughput_cases import LISTS, PLAN, cases
from winolab.bench import kernel_name

MACHINE = {
    "device": "a GPU", "driver": "1", "cuda": "13.0", "cudnn": "9.19.0", "sgemm_tflops": 50.0,
    "sm_mhz": 1980, "commit": "abc",
}  # fmt: skip
GRADIENT_KERNELS = {2: "Ω8(7,2)", 3: "Ω8(6,3)"}
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
    ours = GRADIENT_KERNELS.get(taps, f"Ω8({9 - taps},{taps})") if gradient else None
    mine = ours or kernel_name(case.layer)
    unit = 1e-3 if half else 1e-6
    if half:
        yield "winolab", mine, case.group, None, 300, unit
    else:
        yield "winolab", mine, "fp32", None, 100, unit
        yield "winolab", mine, "fp32_split", None, 250, unit / 2
    for kernel, frugal, speed in LIBRARY[case.direction]:
        yield "cudnn", kernel, case.group, frugal, speed * (5 if half else 1), unit
    yield "torch", "conv2d", case.group, None, 35 * (5 if half else 1), unit
    if not half:
        yield "torch", "conv2d", "tf32", None, 200, 3e-4


def errors() -> list[dict]:
    """Table 3's shapes with both sets of points."""
    found = []
    for column in table(IM2COL, 3)["columns"]:
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
    return found
