"""winolab.conv_* on CUDA arrays: the kernels behind the public calls."""

from __future__ import annotations

import importlib
import re
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import winolab
from tests.gpu.support.directions import SHAPES, UNITS, arrays, directions, operands
from winolab.algorithm import parse_algorithm
from winolab.bench.oracle import relative_rms
from winolab.gpu import driver
from winolab.gpu.families.registry import FAMILIES
from winolab.gpu.planner.planner import plan
from winolab.gpu.planner.request import DTYPES, Request
from winolab.gpu.runtime import loader
from winolab.gpu.runtime.call import kernels_of
from winolab.ref.error.bounds import bound

pytestmark = pytest.mark.gpu
LIBRARIES = ["cupy", *(["torch"] if find_spec("torch") else [])]
# Relative RMS on zero-mean data: unit roundoff of the operands, and what transforms add to it.
TOLERANCE = {"float32": 1e-5, "float16": 1e-2, "bfloat16": 8e-2}


def device_array(value: np.ndarray, library: str, dtype: str = "float32"):
    """A CUDA array of that library."""
    module = importlib.import_module(library)
    if library == "torch":
        return module.from_numpy(value).cuda().to(getattr(module, dtype))
    return module.asarray(value, dtype)


def host(value) -> np.ndarray:
    return value.float().cpu().numpy() if hasattr(value, "cpu") else driver.cupy().asnumpy(value)


def close(got, expected: np.ndarray, dtype: str = "float32") -> bool:
    error = relative_rms(host(got), expected)
    return bool(error <= TOLERANCE[dtype])


def oracle(direction: str, a: np.ndarray, b: np.ndarray, *shape, **how) -> np.ndarray:
    call = getattr(winolab, f"conv_{direction}")
    return call(a, b, *shape, precision="fp64", out_dtype=np.float64, **how)


@pytest.mark.parametrize("algorithm", [None, "direct", "gamma:8:6:3", "gamma:4:2:3@paper"])
@pytest.mark.parametrize("layout", ["channels_last", "channels_first"])
def test_cupy_arrays_go_to_the_kernels_and_come_back(algorithm, layout):
    """Within the proven bound of FP32 summation in any order (the kernels' differs from ours)."""
    cp = driver.cupy()
    x, w, _ = arrays(1, x=(2, 11, 13, 17), w=(9, 3, 3, 17), y=(2, 11, 13, 9))
    y = oracle("forward", x, w, padding=1)
    problem = winolab.Problem.of(x.shape, w.shape, padding=1)
    chosen = parse_algorithm(algorithm or "gamma:8:6:3")
    run = winolab.arithmetic("fp32")
    first = layout == "channels_first"

    def device(*values):
        return [cp.asarray(np.moveaxis(v, -1, 1).copy() if first else v) for v in values]

    def back(value):
        return np.moveaxis(host(value), 1, -1) if first else host(value)

    how = {"padding": 1, "layout": layout, "algorithm": algorithm, "precision": "fp32_ffma"}
    gx, gw, gy = device(x, w, y.astype(np.float32))
    forward = winolab.conv_forward(gx, gw, **how)
    assert isinstance(forward, cp.ndarray)
    assert (np.abs(back(forward) - y) <= bound(x, w, problem, chosen, run)).all()
    gradient = winolab.conv_backward_data(gy, gw, gx.shape, **how)
    dy = y.astype(np.float32)
    dx = oracle("backward_data", dy, w, x.shape, padding=1)
    limit = bound(dy, w, problem, chosen, run, direction="backward_data")
    assert (np.abs(back(gradient) - dx) <= limit).all()


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("precision", sorted(UNITS))
def test_every_precision_and_direction_that_families_offer(precision, library):
    dtype = DTYPES[precision]
    if dtype == "bfloat16" and library == "cupy" and not has_bfloat16():
        with pytest.raises(TypeError):
            device_array(arrays()[0], library, dtype)
        return
    for direction in directions(precision):
        (a, b), shape = operands(direction)
        ga, gb = (device_array(v, library, dtype) for v in (a, b))
        expected = oracle(direction, host(ga), host(gb), *shape, padding=1)
        call = getattr(winolab, f"conv_{direction}")
        named = None if precision in ("fp16", "bf16") else precision
        got = call(ga, gb, *shape, padding=1, precision=named)
        assert str(got.dtype).removeprefix("torch.") == dtype
        assert close(got, expected, dtype)
        wide = call(ga, gb, *shape, padding=1, out_dtype="float32", precision=named)
        assert str(wide.dtype).removeprefix("torch.") == "float32"
        assert close(wide, expected, dtype)


