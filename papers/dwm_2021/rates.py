"""How fast the reference runs DWM beside direct convolution, for the paper's single layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from experiments.harness.facts import facts
from winolab.algorithm import Problem, direct, dwm
from winolab.ref.algorithms import winograd
from winolab.ref.algorithms.dwm import decompose
from winolab.ref.arithmetic.simulated import arithmetic

Row = dict[str, Any]
FILTERS = 16  # of the layer's: the rate hardly depends on them, the time does
KERNELS = (3, 5, 7, 9)


def rates(measure: Callable[..., dict[str, float]], rounds: int) -> list[Row]:
    """Multiply-adds of direct convolution a second, simulated FP32 and FP64, interleaved."""
    rows = []
    for setting in facts("dwm_2021")["settings"]["rows"]:
        for kernel in KERNELS:
            size, channels = setting["spatial"], setting["channels"]
            problem = Problem.of(
                (1, size, size, channels),
                (FILTERS, kernel, kernel, channels),
                padding=kernel // 2,
            )
            rng = np.random.default_rng(0)
            x, w = (
                rng.standard_normal(s).astype(np.float32)
                for s in (problem.x_shape, problem.w_shape)
            )
            for precision in ("fp32", "fp64"):
                run = arithmetic(precision)
                seconds = measure(
                    rounds,
                    dwm=lambda x=x, w=w, p=problem, r=run: decompose.forward(x, w, p, dwm(), r),
                    direct=lambda x=x, w=w, p=problem, r=run: winograd.forward(
                        x, w, p, direct(), r
                    ),
                )
                where = f"{kernel}×{kernel}, {size}×{size}×{channels}, {precision}"
                for name, taken in seconds.items():
                    rate = problem.macs / taken / 1e6
                    rows.append(_row(f"{name}, {where}", rate, "1e6 multiply-adds/s"))
                ratio = seconds["direct"] / seconds["dwm"]
                rows.append(_row(f"dwm over direct, {where}", ratio, "ratio"))
    return rows


def _row(what: str, value: float, unit: str) -> Row:
    return {"what": what, "value": value, "unit": unit, "target": None, "met": None}
