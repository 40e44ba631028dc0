"""Cases and their measurement: against exact arithmetic, and the same however they are run."""

from __future__ import annotations

import math
from dataclasses import asdict
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import winolab
from winolab.algorithm import Tile
from winolab.measure import DATA, Case, significant
from winolab.ref.arithmetic.formats import FORMATS
from winolab.ref.arithmetic.simulated import arithmetic

SMALL: dict[str, Any] = {"input": "2x7x9x8", "filter": "4x3x3", "padding": "1"}


def test_a_row_holds_the_case_and_its_numbers_come_back() -> None:
    case = Case("gamma:8:6:3@paper", **SMALL, data="normal", sample="60", seed=3)
    row = case.measure()
    again = Case.of_row(row)
    assert again == case
    repeated = again.measure()
    assert str({**row, "seconds": 0}) == str({**repeated, "seconds": 0})  # NaN is NaN


def test_texts_that_mean_the_same_are_one_case() -> None:
    assert Case("gamma:8:6:3@best", **SMALL) == Case("gamma:8:6:3", **SMALL)
    assert Case("direct", **SMALL, precision="fp32,storage=fp32") == Case("direct", **SMALL)


@pytest.mark.parametrize("algorithm", ["direct", "gamma:8:6:3", "winograd:2x4:3x3"])
def test_exact_arithmetic_has_no_error(algorithm: str) -> None:
    row = Case(algorithm, **SMALL, precision="exact", data="u11", sample="40").measure()
    assert row["max_abs"] == 0
    assert row["mare"] == 0


def test_a_sample_of_everything_is_everything() -> None:
    full = Case("gamma:8:6:3", **SMALL, sample="full").measure()
    sampled = Case("gamma:8:6:3", **SMALL, sample="1000000").measure()
    assert full["samples"] == sampled["samples"] == 2 * 7 * 9 * 4
    assert full["max_abs"] == sampled["max_abs"]
    # the means add the same numbers in another order
    assert full["mare"] == pytest.approx(sampled["mare"], rel=1e-12)


def test_the_sample_of_a_layer_estimates_it() -> None:
    shape: dict[str, Any] = {"input": "4x24x24x16", "filter": "32x3x3", "padding": "1"}
    full = Case("gamma:8:6:3", **shape, data="normal", sample="full").measure()
    sampled = Case("gamma:8:6:3", **shape, data="normal", sample="8192").measure()
    assert sampled["samples"] < full["samples"] / 5
    # 8192 outputs, at least 270 of them independent: 6 % standard error of an RMS at most
    assert sampled["relative_rms"] == pytest.approx(full["relative_rms"], rel=0.2)
    assert sampled["max_abs"] <= full["max_abs"]


def test_typed_constants_cost_accuracy_and_exact_ones_do_not() -> None:
    shape: dict[str, Any] = {"input": "2x16x16x16", "filter": "8x9x9", "padding": "4"}
    shape["data"] = "u12"
    exact = Case("gamma:16:8:9@paper", **shape).measure()
    typed = Case("gamma:16:8:9@paper", **shape, constants="7").measure()
    assert typed["mare"] > 3 * exact["mare"]


@pytest.mark.parametrize(
    ("q", "digits", "typed"),
    [
        ("164597/576", 7, "285.7587"),
        ("-1/160810650", 3, "-6.22e-9"),
        ("1/8", 2, "0.12"),
        ("5", 1, "5"),
    ],
)
def test_typed_constants_keep_significant_digits(q: str, digits: int, typed: str) -> None:
    assert significant(Fraction(q), digits) == Fraction(typed)


def test_typed_constants_reach_the_programs() -> None:
    programs = Case("gamma:8:6:3@paper", **SMALL, constants="3").programs(Tile(6, 3))
    constants = [op.constant for op in programs.G.ops]
    assert constants == [significant(q, 3) for q in constants]
    exact = Case("gamma:8:6:3@paper", **SMALL).programs(Tile(6, 3))
    assert constants == [significant(op.constant, 3) for op in exact.G.ops]
    assert constants != [op.constant for op in exact.G.ops]


