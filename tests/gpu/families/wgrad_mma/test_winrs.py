"""WinRS's own plan in 16 bits: pair, segments and buckets, errors bounded and as predicted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.gpu import hosted
from tests.gpu.families.wgrad_mma.operands import operands
from tests.gpu.guarded import limits
from winolab.algorithm import Problem, Tile, omega, parse_algorithm, winrs
from winolab.device import DATASHEETS, H100
from winolab.gpu import driver
from winolab.gpu.families.wgrad_mma.plan import WgradMmaPlan, WinrsMmaPlan, plans
from winolab.gpu.planner.accuracy import predicted_rms
from winolab.gpu.planner.planner import plan
from winolab.gpu.planner.request import Request
from winolab.gpu.runtime import loader
from winolab.gpu.runtime.array_layout import ArrayLayout
from winolab.ref.algorithms import convolution
from winolab.ref.algorithms.winrs.plan import plan as planned
from winolab.ref.tolerance.cheapest import U11

NEAR = 1.12  # measured over predicted, both ways
UNIT = {"float32": 0.0, "float16": 2.0**-11, "bfloat16": 2.0**-8}
LAYER = Problem.of((2, 6, 20, 32), (32, 3, 3, 32), padding=1)
CASES = {
    "two kernels, rows cut": (LAYER, "fp16", "float32", 4),
    "dw is no bucket": (LAYER, "fp16", "float16", 2),
    "bfloat16": (LAYER, "bf16", "float32", None),
    "five taps, odd channels": (
        Problem.of((3, 5, 26, 21), (33, 2, 5, 21), padding=(0, 2)), "fp16", "float32", 3,
    ),
    "depths, groups": (
        Problem.of((2, 3, 4, 14, 32), (32, 2, 2, 3, 16), padding=1, groups=2), "fp16", "float16", 6,
    ),
}  # fmt: skip


def made(p: Problem, precision: str, dtype: str, segments: int | None, device=H100) -> WinrsMmaPlan:
    named = winrs(segments=segments)
    request = Request(p, "backward_filter", device, named, precision, out_dtype=dtype)
    (found,) = plans(request)
    assert isinstance(found, WinrsMmaPlan)
    return found


def alone(p: Problem, precision: str, tile: Tile) -> WgradMmaPlan:
    """One kernel's plan of all of dy."""
    named = omega(tile.alpha, tile.n, tile.r, variant="fused")
    request = Request(p, "backward_filter", H100, named, precision, out_dtype="float32")
    found = next(iter(plans(request)))
    assert isinstance(found, WgradMmaPlan)
    return found


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_errors_are_below_the_bound_and_within_12_percent_of_the_prediction(case) -> None:
    p, precision, dtype, _ = case
    found = made(*case)
    x, dy = operands(p, precision)
    exact = convolution.backward_filter(x.astype(float), dy.astype(float), p)
    error = np.abs(hosted.execute(found, x, dy, dtype=dtype, seed=3).astype(float) - exact)
    # Each kernel's as if it summed all of dy, which bounds what it has of it.
    each = (limits(alone(p, precision, k.tile))[0] for k in found.parts)
    proven = sum(each)
    assert (error <= proven * (1 + UNIT[dtype]) + UNIT[dtype] * np.abs(exact)).all()
    rms = ((error**2).mean() / (exact**2).mean()) ** 0.5
    assert predicted_rms(found, U11) / NEAR <= rms <= NEAR * predicted_rms(found, U11)