def has_bfloat16() -> bool:
    """CuPy has it from version 14 on."""
    try:
        device_array(np.ones(2, np.float32), "cupy", "bfloat16")
    except TypeError:
        return False
    return True


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("layout", ["channels_last", "channels_first"])
@pytest.mark.parametrize("direction", sorted({d for f in FAMILIES for d in f.directions}))
def test_any_strides_and_given_outputs(direction, layout, library):
    """Views of larger arrays, transposed memory, an out that is a view: nothing else is touched."""
    (a, b), shape = operands(direction)
    expected = oracle(direction, a, b, *shape, padding=1)
    call = getattr(winolab, f"conv_{direction}")
    first = layout == "channels_first"

    def logical(value):
        return np.moveaxis(value, -1, 1) if first else value

    for order in ((0, 1, 2, 3), (3, 0, 2, 1), (2, 3, 1, 0)):
        spread = []
        for value in (a, b):
            padded = np.zeros([n + 3 for n in np.transpose(logical(value), order).shape], "f")
            inside = tuple(slice(1, n + 1) for n in np.transpose(logical(value), order).shape)
            padded[inside] = np.transpose(logical(value), order)
            there = device_array(padded, library)[inside]
            back = [order.index(i) for i in range(4)]
            spread.append(there.permute(*back) if library == "torch" else there.transpose(back))
        given = [tuple(logical(np.empty(s)).shape) for s in shape]
        how = {"padding": 1, "layout": layout}
        got = host(call(*spread, *given, **how))
        assert close_host(np.moveaxis(got, 1, -1) if first else got, expected)
        size = logical(expected).shape
        buffer = device_array(np.full((*size[:-1], size[-1] + 4), np.nan, np.float32), library)
        out = buffer[..., 1 : size[-1] + 1]
        assert call(*spread, *given, out=out, **how) is out
        got = host(out)
        assert close_host(np.moveaxis(got, 1, -1) if first else got, expected)
        beside = np.delete(host(buffer), np.s_[1 : size[-1] + 1], axis=-1)
        assert np.isnan(beside).all()


def close_host(got: np.ndarray, expected: np.ndarray) -> bool:
    error = relative_rms(got, expected)
    return bool(error <= TOLERANCE["float32"])


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("direction", ["forward", "backward_data"])
def test_a_prepared_filter_stands_for_the_filter(direction, library):
    (a, w), shape = operands(direction)
    ga, gw = device_array(a, library), device_array(w, library)
    x_shape = SHAPES["x"]
    prepared = winolab.prepare_filter(gw, x_shape, direction=direction, padding=1)
    assert prepared.nbytes > 0
    call = getattr(winolab, f"conv_{direction}")
    expected = oracle(direction, a, w, *shape, padding=1)
    for value in (ga, ga[..., ::1]):
        assert close(call(value, prepared, *shape, padding=1), expected)
    same = call(ga, gw, *shape, padding=1, algorithm=None)
    assert close(same, expected)
    with pytest.raises(ValueError, match="is prepared for"):
        call(ga[:1], prepared, *([(1, *shape[0][1:])] if shape else []), padding=1)
    with pytest.raises(ValueError, match="with algorithm of the planner's choice, not direct"):
        call(ga, prepared, *shape, padding=1, algorithm="direct")


