"""NumPy with the little of CuPy that comparisons need."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np


class Buffer(np.ndarray):
    """An array whose memory has an address where CuPy has it."""

    def __new__(cls, array):
        return array.view(cls)

    @property
    def data(self):
        return SimpleNamespace(ptr=self.ctypes.data)


class CuPy:
    """Called as winolab.gpu.driver.cupy is; ``cuda`` is the test's."""

    cuda: Any = None

    def __getattr__(self, name: str):
        return getattr(np, name)

    @staticmethod
    def get_default_memory_pool():
        return SimpleNamespace(free_all_blocks=lambda: None)

    @staticmethod
    def empty(shape, dtype="float64"):
        return Buffer(np.empty(shape, dtype))
