"""A GPU of simulated arithmetics whose memory is NumPy's and whose kernels run on the CPU."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.gpu import hosted
from winolab.gpu import driver
from winolab.gpu.runtime import simulation


def held(array: np.ndarray) -> Any:
    """A NumPy array as CuPy has its own."""
    return SimpleNamespace(array=array, data=SimpleNamespace(ptr=array.ctypes.data))


def pretend(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Pretend it, as long as the patch lasts; the names of kernels, as they are loaded."""
    cupy = SimpleNamespace(
        asarray=held,
        empty=lambda shape, dtype: held(np.full(shape, np.nan, dtype)),
        asnumpy=lambda made: made.array,
        cuda=SimpleNamespace(Device=lambda: SimpleNamespace(id=0)),
    )
    monkeypatch.setattr(driver, "cupy", lambda: cupy)
    names: list[str] = []

    def load(source: str, title: str, shared: dict[str, int], index: int) -> Any:
        names.extend(shared)
        return hosted.load(source, shared)

    monkeypatch.setattr(simulation, "load", load)
    return names