def test_streams_and_threads_have_calls_of_their_own():
    cp = driver.cupy()
    x, w, _ = (cp.asarray(v) for v in arrays())
    expected = host(winolab.conv_forward(x, w, padding=1))
    wrong = []

    def work() -> None:
        stream = cp.cuda.Stream(non_blocking=True)
        with stream:
            for _ in range(50):
                y = winolab.conv_forward(x, w, padding=1)
            stream.synchronize()
        if not (host(y) == expected).all():
            wrong.append(y)

    cp.cuda.Device().synchronize()
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("direction", sorted({d for f in FAMILIES for d in f.directions}))
@pytest.mark.parametrize("precision", sorted(UNITS))
def test_a_graph_captures_every_family(precision, direction):
    if direction not in directions(precision) or precision.startswith("bf16"):
        return
    cp = driver.cupy()
    (a, b), shape = operands(direction)
    a, b = (cp.asarray(v, DTYPES[precision]) for v in (a, b))
    call = getattr(winolab, f"conv_{direction}")
    expected = call(a, b, *shape, padding=1, precision=precision)
    out = cp.empty_like(expected)
    stream = cp.cuda.Stream(non_blocking=True)
    cp.cuda.Device().synchronize()
    with stream:
        call(a, b, *shape, padding=1, precision=precision, out=out)  # memory for the capture
        stream.begin_capture()
        call(a, b, *shape, padding=1, precision=precision, out=out)
        graph = stream.end_capture()
        out.fill(cp.nan)
        graph.launch(stream)
        stream.synchronize()
    assert bool((out == expected).all())


def test_a_cupy_graph_keeps_its_memory():
    """What is allocated between replays is not written over."""
    cp = driver.cupy()
    (x, w), _ = operands("forward")
    x, w = cp.asarray(x, "float32"), cp.asarray(w, "float32")
    expected = winolab.conv_forward(x, w, padding=1)
    out, stream = cp.empty_like(expected), cp.cuda.Stream(non_blocking=True)
    cp.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        winolab.conv_forward(x, w, padding=1, out=out)
        graph = stream.end_capture()
        others = [cp.zeros(size, "uint8") for size in (1 << k for k in range(9, 24)) for _ in "ab"]
        for _ in range(3):
            graph.launch(stream)
        stream.synchronize()
    assert bool((out == expected).all())
    assert not any(bool(other.any()) for other in others)


def test_a_torch_graph_captures_calls_and_their_memory():
    if "torch" not in LIBRARIES:
        return
    torch = importlib.import_module("torch")
    (x, w), _ = operands("forward")
    x, w = device_array(x, "torch"), device_array(w, "torch")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        winolab.conv_forward(x, w, padding=1)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = winolab.conv_forward(x, w, padding=1)
    for seed in (1, 2):
        x.copy_(device_array(arrays(seed)[0], "torch"))
        graph.replay()
        assert bool((y == winolab.conv_forward(x, w, padding=1)).all())


def test_nan_and_infinity_follow_ieee_rules():
    """Every output that depends on the element is not finite, far ones are intact."""
    cp = driver.cupy()
    for bad in (np.nan, np.inf):
        x, w = cp.ones((1, 30, 30, 8), "f"), cp.ones((8, 3, 3, 8), "f")
        x[0, 15, 15] = bad
        y = winolab.conv_forward(x, w, padding=1)[0]
        assert not bool(cp.isfinite(y[14:17, 14:17]).any())
        assert bool((cp.abs(y[2:5, 2:5] - 72) <= 72 * 2.0**-17).all())


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("direction", directions("fp32_split"))
def test_ranges_too_wide_for_split_products(direction, library):
    """FP32's accuracy by default, an error where asked for; no error where data are harmless."""
    (a, b), shape = operands(direction)
    wide = a.copy()
    # an image of the result: all channels of it but the first, which no output reads
    wide[0, ..., 1:] *= np.float32(2.0**-60)
    if direction != "backward_filter":
        b[..., 0] = b[0] = 0
    wide[..., 3] *= np.float32(2.0**-60)  # an input channel of dw
    call = getattr(winolab, f"conv_{direction}")
    named = "omega:8:3:6" if direction == "backward_filter" else "gamma:8:6:3"
    how = {"padding": 1, "precision": "fp32_split", "algorithm": named}
    expected = oracle(direction, wide, b, *shape, padding=1)
    a, wide, b = (device_array(v, library) for v in (a, wide, b))
    assert close(call(a, b, *shape, on_range="raise", **how), host(call(a, b, *shape, **how)))
    got = host(call(wide, b, *shape, **how))
    tiny = np.s_[..., 3] if direction == "backward_filter" else np.s_[0]
    assert close_host(got[tiny], expected[tiny])
    assert close_host(got, expected)
    with pytest.raises(ValueError, match="magnitudes are too far apart"):
        call(wide, b, *shape, on_range="raise", **how)


