"""The judge: what its descriptors say without cuDNN, and its results against FP64 with it."""

from __future__ import annotations

import ctypes
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from winolab.algorithm import Problem
from winolab.bench import cudnn, oracle
from winolab.gpu import driver
from winolab.gpu.machine import MachineError

DIRECTIONS = list(cudnn.ALGORITHMS)
PROBLEM = Problem.of((4, 14, 12, 32), (64, 3, 3, 32), padding=1)
OTHERS = [
    Problem.of((2, 13, 17, 16), (24, 5, 3, 16), padding=(2, 1), stride=(2, 1)),
    Problem.of((2, 12, 12, 16), (8, 3, 3, 16), padding=2, dilation=2),
    Problem.of((3, 40, 8), (16, 4, 8), padding=1),
    Problem.of((2, 5, 6, 7, 8), (16, 3, 3, 3, 8), padding=1),
    Problem.of((2, 9, 9, 16), (8, 3, 3, 8), padding=1, groups=2),
]


def test_numbers_are_the_headers() -> None:
    assert cudnn.ALGORITHMS["forward"]["WINOGRAD_NONFUSED"] == 7
    assert list(cudnn.ALGORITHMS["backward_data"].values()) == list(range(6))
    assert cudnn.ALGORITHMS["backward_filter"] == {
        "ALGO_0": 0, "ALGO_1": 1, "FFT": 2, "ALGO_3": 3, "WINOGRAD_NONFUSED": 5, "FFT_TILING": 6,
    }  # fmt: skip


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_every_algorithm_layout_and_mode_once(direction: str) -> None:
    found = list(cudnn.forced(direction, PROBLEM))
    assert len(found) == len(set(found)) == 4 * len(cudnn.ALGORITHMS[direction])
    half = list(cudnn.forced(direction, PROBLEM, "fp16"))
    assert len(half) == 2 * len(cudnn.ALGORITHMS[direction])
    assert {one.math for one in half} == {"tensor"}
    assert sum(one.frugal for one in found) == 4 * len(cudnn.FRUGAL[direction])


def test_descriptors_have_two_spatial_dimensions() -> None:
    line = cudnn.Forced("forward", OTHERS[2], "GEMM").dimensions
    assert line["x"] == (3, 8, 1, 40)
    assert line["w"] == (16, 8, 1, 4)
    assert line["y"] == (3, 16, 1, 39)
    assert line["padding"] == (0, 1)
    assert line["stride"] == line["dilation"] == (1, 1)
    solid = cudnn.Forced("forward", OTHERS[3], "GEMM").dimensions
    assert solid["x"] == (2, 8, 5, 6, 7)
    assert solid["padding"] == (1, 1, 1)
    assert cudnn.Forced("forward", OTHERS[4], "GEMM").dimensions["w"] == (8, 8, 3, 3)


def test_what_cudnn_cannot_say_is_refused() -> None:
    uneven = Problem.of((1, 8, 8, 4), (4, 2, 2, 4), padding="same")
    with pytest.raises(ValueError, match=r"both sides alike.*\(0, 1\)"):
        cudnn.Forced("forward", uneven, "GEMM")
    for field in ("direction", "algorithm", "layout", "math", "precision"):
        values = {"direction": "forward", "problem": PROBLEM, "algorithm": "GEMM", field: "none"}
        with pytest.raises(ValueError, match=f"{field} 'none'; expected"):
            cudnn.Forced(**values)


def test_without_libcudnn_it_says_what_to_install(monkeypatch) -> None:
    def missing(name: str):
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    cudnn.library.cache_clear()
    with pytest.raises(MachineError, match="nvidia-cudnn-cu13"):
        cudnn.library()


def test_a_cudnn_that_does_not_start_says_which_would(monkeypatch) -> None:
    fake = SimpleNamespace(
        cudnnCreate=lambda handle: 1,
        cudnnGetVersion=lambda: 91900,
        cudnnGetErrorString=lambda status: b"CUDNN_STATUS_NOT_INITIALIZED",
    )
    host = SimpleNamespace(cuda=SimpleNamespace(Device=lambda index: nullcontext()))
    monkeypatch.setattr(cudnn, "library", lambda: fake)
    monkeypatch.setattr(driver, "cupy", lambda: host)
    cudnn.handle.cache_clear()
    message = r"cuDNN 9\.19\.0 does not start \(cudnnCreate: CUDNN_STATUS_NOT_INITIALIZED\): .*cu13"
    with pytest.raises(MachineError, match=message):
        cudnn.handle(0)


def run(chosen: cudnn.Forced, first, second):
    """The result of channels-last operands, channels last; NaN where cuDNN wrote nothing."""
    cp = driver.cupy()
    call = cudnn.Call(chosen)
    p = chosen.problem
    shape = {"forward": p.y_shape, "backward_data": p.x_shape, "backward_filter": p.w_shape}
    last = shape[chosen.direction]
    inner = chosen.layout == "NCHW"
    a, b = (cp.ascontiguousarray(cp.moveaxis(v, -1, 1)) if inner else v for v in (first, second))
    out = cp.full((last[0], last[-1], *last[1:-1]) if inner else last, cp.nan, a.dtype)
    workspace = cp.full(call.workspace, 255, "uint8")
    call(a.data.ptr, b.data.ptr, out.data.ptr, workspace.data.ptr)
    return cp.moveaxis(out, 1, -1) if inner else out


def operands(direction: str, problem: Problem, dtype: str):
    rng = driver.cupy().random.default_rng(0)
    shapes = {
        "forward": (problem.x_shape, problem.w_shape),
        "backward_data": (problem.y_shape, problem.w_shape),
        "backward_filter": (problem.x_shape, problem.y_shape),
    }
    return [(rng.random(s, dtype="float32") * 2 - 1).astype(dtype) for s in shapes[direction]]


# Non-fused Winograd loses most: 3.3e-6 was seen in FP32, and TF32 has a unit roundoff of 2^-11.
LIMITS = {("fp32", "fma"): 1e-5, ("fp32", "default"): 2e-3, ("fp16", "tensor"): 1e-2}


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_what_runs_is_right(direction: str, precision: str) -> None:
    dtype = {"fp32": "float32", "fp16": "float16"}[precision]
    first, second = operands(direction, PROBLEM, dtype)
    exact = oracle.fp64(direction, PROBLEM, first, second)
    ran, reasons = set(), []
    for chosen in cudnn.forced(direction, PROBLEM, precision):
        try:
            result = run(chosen, first, second)
        except cudnn.Unsupported as error:
            reasons.append(str(error))
            continue
        ran.add((chosen.algorithm, chosen.layout))
        assert oracle.relative_rms(result, exact) <= LIMITS[precision, chosen.math], chosen
    frugal = cudnn.FRUGAL[direction][1]
    assert {(frugal, "NHWC"), (frugal, "NCHW")} <= ran
    assert all("CUDNN_STATUS" in reason for reason in reasons)


@pytest.mark.gpu
@pytest.mark.parametrize("problem", OTHERS, ids=lambda p: "x".join(map(str, p.x_shape)))
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_strides_dilation_groups_and_dimensions(direction: str, problem: Problem) -> None:
    first, second = operands(direction, problem, "float32")
    exact = oracle.fp64(direction, problem, first, second)
    ran = 0
    for chosen in cudnn.forced(direction, problem, maths=("fma",)):
        try:
            result = run(chosen, first, second)
        except cudnn.Unsupported:
            continue
        ran += 1
        assert oracle.relative_rms(result, exact) <= LIMITS["fp32", "fma"], chosen
    assert ran
