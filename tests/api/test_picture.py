"""Every answer has a picture, where matplotlib is."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import winolab

X, W = (2, 12, 12, 8), (4, 3, 3, 8)


@pytest.mark.parametrize("ask", ["predict", "bound", "cost", "accuracy", "tolerance", "plan"])
def test_it_is_drawn_on_new_axes_and_on_given_ones(ask: str, monkeypatch) -> None:
    rng = np.random.default_rng(0)
    how: dict[str, Any] = {"algorithm": "winograd:4x4:3x3"}
    if ask == "plan":
        how = {}
    if ask == "bound":
        how["data"] = rng.standard_normal(X), rng.standard_normal(W)
    found = getattr(winolab, ask)(X, W, **how)
    axes = found.plot()
    assert axes.get_xlabel()
    assert axes.patches or axes.lines
    assert found.plot(axes) is axes
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ValueError, match=r"pictures need matplotlib: pip install '.\[pict"):
        found.plot()