@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16", "bf16", "fp32,storage=fp16", "fp64"])
@pytest.mark.parametrize("algorithm", ["direct", "gamma:8:6:3@paper", "winograd:4x4:3x3"])
@pytest.mark.parametrize("constants", ["exact", "4"])
def test_every_error_is_within_its_bound(algorithm: str, precision: str, constants: str) -> None:
    shape: dict[str, Any] = {**SMALL, "precision": precision, "constants": constants}
    row = Case(algorithm, **shape, data="normal", sample="full").measure()
    assert row["unbounded"] == 0
    assert row["bound_ratio"] <= 1
    assert row["max_abs"] <= row["bound"]


@pytest.mark.parametrize("direction", ["forward", "backward_data", "backward_filter"])
@pytest.mark.parametrize("algorithm", ["dwm:3:2", "fft:8:3", "direct", "winograd:2x2:3x3"])
@pytest.mark.parametrize("data", ["normal", "wide"])
def test_gradients_are_computed_whole(algorithm: str, direction: str, data: str) -> None:
    row = Case(algorithm, **SMALL, data=data, sample="full", direction=direction).measure()
    problem = Case(algorithm, **SMALL, sample="full").problem
    shape = {"forward": problem.y_shape, "backward_data": problem.x_shape}
    assert row["samples"] == np.prod(shape.get(direction, problem.w_shape))
    assert row["multiply_adds"] == pytest.approx(problem.macs, rel=0.1)
    assert 0 < row["relative_rms"] < 1e-5
    assert row["unbounded"] == 0
    assert row["bound_ratio"] <= 1
    assert row["relative_rms"] == pytest.approx(row["prediction"], rel=0.35)
    assert Case.of_row(row).measure()["max_abs"] == row["max_abs"]


@pytest.mark.parametrize("direction", ["forward", "backward_data", "backward_filter"])
@pytest.mark.parametrize("algorithm", ["direct", "dwm:3:2"])
def test_strides_dilation_and_groups_are_those_of_the_calls(algorithm: str, direction: str) -> None:
    geometry: dict[str, Any] = {"stride": (2, 1), "dilation": (1, 2), "padding": (1, 2)}
    texts: dict[str, Any] = {name: "x".join(map(str, sizes)) for name, sizes in geometry.items()}
    case = Case(algorithm, "2x7x9x8", "4x3x3", **texts, groups=2, sample="full",
                data="normal", direction=direction)  # fmt: skip
    a, b = case.tensors()
    shape = {"backward_data": [case.problem.x_shape], "backward_filter": [case.problem.w_shape]}
    call = getattr(winolab, f"conv_{direction}")
    arguments = (a, b, *shape.get(direction, []))
    y = call(*arguments, **geometry, groups=2, algorithm=algorithm, precision="fp32")
    exact = call(*(v.astype(np.float64) if isinstance(v, np.ndarray) else v for v in arguments),
                 **geometry, groups=2, precision="exact", out_dtype=object)  # fmt: skip
    row = case.measure()
    worst = max(abs(Fraction(float(e)) - t) for e, t in zip(y.ravel(), exact.ravel(), strict=True))
    assert row["max_abs"] == pytest.approx(float(worst), rel=1e-6)
    assert 0 < row["bound_ratio"] <= 1
    assert row["unbounded"] == 0
    assert Case.of_row(row) == case
    assert row["relative_rms"] == pytest.approx(row["prediction"], rel=0.35)


def test_a_sample_of_any_number_is_everything() -> None:
    whole = Case("direct", **SMALL, sample=str(10**400)).measure()
    assert whole["samples"] == 2 * 7 * 9 * 4


def test_a_sample_knows_strides_and_dilation() -> None:
    case: dict[str, Any] = {**SMALL, "stride": "2x1", "dilation": "2"}
    full = Case("direct", **case, sample="full").measure()
    sampled = Case("direct", **case, sample="1000000").measure()
    assert full["samples"] == sampled["samples"] == 4 * 7 * 6
    # oracles in FP64 that add in another order
    assert full["max_abs"] == pytest.approx(sampled["max_abs"], rel=1e-6)


