"""What follows y's sums on a GPU has the bits of the steps one by one, in every family."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import winolab
from tests.gpu.support.pretended import Array
from winolab import calls
from winolab.algorithm import Problem, parse_algorithm
from winolab.arguments.epilogue import Activation
from winolab.device import H100, datasheet
from winolab.gpu import driver
from winolab.gpu.families.depthwise import plan as depthwise
from winolab.gpu.families.grouped import plan as grouped
from winolab.gpu.families.thin import plan as thin
from winolab.gpu.planner.planner import candidates
from winolab.gpu.planner.request import Request
from winolab.gpu.runtime.conv import convolve
from winolab.options import ConvOptions
from winolab.ref import epilogue

DTYPES = {
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
}


def operands(x: tuple[int, ...], w: tuple[int, ...], dtype: str, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape).astype(DTYPES[dtype]) for shape in (x, w)]


def added(y: np.ndarray, channels: int, seed: int = 1) -> Any:
    """Bias and residual."""
    rng = np.random.default_rng(seed)
    return tuple(rng.normal(size=shape).astype(y.dtype) for shape in ((channels,), y.shape))


def behind(y: np.ndarray, bias: Any, residual: Any, activation: str | None, layout: Any) -> Any:
    expected = y.copy()
    epilogue.apply(expected, bias, residual, Activation.of(activation), layout)
    return expected


def check(x: Any, w: Any, steps: str, **how: Any) -> Any:
    """The call with all steps of "bias residual relu", or another activation: its bits, and how."""
    layout = how.get("layout", "channels_last")
    arrays = [Array(v) if isinstance(v, np.ndarray) else v for v in (x, w)]
    y = winolab.conv_forward(*arrays, **how).values
    bias, residual = added(y, y.shape[1 if layout == "channels_first" else -1])
    words = steps.split()
    given = {"bias": bias, "residual": residual}
    given = {name: array for name, array in given.items() if name in words}
    activation = next((word for word in words if word not in ("bias", "residual")), None)
    expected = behind(y, given.get("bias"), given.get("residual"), activation, layout)
    more: dict[str, Any] = {name: Array(array) for name, array in given.items()}
    calls.kept.clear()
    found = winolab.conv_forward(*arrays, activation=activation, **more, **how)
    assert np.isfinite(found.values.astype(np.float32)).all()
    assert found.values.tobytes() == expected.tobytes()
    return next(iter(calls.kept.values()))


EVERY = "bias residual silu"
GAMMA = "gamma:8:6:3"
SHAPE, FILTER = (2, 5, 8, 16), (24, 3, 3, 16)


@pytest.mark.parametrize("steps", ["bias", "residual", "relu", EVERY, "bias leaky_relu:0.3"])
def test_split_products_have_a_pass_behind(library, steps: str) -> None:
    x, w = operands(SHAPE, FILTER, "float32")
    call = check(x, w, steps, padding=1, precision="fp32_split", algorithm=GAMMA)
    assert call.copies == ("out",)
    assert call.plan.checks_accuracy


@pytest.mark.parametrize("dtype", DTYPES)
def test_memory_orders_and_results(library, dtype: str) -> None:
    x, w = operands(SHAPE, FILTER, dtype)
    how: dict[str, Any] = {"padding": 1, "precision": "fp32_ffma" if dtype == "float32" else None}
    one, other = (np.ascontiguousarray(np.moveaxis(v, -1, 1)) for v in (x, w))
    call = check(one, other, EVERY, layout="channels_first", **how)
    assert "out" in call.copies  # which applies it, too
    assert "residual" not in call.copies  # it lies as y is wanted
    fresh = winolab.conv_forward(Array(x), Array(w), **how).values
    bias, residual = added(fresh, 24)
    other = np.moveaxis(np.ascontiguousarray(np.moveaxis(residual, -1, 1)), 1, -1)
    strided = Array(np.repeat(bias, 2)[::2])
    gaps = np.empty((*residual.shape[:-1], 40), residual.dtype)[..., 3:27]
    places = np.empty_like(residual), gaps, np.empty_like(other)
    for i, place in enumerate(places):
        y = winolab.conv_forward(Array(x), Array(w), out=Array(place), **how).values.copy()
        for given in (place, (residual, other)[i % 2]):
            place[...] = residual  # it may lie over the result, which is made elsewhere then
            summed = fresh if given is place else y
            expected = behind(summed, bias, residual, "relu", "channels_last")
            steps: dict[str, Any] = {
                "bias": strided,
                "residual": Array(given),
                "activation": "relu",
            }
            winolab.conv_forward(Array(x), Array(w), out=Array(place), **steps, **how)
            assert place.tobytes() == expected.tobytes()


def test_prepared_filters_and_results_of_another_type(library) -> None:
    x, w = operands(SHAPE, FILTER, "float32")
    how: dict[str, Any] = {"padding": 1}
    prepared = winolab.prepare_filter(Array(w), SHAPE, precision="fp32_ffma", **how)
    check(x, prepared, EVERY, **how)
    check(x, w, EVERY, out_dtype="bfloat16", precision="fp32_ffma", **how)  # converted before


def test_sums_of_nothing(library) -> None:
    x, w = operands((2, 5, 8, 0), (24, 3, 3, 0), "float32")
    check(x, w, "bias residual relu", padding=1)
    y = winolab.conv_forward(
        Array(x[:0]), Array(w), padding=1, bias=Array(np.ones(24, "f")), activation="relu"
    )
    assert y.shape == (0, 5, 8, 24)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"bias": np.ones(23, "f")}, ValueError, r"bias has shape \(23,\); expected \(24,\)"),
        ({"bias": np.ones(24, "e")}, TypeError, "bias has dtype float16 and y float32; convert it"),
        ({"residual": np.ones((2, 5, 8, 1), "f")}, ValueError, "residual has shape .*; expected y"),
        ({"residual": np.ones((2, 5, 8, 24), "e")}, TypeError, "residual has dtype float16"),
    ],
)
def test_what_does_not_fit_is_refused(library, given, error, message: str) -> None:
    x, w = operands(SHAPE, FILTER, "float32")
    more: dict[str, Any] = {name: Array(array) for name, array in given.items()}
    with pytest.raises(error, match=message):
        winolab.conv_forward(Array(x), Array(w), padding=1, **more)
    far: dict[str, Any] = {"bias": Array(np.ones(24, "f"), index=1)}
    with pytest.raises(ValueError, match="x is on CUDA device 0 and bias on 1; move one of them"):
        winolab.conv_forward(Array(x), Array(w), padding=1, **far)


def forward(x: tuple[int, ...], w: tuple[int, ...], dtype: str, **how: Any) -> Any:
    return (*operands(x, w, dtype), how)


DENSE = (1, 6, 9, 32), (40, 3, 3, 32)
ODD = (1, 6, 9, 13), (11, 3, 3, 13)  # scalars
FAR = (1, 10, 32), (40, 2, 32)  # with padding that copies by position do not reach
FUSED = {
    "gamma_ffma": forward(*DENSE, "float32", padding=1, precision="fp32_ffma", algorithm=GAMMA),
    "gamma_ffma odd": forward(*ODD, "float32", padding=1, precision="fp32_ffma", algorithm=GAMMA),
    "gamma_wgmma fp16": forward(*DENSE, "float16", padding=1, algorithm=GAMMA),
    "gamma_wgmma odd": forward(*ODD, "bfloat16", padding=1, algorithm=GAMMA),
    "gamma_wgmma wide": forward(*DENSE, "float16", padding=1, algorithm=GAMMA, out_dtype="float32"),
    "im2col bf16": forward(*DENSE, "bfloat16", padding=1, algorithm="direct"),
    "im2col wide": forward(*DENSE, "float16", padding=1, algorithm="direct", out_dtype="float32"),
    "direct bf16": forward(*FAR, "bfloat16", padding=130, algorithm="direct"),
    "direct wide": forward(*FAR, "bfloat16", padding=130, algorithm="direct", out_dtype="float32"),
    "patches fp16": forward((2, 9, 16, 3), (32, 3, 3, 3), "float16", padding=1),
    "patches wide": forward(
        (2, 9, 16, 3), (40, 3, 3, 3), "bfloat16", padding=1, stride=2, out_dtype="float32"
    ),
    "skinny": forward((2, 3, 4, 32), (40, 1, 1, 32), "float32", precision="fp32_ffma"),
    "skinny odd": forward((3, 1, 1, 10), (24, 1, 1, 10), "float16"),
    "skinny wide": forward((3, 1, 1, 24), (10, 1, 1, 24), "bfloat16", out_dtype="float32"),
    "implicit_gemm fp16": forward((1, 6, 9, 24), (48, 3, 3, 6), "float16", padding=1, groups=4),
    "implicit_gemm odd": forward((1, 6, 9, 15), (21, 3, 3, 5), "bfloat16", padding=1, groups=3),
    "implicit_gemm split": forward(
        (1, 6, 9, 15), (21, 3, 3, 5), "float32", padding=1, groups=3, precision="fp32_split"
    ),
    "gamma_ffma groups": forward(
        (1, 6, 9, 32), (48, 3, 3, 16), "float32", groups=2, precision="fp32_ffma", algorithm=GAMMA
    ),
    "gamma_wgmma groups": forward(
        (1, 6, 9, 32), (48, 3, 3, 16), "float16", groups=2, algorithm=GAMMA
    ),
    "fused2d": forward(
        *DENSE, "float32", padding=1, precision="fp32_ffma", algorithm="winograd:2x2:3x3"
    ),
    "fused2d odd": forward(
        *ODD, "float32", padding=1, precision="fp32_ffma", algorithm="winograd:2x2:3x3"
    ),
    "direct.ffma": forward(*ODD, "float32", stride=2, precision="fp32_ffma"),
    "depthwise": forward((2, 9, 9, 32), (32, 3, 3, 1), "float32", padding=1, groups=32),
    "depthwise fp16": forward((2, 9, 9, 32), (32, 5, 5, 1), "float16", padding=2, groups=32),
    "depthwise any": forward((2, 9, 9, 6), (12, 3, 3, 1), "bfloat16", dilation=2, groups=6),
}


@pytest.mark.parametrize("steps", ["bias", "residual relu", EVERY])
@pytest.mark.parametrize(
    ("x", "w", "padding"),
    [((1, 7, 7, 1020), (64, 1, 1, 1020), 0), ((2, 5, 99), (21, 3, 99), 1)],
)
def test_what_adds_segments_up_applies_it(
    library, x: Any, w: Any, padding: int, steps: str
) -> None:
    """By dense results and by rows that are apart, which the residual's then are, too."""
    a, b = operands(x, w, "float32")
    how: dict[str, Any] = {"padding": padding, "precision": "fp32_split", "algorithm": "direct"}
    call = check(a, b, steps, **how)
    assert call.copies == ()
    assert call.plan.epilogue
    assert call.plan.segments > 1
    y = winolab.conv_forward(Array(a), Array(b), **how).values
    bias, residual = added(y, w[0])
    words = steps.split()
    given = {"bias": bias, "residual": np.repeat(residual, 3, -2)[..., ::3, :]}
    given = {name: array for name, array in given.items() if name in words}
    relu = words[-1] if words[-1] not in given else None
    due = behind(y, given.get("bias"), given.get("residual"), relu, "channels_last")
    memory = np.full((*y.shape[:-2], 3 * y.shape[-2], y.shape[-1]), np.nan, y.dtype)
    out = memory[..., ::3, :]
    more: dict[str, Any] = {name: Array(array) for name, array in given.items()}
    winolab.conv_forward(Array(a), Array(b), out=Array(out), activation=relu, **more, **how)
    assert out.tobytes() == due.tobytes()
    assert np.isnan(memory).sum() == 2 * y.size


