"""What kernels store where a result of another type than the operands' is wanted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import winolab
from tests.gpu.support.pretended import Array
from winolab.algorithm import Problem, direct, parse_algorithm
from winolab.bench.layers import parse_layer
from winolab.device import H100, datasheet
from winolab.gpu.planner.accuracy import predicted_rms
from winolab.gpu.planner.planner import candidates, plan
from winolab.gpu.planner.request import Request
from winolab.gpu.runtime.dtypes import PRECISION_OF
from winolab.ref.algorithms import convolution
from winolab.ref.error.metrics import ADMISSIBLE

SHAPE, FILTER = (1, 4, 8, 64), (64, 3, 3, 64)
ROUNDED = {"float16": 2.0**-11, "bfloat16": 2.0**-8}  # half a unit, relative


@pytest.mark.parametrize("wanted", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_other_types_are_converted_from_float32(dtype, wanted) -> None:
    problem = Problem.of(SHAPE, FILTER, padding=1)
    request = Request(problem, "forward", H100, None, PRECISION_OF[dtype], out_dtype=wanted)
    assert request.stored == (dtype if dtype == wanted else "float32")


@pytest.mark.parametrize("algorithm", ["direct", "gamma:4:2:3"])
def test_bfloat16_holds_what_float16_does_not(library, algorithm) -> None:
    x, w = (np.full(shape, 40, "float16") for shape in (SHAPE, FILTER))
    exact = convolution.forward(x.astype(float), w.astype(float), Problem.of(SHAPE, FILTER))
    got = winolab.conv_forward(
        Array(x), Array(w), algorithm=algorithm, out_dtype="bfloat16"
    ).values.astype(float)
    # 576 equal products: transformed numbers are exact but for G's, a unit of FP16 at most
    most = ROUNDED["bfloat16"] + (algorithm != "direct") * 2 * ROUNDED["float16"]
    assert (np.abs(got - exact) <= most * exact).all()


def test_float16_is_not_rounded_to_bfloat16_first(library) -> None:
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape).astype("bfloat16") for shape in (SHAPE, FILTER))
    exact = convolution.forward(x.astype(float), w.astype(float), Problem.of(SHAPE, FILTER))
    got = winolab.conv_forward(Array(x), Array(w), algorithm="direct", out_dtype="float16").values
    # one rounding to FP16, and FP32's sums of 576 products in any order
    size = convolution.forward(
        abs(x.astype(float)), abs(w.astype(float)), Problem.of(SHAPE, FILTER)
    )
    sums = 576 * 2.0**-23 * size
    assert (np.abs(got.astype(float) - exact) <= ROUNDED["float16"] * np.abs(exact) + sums).all()


@pytest.mark.parametrize("gpu", ["h100", "a100"])
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("wanted", [None, "float32"])
@pytest.mark.parametrize("layer", ["32x56x56x64:64x3x3", "128x24x24x256:256x3x3"])
def test_what_is_picked_errs_at_most_ten_times_what_direct_does(
    layer, wanted, precision, gpu
) -> None:
    """Also where a result in FP32 shows what transforms lose. (8.x has no other kernels than Γ.)"""
    problem, device = parse_layer(layer).problem, datasheet(gpu)
    for direction in ("forward", "backward_data", "backward_filter"):
        if gpu != "h100" and direction != "backward_filter":
            continue
        request = Request(problem, direction, device, None, precision, out_dtype=wanted)
        plain = plan(replace(request, algorithm=direct()))
        assert predicted_rms(plan(request)) <= ADMISSIBLE * predicted_rms(plain)


def test_transforms_are_taken_where_they_are_asked_for() -> None:
    problem = parse_layer("128x24x24x256:256x3x3").problem
    request = Request(problem, "forward", H100, None, "fp16")
    assert plan(request).kernel.startswith("Γ")
    wide = replace(request, out_dtype="float32")
    assert plan(wide).kernel == plan(replace(wide, algorithm=direct())).kernel
    assert "FP32 results show" in candidates(wide).why
    assert plan(replace(wide, algorithm=parse_algorithm("gamma:6:4:3"))).kernel == "Γ6(4,3)"
    assert plan(wide, apart=True).kernel.startswith("Γ")
