"""What every array may be asked, wherever it lies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from winolab import conv_backward_filter
from winolab.arrays import check_float16

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