@pytest.mark.parametrize("name", FUSED)
def test_kernels_apply_it_as_they_store(library, name: str) -> None:
    x, w, how = FUSED[name]
    family = name.split()[0].split(".")[0]
    for steps in (EVERY, "bias relu")[: 1 + list(FUSED).index(name) % 2]:
        call = check(x, w, steps, **how)
        assert call.copies == ()
        assert call.plan.epilogue
        assert f".{family}." in type(call.plan).__module__


def finishes(plan: Any) -> tuple[Any, ...]:
    """What stores a plan's outputs."""
    files = plan.config.files(plan.parts)
    return files["FINISH_FILE"], files["OUTPUTS_FILE"], plan.config.split_k > 1


def test_every_way_to_finish_a_tile(library) -> None:
    """Γ by wgmma: by producers or consumers, alone or in clusters, vectors or scalars."""
    for x, w in (DENSE, ODD):
        problem = Problem.of(x, w, padding=1)
        every = candidates(Request(problem, "forward", H100, parse_algorithm(GAMMA), "fp16")).plans
        ways = {finishes(plan): plan for plan in every}
        assert len(ways) == 2
        for plan in ways.values():
            options = ConvOptions(config=plan.config, algorithm=parse_algorithm(GAMMA))
            call = check_named(problem, x, w, "float16", options)
            assert call.plan.epilogue


