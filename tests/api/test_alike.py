"""What the functions that need no arrays understand alike, and refuse with the same words."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import winolab

X, W = (2, 10, 10, 4), (8, 3, 3, 4)
ASKED: dict[str, Callable[..., Any]] = {
    name: getattr(winolab, name)
    for name in ("predict", "bound", "tolerance", "accuracy", "cost", "plan")
}
every = pytest.mark.parametrize("name", ASKED)


def told(found: Any) -> str:
    """The answer as JSON has it, without the seconds that it took; NaN is equal to itself there."""
    return json.dumps({k: v for k, v in found.to_dict().items() if k != "seconds"})


@every
def test_no_precision_is_fp32(name: str) -> None:
    assert told(ASKED[name](X, W, precision=None)) == told(ASKED[name](X, W, precision="fp32"))
