"""Predictions from Python: the model's numbers, ranges and states, and what they refuse."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import winolab
from winolab.api.data import NAMED
from winolab.measure import DATA, filled
from winolab.ref.error.moments import Moments
from winolab.ref.error.predict import predict

X, W = (4, 20, 20, 16), (8, 3, 3, 16)


def arrays(seed: int = 0, scale: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return tuple((scale * rng.standard_normal(s)).astype("f4") for s in (X, W))  # pyright: ignore


@pytest.mark.parametrize("name", [*DATA])
def test_named_data_have_the_moments_of_what_is_drawn(name: str) -> None:
    moments, kurtosis = NAMED[name]
    drawn = filled(np.random.default_rng(0), name, (1 << 20,)).astype(float)
    found = Moments.of(drawn)
    assert moments.mean == pytest.approx(found.mean, abs=5e-3)
    assert moments.variance == pytest.approx(found.variance, rel=2e-2)
    assert moments.zeros == pytest.approx(found.zeros, abs=5e-3)
    assert moments.roundoff == pytest.approx(found.roundoff, rel=0.05)
    assert not moments.peak or found.peak <= moments.peak
    if name not in ("u12", "u01"):  # told about 0, of which transforms make sums
        spread = drawn - moments.mean * (name != "relu")
        about = (spread**4).mean() / (spread**2).mean() ** 2
        assert kurtosis == pytest.approx(about, rel=0.2)


def test_it_is_the_model_s_prediction() -> None:
    problem = winolab.Problem.of(X, W, padding=1)
    u11 = NAMED["u11"][0]
    found = winolab.predict(X, W, padding=1, algorithm="gamma:8:6:3")
    expected = predict(u11, u11, problem, "gamma:8:6:3", "fp32")
    assert found.relative_rms == expected.relative_rms
    assert sum(found.shares.values()) == pytest.approx(1)
    assert found.overflow == 0
    assert found.underflow < 1e-30
    told = json.loads(json.dumps(found.to_dict()))
    assert (told["x"], told["algorithm"], told["data"]) == ([*X], "gamma:8:6:3", "u11")
    assert told["relative_rms"] == found.relative_rms
    assert [stage["stage"] for stage in told["stages"]] == [
        "input transform", "filter transform", "sums",
    ]  # fmt: skip
    first = winolab.predict(
        (4, 16, 20, 20), (8, 16, 3, 3), layout="channels_first", padding=1,
        algorithm=winolab.gamma(8, 6, 3), precision=np.float32, data=u11,
    )  # fmt: skip
    assert first.relative_rms == found.relative_rms
    for direction in ("backward_data", "backward_filter"):
        other: Any = direction
        assert winolab.predict(X, W, direction=other, padding=1).relative_rms > 0


def test_arrays_have_an_error_each() -> None:
    x, w = arrays()
    x[0, 5, 5] *= 1e4
    found = winolab.predict(X, W, padding=1, algorithm="winograd:4x4:3x3", data=(x, w))
    assert found.errors is not None
    assert found.errors.shape == (4, 20, 20, 8)
    y = winolab.conv_forward(x, w, padding=1, algorithm="winograd:4x4:3x3")
    exact = winolab.conv_forward(x, w, padding=1, precision="fp64", out_dtype="f8")
    near, far = (slice(0, 1), slice(4, 7), slice(4, 7)), (slice(1, 4),)
    for where in (near, far):
        measured = np.sqrt(((y - exact)[where] ** 2).mean())
        assert measured == pytest.approx(np.sqrt((found.errors[where] ** 2).mean()), rel=0.5)
    first = winolab.predict(
        (4, 16, 20, 20), (8, 16, 3, 3), layout="channels_first", padding=1,
        algorithm="winograd:4x4:3x3", data=(np.moveaxis(x, -1, 1), np.moveaxis(w, -1, 1)),
    )  # fmt: skip
    assert (first.errors == found.errors).all()


def test_it_says_which_state_overflows_as_it_does() -> None:
    """FP16 holds direct products' operands, 900 at most, and not what F(6x6,3x3) makes of them."""
    x, w = arrays(scale=220.0)
    direct = winolab.predict(X, W, padding=1, precision="fp16", data=(x, w / 220))
    tiled = winolab.predict(
        X, W, padding=1, precision="fp16", data=(x, w / 220), algorithm="winograd:6x6:3x3"
    )
    run = {"padding": 1, "precision": "fp16", "algorithm": "winograd:6x6:3x3", "out_dtype": "f4"}
    assert direct.overflow == 0
    assert np.isfinite(winolab.conv_forward(x, w / 220, padding=1, precision="fp16")).all()
    chance, state = tiled.stages[0].worst("overflow")
    assert chance == max(s.worst("overflow")[0] for s in tiled.stages)
    assert (tiled.overflow > 0.5) == (
        not np.isfinite(winolab.conv_forward(x, w / 220, **run)).all()
    )
    larger = winolab.predict(
        X, W, padding=1, precision="fp16", data=(20 * x, w / 220), algorithm="winograd:6x6:3x3"
    )
    assert larger.overflow == 1
    assert "the likeliest state is (" in str(larger)
    assert "of the input transform, in fp16" in str(larger)
    chance, state = larger.stages[0].worst("overflow")
    assert chance > 1e-3
    assert len(state) == 2


