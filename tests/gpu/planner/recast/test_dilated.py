"""Dilated correlations in phases: results on the CPU against FP64, what is shared, and where the
planner takes them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import winolab
from tests.gpu import hosted
from tests.gpu.families.depthwise.cases import on_gpu, operands
from tests.gpu.planner.recast.choices import LONG, of_kernel
from tests.gpu.support.pretended import Array
from winolab.algorithm import Direct, Problem
from winolab.device import H100, datasheet
from winolab.gpu.planner.planner import candidates, plan
from winolab.gpu.planner.recast.dilated import PhasedPlan, phased
from winolab.gpu.planner.request import Request
from winolab.gpu.runtime import planned as runtime
from winolab.gpu.runtime.array_layout import dense
from winolab.gpu.runtime.cache import plans as kept
from winolab.gpu.runtime.planned import request_of
from winolab.gpu.runtime.resolve import resolve
from winolab.options import ConvOptions
from winolab.problem import shapes
from winolab.ref.algorithms import convolution
from winolab.ref.error.bounds import bound

DIRECTIONS = ("forward", "backward_data")
# Phases of other sizes and paddings, one-sided ones, groups, one to three dimensions, some of
# which are not dilated.
PROBLEMS = {
    "2": Problem.of((2, 13, 11, 16), (24, 3, 3, 16), padding=2, dilation=2),
    "2, 3": Problem.of((1, 17, 14, 8), (16, 3, 3, 8), padding=((3, 1), (2, 4)), dilation=(2, 3)),
    "groups": Problem.of((2, 12, 9, 16), (16, 3, 3, 8), padding=2, dilation=2, groups=2),
    "causal": Problem.of((2, 40, 16), (16, 3, 16), padding=((6, 0),), dilation=3),
    "depths": Problem.of((1, 6, 9, 8, 16), (8, 2, 3, 3, 16), padding=(1, 2, 1), dilation=(1, 2, 1)),
}
DEEPLAB = Problem.of((32, 65, 65, 512), (512, 3, 3, 512), padding=2, dilation=2)


def planned(name: str, direction: str, precision: str, kernel: str = "") -> PhasedPlan:
    asked = Request(PROBLEMS[name], direction, H100, None, precision)
    (found,) = phased(asked, LONG, of_kernel(kernel))
    return found


def part(v: np.ndarray, places: tuple[tuple[int, int], ...], sizes: tuple[int, ...]) -> np.ndarray:
    """The elements of a view of channels-last arrays."""
    along = zip(places[3 - len(sizes) :], sizes, strict=True)
    return v[:, *(slice(first, first + step * n, step) for (first, step), n in along)]


def too_far(p: PhasedPlan, a: np.ndarray, b: np.ndarray, y: np.ndarray) -> float:
    """The largest error over its phase's proven bound, NaN being infinite; of all outputs."""
    exact = getattr(convolution, p.direction)(a.astype(float), b.astype(float), p.problem)
    worst, count = 0.0, 0
    for phase in p.phases:
        q: Any = phase.plan.primary
        sizes = [q.problem.input, q.problem.output]
        ends = sizes if p.direction == "forward" else sizes[::-1]
        first, *results = (
            part(v, places, size)
            for v, places, size in zip(
                (a, y, exact), (phase.a, phase.out, phase.out), (ends[0], ends[1], ends[1]),
                strict=True,
            )
        )  # fmt: skip
        algorithm = getattr(q, "algorithm", Direct())
        limit = bound(
            first.astype(float), b.astype(float), q.problem, algorithm, q.simulated,
            direction=p.direction,
        )  # fmt: skip
        if p.out_dtype == "float16":
            limit = limit + 2.0**-11 * (np.abs(results[1]) + limit) + 2.0**-25
        off = np.abs(results[0].astype(float) - results[1])
        worst = max(worst, float(np.where(off <= limit, 0.0, np.inf).max()))
        count += results[0].size
    assert count == y.size
    return worst


CASES = [
    ("2", "fp32", ""), ("2, 3", "fp32", ""), ("groups", "fp32", ""), ("causal", "fp32", ""),
    ("depths", "fp32", ""), ("2", "fp32_split", "F("), ("2", "fp32_split", "Γ"),
    ("2, 3", "fp32_split", "Γ1(1,1)"), ("2", "fp16", ""), ("depths", "fp16", ""),
]  # fmt: skip


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(("name", "precision", "kernel"), CASES)
def test_results_are_those_of_fp64(name, precision, kernel, direction) -> None:
    p = planned(name, direction, precision, kernel)
    assert len(p.phases) == np.prod(p.problem.dilation)
    a, b = operands(p.problem, direction, precision)
    assert too_far(p, a, b, hosted.execute(p, a, b, dtype=p.out_dtype)) == 0


@pytest.mark.gpu
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(("name", "precision", "kernel"), CASES)
def test_results_on_a_gpu_are_those_of_fp64(name, precision, kernel, direction) -> None:
    p = planned(name, direction, precision, kernel)
    a, b = operands(p.problem, direction, precision)
    assert too_far(p, a, b, on_gpu(p, a, b)) == 0


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("kernel", ["F(", "Γ6(4,3)"])
def test_all_phases_have_one_transformed_filter(direction, kernel) -> None:
    """The filter that any phase's plan makes is that of all, and a call has the bits of a call with
    it."""
    p = planned("2", direction, "fp32_split", kernel)
    a, b = operands(p.problem, direction, "fp32")
    first, *others = (hosted.prepared(phase.plan, b) for phase in p.phases)
    assert first.size * 4 == p.prepared_size > 0
    assert all((first == other).all() for other in others)
    assert p.workspace >= p.beside + p.prepared_size
    y = hosted.execute(p, a, b)
    again = hosted.Guarded(y.shape, "float32")
    beside = hosted.Guarded((p.beside,), "uint8")
    places = (v.ctypes.data for v in (first, beside.array))
    filters, workspace = places
    p.run(
        hosted.loaded(p), hosted.pixels_view(a), filters, hosted.pixels_view(again.array),
        workspace, 0,
    )  # fmt: skip
    beside.check("workspace")
    again.check("result")
    assert (again.array == y).all()


