"""INT8 and FP8 operands: grids, scales, exact sums, one-line errors (issue 48, section 5)."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import winolab
from winolab.measure import Case, filled
from winolab.ref.arithmetic.simulated import arithmetic
from winolab.ref.quantized.scales import Quantized

X, W = (2, 13, 11, 24), (5, 3, 3, 24)
HALVES = "winograd:6x6:3x3@0,3/4,-3/4,4/3,-4/3,inf,x^2+1"
DATA = ("u11", "relu", "wide")  # uniform, after ReLU, heavy-tailed


def drawn(data: str, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x, w = filled(rng, data, X), filled(rng, "u11" if data == "u11" else "normal", W)
    return x, w, winolab.conv_forward(x, w, padding=1, precision="fp64", out_dtype=np.float64)


def relative(y: np.ndarray, exact: np.ndarray) -> float:
    return float(np.linalg.norm(y - exact) / np.linalg.norm(exact))


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("int8", "int8:tensor"),
        (np.int8, "int8:tensor"),
        ("int8:state", "int8:state"),
        ("int9:state_channel:pow2", "int9:state_channel:pow2"),
        ("fp8_e4m3:channel", "fp8_e4m3:channel"),
        ("fp8_e5m2:pow2", "fp8_e5m2:tensor:pow2"),
        ("rns", "rns:tensor"),
        ("rns:channel", "rns:channel"),
    ],
)
def test_names_are_read_back(text: str, meant: str) -> None:
    found = arithmetic(text)
    assert found.name == meant
    assert arithmetic(found.name) == found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "int8:states",
            "unknown scales 'states' of 'int8:states'; expected one of tensor, channel, ",
        ),
        ("int8:state:tensor", "unknown scales 'state:tensor'"),
        ("int32", "precision 'int32'; expected 2 to 16 bits"),
        ("fp8_e3m4", "unknown precision 'fp8_e3m4'"),
        ("rns:state", "'rns:state'; expected rns, rns:tensor or rns:channel"),
    ],
)
def test_wrong_names_are_told_in_a_line(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as found:
        arithmetic(text)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("grid", "dtype"),
    [("fp8_e4m3", ml_dtypes.float8_e4m3fn), ("fp8_e5m2", ml_dtypes.float8_e5m2)],
)
def test_fp8_numbers_are_those_of_ml_dtypes(grid: str, dtype: type) -> None:
    run = Quantized(grid)
    x = np.concatenate([np.geomspace(1e-9, run.largest, 5000), [0.0, run.largest, 2.0**-20]])
    assert np.array_equal(run.rounded(x), x.astype(dtype).astype(np.float64))
    assert np.array_equal(run.rounded(-2 * x[-3:]), [0, -run.largest, -float(dtype(2.0**-19))])


def test_direct_is_the_usual_quantised_convolution() -> None:
    """Integers by hand: one scale a tensor or an output channel, an exact sum, three roundings."""
    x, w, _ = drawn("relu")
    for shared, axes in (("tensor", None), ("channel", (1, 2, 3))):
        of_x = np.float32(np.abs(x).max() / np.float64(127))
        of_w = (np.abs(w).max(axis=axes).astype(np.float64) / 127).astype(np.float32)
        ints = (
            np.rint(x / of_x.astype(float)),
            np.rint(w / of_w.astype(float).reshape(-1, *[1] * 3)),
        )
        sums = winolab.conv_forward(*(v.astype(np.int64) for v in ints), padding=1,
                                    precision="exact", out_dtype=np.int64)  # fmt: skip
        scale = (of_x.astype(float) * of_w.astype(float)).astype(np.float32)
        y = winolab.conv_forward(x, w, padding=1, precision=f"int8:{shared}")
        assert np.array_equal(y, scale * sums.astype(np.float32))


@pytest.mark.parametrize("data", DATA)
def test_more_scales_and_bits_and_factors_lose_less(data: str) -> None:
    """Scales a state let F(4×4,3×3) stand; x² + 1 has the same saving at less error again."""
    x, w, exact = drawn(data)

    def error(algorithm: str, precision: str) -> float:
        return relative(
            winolab.conv_forward(x, w, padding=1, algorithm=algorithm, precision=precision), exact
        )

    four = "winograd:4x4:3x3"
    direct = error("direct", "int8:channel")
    assert direct < error("winograd:2x2:3x3", "int8:state") < error(four, "int8:state")
    assert error(four, "int8:state") < error(four, "int8")
    assert error(four, "int8:state_channel") < 1.05 * error(four, "int8:state")
    assert error(HALVES, "int8:state") < 0.8 * error(four, "int8:state")
    assert error(four, "int10:state") < 0.4 * error(four, "int8:state")
    assert error(four, "fp8_e4m3:state") < 0.7 * error(four, "fp8_e5m2:state")


@pytest.mark.parametrize("direction", ["forward", "backward_data", "backward_filter"])
@pytest.mark.parametrize(
    ("algorithm", "precision"),
    [
        ("direct", "int8:channel"),
        ("winograd:4x4:3x3", "int8:state_channel:pow2"),
        (HALVES, "int8:state"),
        ("winograd:2x2:3x3", "fp8_e4m3:tensor"),
        ("winograd:4x4:3x3", "fp8_e5m2:state"),
        ("winograd:4x4:3x3", "rns"),
    ],
)
def test_no_error_exceeds_its_bound(algorithm: str, precision: str, direction: str) -> None:
    if direction == "backward_filter" and algorithm != "direct":
        algorithm = algorithm.replace("2x2:3x3", "3x3:2x2").replace("4x4:3x3", "3x3:4x4")
        algorithm = algorithm.replace("6x6:3x3", "3x3:6x6")
    tight = 0.0
    for data in DATA:
        case = Case(algorithm, "1x10x9x7", "3x3x3", precision=precision, data=data, sample="full",
                    direction=direction, padding="1")  # fmt: skip
        row = case.measure()
        assert 0 < row["bound_ratio"] <= 1
        assert np.isnan(row["prediction"])
        tight = max(tight, row["bound_ratio"])
    assert tight > 0.005


def test_images_share_a_scale_and_blocks_of_tiles_too(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w, _ = drawn("u11")
    x[1] *= 100
    how = {"padding": 1, "algorithm": "winograd:4x4:3x3", "precision": "int8:state"}
    y = winolab.conv_forward(x, w, **how)
    alone = winolab.conv_forward(x[:1], w, **how)
    assert not np.array_equal(y[:1], alone)
    monkeypatch.setattr("winolab.ref.algorithms.engine.BLOCK", 1)
    assert np.array_equal(winolab.conv_forward(x, w, **how), y)
    case = Case("winograd:4x4:3x3", "2x13x11x24", "5x3x3", "1", "int8:state", sample="full")
    case.measured(x, w)
    whole = case.measured(x, w)["relative_rms"]
    assert whole == pytest.approx(relative(y, winolab.conv_forward(
        x, w, padding=1, precision="fp64", out_dtype=np.float64)))  # fmt: skip


def test_what_is_not_known_before_the_data_is_told() -> None:
    shapes = (1, 8, 8, 4), (4, 3, 3, 4)
    with pytest.raises(ValueError, match=r"int8:state rounds by scales .* winolab\.accuracy"):
        winolab.predict(*shapes, precision="int8:state")
    with pytest.raises(ValueError, match="int8:tensor has scales of all data; expected sample"):
        Case("direct", "1x8x8x4", "4x3x3", precision="int8")
    with pytest.raises(ValueError, match="cannot run in int8:tensor"):
        winolab.conv_forward(np.ones(shapes[0], np.float32), np.ones(shapes[1], np.float32),
                             algorithm="fft:8", precision="int8")  # fmt: skip
    with pytest.raises(ValueError, match="int16:tensor sums 9000000 products"):
        Quantized("int16").of_states([np.ones((1, 1, 1))], np.ones((1, 1, 1))).matmul(
            np.broadcast_to(1.0, (1, 1, 9_000_000)), np.broadcast_to(1.0, (1, 9_000_000, 1))
        )
    found = winolab.accuracy(*shapes, precision="int8:state", algorithm="dwm:2:2")
    assert found.row["bound"] == np.inf > found.relative_rms > 0
    zeros = np.zeros(shapes[0], np.float32)
    assert not winolab.conv_forward(zeros, np.ones(shapes[1], np.float32), precision="int8").any()


@pytest.mark.parametrize("text", ["fp32", "int8", "int8:state", "fp8_e4m3:channel"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_stays_within_its_image_where_scales_do(text, value) -> None:
    x, w, _ = drawn("u11")
    x[1, 4, 4, 2] = value
    y = winolab.conv_forward(x, w, padding=1, precision=text)
    assert not np.isfinite(y[1]).all()
    assert np.isfinite(y[0]).all() == (text == "fp32")
