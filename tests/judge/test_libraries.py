"""Memory that is filled while a kernel runs, whatever compiles it meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from winolab.judge import libraries
from winolab.judge.claim import Claim
from winolab.judge.libraries import NumPy
from winolab.judge.loading import load
from winolab.judge.trial import Case, Judge
from winolab.problem import Problem

numba: Any = pytest.importorskip("numba")
LATE = """
import numpy as np
def total(values):
    from compiled import own
    return own(values)
"""
COMPILED = """
import numba
import numpy as np
@numba.njit(cache=True)
def own(values):
    made = np.empty((2, values.size), values.dtype)
    made[0] = values.ravel()
    return made[0].sum()
"""


@numba.njit
def own_copy(values: np.ndarray) -> np.ndarray:
    made = np.empty(values.shape, values.dtype)
    made[...] = values
    return made


@numba.njit
def copied(values: np.ndarray) -> np.ndarray:
    return own_copy(values)


@pytest.fixture(autouse=True, scope="module")
def compiled() -> None:
    """What is compiled here is a function's first kind of array; later ones are others."""
    copied(np.zeros(1))


def conv(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """A filter of one tap: a compiled copy, for arrays of every kind, times w."""
    return np.einsum("nhwc,kc->nhwk", copied(x), w[:, 0, 0])


@pytest.mark.parametrize("what", ["nan", "zero"])
def test_numba_compiles_where_memory_is_filled(what: str) -> None:
    """Every call compiles a function within another; before and after NumPy's arrays are filled."""
    values = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    empty = np.empty
    with NumPy().memory(what):
        filled = np.empty
        for kind in (values.T, values[::2].astype(np.float64 if what == "nan" else "i4")):
            assert np.array_equal(copied(kind), kind)
            assert np.empty is filled
        made = np.empty(3, np.float32)
        assert np.isnan(made).all() if what == "nan" else (made == made[0]).all()
    assert np.empty is empty


def test_a_function_that_numba_refuses_leaves_memory_filled() -> None:
    @numba.njit
    def wrong(values: Any) -> Any:
        return np.empty_like(values).nonsense  # pyright: ignore[reportAttributeAccessIssue]

    with NumPy().memory("nan"):
        filled = np.empty
        with pytest.raises(numba.TypingError, match="nonsense"):
            wrong(np.ones(3))
        assert np.empty is filled


def test_numba_is_imported_where_memory_is_filled(tmp_path: Path) -> None:
    """What it compiled before is read there, too, and calls after that compile as ever."""
    (tmp_path / "kernel.py").write_text(LATE)
    (tmp_path / "compiled.py").write_text(COMPILED)
    script = """if True:
        import sys
        import numpy as np
        from winolab.judge.libraries import NumPy
        import kernel
        with NumPy().memory("nan"):
            assert kernel.total(np.ones(3, np.float32)) == 3
        assert kernel.total(np.ones(3, sys.argv[1])) == 3
        """
    paths = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    for dtype in ("float32", "float64"):  # the second process reads what the first one compiled
        done = [sys.executable, "-c", script, dtype]
        subprocess.run(done, check=True, env={**os.environ, "PYTHONPATH": paths})


def test_a_right_kernel_of_numba_s_is_no_crash() -> None:
    """The array's order is another than that of the first call, so that Numba compiles again."""
    problem = Problem.of((2, 5, 4, 3), (4, 1, 1, 3))
    judge = Judge(load(f"{__file__}:conv", arrays="numpy"), Claim("direct", "fp32", "forward"))
    for place in ("contiguous", "other order", "reversed"):
        outcome = judge.run(Case(problem, place=place))
        assert outcome.finding is None
        assert outcome.errors


def test_gates_open_one_after_the_other_and_streams_wait_for_them(monkeypatch) -> None:
    """CuPy stands in: a stream goes on when the event is reached, not when it is asked."""
    said: list[tuple] = []

    class Stream:
        def __init__(self, ptr: int = 1, non_blocking: bool = True) -> None:
            self.ptr = ptr

        def __enter__(self) -> None:
            said.append(("on", self.ptr))

        def __exit__(self, *_: object) -> None: ...

        def wait_event(self, event: object) -> None:
            said.append(("waits", self.ptr, event))

    class Event:
        def __init__(self, disable_timing: bool) -> None: ...

        def record(self, stream: Stream) -> None:
            said.append(("records", stream.ptr, self))

    cuda = SimpleNamespace(Stream=Stream, ExternalStream=Stream, Event=Event)
    launch = SimpleNamespace(cuda=cuda, RawKernel=lambda *_: lambda *_: said.append(("stalls",)))
    monkeypatch.setattr(libraries.driver, "cupy", lambda: launch)
    first, second = libraries.gates(2)
    step = [("on", 1), ("stalls",)]
    assert said == [*step, ("records", 1, first), *step, ("records", 1, second)]
    said.clear()
    libraries.stall(7, second)
    assert said == [("waits", 7, second)]
