"""The front on the CPU: arrays that say they are on a GPU, kernels run by tests/gpu/hosted.py."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

import winolab
from tests.gpu.support.pretended import Array
from winolab import calls
from winolab.algorithm import parse_algorithm
from winolab.device import H100
from winolab.gpu import driver
from winolab.gpu.planner.fallback import CorrelationWithFallback
from winolab.gpu.planner.planner import plan
from winolab.gpu.planner.request import Request
from winolab.gpu.runtime import call, conv, loader, planned
from winolab.problem import Problem

SHAPE, FILTER = (2, 5, 8, 12), (16, 3, 3, 12)
HOW: dict[str, Any] = {"padding": 1, "algorithm": "gamma:4:2:3", "precision": "fp32_ffma"}


def data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x, w = (rng.uniform(-1, 1, shape).astype(np.float32) for shape in (SHAPE, FILTER))
    return x, w, winolab.conv_forward(x, w, padding=1, precision="fp64", out_dtype=float)


def close(got: Array, expected: np.ndarray) -> bool:
    return bool(np.abs(got.values - expected).max() <= 1e-5)


def test_contiguous_arrays_take_one_result_and_one_workspace(library) -> None:
    x, w, y = data()
    for _ in range(2):
        got = winolab.conv_forward(Array(x), Array(w), **HOW)
        assert close(got, y)
    assert not library.copied
    (shape, dtype), (workspace, kind) = library.allocated[:2]
    assert (shape, dtype, kind) == (y.shape, "float32", "uint8")
    assert workspace[0] > 4 * w.size
    assert library.allocated[2:] == library.allocated[:2]


def test_given_outputs_are_written_in_place_or_by_way_of_another(library) -> None:
    x, w, y = data()
    wide = np.full((*y.shape[:-1], y.shape[-1] + 3), np.nan, np.float32)
    for out, copies in (
        (np.full_like(wide, np.nan)[..., 2:-1], []),  # unaligned: other stores
        (np.full((*reversed(y.shape),), np.nan, np.float32).T, ["out"]),
        (np.full(y.shape, np.nan, np.float16), []),  # converted by the library
    ):
        library.loaded.clear()
        given = Array(out)
        assert winolab.conv_forward(Array(x), Array(w), out=given, **HOW) is given
        assert np.abs(out - y).max() <= (1e-5 if out.dtype == np.float32 else 1e-2)
        assert library.reordered() == copies
    assert library.copied == 1
    half = winolab.conv_forward(Array(x), Array(w), out_dtype=np.float16, **HOW)
    assert half.dtype == np.float16


@pytest.mark.parametrize("direction", ["forward", "backward_data"])
def test_a_result_may_lie_over_what_it_is_computed_from(library, direction) -> None:
    x, w, _ = data()
    values, size = (x, w[:12]), () if direction == "forward" else (SHAPE,)
    call = getattr(winolab, f"conv_{direction}")
    y = call(*values, *size, padding=1, precision="fp64", out_dtype=float)
    ends = [(0, x.size, 0), (1, w[:12].size, 0), (1, w[:12].size - 1, 1), (1, -x.size, 0)]
    for which, offset, copies in [(0, 0, 1), (0, 5, 1), (0, -5, 1), *ends]:
        memory, first = np.zeros(6 * x.size, np.float32), 2 * x.size
        out = memory[first + offset :][: y.size].reshape(y.shape)
        operands = [v.copy() for v in values]
        operands[which] = memory[first:][: values[which].size].reshape(values[which].shape)
        for _ in range(2):
            library.copied, operands[which][...] = 0, values[which]
            call(*map(Array, operands), *size, out=Array(out), **HOW)
            assert np.abs(out - y).max() <= 1e-5
            assert library.copied == copies


def test_results_beside_what_they_are_computed_from_are_written_in_place(library) -> None:
    x, w, y = data()
    memory = np.full((*y.shape[:-1], 28), np.nan, np.float32)
    memory[..., :12] = x
    first, last = Array(memory[..., :12]), Array(memory[..., 12:])
    assert close(winolab.conv_forward(first, Array(w), out=last, **HOW), y)
    assert not library.copied


@pytest.mark.parametrize("groups", [1, 2])
def test_a_prepared_filter_is_transformed_once(library, groups) -> None:
    x, w, y = data()
    if groups == 2:
        w = w[..., :6]
        y = winolab.conv_forward(x, w, groups=2, padding=1, precision="fp64", out_dtype=float)
    how = {**HOW, "groups": groups}
    prepared = winolab.prepare_filter(Array(w), SHAPE, **how)
    assert [kind for _, kind in library.allocated] == ["uint8"]
    assert library.allocated[0][0] == (prepared.nbytes,)
    for _ in range(2):
        library.allocated.clear()
        assert close(winolab.conv_forward(Array(x), prepared, **how), y)
        assert library.allocated == [(y.shape, "float32")]
    unaligned = np.zeros((*SHAPE[:-1], 15), np.float32)[..., 2:14]
    unaligned[...] = x
    library.loaded.clear()
    assert close(winolab.conv_forward(Array(unaligned), prepared, **how), y)
    assert library.reordered() == ["a"]


def test_a_limit_counts_what_a_prepared_filter_keeps_and_its_calls_take(library) -> None:
    """Both transformed filters, of split products and of what computes them again."""
    x, w, _ = data()
    how = {"padding": 1, "precision": "fp32_split"}
    prepared = winolab.prepare_filter(Array(w), SHAPE, **how)
    with pytest.raises(ValueError, match=r"takes a workspace of .* and the limit is 0 B"):
        winolab.conv_forward(Array(x), prepared, workspace_limit=0, **how)
    winolab.conv_forward(Array(x), prepared, workspace_limit=1 << 20, **how)
    with pytest.raises(ValueError, match=r"stays within .*; the smallest needs"):
        winolab.prepare_filter(Array(w), SHAPE, workspace_limit=prepared.nbytes, **how)


def test_gradients_of_data_take_prepared_filters_too(library) -> None:
    _, w, y = data()
    dy = y.astype(np.float32)
    dx = winolab.conv_backward_data(dy, w, SHAPE, padding=1, precision="fp64", out_dtype=float)
    prepared = winolab.prepare_filter(Array(w), SHAPE, direction="backward_data", **HOW)
    for filter_ in (Array(w), prepared):
        got = winolab.conv_backward_data(Array(dy), filter_, SHAPE, **HOW)
        assert np.abs(got.values - dx).max() <= 1e-4


def test_the_reference_keeps_a_prepared_filter_as_it_is() -> None:
    x, w, _ = data()
    prepared = winolab.prepare_filter(w, SHAPE, padding=1, algorithm="gamma:8:6:3")
    expected = winolab.conv_forward(x, w, padding=1, algorithm="gamma:8:6:3")
    assert (winolab.conv_forward(x, prepared, padding=1) == expected).all()
    assert prepared.nbytes == w.nbytes
    for wrong, message in (
        (lambda: winolab.conv_forward(x, prepared), "is prepared for"),
        (
            lambda: winolab.conv_backward_data(x, prepared, SHAPE, padding=1),
            "prepared for forward, channels_last, not backward_data",
        ),
        (
            lambda: winolab.conv_forward(x, prepared, padding=1, algorithm="direct"),
            "prepared with algorithm gamma:8:6:3, not direct",
        ),
        (
            lambda: winolab.conv_forward(x, prepared, padding=1, precision="fp16"),
            "prepared with precision fp32, not fp16",
        ),
        (
            lambda: winolab.prepare_filter(w, SHAPE, direction=cast(Any, "backward_filter")),
            "a filter serves forward and backward_data",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            wrong()


def test_without_memory_the_given_output_stays_as_it_was(library) -> None:
    x, w, y = data()
    out = np.full(y.shape, 7, np.float32)

    def refuse(size: int, index: int):
        raise MemoryError(f"no device memory for {size} B")

    library.memory = refuse
    with pytest.raises(MemoryError, match=r"for \d+ B"):
        winolab.conv_forward(Array(x), Array(w), out=Array(out), **HOW)
    assert (out == 7).all()


def test_nan_and_infinity_follow_ieee_rules(library) -> None:
    """Every output that depends on the element is not finite; those of other tiles are intact."""
    x, w, y = data()
    expected = host_result(x, w)
    for bad in (np.nan, np.inf, -np.inf):
        spoilt = x.copy()
        spoilt[1, 2, 3, 5] = bad
        got = host_result(spoilt, w)
        assert not np.isfinite(got[1, 1:4, 2:5]).any()
        far = np.ones(y.shape, bool)
        far[1, 1:4] = False
        assert (got[far] == expected[far]).all()


def host_result(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return winolab.conv_forward(Array(x), Array(w), **HOW).values


def test_split_products_alone_say_where_ranges_are_too_wide(library, monkeypatch) -> None:
    x, w, y = data()
    ffma = plan(Request(Problem.of(SHAPE, FILTER, padding=1), "forward", H100, None, "fp32_ffma"))
    both = CorrelationWithFallback(cast(Any, ffma), cast(Any, ffma))
    monkeypatch.setattr(planned, "planned", lambda *_, **__: both)
    # numbers vanish, but no result is 0
    flags, read = [0, 0, 1, 0], []

    def integers(address: int, count: int, stream: int) -> list[int]:
        read.append((address, count, stream))
        return flags

    monkeypatch.setattr(driver, "integers", integers)
    asked = {"padding": 1, "on_range": "raise"}
    assert close(winolab.conv_forward(Array(x), Array(w), **asked), y)
    assert [(count, stream) for _, count, stream in read] == [(CorrelationWithFallback.flags, 7)]
    flags[:] = 1, 0, 0, 0
    with pytest.raises(ValueError, match="magnitudes are too far apart"):
        winolab.conv_forward(Array(x), Array(w), **asked)
    with pytest.raises(ValueError, match="on_range 'ignore'; expected one of fallback, raise"):
        winolab.conv_forward(Array(x), Array(w), padding=1, on_range=cast(Any, "ignore"))


def test_dw_that_overflows_float16_is_reported_with_what_holds_it(library) -> None:
    rng = np.random.default_rng(3)
    x, dy = (rng.uniform(1, 2, (2, 6, 9, 8)).astype("f2") for _ in range(2))
    asked = {"padding": 1, "algorithm": "direct", "on_range": "raise"}
    exact = winolab.conv_backward_filter(
        x, dy, (8, 3, 3, 8), padding=1, precision="fp64", out_dtype=float
    )
    dw = winolab.conv_backward_filter(Array(x), Array(dy), (8, 3, 3, 8), **asked)
    assert dw.values.dtype == "f2"
    assert np.abs(dw.values - exact).max() <= 2**-11 * exact.max() * 1.01
    wide = x * np.float16(1000)
    with pytest.raises(ValueError, match=r"dw reaches 2\d{5}, .*float32 or bfloat16"):
        winolab.conv_backward_filter(Array(wide), Array(dy), (8, 3, 3, 8), **asked)
    asked["on_range"] = "fallback"
    dw = winolab.conv_backward_filter(Array(wide), Array(dy), (8, 3, 3, 8), **asked)
    assert np.isinf(dw.values).any()
    a, b = (Array(v.astype("f4")) for v in (x, dy))
    with pytest.raises(TypeError, match=r"dw in float16 holds at most 65504.*float32 or bfloat16"):
        winolab.conv_backward_filter(a, b, (8, 3, 3, 8), padding=1, out_dtype="float16")


def test_sizes_of_zero_launch_nothing(library) -> None:
    empty = winolab.conv_forward(
        Array(np.ones((0, 5, 5, 4), "f")), Array(np.ones((3, 3, 3, 4), "f"))
    )
    assert empty.shape == (0, 3, 3, 3)
    x, w = np.ones((1, 5, 5, 0), "f"), np.ones((3, 3, 3, 0), "f")
    assert (winolab.conv_forward(Array(x), Array(w)).values == 0).all()
    dy = np.ones((0, 3, 3, 3), "f")
    x = np.ones((0, 5, 5, 2), "f")
    assert (winolab.conv_backward_filter(Array(x), Array(dy), (3, 3, 3, 2)).values == 0).all()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"stride": 2, "algorithm": "gamma:8:6:3"}, ValueError, "stride 1 and dilation 1"),
        (
            {"dilation": 2, "algorithm": "gamma:8:6:3"},
            ValueError,
            "NumPy arrays run on the reference",
        ),
        ({"out_dtype": "float64"}, TypeError, "out_dtype float64; the CUDA kernels write"),
        ({"precision": "tf32"}, ValueError, "precision 'tf32'; the CUDA kernels have fp32"),
        ({"precision": "fp16"}, ValueError, "fp16 takes float16 arrays; x has dtype float32"),
        (
            {"workspace_limit": 100, "algorithm": "gamma:8:6:3"},
            ValueError,
            r"within a workspace of 100 B; the smallest needs",
        ),
        ({"workspace_limit": -1}, ValueError, r"workspace_limit is -1; expected bytes, 0 or more"),
        ({"out": Array(np.ones((2, 3, 6, 15), "f"))}, ValueError, "out has shape"),
        ({"out": Array(np.ones((2, 3, 6, 16), "f"), 1)}, ValueError, "device 0 and out on 1; move"),
        (
            {"out": Array(np.ones((2, 3, 6, 16), "f")), "out_dtype": "float16"},
            TypeError,
            "out has dtype float32 and out_dtype is float16",
        ),
        ({"algorithm": "fft:16:3"}, ValueError, "the CUDA kernels run gamma and direct"),
        ({"layout": "CHWN"}, ValueError, "CHWN is not supported"),
    ],
)
def test_what_is_not_served_is_refused(library, arguments, error, message) -> None:
    x, w, _ = data()
    with pytest.raises(error, match=message):
        winolab.conv_forward(Array(x), Array(w), **arguments)


def test_arrays_that_do_not_fit_together_are_refused(library) -> None:
    x, w, y = data()
    for wrong, error, message in (
        (
            lambda: winolab.conv_forward(Array(x), Array(w, 1)),
            ValueError,
            "x is on CUDA device 0 and w on 1; move one of them",
        ),
        (
            lambda: winolab.conv_forward(Array(x), Array(w.astype("e"))),
            TypeError,
            "x has dtype float32 and w float16",
        ),
        (
            lambda: winolab.conv_forward(Array(x.astype("d")), Array(w.astype("d"))),
            TypeError,
            "x has dtype float64; the CUDA kernels read float32, float16, bfloat16",
        ),
        (
            lambda: winolab.conv_backward_filter(Array(x), Array(x), FILTER, padding=1),
            ValueError,
            r"dy has shape \(2, 5, 8, 12\) with channels last; expected \(2, 5, 8, 16\)",
        ),
        (
            lambda: winolab.conv_backward_filter(
                Array(x), Array(y.astype("f")), FILTER, padding=1, out_dtype="float16"
            ),
            TypeError,
            "dw in float16 holds at most 65504, which sums of float32 products exceed",
        ),
        (
            lambda: winolab.conv_forward(
                Array(x, 1), winolab.prepare_filter(Array(w), SHAPE, padding=1), padding=1
            ),
            ValueError,
            "x is on CUDA device 1 and w on 0",
        ),
    ):
        with pytest.raises(error, match=message):
            wrong()


def test_calls_are_kept_by_how_arrays_lie(library, monkeypatch) -> None:
    made = []

    def prepare(*given):
        made.append(given)
        return call.prepare_call(*given)

    monkeypatch.setattr(conv, "prepare_call", prepare)
    x, w, y = data()
    out = np.empty(y.shape, "f")
    for _ in range(3):
        winolab.conv_forward(Array(x), Array(w), **HOW)
    assert len(made) == 1
    for _ in range(2):
        winolab.conv_forward(Array(x), Array(w), out=Array(out), **HOW)
    assert len(made) == 2
    wide = np.zeros((*SHAPE[:-1], SHAPE[-1] + 4), "f")[..., : SHAPE[-1]]
    winolab.conv_forward(Array(wide), Array(w), **HOW)
    winolab.conv_forward(Array(x), Array(w), **{**HOW, "algorithm": "direct"})
    assert len(made) == 4
    winolab.conv_forward(Array(x), Array(w), **{**HOW, "padding": [1, 1]})  # has no hash
    assert len(made) == 4
    monkeypatch.setattr(calls, "MOST", len(calls.kept))
    winolab.conv_forward(Array(x), Array(w), **{**HOW, "padding": 0})
    assert len(calls.kept) == 2  # by its problem and by its arguments


def test_a_plan_of_every_problem_is_dumped_where_it_is_asked_for(tmp_path, monkeypatch) -> None:
    """Also where others' have the same kernel."""
    monkeypatch.setenv("WINOLAB_DUMP", str(tmp_path))
    monkeypatch.setattr(loader, "load_units", lambda *_: {})
    named, wide = parse_algorithm("gamma:4:2:3"), (*SHAPE[:-1], 2 * SHAPE[-1])
    plans = [
        plan(Request(problem, direction, H100, named, "fp32_ffma"))
        for problem in (
            *(Problem.of(SHAPE, FILTER, padding=p) for p in (0, 1)),
            Problem.of(wide, FILTER, groups=2),
        )
        for direction in ("forward", "backward_data")
    ]
    for chosen in plans:
        call.kernels_of(chosen, 0)
    assert len({str(chosen.config) for chosen in plans}) < len(plans)
    assert {file.suffix for file in tmp_path.iterdir()} == {".plan"}
    texts = sorted(file.read_text() for file in tmp_path.iterdir())
    assert texts == sorted(f"{chosen}\n" for chosen in plans)
