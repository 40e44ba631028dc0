"""The random problems' machinery on the CPU, and that it finds what a kernel does wrong."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from functools import partial
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest

from tests.gpu import guarded, hosted
from tests.gpu.support.molds import MOLDS, PLANES, algorithms
from winolab.device import H100
from winolab.gpu import driver
from winolab.gpu.families.gamma_ffma.plan import GammaFfmaPlan
from winolab.gpu.families.registry import FAMILIES, Family
from winolab.gpu.params import View


class HostArray(np.ndarray):
    """A NumPy array with the address where CuPy has it."""

    @property
    def data(self) -> SimpleNamespace:
        return SimpleNamespace(ptr=self.ctypes.data)


class Draw:
    """As CuPy's generator takes its arguments."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def random(self, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        return self._rng.random(shape, dtype=np.float32)


def full(size: int, value: int, dtype: str) -> np.ndarray:
    """Aligned to 256 bytes, as device memory is."""
    memory = np.full(size + 256, value, dtype)
    first = -memory.ctypes.data % 256 // memory.itemsize
    return memory[first : first + size].view(HostArray)


@pytest.fixture
def host(monkeypatch):
    """Kernels on the CPU; what ``host.after`` is set to is done to their results."""
    as_strided = partial(np.lib.stride_tricks.as_strided, subok=True)
    numpy = SimpleNamespace(
        full=full,
        lib=SimpleNamespace(stride_tricks=SimpleNamespace(as_strided=as_strided)),
        random=SimpleNamespace(default_rng=Draw),
        ascontiguousarray=np.ascontiguousarray,
        zeros=np.zeros,
    )
    state = SimpleNamespace(after=lambda out: None)
    original = GammaFfmaPlan.launch

    def launched(plan, kernels, a, b, out, *rest):
        original(plan, kernels, a, b, out, *rest)
        state.after(out)

    monkeypatch.setattr(GammaFfmaPlan, "launch", launched)
    monkeypatch.setattr(
        guarded, "kernels_of", lambda plan, index: hosted.load(plan.source(), plan.shared())
    )
    monkeypatch.setattr(driver, "cupy", lambda: numpy)
    monkeypatch.setattr(driver, "device", lambda index: H100)
    monkeypatch.setattr(guarded, "CALLS", 2)
    return state


def test_right_results_pass_and_spoilt_ones_do_not(host) -> None:
    mold = guarded.Mold("gamma_ffma", "gamma:8:6:3", "fp32", 1)
    assert 0 < guarded.run(mold, 1) <= 1
    values = count(1)

    def write(offset: int, value: Callable[[], float]) -> Callable[[View], None]:
        return lambda out: setattr(
            ctypes.c_float.from_address(out.address + offset), "value", value()
        )

    for spoil, message in (
        (write(0, lambda: 1e6), "proven"),
        (write(0, lambda: math.nan), "proven"),
        (write(0, lambda: next(values)), "1 elements differ over 2 calls"),
        (write(-4, lambda: 0.0), "something beside the result was written"),
    ):
        host.after = spoil
        with pytest.raises(AssertionError, match=f"{message}(.|\n)*tests.gpu.guarded {mold} 1"):
            guarded.run(mold, 1)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_every_compiled_form_that_a_gpu_tests_has_problems(monkeypatch, family: Family) -> None:
    """A block shape that is asked for must be one that some problem is given."""
    monkeypatch.setattr(driver, "device", lambda index: H100)
    for precision in family.precisions:
        for algorithm in algorithms(family.name, precision):
            for number in range(MOLDS[family.name]):
                mold = guarded.Mold(family.name, algorithm, precision, number)
                plan, _, _ = mold.problem(0)
                assert plan.config == mold.shape[-1], mold


@pytest.mark.parametrize("number", range(PLANES, MOLDS["depthwise"]))
@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_planes_lie_anywhere(host, precision: str, number: int) -> None:
    """Axes in any order but columns, with gaps, of any address: two problems of each mold, by turns
    with types."""
    mold = guarded.Mold("depthwise", "direct", precision, number)
    assert mold.problem(1)[0].config.memory_order == "nchw"
    turn = ("fp32", "fp16", "bf16").index(precision) + number
    assert 0 < guarded.run(mold, 1 + turn % 2) <= 1
