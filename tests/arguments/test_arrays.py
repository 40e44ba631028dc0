"""What every array may be asked, wherever it lies."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from winolab import conv_backward_filter, conv_forward, prepare_filter
from winolab.arguments.arrays import check_float16, precision_named
from winolab.ref.arithmetic.simulated import PRESETS, arithmetic

BELOW = float(np.nextafter(np.float32(65520), np.float32(0)))  # rounded to 65504


@pytest.mark.parametrize("largest", [0.0, 65504.0, BELOW])
def test_what_float16_holds_once_rounded_passes(largest: float) -> None:
    check_float16(largest)
    assert np.isfinite(np.float32(largest).astype(np.float16))


@pytest.mark.parametrize("largest", [65520.0, 65528.0, 65536.0])
def test_what_rounds_to_infinity_is_refused(largest: float) -> None:
    with pytest.raises(ValueError, match=f"dw reaches {largest:.6g}, and float16 holds"):
        check_float16(largest)
    with np.errstate(over="ignore"):
        assert np.isinf(np.float32(largest).astype(np.float16))


@pytest.mark.parametrize("largest", [BELOW, 65520.0])
def test_a_dw_is_refused_where_it_is_infinite_in_float16(largest: float) -> None:
    x, dy = np.full((1, 1, 1), largest, np.float32), np.ones((1, 1, 1), np.float32)

    def dw(**how: Any) -> np.ndarray:
        return conv_backward_filter(x, dy, (1, 1, 1), out_dtype=np.float16, **how)

    if largest < 65520:
        assert dw(on_range="raise").item() == 65504
        return
    assert np.isinf(dw().item())
    with pytest.raises(ValueError, match="dw reaches 65520"):
        dw(on_range="raise")


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("float32", "fp32"),
        ("float64", "fp64"),
        ("float16", "fp16"),
        ("bfloat16", "bf16"),
        ("double", "fp64"),
        ("single", "fp32"),
        ("half", "fp16"),
        ("torch.float32", "fp32"),
        ("float32,storage=fp16", "fp32,storage=fp16"),
        (np.float32, "fp32"),
        (np.dtype(np.float64), "fp64"),
        (ml_dtypes.bfloat16, "bf16"),
        (float, "fp64"),
        ("fp32_split", "fp32_split"),
        (np.int8, "int8"),
        ("fp8", "fp8"),
        (None, None),
    ],
)
def test_dtypes_are_precisions_by_what_they_mean(given, meant) -> None:
    """Issue 42, item 22: "float32" hinted at tf32."""
    assert precision_named(given) == meant
    if meant in PRESETS:
        assert arithmetic(given) == arithmetic(meant)
        x, w = np.ones((1, 4, 4, 2), np.float32), np.ones((2, 3, 3, 2), np.float32)
        how: dict[str, Any] = {"algorithm": "gamma:4:2:3", "out_dtype": float}
        found = conv_forward(x / 3, w / 7, precision=given, **how)
        assert (found == conv_forward(x / 3, w / 7, precision=meant, **how)).all()
        prepared = prepare_filter(w / 7, x.shape, algorithm="gamma:4:2:3", precision=given)
        assert (conv_forward(x / 3, prepared, precision=meant, **how) == found).all()


def test_dtypes_of_torch_are_known_without_torch() -> None:
    class Torch:
        def __init__(self, name: str) -> None:
            self.name = name

        def __repr__(self) -> str:
            return f"torch.{self.name}"

    Torch.__module__ = "torch"
    for name, meant in (("float32", "fp32"), ("bfloat16", "bf16"), ("int8", "int8")):
        assert precision_named(Torch(name)) == meant


def test_float_is_two_dtypes() -> None:
    for refuse in (arithmetic, precision_named):
        with pytest.raises(ValueError, match="'float' is fp64 in NumPy and fp32 in PyTorch"):
            refuse("float")
