"""Where the simulation's sums run: NumPy's blocks, or Numba's loops where it is installed.

``numba`` comes with the extra ``fast``. Both give the same bits; Numba's loops are five to twenty
times as fast. They are compiled once on a machine, in some seconds, and kept beside the sources or,
where these cannot be written, in the user's folder.
"""

from __future__ import annotations

import importlib
import importlib.util
from functools import cache
from typing import Any

# Multiply-adds of a process from which Numba is loaded: NumPy's take about as long as loading does.
ENOUGH = 1 << 28
done = 0


def available() -> bool:
    """Whether Numba is there; nothing is loaded."""
    return importlib.util.find_spec("numba") is not None


@cache
def installed() -> Any:
    """The module of compiled loops; None without Numba."""
    try:
        importlib.import_module("numba")
    except ImportError:
        return None
    return importlib.import_module("winolab.ref.arithmetic.compiled")


def compiled(work: int) -> Any:
    """The module of compiled loops for so many multiply-adds; None where Numba is not installed, or
    not worth loading yet."""
    global done
    done += work
    return installed() if done >= ENOUGH else None