def check_named(problem: Problem, x: Any, w: Any, dtype: str, options: ConvOptions) -> Any:
    """Check a call whose options name its kernel; what was kept of it."""
    a, b = (Array(v) for v in operands(x, w, dtype))
    y = convolve("forward", problem, a, b, options).values
    bias, residual = added(y, w[0])
    expected = behind(y, bias, residual, "silu", "channels_last")
    options = replace(options, activation=Activation.of("silu"))
    calls.kept.clear()
    more: dict[str, Any] = {"bias": Array(bias), "residual": Array(residual)}
    got = convolve("forward", problem, a, b, options, **more).values
    assert got.tobytes() == expected.tobytes()
    return next(iter(calls.kept.values()))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("x", "w"), [((2, 9, 9, 64), (3, 3, 3, 64)), ((2, 9, 9, 3), (32, 3, 3, 3)), ODD]
)
def test_few_channels_on_one_side(library, x: Any, w: Any, dtype: str) -> None:
    """By their vectors, and one by one."""
    problem = Problem.of(x, w, padding=1)
    precision = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}[dtype]
    request = Request(problem, "forward", H100, None, precision)
    (found, *_) = [p for p in thin.plans(request) if p.config.lanes == 2]
    call = check_named(problem, x, w, dtype, ConvOptions(config=found.config))
    assert isinstance(call.plan, thin.ThinPlan)
    assert call.plan.epilogue


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    ("x", "w", "groups"), [((1, 6, 9, 32), (64, 3, 3, 8), 4), ((1, 6, 9, 32), (32, 3, 3, 4), 8)]
)
def test_groups_of_few_channels(library, x: Any, w: Any, groups: int, dtype: str) -> None:
    """By name: the implicit GEMM is the faster of such small maps."""
    problem = Problem.of(x, w, padding=1, groups=groups)
    precision = {"float16": "fp16", "bfloat16": "bf16"}[dtype]
    request = Request(problem, "forward", H100, None, precision, aligned_maps=True)
    for found in [*grouped.plans(request)][::5]:
        call = check_named(problem, x, w, dtype, ConvOptions(config=found.config))
        assert isinstance(call.plan, grouped.GroupedPlan)
        assert call.plan.epilogue