@pytest.mark.parametrize("taps", [3, 5, 7, 9])
def test_a_column_that_no_kernel_ends_is_masked(taps) -> None:
    """The paper's kernels in FP16 have even r; of 21 columns the last one stands in a unit of 2."""
    p = Problem.of((2, 5, 21, 18), (17, 1, taps, 18), padding=(0, taps // 2))
    found = made(p, "fp16", "float32", 1)
    assert sum(k.pitch for k in found.parts) > 21
    x, dy = operands(p, "fp16")
    exact = convolution.backward_filter(x.astype(float), dy.astype(float), p)
    error = hosted.execute(found, x, dy, seed=3).astype(float) - exact
    rms = ((error**2).mean() / (exact**2).mean()) ** 0.5
    assert predicted_rms(found, U11) / 1.5 <= rms <= 1.5 * predicted_rms(found, U11)


@pytest.mark.parametrize("name", ["h100", "rtx4090", "a100"])
@pytest.mark.parametrize("taps", [3, 5, 7])
def test_what_is_launched_is_what_the_paper_s_planner_says(name, taps) -> None:
    p = Problem.of((32, 28, 28, 128), (128, taps, taps, 128), padding=taps // 2)
    wanted, found = planned(p, name, "fp16"), made(p, "fp16", "float32", None, DATASHEETS[name])
    assert [k.tile for k in found.parts] == [k.tile for k in wanted.pair.kernels]
    assert (found.segments, found.workspace) == (len(wanted.segments), wanted.workspace)
    assert made(p, "fp16", "float16", None, DATASHEETS[name]).workspace == (
        wanted.workspace + 4 * found.parts[0].gradient.weights if len(wanted.segments) > 1 else 0
    )
    assert "by WinRS's planner" in str(found)
    assert found.source().count("namespace") == 2 * len(found.parts)


def test_the_planner_runs_it_where_it_is_named() -> None:
    """Limits, the shortest tiles, and what is refused; unnamed it is nobody's pick."""
    p = Problem.of((32, 56, 56, 64), (64, 3, 3, 64), padding=1)
    asked = Request(p, "backward_filter", H100, winrs(), "fp16")
    assert isinstance(plan(asked), WinrsMmaPlan)
    assert plan(replace(asked, workspace_limit=0)).workspace == 0
    assert not isinstance(plan(replace(asked, algorithm=None)), WinrsMmaPlan)
    nine = Problem.of((2, 5, 3, 8), (8, 1, 9, 8), padding=(0, 4))
    assert made(nine, "fp16", "float32", 1).parts[-1].tile == Tile(3, 2)
    for text, message in (
        ("winrs;device=rtx4090", "name the algorithm without a device"),
        ("winrs;scaling=l1", "winrs without options"),
    ):
        with pytest.raises(ValueError, match=message):
            plan(replace(asked, algorithm=parse_algorithm(text)))
    for taps, message in ((1, "is direct products: name direct"), (4, "computes a filter 4 wide")):
        other = Problem.of((2, 9, 12, 8), (8, 3, taps, 8))
        with pytest.raises(ValueError, match=message):
            plan(replace(asked, problem=other))


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_on_the_device(case) -> None:
    """What NVIDIA's compiler makes errs as predicted, from poisoned memory."""
    p, precision, dtype, segments = case
    found, cp = made(p, precision, dtype, segments, driver.device(0)), driver.cupy()
    x, dy = operands(p, precision)
    exact = convolution.backward_filter(x.astype(float), dy.astype(float), p)
    kernels = loader.load(found.source(), str(found.config), found.shared(), 0)
    dw = cp.asarray(np.full(p.w_shape, np.nan, "float32")).astype(
        "float32" if dtype == "float32" else "float16"
    )
    buckets = cp.full(max(1, found.workspace // 4), cp.nan, "float32")
    of_x, of_dy = (cp.asarray(a.view("uint16")) for a in (x, dy))
    views = [ArrayLayout.fresh(a.shape).view(a.data.ptr, filter=a is dw) for a in (of_x, of_dy, dw)]
    a, b, out = views
    found.launch(kernels, a, b, out, buckets.data.ptr, 0)
    error = cp.asnumpy(dw).astype(float) - exact
    rms = ((error**2).mean() / (exact**2).mean()) ** 0.5
    assert predicted_rms(found, U11) / NEAR <= rms <= NEAR * predicted_rms(found, U11)
