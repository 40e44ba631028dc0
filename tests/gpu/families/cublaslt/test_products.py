"""Public calls whose products a stand-in multiplies as its descriptors say, and on a GPU."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import winolab
from tests.gpu import hosted
from tests.gpu.families.cublaslt.cases import DIRECTIONS, PRECISIONS, PROBLEMS, offered
from tests.gpu.families.depthwise.cases import on_gpu, operands, too_far
from tests.gpu.support.cublaslt_stand_in import INVALID
from tests.gpu.support.pretended import Array
from winolab import calls
from winolab.gpu import cublaslt, driver
from winolab.gpu.families.cublaslt.config import USUAL, Config
from winolab.gpu.machine import MachineError
from winolab.gpu.runtime import loader
from winolab.problem import Problem, shapes

NAMED = "direct;variant=cublaslt"


def whole(values: np.ndarray) -> np.ndarray:
    return values


def wide(more: int) -> Callable[[np.ndarray], np.ndarray]:
    """Channels among others, so many more, of which one lies before."""

    def spread(values: np.ndarray) -> np.ndarray:
        around = np.full((*values.shape[:-1], values.shape[-1] + more), np.nan, values.dtype)
        first = 0 if more % 8 == 0 else 1
        around[..., first : first + values.shape[-1]] = values
        return around[..., first : first + values.shape[-1]]

    return spread


def cropped(values: np.ndarray) -> np.ndarray:
    """Rows among wider ones: pixels lie at no one distance."""
    around = np.full((*values.shape[:-2], values.shape[-2] + 2, values.shape[-1]), np.nan)
    around = around.astype(values.dtype)
    around[..., 1:-1, :] = values
    return around[..., 1:-1, :]


def first(values: np.ndarray) -> np.ndarray:
    """Memory with channels before all spatial dimensions."""
    return np.moveaxis(np.moveaxis(values, -1, 1).copy(), 1, -1)


def broadcast(values: np.ndarray) -> np.ndarray:
    return np.broadcast_to(values[:1], values.shape)


def called(direction: str, problem: Problem, a: Any, b: Any, **how: Any) -> Any:
    """The public call, by name."""
    third = () if direction == "forward" else (shapes(direction, problem)[2],)
    how = {"algorithm": NAMED, "dilation": problem.dilation, **how}
    return getattr(winolab, f"conv_{direction}")(Array(a), Array(b), *third, **how)


@pytest.mark.parametrize("spread", [whole, wide(8), wide(5)], ids=["whole", "wide", "odd"])
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_results_are_those_of_fp64(direction, precision, spread, stand_in, library) -> None:
    """Without a copy, also where channels lie among others, in operands and in the result."""
    for problem in PROBLEMS.values():
        p = offered(problem, direction, precision)[0]
        a, b = (spread(v) for v in operands(problem, direction, precision))
        result = spread(np.full(shapes(direction, problem)[2], np.nan, a.dtype))
        got = called(direction, problem, a, b, out=Array(result))
        assert got.values is result
        assert too_far(p, a, b, result) == 0, problem
        if result.base is not None:  # what lies beside the result is as it was
            beside = result.base[..., result.shape[-1] + 1 :]
            assert np.isnan(beside.astype(float)).all()
        copied = {"b"} if direction != "backward_filter" else set()  # filters that are unaligned
        assert set(library.reordered()) <= copied
    assert len(stand_in.products) == len(PROBLEMS)
    assert {p["stream"] for p in stand_in.products} == {7}


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_results_in_float32_are_rounded_by_nobody(direction, precision, stand_in) -> None:
    problem = PROBLEMS["map"]
    a, b = operands(problem, direction, precision)
    got = called(direction, problem, a, b, out_dtype="float32")
    p = offered(problem, direction, precision, out_dtype="float32")[0]
    assert (got.values.dtype, p.out_dtype) == (np.float32, "float32")
    assert too_far(p, a, b, got.values) == 0
    assert [d["d"]["kind"] for d in stand_in.products] == [0]


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("spread", [cropped, first, broadcast])
def test_rows_at_no_one_distance_are_copied(direction, spread, stand_in, library) -> None:
    """In the same call, beside the workspace; and a result that lies so by way of another."""
    problem = PROBLEMS["map"]
    p = offered(problem, direction, "fp16")[0]
    a, b = operands(problem, direction, "fp16")
    filters = direction != "backward_filter"
    a, b = spread(a), b if filters else spread(b)
    got = called(direction, problem, a, b)
    assert too_far(p, a, b, got.values) == 0
    read = {"a", *(() if filters else ("b",))}
    assert read <= set(library.reordered())
    if spread is broadcast:
        return
    shape = shapes(direction, problem)[2]
    result = np.full(shape, np.nan, a.dtype)
    result = spread(result) if filters else np.full((*shape[:-1], 2 * shape[-1]), 0, "f2")[..., ::2]
    called(direction, problem, a, b, out=Array(result))
    assert too_far(p, a, b, result) == 0
    assert {*read, "out"} <= set(library.reordered())


def test_a_filter_lies_anywhere(stand_in, library) -> None:
    problem = PROBLEMS["map"]
    x, w = operands(problem, "forward", "bf16")
    p = offered(problem, "forward", "bf16")[0]
    for spread in (np.asfortranarray, broadcast, wide(8)):
        lies = spread(w)
        got = called("forward", problem, x, lies)
        assert too_far(p, x, lies, got.values) == 0
    assert library.reordered().count("b") == 2  # the last has its rows at one distance


def test_addresses_are_said_to_be_as_aligned_as_they_are(stand_in) -> None:
    problem = PROBLEMS["map"]
    x, w = operands(problem, "forward", "fp16")
    p = offered(problem, "forward", "fp16")[0]
    memory = np.zeros(x.size + 1, x.dtype)
    later = memory[1:].reshape(x.shape)
    later[...] = x
    for values, alignment in ((hosted.Guarded.of(x).array, 16), (later, 2)):
        w_ = hosted.Guarded.of(w).array
        assert too_far(p, x, w, called("forward", problem, values, w_).values) == 0
        assert stand_in.products[-1]["alignment"] == alignment


def test_a_call_is_chosen_once_and_leaves_nothing_behind(stand_in, library) -> None:
    problem = PROBLEMS["map"]
    x, w = operands(problem, "forward", "fp16")
    for scale in (1, 2, 4):
        p = offered(problem, "forward", "fp16")[0]
        given = x * x.dtype.type(scale / 4)
        assert too_far(p, given, w, called("forward", problem, given, w).values) == 0
    assert (stand_in.heuristics, len(stand_in.products)) == (1, 3)
    many = Problem.of((8, 28, 28, 64), (64, 1, 1, 64))
    x, dy = operands(many, "backward_filter", "fp16")
    for limit in (None, 0):  # sums of 6272 pixels are cut where parts have room
        called("backward_filter", many, x, dy, workspace_limit=limit)
    assert [each["workspace"] for each in stand_in.products] == [0] * 3 + [USUAL, 0]
    assert len(stand_in.alive) == 3 * 5  # an operation, three matrices, preferences
    calls.kept.clear()
    gc.collect()
    assert not stand_in.alive


def test_an_epilogue_comes_behind(stand_in) -> None:
    problem = PROBLEMS["map"]
    x, w = operands(problem, "forward", "fp16")
    bias = np.linspace(-1, 1, problem.out_channels).astype(np.float16)
    got = called("forward", problem, x, w, bias=Array(bias), activation="relu")
    plain = called("forward", problem, x, w).values
    due = np.maximum(plain + bias, np.float16(0))
    assert (got.values == due).all()


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_what_is_empty_asks_nobody(direction, stand_in) -> None:
    for x, w in (((0, 5, 7, 64), (32, 1, 1, 64)), ((2, 5, 7, 0), (32, 1, 1, 0))):
        problem = Problem.of(x, w)
        a, b = operands(problem, direction, "fp16")
        got = called(direction, problem, a, b)
        assert got.values.shape == shapes(direction, problem)[2]
        assert not got.values.any()
    assert not stand_in.heuristics


def test_gradients_that_overflow_are_seen(stand_in) -> None:
    problem = PROBLEMS["map"]
    x, dy = (np.full(s, 200, np.float16) for s in (problem.x_shape, problem.y_shape))
    with pytest.raises(ValueError, match="float16"):
        called("backward_filter", problem, x, dy, on_range="raise")
    assert np.isinf(called("backward_filter", problem, x, dy).values).all()


def test_refusals_are_a_line(stand_in, monkeypatch) -> None:
    problem = PROBLEMS["map"]
    x, w = operands(problem, "forward", "fp16")
    called("forward", problem, x, w)
    stand_in.status = INVALID
    with pytest.raises(RuntimeError, match=r"^cublasLtMatmul: CUBLAS_STATUS_INVALID_VALUE$"):
        called("forward", problem, x, w)
    monkeypatch.setattr(stand_in, "cublasLtMatmulAlgoGetHeuristic", lambda *asked: 0)
    with pytest.raises(ValueError, match="no algorithm for a product of 32 × 64 and 64 × 70"):
        called("forward", problem, x, w, workspace_limit=64)


def test_without_the_library_a_call_says_what_to_install(library, monkeypatch) -> None:
    def missing() -> None:
        raise MachineError("no cuBLASLt: pip install nvidia-cublas")

    monkeypatch.setattr(cublaslt, "cublaslt", missing)
    monkeypatch.setattr(loader, "load", lambda source, *more: cublaslt.functions.__wrapped__(0))
    problem = PROBLEMS["map"]
    with pytest.raises(MachineError, match="pip install nvidia-cublas"):
        called("forward", problem, *operands(problem, "forward", "fp16"))


@pytest.mark.gpu
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_results_on_a_gpu_are_those_of_fp64_and_the_same_again(direction, precision) -> None:
    for problem in PROBLEMS.values():
        a, b = operands(problem, direction, precision)
        for out_dtype in ("float32", None):
            for p in offered(problem, direction, precision, out_dtype=out_dtype):
                found = [on_gpu(p, a, b) for _ in range(5)]
                assert too_far(p, a, b, found[0]) == 0, p
                assert all(np.array_equal(found[0], other) for other in found[1:])


@pytest.mark.gpu
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("channels", [(64, 256), (256, 128), (64, 64), (16, 16)])
@pytest.mark.parametrize("size", [(130, 130), (65, 65), (35, 32), (128, 129)])
def test_the_last_of_long_sums_are_among_them(size, channels, precision) -> None:
    """Ones in the last 127 positions: the library left out the last 4 of 16,900 in 16 bits where it
    cut sums of 64 × 256 and 256 × 128 results."""
    problem = Problem.of((1, *size, channels[0]), (channels[1], 1, 1, channels[0]))
    x, dy = (np.zeros_like(v) for v in operands(problem, "backward_filter", precision))
    for each in (x, dy):
        each.reshape(-1, each.shape[-1])[-127:] = 1
    plans = offered(problem, "backward_filter", precision, out_dtype="float32")
    assert plans
    for p in [*plans, replace(plans[0], config=Config(USUAL))]:
        assert (on_gpu(p, x, dy) == 127).all(), p


@pytest.mark.gpu
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_public_calls_on_a_gpu_have_slices_streams_and_graphs(direction) -> None:
    cp = driver.cupy()
    problem = PROBLEMS["map"]
    p = offered(problem, direction, "fp16")[0]
    values = operands(problem, direction, "fp16")
    shape = shapes(direction, problem)[2]

    def among(v: np.ndarray) -> Any:
        around = cp.full((*v.shape[:-1], v.shape[-1] + 8), cp.nan, v.dtype)
        around[..., : v.shape[-1]] = cp.asarray(v)
        return around[..., : v.shape[-1]]

    a, b = map(among, values)
    out = among(np.full(shape, np.nan, np.float16))
    third: tuple[Any, ...] = () if direction == "forward" else (shape,)

    def call() -> None:
        getattr(winolab, f"conv_{direction}")(a, b, *third, algorithm=NAMED, out=out)

    call()
    bits = out.copy()
    assert too_far(p, values[0], values[1], cp.asnumpy(bits)) == 0
    assert bool(cp.isnan(out.base[..., shape[-1] :]).all())
    stream = cp.cuda.Stream(non_blocking=True)
    cp.cuda.Device().synchronize()
    with stream:
        for _ in range(20):  # more than make a graph of ours
            out.fill(cp.nan)
            call()
        stream.synchronize()
        assert bool((out == bits).all())
        stream.begin_capture()
        call()
        graph = stream.end_capture()
        out.fill(cp.nan)
        graph.launch(stream)
        stream.synchronize()
    assert bool((out == bits).all())
