"""DWM on a GPU: its pieces' plans, and whole calls on arrays that say they are on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import winolab
from tests.gpu.support.pretended import Array
from winolab.algorithm import dwm, parse_algorithm
from winolab.device import H100
from winolab.gpu.planner.recast.pieces import planned
from winolab.gpu.planner.request import Request
from winolab.problem import Problem

FFMA: dict[str, Any] = {"precision": "fp32_ffma"}


def request(x: tuple[int, ...], taps: int, stride: int, direction: str, precision: str) -> Request:
    ndim, channels = len(x) - 2, x[-1]
    problem = Problem.of(x, (channels, *[taps] * ndim, channels), stride=stride, padding=taps // 2)
    return Request(problem, direction, H100, dwm(), precision)


@pytest.mark.parametrize(
    ("direction", "precision", "nested"),
    [
        ("forward", "fp32", {"F(2×2,3×3)", "F(2×2,3×2)", "F(2×2,2×3)", "F(2×2,2×2)"}),
        ("backward_data", "fp16", {"F(2×2,3×3)", "F(2×2,3×2)", "F(2×2,2×3)", "F(2×2,2×2)"}),
        ("backward_filter", "fp32", {"F(3×3,2×2)", "Ω4(3,2)", "Ω3(2,2)"}),
    ],
)
def test_pieces_of_both_dimensions_are_nested(direction, precision, nested) -> None:
    """DWM's four pieces of 5×5 with stride 2 (its Figure 1b)."""
    found = list(planned(request((8, 56, 56, 64), 5, 2, direction, precision)))
    assert [part.problem.filter for part, *_ in found] == [(3, 3), (3, 2), (2, 3), (2, 2)]
    assert {plan.kernel for *_, plan in found} == nested
    assert all(p.unit for p in (part.problem for part, *_ in found))


def test_pieces_of_one_tap_along_a_dimension_are_tiled_along_the_other_or_direct() -> None:
    """Seven taps with stride 1 are 3 + 3 + 1; no kernel has Γ along the height."""
    found = {
        part.problem.filter: str(algorithm)
        for part, algorithm, _ in planned(request((8, 28, 28, 64), 7, 1, "forward", "fp32"))
    }
    assert found == {
        (3, 3): "winograd:2x2:3x3@paper", (3, 1): "direct", (1, 3): "gamma:4:2:3@paper",
        (1, 1): "direct",
    }  # fmt: skip


def test_what_no_kernel_computes_is_one_line() -> None:
    with pytest.raises(ValueError, match="4 spatial dimensions; the CUDA kernels have up to 3"):
        list(planned(request((1, 4, 4, 4, 4, 8), 3, 2, "forward", "fp32")))
    other = request((1, 9, 9, 8), 3, 2, "forward", "fp32")
    with pytest.raises(ValueError, match="direct has no pieces; expected a dwm"):
        list(planned(Request(other.problem, "forward", H100, parse_algorithm("direct"))))


CASES = [
    ("forward", (1, 9, 10, 8), (8, 5, 4, 8), {"stride": 2, "padding": 2}, "channels_last"),
    ("forward", (1, 11, 8), (8, 7, 4), {"dilation": 2, "padding": 3, "groups": 2}, "channels_last"),
    ("backward_data", (1, 9, 10, 8), (8, 3, 5, 8), {"stride": (2, 3)}, "channels_first"),
    ("backward_filter", (2, 9, 8, 8), (8, 3, 3, 8), {"stride": 2}, "channels_last"),
]