def test_empty_arrays_are_served():
    cp = driver.cupy()
    w = cp.ones((3, 3, 3, 2), "f")
    assert winolab.conv_forward(cp.ones((0, 8, 8, 2), "f"), w).shape == (0, 6, 6, 3)
    y = winolab.conv_forward(cp.ones((1, 8, 8, 0), "f"), cp.ones((3, 3, 3, 0), "f"))
    assert bool((y == cp.zeros((1, 6, 6, 3))).all())


def test_what_the_kernels_do_not_serve_is_refused():
    cp = driver.cupy()
    x, w = cp.ones((1, 8, 8, 4), "float32"), cp.ones((4, 3, 3, 4), "float32")
    dy = cp.ones((1, 6, 6, 4), "float32")
    for call, error, message in (
        (
            lambda: winolab.conv_forward(x, w, stride=2, algorithm="gamma:8:6:3"),
            ValueError,
            "stride 1 and dilation 1",
        ),
        (lambda: winolab.conv_forward(x, w, out_dtype="f8"), TypeError, "out_dtype float64"),
        (lambda: winolab.conv_forward(x, w, precision="tf32"), ValueError, "'tf32'"),
        (
            lambda: winolab.conv_forward(x, w, workspace_limit=0, algorithm="gamma:8:6:3"),
            ValueError,
            "within a workspace of 0 B; the smallest needs 49152 B",
        ),
        (lambda: winolab.conv_forward(x, host(w)), TypeError, "w is a ndarray"),
        (lambda: winolab.conv_forward(host(x), w), TypeError, "x is a ndarray"),
        (lambda: winolab.conv_forward(x, w, out=w), ValueError, "out has shape"),
        (lambda: winolab.conv_forward(x, w, layout=cast(Any, "CHWN")), ValueError, "CHWN"),
        (
            lambda: winolab.conv_backward_filter(x, dy[:, 1:], w.shape),
            ValueError,
            r"dy has shape \(1, 5, 6, 4\) with channels last; expected \(1, 6, 6, 4\)",
        ),
        (
            lambda: winolab.conv_backward_filter(x, dy, w.shape, out_dtype="float16"),
            TypeError,
            "dw in float16 holds at most 65504",
        ),
    ):
        with pytest.raises(error, match=message):
            call()


def test_a_limit_of_no_workspace_is_served_by_a_kernel_that_takes_none():
    """The fused kernel of two dimensions; its sums of ones are exact."""
    cp = driver.cupy()
    x, w = cp.ones((1, 8, 8, 4), "float32"), cp.ones((4, 3, 3, 4), "float32")
    y = winolab.conv_forward(x, w, workspace_limit=0)
    assert bool((y == cp.full((1, 6, 6, 4), 36, "float32")).all())


def test_the_readme_s_example_runs():
    if "torch" not in LIBRARIES:
        return
    text = (Path(__file__).resolve().parents[3] / "README.md").read_text()
    (example,) = [b for b in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "cuda" in b]
    names: dict = {}
    exec(example, names)
    expected = names["torch"].nn.functional.conv2d(
        names["x"].double(), names["w"].double(), padding=1
    )
    assert close(names["y"].detach(), host(expected.detach()))


@pytest.mark.parametrize("precision", sorted(UNITS))
def test_dumps_hold_plan_source_and_resources(precision, tmp_path, monkeypatch, caplog):
    dtype = DTYPES[precision]
    problem = winolab.Problem.of(SHAPES["x"], SHAPES["w"], padding=1)
    for direction in directions(precision):
        monkeypatch.setenv("WINOLAB_DUMP", str(tmp_path / direction))
        chosen = plan(
            Request(problem, direction, driver.device(0), None, precision, out_dtype=dtype)
        )
        loader._loaded.cache_clear()
        kernels_of(chosen, 0)
        kinds = sorted(path.suffix for path in (tmp_path / direction).iterdir())
        count = len(chosen.translation_units())
        assert kinds == [".cu"] * count + [".plan"] + [".txt"] * count
        assert all(f"compiling {unit.title}" in caplog.text for unit in chosen.translation_units())


def test_running_out_of_memory_says_how_much_was_asked():
    cp = driver.cupy()
    x, w = cp.ones((1, 2048, 2048, 1), "f"), cp.ones((1 << 18, 1, 1, 1), "f")
    with pytest.raises(MemoryError, match=rf"{2**22 * 2**18 * 4} B"):
        winolab.conv_forward(x, w)