def test_what_split_products_lose_a_phase_computes_again() -> None:
    """Magnitudes may be too far apart in one phase alone."""
    p = planned("2", "forward", "fp32_split", "F(")
    a, b = operands(p.problem, "forward", "fp32")
    a[:, ::2, ::2, 1:] *= np.float32(2.0**-34)
    b[..., 0] = 0
    y = hosted.execute(p, a, b)
    exact = convolution.forward(a.astype(float), b.astype(float), p.problem)
    assert np.abs(y - exact)[:, ::2, ::2].max() <= 1e-5 * np.abs(exact[:, ::2, ::2]).max()
    assert np.abs(y - exact).max() <= 1e-5 * np.abs(exact).max()


@pytest.mark.parametrize("device", ["h100", "h200"])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_the_planner_takes_them_where_transforms_pay(direction, device) -> None:
    """DeepLab-v3's layers of 32 images in FP32; not one image, 16 bits, a named algorithm, strides,
    nor where a call waits for flags."""
    request = Request(DEEPLAB, direction, datasheet(device))
    found = plan(request)
    assert isinstance(found, PhasedPlan)
    assert "in 4 phases" in found.kernel
    assert "4 phases without dilation" in str(found)
    assert found.predicted < 0.7 * plan(replace(request, in_phases=False)).predicted
    assert found.workspace < request.data_size
    assert kept._unpacked(kept.packed(found)) == found
    raising = ConvOptions(on_range="raise")
    a, b = (dense(shape, "float32") for shape in shapes(direction, DEEPLAB)[:2])
    asked = resolve(direction, DEEPLAB, raising, a, b, None, meant=request.device)
    waits = request_of(asked, aligned=True)
    for other in (
        replace(request, problem=replace(DEEPLAB, batch=1)),
        replace(request, precision="fp16"),
        replace(request, algorithm=Direct()),
        replace(request, problem=replace(DEEPLAB, stride=(2, 2))),
        replace(request, workspace_limit=64 << 20),
        waits,
    ):
        assert not isinstance(plan(other), PhasedPlan)
    assert plan(replace(request, workspace_limit=64 << 20)).workspace <= 64 << 20


def test_phases_that_meet_padding_alone_leave_it_to_others() -> None:
    """Every other output of a map that is narrower than a dilation, and inputs that none reads."""
    alone = Problem.of((1, 1, 9, 8), (8, 1, 3, 8), padding=((2, 2), (2, 2)), dilation=2)
    cut = ((-2, -2), (-2, -2))
    unread = replace(Problem.of((1, 9, 9, 8), (8, 3, 3, 8), dilation=2), padding=cut)
    assert not list(phased(Request(alone, "forward", H100), LONG, candidates))
    assert not list(phased(Request(unread, "backward_data", H100), LONG, candidates))


@pytest.mark.parametrize("precision", ["fp32", "fp32_split"])
def test_whole_calls_are_those_of_the_reference(library, precision, monkeypatch) -> None:
    """Bias and activation in a pass behind; and with the filter transformed apart."""
    p = planned("2", "forward", precision, "F(")
    monkeypatch.setattr(runtime, "planned", lambda request, apart=False: p)
    x, w = operands(p.problem, "forward", "fp32")
    bias = np.linspace(-1, 1, p.problem.out_channels, dtype="float32")
    how: dict[str, Any] = {"padding": 2, "dilation": 2}
    y = hosted.execute(p, x, w)
    got = winolab.conv_forward(Array(x), Array(w), precision=precision, **how)
    assert (got.values == y).all()
    more = {"bias": Array(bias), "activation": "relu"}
    got = winolab.conv_forward(Array(x), Array(w), precision=precision, **how, **more)
    assert (got.values == np.maximum(y + bias, 0)).all()
    if not p.prepared_size:
        return  # blocks transform the filter themselves
    kept_filter = winolab.prepare_filter(Array(w), x.shape, precision=precision, **how)
    got = winolab.conv_forward(Array(x), kept_filter, precision=precision, **how)
    assert (got.values == y).all()
    if p.checks_accuracy:
        with pytest.raises(ValueError, match="in 4 phases, computes again what products lose"):
            winolab.conv_forward(
                Array(x), kept_filter, precision=precision, on_range="raise", **how
            )


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_filters_that_tensor_maps_cannot_read_are_copied(library, monkeypatch, direction) -> None:
    """Those of PyTorch's memory order: phases had not said that their kernels read w in place."""
    p = planned("2", direction, "fp16", "Γ1(1,1)")
    assert p.reads_filters_in_place
    monkeypatch.setattr(runtime, "planned", lambda request, apart=False: p)
    a, b = operands(p.problem, direction, "fp16")
    w = np.moveaxis(np.moveaxis(b, -1, 1).copy(), 1, -1)
    shape = () if direction == "forward" else (p.problem.x_shape,)
    call = getattr(winolab, f"conv_{direction}")
    y = call(Array(a), Array(w), *shape, padding=2, dilation=2)
    assert too_far(p, a, b, y.values) == 0