def test_small_filters_lose_their_digits_in_fp16() -> None:
    usual = winolab.predict(X, W, precision="fp16", algorithm="winograd:4x4:3x3", data="normal")
    small = winolab.predict(
        X, W, precision="fp16", algorithm="winograd:4x4:3x3",
        data=(Moments(0, 1), Moments(0, 1e-10)),
    )  # fmt: skip
    assert usual.shares.get("underflow", 0) < 0.01
    assert small.shares["underflow"] > 0.9
    assert small.relative_rms > 10 * usual.relative_rms
    assert usual.underflow < 0.01 < 0.5 < small.underflow == small.stages[1].worst("underflow")[0]
    assert "of the filter transform, in fp16" in str(small)


@pytest.mark.parametrize(
    ("how", "error", "message"),
    [
        ({"direction": "backwards"}, ValueError, "direction 'backwards'"),
        ({"precision": "fp8"}, ValueError, "unknown precision 'fp8'"),
        ({"algorithm": "gamma:8:6:5"}, ValueError, "alpha must be n"),
        ({"layout": "nchw"}, ValueError, "layout 'nchw'"),
        ({"data": "u13"}, ValueError, "unknown data 'u13'; expected one of u12, u01, u11, "),
        ({"data": 3}, TypeError, r"data is of type int; expected one of u12, .* arrays \(x, w\)"),
        ({"data": (np.ones(3), np.ones(3))}, ValueError, r"x of data has shape \(3,\); expected"),
        ({"data": (np.ones(X), np.ones(W) * 1j)}, ValueError, "w of data is complex"),
        ({"algorithm": "gamma:8:6:3", "stride": 2}, ValueError, "needs stride 1"),
        ({"algorithm": "winrs"}, ValueError, "filter gradients only"),
        ({"groups": 3}, ValueError, "input channels in 3 group"),
    ],
    ids=str,
)
def test_it_refuses_in_one_line(how: Any, error: type[Exception], message: str) -> None:
    for ask in (winolab.predict, winolab.bound, winolab.tolerance, winolab.accuracy):
        if (ask, how.get("algorithm")) == (winolab.bound, "winrs"):
            continue  # which says the same in other words
        with pytest.raises(error, match=message) as refused:
            ask(X, W, **how)
        assert "\n" not in str(refused.value)


def test_other_libraries_algorithms_and_gpu_precisions_are_known() -> None:
    found = winolab.predict(X, W, algorithm="miopen:ConvBinWinogradRxSf2x3", precision="half")
    meant = winolab.predict(X, W, algorithm="winograd:2x2:3x3", precision="fp16,transform=fp16")
    assert found.relative_rms == meant.relative_rms
    assert found.to_dict()["name"] == "miopen:ConvBinWinogradRxSf2x3"
    assert "miopen:ConvBinWinogradRxSf2x3: winograd:2x2:3x3 in fp16,transform=fp16" in str(found)
    ours = winolab.predict(X, W, algorithm="winograd:2x2:3x3", precision="fp32_ffma")
    assert ours.relative_rms == winolab.predict(X, W, algorithm="F(2x2,3x3)").relative_rms


def test_nothing_to_compute_is_refused() -> None:
    with pytest.raises(ValueError, match="leave nothing to compute"):
        winolab.predict((0, 9, 9, 4), (4, 3, 3, 4))


@pytest.mark.parametrize(
    ("shapes", "how"),
    [
        (((2, 1, 1, 8), (4, 1, 1, 8)), {"stride": 2, "padding": 1}),
        (((1, 5, 8), (2, 3, 8)), {"stride": 50, "padding": 5}),
    ],
)
@pytest.mark.parametrize("direction", ["forward", "backward_filter"])
def test_outputs_of_padding_alone_do_not_err(shapes: Any, how: Any, direction: Any) -> None:
    found = winolab.predict(*shapes, direction=direction, **how)
    assert found.relative_rms == 0


@pytest.mark.parametrize("name", ["predict", "bound", "cost", "tolerance", "plan", "accuracy"])
def test_arrays_are_no_shapes(name: str) -> None:
    x, w = np.ones((1, 8, 8, 4), "f4"), np.ones((4, 3, 3, 4), "f4")
    with pytest.raises(
        TypeError, match=r"^input_shape is an array; expected its shape, as array\.shape"
    ):
        getattr(winolab, name)(x, w)
    with pytest.raises(
        TypeError, match=r"^filter_shape is an array; expected its shape, as array\.shape"
    ):
        getattr(winolab, name)(x.shape, w)
