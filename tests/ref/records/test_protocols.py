"""The protocols in which sets of points are compared."""

from __future__ import annotations

import numpy as np
import pytest

from winolab.ref.records.protocols import PROTOCOLS, simulated


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_seeds_are_drawn_one_by_one(protocol: str) -> None:
    both = simulated(2, 3, "best", protocol, seeds=2)
    assert simulated(2, 3, "best", protocol, seeds=1) == both[:1]
    assert both[0] != both[1]


def test_the_published_error_of_f_2_3() -> None:
    """Barabasz et al. state 7.65e-8 of F(2×2,3×3) at 0, −1, 1 and infinity."""
    found = np.mean(simulated(2, 3, "0,-1,1,inf", "1803.10986"))
    assert found == pytest.approx(7.65e-8, rel=0.1)


def test_formats_of_fewer_bits_lose_more() -> None:
    fp32, fp16, bf16 = (
        simulated(4, 3, "best", "u11", precision, 1)[0] for precision in ("fp32", "fp16", "bf16")
    )
    assert fp32 * 500 < fp16 < bf16 < fp32 * 2**17
