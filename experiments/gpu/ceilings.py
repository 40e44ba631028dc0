"""What the transforms and the products of filter gradients on Tensor Cores allow at most."""

from __future__ import annotations

import math

from experiments.gpu.rows import Measured, Row, kernel
from winolab.device import datasheet

PARTS = {"fp32_split": 2}  # 16-bit numbers that stand for one
PRODUCTS = {"fp32_split": 3}  # of parts, for one


def transform_bound(c: Measured, row: Row) -> float:
    """Effective TFLOPS at which device memory holds a plan that transforms apart: x and dy are read
    once, and what their units become is written and read once.

    A unit is r gradients of a row and the window of x for n taps; wider filters have one window for
    every n taps.
    """
    alpha, n, r = kernel(row["kernel"])
    problem = c.layer.problem
    units = -(-problem.output[-1] // r)
    pieces = -(-c.layer.taps // n)
    part = 2 * PARTS.get(row["products"], 1)
    states = part * problem.batch * units * alpha
    x = states * problem.input[0] * problem.in_channels * pieces
    dy = states * problem.output[0] * problem.out_channels
    item = 4 if c.group == "fp32" else 2
    data = item * (math.prod(problem.x_shape) + math.prod(problem.y_shape))
    return 2 * problem.macs / ((data + 2 * (x + dy)) / c.device.bandwidth) / 1e12


def product_bound(row: Row) -> float:
    """Effective TFLOPS at which the Tensor Cores do nothing but the products."""
    alpha, n, r = kernel(row["kernel"])
    peak = datasheet(row["device"]).fp16_peak
    return peak * n * r / alpha / PRODUCTS.get(row["products"], 1) / 1e12