@pytest.mark.parametrize("dtype", DTYPES)
def test_depthwise_kernels_of_few_and_of_many_outputs(library, dtype: str) -> None:
    """What is read at once, ahead by stages, and row by row."""
    x, w = (2, 9, 9, 32), (32, 3, 3, 1)
    problem = Problem.of(x, w, padding=1, groups=32)
    precision = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}[dtype]
    request = replace(Request(problem, "forward", H100, None, precision), aligned_maps=True)
    ways = {(p.config.kind, p.config.stages > 0): p for p in depthwise.plans(request)}
    assert len(ways) == 3
    for plan in ways.values():
        call = check_named(problem, x, w, dtype, ConvOptions(config=plan.config))
        assert str(call.plan.config) == str(plan.config)
        assert call.plan.epilogue


def test_kernels_of_compute_capability_8(library, monkeypatch) -> None:
    monkeypatch.setattr(driver, "device", lambda index: datasheet("a100"))
    for x, w in (DENSE, ODD):
        a, b = operands(x, w, "bfloat16")
        call = check(a, b, EVERY, padding=1, algorithm=GAMMA)
        assert "gamma_mma" in type(call.plan).__module__
        assert call.plan.epilogue


@pytest.mark.gpu
@pytest.mark.parametrize("activation", ["relu", "leaky_relu:0.3", "silu"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_bits_on_a_gpu(dtype: str, activation: str) -> None:
    cp = driver.cupy()
    for memory in ("channels_last", "channels_first"):
        x, w = (cp.asarray(v) for v in operands((2, 13, 14, 64), (64, 3, 3, 64), dtype))
        if memory == "channels_first":
            x = cp.moveaxis(cp.ascontiguousarray(cp.moveaxis(x, -1, 1)), 1, -1)
        y = np.ascontiguousarray(cp.asnumpy(winolab.conv_forward(x, w, padding=1)))
        bias, residual = added(y, 64)
        more = {"bias": cp.asarray(bias), "residual": cp.asarray(residual)}
        got = winolab.conv_forward(x, w, padding=1, activation=activation, **more)
        assert got.strides == winolab.conv_forward(x, w, padding=1).strides
        expected = behind(y, bias, residual, activation, "channels_last")
        assert np.ascontiguousarray(cp.asnumpy(got)).tobytes() == expected.tobytes()