def test_rows_from_before_cases_had_strides_are_cases() -> None:
    case = Case("direct", **SMALL)
    fields = asdict(case)
    for name in ("direction", "stride", "dilation", "groups"):
        del fields[name]
    assert Case.of_row(fields) == case
    assert Case("direct", **SMALL, stride="1x1", dilation="1x1") == case


@pytest.mark.parametrize("algorithm", ["winrs", "omega:4:3:2"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_winrs_shows_no_bound(algorithm: str, precision: str) -> None:
    """Direct convolution's would be exceeded here."""
    shape: dict[str, Any] = {"input": "1x9x1", "filter": "1x3", "precision": precision, "seed": 1}
    chosen: dict[str, Any] = {"data": "normal", "sample": "full", "direction": "backward_filter"}
    row = Case(algorithm, **shape, **chosen).measure()
    assert row["unbounded"] == row["samples"] == 3
    assert row["bound"] == np.inf
    assert row["bound_ratio"] == 0
    assert row["max_abs"] > 0


@pytest.mark.parametrize("algorithm", ["winrs", "omega:8:3:6"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_winrs_shows_its_prediction(algorithm: str, precision: str) -> None:
    row = Case(algorithm, "2x12x12x8", "8x3x3", "1", precision, "normal", sample="full",
               direction="backward_filter").measure()  # fmt: skip
    assert row["relative_rms"] == pytest.approx(row["prediction"], rel=0.2)


def test_rows_without_a_direction_are_forward() -> None:
    row = Case("direct", **SMALL, sample="full").measure()
    del row["direction"]
    assert Case.of_row(row).direction == "forward"


def test_gradients_have_no_samples() -> None:
    for direction in ("backward_data", "backward"):
        with pytest.raises(ValueError, match=r"sample|direction"):
            Case("direct", **SMALL, direction=direction)


@pytest.mark.parametrize("sample", ["full", "10"])
def test_no_outputs_have_no_error(sample: str) -> None:
    row = Case("gamma:8:6:3", "0x7x9x8", "4x3x3", sample=sample).measure()
    assert (row["samples"], row["max_abs"], row["bound"]) == (0, 0, 0)


@pytest.mark.parametrize("data", DATA)
def test_data_is_what_its_name_says(data: str) -> None:
    x, w = Case("direct", "4x16x16x8", "8x3x3", data=data).tensors()
    low, high = {"u12": (1, 2), "u01": (0, 1), "u11": (-1, 1)}.get(data, (-np.inf, np.inf))
    for values in (x, w):
        assert values.dtype == np.float32
        assert ((low <= values) & (values <= high)).all()
    mean = {"u12": 1.5, "u01": 0.5, "relu": (2 * np.pi) ** -0.5}.get(data, 0.0)
    assert abs(x.mean() - mean) < 5 * x.std() / np.sqrt(x.size)
    if data == "relu":
        assert 0.45 < (x == 0).mean() < 0.55
    if data == "wide":
        assert np.log2(np.abs(x)).std() > 5  # 20 / sqrt(12) from the exponents alone


def test_data_has_the_storage_format_and_ignores_the_algorithm() -> None:
    a, _ = Case("direct", **SMALL, precision="fp16", data="normal").tensors()
    b, _ = Case("gamma:8:6:3", **SMALL, precision="fp16", data="normal").tensors()
    wide, _ = Case("gamma:8:6:3", **SMALL, data="normal").tensors()
    assert (a == b).all()
    assert (a == FORMATS["fp16"].round(wide.astype(np.float64))).all()


def test_the_oracle_has_more_than_the_case() -> None:
    assert Case("direct", **SMALL).oracle == arithmetic("fp64")
    assert Case("direct", **SMALL, precision="fp64").oracle == arithmetic("mp:200")
    row = Case("gamma:8:6:3", **SMALL, precision="fp64", sample="60").measure()
    assert 0 < row["mare"] < 1e-14
    assert Case("direct", **SMALL, precision="mp:300").oracle == arithmetic("mp:600")
    assert Case("direct", **SMALL, precision="mp:65536").oracle == arithmetic("mp:65536")
    assert Case("direct", **SMALL, precision="exact").oracle == arithmetic("exact")


def _fractions(precision: str, values: np.ndarray) -> np.ndarray:
    """The values of carriers, exactly."""

    def of_mpf(v: Any) -> Fraction:
        sign, mantissa, exponent, _ = v._mpf_
        return (-1) ** sign * int(mantissa) * Fraction(2) ** exponent

    convert = of_mpf if precision.startswith("mp") else Fraction
    return np.array([convert(v) for v in values.reshape(-1).tolist()], object)


@pytest.mark.parametrize("precision", ["fp64", "mp:60", "mp:700"])
@pytest.mark.parametrize(
    ("algorithm", "direction"),
    [
        ("direct", "forward"), ("winograd:4:3", "forward"), ("winograd:4:3", "backward_data"),
        ("winograd:3:2", "backward_filter"), ("winrs", "backward_filter"), ("dwm:2:3", "forward"),
    ],
)  # fmt: skip
def test_errors_of_wide_arithmetics_are_differences_of_fractions(
    algorithm: str, direction: str, precision: str
) -> None:
    """FP64 holds neither the oracle nor, in mp, the result."""
    case = Case(
        algorithm, "1x9x2", "2x3", precision=precision, data="normal", sample="full",
        direction=direction,
    )  # fmt: skip
    a, b = case.tensors()
    run, whole = {"algorithm": algorithm, "precision": precision}, {"precision": "exact"}
    shape: Any = {
        "forward": (), "backward_data": (case.problem.x_shape,),
        "backward_filter": (case.problem.w_shape,),
    }[direction]  # fmt: skip
    compute = getattr(winolab, f"conv_{direction}")
    a, b = (v.astype(np.float64) for v in (a, b))
    kept = {"out_dtype": object} if precision.startswith("mp") else {}
    y = _fractions(precision, compute(a, b, *shape, **run, **kept))
    exact = _fractions("exact", compute(a, b, *shape, **whole, out_dtype=object))
    errors, row = y - exact, case.measure()
    mse, power = (sum(v**2) / len(v) for v in (errors, exact))
    relative = [abs(e / v) for e, v in zip(errors, exact, strict=True)]
    for name, expected in (
        ("max_abs", max(map(abs, errors))),
        ("bias", sum(errors) / len(errors)),
        ("mare", sum(relative) / len(errors)),
        ("max_relative", max(relative)),
    ):
        assert row[name] == pytest.approx(float(expected), rel=1e-10, abs=0)
    scale = 2**600 if precision == "mp:700" else 1  # FP64 does not hold the squares of its errors
    rms = math.sqrt(mse / power * scale**2) / scale
    assert row["relative_rms"] == pytest.approx(rms, rel=1e-10, abs=0)
    if algorithm == "winograd:4:3" or precision == "fp64":
        assert row["max_abs"] > 0


def test_sampled_errors_of_wide_arithmetics_are_the_whole_ones() -> None:
    shape: dict[str, Any] = {**SMALL, "precision": "mp:100", "data": "normal"}
    full = Case("winograd:4x4:3x3", **shape, sample="full").measure()
    sampled = Case("winograd:4x4:3x3", **shape, sample="1000000").measure()
    assert 0 < full["max_abs"] == sampled["max_abs"] < 1e-27
    assert full["relative_rms"] == pytest.approx(full["prediction"], rel=0.35)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"algorithm": "gama:8:6:3"}, "did you mean 'gamma:8:6:3"),
        ({"algorithm": "gamma:8:4:5"}, "5 taps or more in spatial dimension 1"),
        ({"algorithm": "winograd:2:3"}, "has 1 dimension"),
        ({"input": "2x7x8"}, "filter 4x3x3 has 2 spatial dimensions and input 2x7x8 has 1"),
        ({"input": "2x7xx8"}, "expected sizes such as 128x96x96x64"),
        ({"input": "2x8"}, "expected sizes"),
        ({"filter": "four"}, "expected sizes such as 64x3x3"),
        ({"filter": "4x30x3"}, "spatial dimension 0: the filter spans 30 inputs"),
        ({"padding": "-1"}, "padding '-1'"),
        ({"padding": "1x1x1"}, "padding has 3 values"),
        ({"padding": "full"}, "padding 'full'"),
        ({"precision": "fp33"}, "fp33"),
        ({"data": "u13"}, "expected one of u12, u01"),
        ({"constants": "0"}, "constants '0'"),
        ({"constants": "many"}, "number of digits"),
        ({"constants": "1000000000"}, "number of digits, 1 to 50"),  # it ran for ever
        ({"sample": "9" * 5000}, r"sample '9+…'; expected a positive number"),
        ({"sample": "0"}, "sample '0'"),
        ({"sample": "all"}, "'full'"),
        ({"seed": -1}, "seed -1"),
        ({"groups": 3}, "groups = 3; expected a divisor of the 8 channels of input 2x7x9x8"),
        ({"groups": 8}, "groups = 8; expected a divisor of the 4 output channels of filter 4x3x3"),
        ({"groups": 2}, "groups = 2 and sample '4096'; expected sample 'full'"),
        ({"stride": "0"}, "stride in spatial dimension 0 is 0; expected at least 1"),
        ({"dilation": "1x2x3"}, "dilation has 3 values"),
        ({"stride": "2"}, "gamma:8:6:3 needs stride 1"),
        ({"sample": "²"}, "sample '²'; expected a positive number"),
        ({"algorithm": "dwm:3:2", "sample": "10"}, "use sample 'full'"),
    ],
)
def test_bad_cases_say_what_was_expected(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Case(**{"algorithm": "gamma:8:6:3", **SMALL, **change})


@pytest.mark.parametrize(
    ("algorithm", "direction", "message"),
    [
        ("omega:8:6:3", "forward", "filter gradients only; for forward use gamma"),
        ("gamma:8:6:3", "backward_filter", "serves forward and backward data; for the filter grad"),
        ("fft:2", "forward", "a transform of 2 is shorter than the filter's 3 taps"),
        ("dwm:3:2", "forward", "computed whole and with exact constants; use sample 'full'"),
    ],
)
def test_a_full_sample_is_asked_for_where_it_helps(algorithm, direction, message) -> None:
    with pytest.raises(ValueError, match=message):
        Case(algorithm, "2x8x8x4", "4x3x3", "1", direction=direction)
    for empty in ("2x8x8x0", "0x8x8x4"):
        with pytest.raises(ValueError, match="use sample 'full'"):
            Case(algorithm, empty, "4x3x3", "1", direction=direction)


@pytest.mark.parametrize(
    ("algorithm", "precision", "flag"),
    [
        ("gamma:16:14:3", "fp16", "underflow"),
        ("gamma:16:14:3", "fp16,product=fp8_e4m3", "overflow"),
        ("gamma:16:14:3", "bf16", ""),
        ("direct", "fp16,product=fp8_e4m3", ""),
        ("dwm:3:14", "fp16,product=fp8_e4m3", "overflow"),
    ],
)
def test_a_row_says_what_a_format_does_not_hold(algorithm: str, precision: str, flag: str) -> None:
    shape: dict[str, Any] = {
        "input": "2x4x30x8", "filter": "4x3x3", "data": "normal", "sample": "full"
    }  # fmt: skip
    row = Case(algorithm, **shape, precision=precision).measure()
    assert row["range"] == flag
    assert (row["infinite"] > 0) == (flag == "overflow")
    if algorithm.startswith(("gamma", "direct")):
        assert (row["prediction"] == np.inf) == (flag == "overflow")
    if flag == "underflow":
        assert row["relative_rms"] == pytest.approx(row["prediction"], rel=0.2)