@pytest.mark.parametrize(("direction", "x_shape", "w_shape", "how", "layout"), CASES)
def test_calls_are_the_convolution(library, direction, x_shape, w_shape, how, layout) -> None:
    rng = np.random.default_rng(0)
    problem = Problem.of(x_shape, w_shape, **how)
    last = {"x": problem.x_shape, "w": problem.w_shape, "y": problem.y_shape}
    names = {"forward": "xwy", "backward_data": "ywx", "backward_filter": "xyw"}[direction]

    def axes(v: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(np.moveaxis(v, -1, 1)) if layout == "channels_first" else v

    a, b = (axes(rng.uniform(-1, 1, last[n]).astype(np.float32)) for n in names[:2])
    shape = () if direction == "forward" else (axes(np.empty(last[names[2]])).shape,)
    call = getattr(winolab, f"conv_{direction}")
    expected = call(a, b, *shape, **how, layout=layout, precision="fp64", out_dtype=float)
    got = call(Array(a), Array(b), *shape, **how, layout=layout, algorithm="dwm:3:2", **FFMA)
    assert got.shape == expected.shape
    assert np.abs(got.values - expected).max() <= 1e-5 * np.abs(expected).max()
    out = Array(np.full(expected.shape, np.nan, np.float32))
    assert call(Array(a), Array(b), *shape, out=out, **how, layout=layout, algorithm="dwm:3:2",
                **FFMA) is out  # fmt: skip
    assert (out.values == got.values).all()


def test_one_plan_does_not_say_what_runs() -> None:
    with pytest.raises(ValueError, match="dwm:3:2 runs on a GPU in pieces, each with a plan"):
        winolab.plan((1, 56, 56, 64), (64, 3, 3, 64), stride=2, algorithm="dwm:3:2")


def test_an_epilogue_comes_behind_the_sum(library) -> None:
    rng = np.random.default_rng(0)
    x, w = (rng.uniform(-1, 1, s).astype(np.float32) for s in ((1, 7, 7, 8), (8, 3, 3, 8)))
    bias, residual = (rng.uniform(-1, 1, s).astype(np.float32) for s in ((8,), (1, 4, 4, 8)))
    how: dict[str, Any] = {"stride": 2, "padding": 1, "algorithm": "dwm:3:2", **FFMA}
    plain = winolab.conv_forward(Array(x), Array(w), **how).values
    got = winolab.conv_forward(
        Array(x), Array(w), bias=Array(bias), residual=Array(residual), activation="relu", **how
    )
    assert (got.values == np.maximum(plain + bias + residual, 0)).all()


def test_an_empty_problem_has_an_empty_or_zero_result(library) -> None:
    x, w = np.zeros((0, 7, 7, 8), np.float32), np.zeros((8, 3, 3, 8), np.float32)
    y = winolab.conv_forward(Array(x), Array(w), stride=2, algorithm="dwm:3:2")
    assert y.shape == (0, 3, 3, 8)
    dw = winolab.conv_backward_filter(
        Array(x), Array(y.values), w.shape, stride=2, algorithm="dwm:3:2"
    )
    assert not dw.values.any()


def test_a_filter_is_not_prepared(library) -> None:
    with pytest.raises(ValueError, match="dwm:3:2 runs in pieces on a GPU, each with a filter"):
        winolab.prepare_filter(
            Array(np.zeros((8, 3, 3, 8), np.float32)), (1, 7, 7, 8), algorithm="dwm:3:2", stride=2
        )


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("taps", [3, 5, 7])
@pytest.mark.parametrize("ndim", [1, 2, 3])
@pytest.mark.parametrize("direction", ["forward", "backward_data", "backward_filter"])
def test_calls_on_a_gpu_are_the_convolution(direction, ndim, taps, dtype) -> None:
    from winolab.gpu import driver

    cp, rng = driver.cupy(), np.random.default_rng(ndim)
    how: dict[str, Any] = {"stride": 2, "padding": taps // 2}
    problem = Problem.of((2, *[13] * ndim, 16), (24, *[taps] * ndim, 16), **how)
    last = {"x": problem.x_shape, "w": problem.w_shape, "y": problem.y_shape}
    names = {"forward": "xwy", "backward_data": "ywx", "backward_filter": "xyw"}[direction]
    a, b = (rng.uniform(-1, 1, last[n]).astype(dtype) for n in names[:2])
    shape = () if direction == "forward" else (last[names[2]],)
    call = getattr(winolab, f"conv_{direction}")
    expected = call(a, b, *shape, **how, precision="fp64", out_dtype=float)
    run = {"algorithm": "dwm:3:2", "out_dtype": "float32", **how}
    got = cp.asnumpy(call(cp.asarray(a), cp.asarray(b), *shape, **run))
    off = np.sqrt(np.mean((got - expected) ** 2) / np.mean(expected**2))
    assert off <= (1e-6 if dtype == "float32" else 4e-3)
